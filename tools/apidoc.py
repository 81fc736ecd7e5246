"""Writes docs/api.md: the public Python names from their docstrings, the commands from their help.

The package is read, not run, so the page depends on nothing but the source: ``ikp.__all__`` says
what is public, and the imports that ``ikp/__init__.py`` makes for type checkers say where it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import griffe

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "api.md"
WIDTH = 88
RESULTS = {
    "ikp.core.args": ("ArgColumn",),
    "ikp.core.objects": ("Range", "Instant"),
    "ikp.core.trace": ("Launch", "ClockFit", "Region", "Slots", "Events"),
    "ikp.analysis.stats": ("RegionStats", "Residence"),
    "ikp.analysis.evidence": ("Evidence",),
    "ikp.analysis.page.reporting": ("TracePage",),
    "ikp.analysis.diff.difference": ("KernelChange", "Row", "Change", "Limit"),
}
"""What users meet through a trace, but never construct."""
INSPECTED = {
    "ikp.inspection.report": (
        *("Report", "KernelReport", "CodeRange", "Copy", "InstructionGroup", "Discrepancy"),
    ),
    "ikp.sass.disassembly.opcodes": ("Work",),
    "ikp.sass.disassembly.listing": ("Instruction",),
    "ikp.inspection._source": ("Source",),
}
"""What ``ikp.inspect`` returns."""
EXPLAINED = {
    "ikp.analysis.explain.verdict": (
        *("Number", "Where", "Unknown", "Launched", "Lanes", "Doing"),
        *("Group", "RegionUse", "Branch", "Phases", "Step", "Hardware"),
    ),
}
"""What ``Trace.explain`` returns."""
PLUGINS = {
    "ikp.plugins": ("Backend", "Exporter", "Language", "Image", "TritonTarget"),
    "ikp.verbs.dsl": ("Dsl",),
}
HEADER = """\
# API reference

Made from the docstrings by `make docs`: edit those, not this page.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(reference(), encoding="utf-8")


