"""Names of probe regions: operation, variable, and source lines with their calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from ikp.sass.disassembly.listing import Line
from ikp.sass.disassembly.sources import text_lines

_ASSIGNED = re.compile(r"^\s*(?:[\w:<>]+[\s*&]+)*([A-Za-z_]\w*(?:\s*,\s*\w+)*)\s*(?::[^=]*)?=(?!=)")
_LOADS = re.compile(r"\bload|\bldg|\bgather|\*|\[")
_DEFINED = re.compile(r"^(\s*)def\s+(\w+)")
_LIBRARY = re.compile(
    r"/(?:triton|cutlass)/(?:.*/)?(?:language|standard|base_dsl|cute)[/.]|"
    r"/tl_templates/|/tilelang/3rdparty/|/targets/[^/]+/include/"
)
_GENERATED = re.compile(r"^\s*# src\[([^\]:]+):(\d+)(?:-\d+)?\]:")
"""The comment that Helion writes above generated code: the line of its own source."""
_WAITS = re.compile(
    r"([A-Za-z_]\w*(?:\.\w+|\[[^][]*\])*)\.((?:\w+_)?(?:wait|acquire|tail)(?:_\w+)?)\("
)
"""A call by which a pipeline or a barrier is waited for: ``ring.consumer_wait(``."""
_MODULES = frozenset(("mbarrier", "arch", "cute.arch", "hopper.mbarrier", "pipeline", "cute"))
"""What is no barrier before such a call."""
_LONG = 60
_FAR = 8
"""The most lines that a statement may begin above the line of an instruction."""
_NO_BEGIN = "#)]}"
"""Letters that begin a comment, or the last line of a statement: none of a body's own indent."""
_NAMED = 8
"""How many names ``some`` lists."""


def title(what: str, chains: Iterable[tuple[Line, ...]], note: str = "") -> str:
    """Return ``"cp.async x8 @matmul.py:93"``: an operation, and its instructions' source lines.

    Args:
        what: the operation.
        chains: the instructions' lines, the innermost function first.
        note: added where the lines are not the instructions' own.
    """
    known = [chain for chain in chains if chain]
    if not known:
        return what
    chain = known[0]
    lines = [original(_shown(each)) for each in known]
    name = _base(lines[0].file)
    numbers = sorted({line.number for line in lines if line.file == lines[0].file})
    where = "+".join(map(str, numbers[:3])) + ("+..." if len(numbers) > 3 else "")
    return f"{what} @{name}:{where}{_calls(chain)}{note}"


def variable(chains: Iterable[tuple[Line, ...]]) -> str:
    """Return the name that loads are assigned to, ``"b_g"``; several by ``" and "``; "" for none.

    The name is read from the source: "" where that is not there, or is no assignment.
    """
    names: list[str] = []
    for chain in chains:
        name = _target(_shown(chain)) if chain else ""
        if not name:
            return ""
        if name not in names:
            names.append(name)
    return " and ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} more"


def waited(chains: Iterable[tuple[Line, ...]]) -> str:
    """Return the object that waits for a barrier are made by, ``"ring.consumer_wait"``.

    "" where the source is not there, or has several calls or none.
    """
    lines = dict.fromkeys(_shown(chain) for chain in chains if chain)
    found = dict.fromkeys(call for line in lines for call in _waits_at(line))
    return next(iter(found)) if len(found) == 1 else ""


def _waits_at(line: Line) -> list[str]:
    text = text_lines(line.file)
    if not 0 < line.number <= len(text):
        return []
    found = [match for match in _WAITS.finditer(text[line.number - 1]) if match[1] not in _MODULES]
    return [f"{match[1]}.{match[2]}" for match in found if len(match[0]) <= _LONG]


def some(names: Iterable[str]) -> str:
    """Return the first of some names, each once, and how many more there are."""
    found = list(dict.fromkeys(names))
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"{', '.join(found[:_NAMED])}{more}"


@lru_cache(maxsize=1024)
def _base(file: str) -> str:
    return Path(file).name


@lru_cache(maxsize=1024)  # of few files, asked for each range
def is_library(file: str) -> bool:
    """Whether a file is of the language's own library."""
    return bool(_LIBRARY.search(file))


@lru_cache(maxsize=4096)
def original(line: Line) -> Line:
    """Return the line that generated code was made from, by a comment above; else the line."""
    text = text_lines(line.file)
    if not _is_generated(line.file) or not 0 < line.number <= len(text):
        return line
    found = None
    for above in text[line.number - 1 :: -1]:
        if match := _GENERATED.match(above):
            found = match  # of several, the first: there the statement begins
        elif found or _DEFINED.match(above):
            break
    return Line(found[1], int(found[2])) if found else line


@lru_cache(maxsize=64)
def _is_generated(file: str) -> bool:
    return any(map(_GENERATED.match, text_lines(file)))


def _shown(chain: Sequence[Line]) -> Line:
    """Return the innermost line that is not the language's own library."""
    return next((line for line in chain if not is_library(line.file)), chain[0])


def _calls(chain: Sequence[Line]) -> str:
    """Return ``" softened() < attention():63"`` for code of a helper: its callers, with lines."""
    own = [line for line in chain if not is_library(line.file)]
    if len(own) < 2:
        return ""
    functions = [_function(line) for line in own]
    calls = [f"{name}:{line.number}" for name, line in zip(functions, own, strict=True)]
    return " " + " < ".join([functions[0], *calls[1:]]) if all(functions) else ""


def called(lines: tuple[Line, ...], inside: Iterable[tuple[Line, ...]]) -> tuple[Line, ...]:
    """Return a loop's lines with those of the calls that all code inside is in.

    Of a loop in an inlined helper, compilers keep the calls with its body, and not with its jump.
    Without them two copies of one loop have one name.

    Args:
        lines: the line of a loop's jump, alone.
        inside: the lines of instructions of its body, the innermost function first.
    """
    function = _function(lines[0]) if len(lines) == 1 else ""
    if not function:
        return lines
    found = {
        chain[place + 1 :]
        for chain in set(inside)
        for place, line in enumerate(chain)
        if line.file == lines[0].file and _function(line) == function
    }
    callers = found - {()}
    return (*lines, *callers.pop()) if len(callers) == 1 else lines


def _target(line: Line) -> str:
    """Return the variable that the statement at a line assigns a load to; it may begin above."""
    text = text_lines(line.file)
    if line.number > len(text):
        return ""
    for first in range(line.number - 1, max(line.number - 1 - _FAR, -1), -1):
        found = _ASSIGNED.match(text[first])
        before = " ".join(text[first : line.number - 1])
        if found and (first == line.number - 1 or before.count("(") > before.count(")")):
            value = " ".join(text[first : line.number])[found.end() :]
            if _LOADS.search(value):
                return found[1]
    return ""


@lru_cache(maxsize=4096)
def _function(line: Line) -> str:
    """Return ``"name()"`` of the function around a line of Python."""
    text = text_lines(line.file)
    if not 0 < line.number <= len(text):
        return ""
    indent = _indent(text[line.number - 1])
    for above in text[line.number - 1 :: -1]:
        found = _DEFINED.match(above)
        if found and len(found[1]) < max(indent, 1):
            return f"{found[2]}()"
        if above.strip() and above.lstrip()[0] not in _NO_BEGIN:
            indent = min(indent, _indent(above))
    return ""


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
