"""Imports point one way, and ``import ikp`` loads nothing but ikp."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from tests.repo.tree import modules

pytestmark = pytest.mark.any_pins

EVERYWHERE = ("ikp.errors", "ikp.version", "ikp.progress", "ikp.terminal")
MAY_IMPORT = {
    "ikp": EVERYWHERE,
    "ikp.__main__": ("ikp.cli",),
    "ikp.core": ("ikp.core",),
    "ikp.targets": ("ikp.core", "ikp.targets"),
    "ikp.backends": ("ikp.core", "ikp.targets", "ikp.backends"),
    "ikp.verbs": ("ikp.core", "ikp.backends"),
    "ikp.auto": ("ikp.core", "ikp.backends", "ikp.targets", "ikp.verbs", "ikp.auto"),
    "ikp.exporters": ("ikp.core", "ikp.exporters"),
    "ikp.edit": ("ikp.core", "ikp.edit"),
    "ikp.analysis": ("ikp.core", "ikp.analysis"),
    "ikp.calibration": ("ikp.core", "ikp.calibration"),
    "ikp.inspection": ("ikp.core", "ikp.targets", "ikp.inspection"),
    "ikp.cli": (
        "ikp.core",
        "ikp.edit",
        "ikp.analysis",
        "ikp.calibration",
        "ikp.exporters",
        "ikp.inspection",
        "ikp.cli",
    ),
}
"""What a module of each part may import at its top. Nothing imports ``ikp`` itself there."""

AT_THE_TOP_ONLY_IN = {
    "click": "ikp.cli",
    "google": "ikp.exporters",
    "perfetto": "ikp.exporters",
    "triton": "ikp.backends.triton",
    "cutlass": "ikp.backends.cute",
    "pandas": None,
    "pyarrow": None,
    "rich": None,
    "stevedore": None,
    "torch": None,
}
"""Where a package that is heavy or optional may be imported at a module's top."""

USER_CODE = {"ikp.calibration.kernels", "ikp.cli.demo_kernel"}
"""Modules that show what a user writes, and so import what a user imports."""


def top_level_imports(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted names that are imported when the module is, those for types left out."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from imported(node)
            todo += ast.iter_child_nodes(node)


def imported(node: ast.AST) -> Iterator[str]:
    """Yield the dotted names that one statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def part_of(module: str) -> str:
    return next((part for part in MAY_IMPORT if part != "ikp" and within(module, (part,))), "ikp")


@cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text("utf-8")) for name, path in modules().items()}


def at_the_top() -> Iterator[tuple[str, str]]:
    """Yield each module that is no example of a user's, with each name that it imports."""
    for module in sorted(trees().keys() - USER_CODE):
        for name in top_level_imports(trees()[module]):
            yield module, name


def test_imports_point_one_way() -> None:
    wrong = [
        f"{module} imports {name}"
        for module, name in at_the_top()
        if within(name, ("ikp",)) and not within(name, MAY_IMPORT[part_of(module)] + EVERYWHERE)
    ]
    assert wrong == []


def test_heavy_packages_are_imported_where_they_are_used() -> None:
    wrong = [
        f"{name} at the top of {module}"
        for module, name in at_the_top()
        if (package := name.partition(".")[0]) in AT_THE_TOP_ONLY_IN
        and not within(module, (AT_THE_TOP_ONLY_IN[package] or "nowhere",))
    ]
    assert wrong == []


def test_core_finds_backends_and_exporters_by_entry_point_alone() -> None:
    wrong = [
        f"{module} imports {name}"
        for module, tree in trees().items()
        if part_of(module) == "ikp.core"
        for node in ast.walk(tree)
        for name in imported(node)
        if within(name, ("ikp.backends", "ikp.exporters"))
    ]
    assert wrong == []


def test_the_rule_sees_what_it_must_and_no_more() -> None:
    source = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import torch
else:
    import a
try:
    from b import c
except ImportError:
    import d.e
class K:
    import f
    def late(self):
        import triton
"""
    found = set(top_level_imports(ast.parse(source)))
    assert found == {"typing.TYPE_CHECKING", "a", "b.c", "d.e", "f"}


def loaded_by(code: str) -> set[str]:
    """Return the packages outside the standard library that a fresh process loads for ``code``."""
    script = (
        f"import sys; before = set(sys.modules); {code}; "
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print('LOADED', *(loaded - sys.stdlib_module_names))"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(ran.stdout.rpartition("LOADED")[2].split())


def test_import_ikp_loads_only_the_standard_library() -> None:
    assert loaded_by("import ikp") == {"ikp"}


def test_help_loads_only_the_command_line() -> None:
    run = "cli.main(['--help'], standalone_mode=False)"
    assert loaded_by(f"from ikp.cli.main import cli; {run}") == {"click", "ikp"}