def reference() -> str:
    """Return the whole page."""
    from ikp.cli.main import cli

    package = load()
    public = public_objects(package)
    errors = {name: item for name, item in public.items() if _is_error(name)}
    calls = {name: item for name, item in public.items() if name not in errors}
    parts = [
        HEADER,
        *section("Python", calls, prefix="ikp."),
        *section("Errors", errors, prefix="ikp."),
        *section("What a trace holds", objects_in(package, RESULTS)),
        *section("What an inspection holds", objects_in(package, INSPECTED)),
        *section("What a verdict holds", objects_in(package, EXPLAINED)),
        *section("For plugins", objects_in(package, PLUGINS)),
        "## Command line\n",
        *commands(cli),
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def load() -> griffe.Module:
    """Read the package."""
    package = griffe.load("ikp", search_paths=[ROOT], docstring_parser="google")
    if not isinstance(package, griffe.Module) or not package.exports:
        raise SystemExit("ikp/__init__.py has no __all__ that can be read: there is no public API.")
    return package


def public_objects(package: griffe.Module) -> dict[str, griffe.Object]:
    """Return what each name in ``ikp.__all__`` stands for, dunder names left out."""
    names = [str(name) for name in package.exports or ()]
    found = {name: package[name] for name in names if not name.startswith("__")}
    return {name: getattr(item, "final_target", item) for name, item in found.items()}


def objects_in(
    package: griffe.Module, names: Mapping[str, tuple[str, ...]]
) -> dict[str, griffe.Object]:
    """Return objects by name from the modules they are defined in."""
    root = f"{package.name}."
    return {
        name: package[f"{module.removeprefix(root)}.{name}"]
        for module, within in names.items()
        for name in within
    }


def section(title: str, objects: dict[str, griffe.Object], prefix: str = "") -> Iterator[str]:
    """Yield a part of the page, its entries in alphabetical order."""
    yield f"## {title}\n"
    for name in sorted(objects, key=lambda name: (name.lower(), name)):
        yield from entry(prefix + name, objects[name], level=3)


def entry(name: str, item: griffe.Object, level: int) -> Iterator[str]:
    """Yield heading, signature, docstring and public members of one object."""
    yield f"{'#' * level} `{name}`\n"
    if signature := _signature(item, name):
        yield f"```python\n{signature}\n```\n"
    yield from docstring(item)
    for member_name, member in _public_members(item):
        yield from entry(f"{name.rpartition('.')[2]}.{member_name}", member, level + 1)


def _is_error(name: str) -> bool:
    return name.endswith(("Error", "Warning"))


def _public_members(item: griffe.Object) -> Iterator[tuple[str, griffe.Object]]:
    for name in (item.exports or ()) if item.is_module else ():
        member: Any = item.members[str(name)]
        if member.is_module and name in member.members:  # a function named as its module is
            member = member.members[str(name)]
        yield str(name), getattr(member, "final_target", member)
    for name, inherited in item.all_members.items() if item.is_class else ():
        member = getattr(inherited, "final_target", inherited)
        if not name.startswith("_") and isinstance(member, griffe.Object) and member.docstring:
            yield name, member


def _signature(item: griffe.Object, name: str) -> str:
    short = name.removeprefix("ikp.")
    if isinstance(item, griffe.Class) and "dataclass" in item.labels:
        return _fields(item)
    if isinstance(item, griffe.Attribute):
        return f"{short}: {item.annotation}" if item.annotation else ""
    if not isinstance(item, (griffe.Function, griffe.Class)) or _is_error(name):
        return ""
    for parameter in list(item.parameters):
        if parameter.name.startswith("_"):  # what a DSL's compiler passes, not the user
            del item.parameters[parameter.name]
    return _wrap(item.signature(name=short).replace("AnyTrace", "Trace"))  # as users have it


def _fields(item: griffe.Class) -> str:
    """Return a dataclass's fields as its source has them, with their comments."""
    fields = [field for field in item.attributes.values() if "property" not in field.labels]
    lines = "".join(f"    {field.source.strip()}\n" for field in fields if field.is_public)
    return f"class {item.name}:\n{lines}".rstrip()


def _wrap(signature: str) -> str:
    """Put each parameter on a line of its own if all together are too long."""
    if len(signature) <= WIDTH:
        return signature
    depth, cuts = 0, [signature.index("(")]
    for at, char in enumerate(signature):
        depth += (char in "([{") - (char in ")]}")
        if (char, depth) in {(",", 1), (")", 0)}:
            cuts.append(at)
        if (char, depth) == (")", 0):
            break
    parameters = (signature[a + 1 : b].strip() for a, b in pairwise(cuts))
    lines = "".join(f"    {parameter},\n" for parameter in parameters)
    return f"{signature[: cuts[0] + 1]}\n{lines}{signature[cuts[-1] :]}"


def docstring(item: griffe.Object) -> Iterator[str]:
    """Yield a docstring's sections as Markdown."""
    for section in item.docstring.parsed if item.docstring else ():
        if section.kind is griffe.DocstringSectionKind.text:
            yield markdown(section.value)
        elif section.kind is griffe.DocstringSectionKind.examples:
            yield "**Example**\n"
            yield "\n".join(_example(part) for part in section.value)
        elif section.kind is griffe.DocstringSectionKind.admonition:
            text = section.value.description
            yield f"**{section.title}**\n"
            yield f"```python\n{text}\n```\n" if text.startswith(">>>") else markdown(text)
        else:
            yield f"**{section.kind.value.capitalize()}**\n"
            yield "\n".join(_row(row) for row in section.value) + "\n"


def _row(row: griffe.DocstringElement) -> str:
    name = getattr(row, "name", "") or row.annotation or ""
    text = markdown(" ".join(row.description.split())).strip()
    return f"- `{name}`: {text}" if name else f"- {text}"


def _example(part: tuple[griffe.DocstringSectionKind, str]) -> str:
    kind, text = part
    is_code = kind is griffe.DocstringSectionKind.examples
    return f"```python\n{text}\n```\n" if is_code else markdown(text)


def markdown(text: str) -> str:
    """Turn the few marks that docstrings use into Markdown's."""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?([^`]+)`", r"`\1`", text)
    return re.sub(r"::\n", ":\n", text.replace("``", "`")) + "\n"


def commands(group: click.Group) -> Iterator[str]:
    """Yield the help of the command itself and of each subcommand."""
    context = click.Context(group, info_name="ikp", terminal_width=WIDTH, **group.context_settings)
    yield from _help("ikp", group, context)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None:
            inner = click.Context(command, context, info_name=name, terminal_width=WIDTH)
            yield from _help(f"ikp {name}", command, inner)


def _help(title: str, command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"### `{title}`\n"
    yield f"```text\n{command.get_help(context).strip()}\n```\n"


if __name__ == "__main__":
    main()
