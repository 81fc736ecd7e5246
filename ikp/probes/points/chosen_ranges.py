"""Probe regions of all lines and functions that a user chose, or messages on why there are none.

A message on lines or functions that have no code in a kernel names the lines or functions that
have.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath

from ikp.probes.points.chosen_lines import ChosenLines, LineChoice, Piece
from ikp.probes.points.lines_of import AboutLines
from ikp.probes.points.naming import is_library
from ikp.probes.points.waits import LoadWait
from ikp.sass.control_flow.flow import Flow
from ikp.sass.disassembly.listing import Code
from ikp.sass.disassembly.sources import syntax

_SHOWN = 4
"""How many lines a message names."""


@dataclass(frozen=True, slots=True)
class FunctionLines:
    """The lines of a function."""

    name: str
    file: str
    first: int
    last: int

    def within(self, path: str) -> bool:
        """Return whether the function is in a file."""
        return path == self.file


def files(code: Code) -> dict[str, Counter[int]]:
    """Return how many instructions each line of each file has."""
    found: dict[str, Counter[int]] = {}
    for instruction in code.instructions:
        for line in instruction.lines if not instruction.never_runs else ():
            found.setdefault(line.file, Counter())[line.number] += 1
    return found


def functions(code: Code, name: str) -> list[FunctionLines]:
    """Return the functions of a name in the files that a kernel's code comes from."""
    return [
        FunctionLines(name, file, node.lineno, node.end_lineno or node.lineno)
        for file in files(code)
        for node in _functions(file)
        if node.name == name
    ]


def no_function(code: Code, name: str) -> str:
    """Return a message on an unknown function, with the names of those that there are."""
    known = sorted(
        {
            node.name
            for file, numbers in files(code).items()
            if not is_library(file)
            for node in _functions(file)
            if any(node.lineno <= number <= (node.end_lineno or 0) for number in numbers)
        }
    )
    there = f"Its code is of {', '.join(known)}." if known else "Its source is not there."
    return f"no code of {code.name} comes from a function {name}. {there}"


def no_code(code: Code, path: str, first: int, last: int, matching: Iterable[str]) -> str:
    """Return a message on why lines of a file have no code in a kernel.

    Args:
        code: the kernel.
        path: the lines, as they were chosen: ``"matmul.py:88-96"``.
        first: the first line.
        last: the last one.
        matching: the kernel's files that they may be of.
    """
    if not code.has_lines:
        return (
            f"the machine code of {code.name} has no line numbers, so no code of {path} can be "
            "found: compile it with them (in Triton: TRITON_DISABLE_LINE_INFO=0)."
        )
    there = files(code)
    found = list(matching)
    if not found:
        own = {file: numbers for file, numbers in there.items() if not is_library(file)} or there
        shown = ", ".join(_span(file, numbers) for file, numbers in own.items())
        return f"no code of {code.name} comes from {path}: it comes from {shown}."
    span = f"{first}" if first == last else f"{first}-{last}"
    path = f"{PurePath(found[0]).name}:{span}"
    merged = [text for file in found if (text := _merged(file, first, last, there[file]))]
    if merged:
        return f"{path} has no instructions of its own in {code.name}: {merged[0]}."
    shown = ", ".join(_span(file, there[file]) for file in found)
    return f"{path} has no instructions in {code.name}, whose code comes from {shown}."


def _span(file: str, numbers: Counter[int]) -> str:
    return f"{PurePath(file).name}:{min(numbers)}-{max(numbers)}"


def _merged(file: str, first: int, last: int, numbers: Counter[int]) -> str:
    """Return which lines use the variables that the chosen ones set; "" where none is found."""
    around = _around(file, first)
    inside = [
        node
        for node in (ast.walk(around) if around else ())
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        if first <= node.lineno <= last
    ]
    made = {node.id for node in inside}
    uses = {
        node.lineno
        for node in (ast.walk(around) if around else ())
        if isinstance(node, ast.Name) and node.id in made and isinstance(node.ctx, ast.Load)
        if not first <= node.lineno <= last
    }
    users = sorted(number for number in uses if numbers[number])
    if not users:
        return ""
    shown = ", ".join(f"{n} ({numbers[n]} instructions)" for n in users[:_SHOWN])
    more = f" and {len(users) - _SHOWN} more" if len(users) > _SHOWN else ""
    return (
        f"what it computes is part of the code of the lines that use {', '.join(sorted(made))}: "
        f"{shown}{more}"
    )


def _around(file: str, number: int) -> ast.FunctionDef | None:
    inner = [n for n in _functions(file) if n.lineno <= number <= (n.end_lineno or 0)]
    return max(inner, key=lambda node: node.lineno, default=None)


@lru_cache(maxsize=64)
def _functions(file: str) -> Sequence[ast.FunctionDef]:
    nodes = ast.walk(tree) if (tree := syntax(file)) else ()
    return [node for node in nodes if isinstance(node, ast.FunctionDef)]


@dataclass(frozen=True, slots=True)
class Choice:
    """One range with a message on what it holds; or none, with the reason."""

    piece: Piece | None
    message: str


def choices(
    flow: Flow,
    origins: AboutLines,
    waits: Sequence[LoadWait],
    lines: Sequence[ChosenLines],
    names: Sequence[str],
) -> Iterator[Choice]:
    """Yield the ranges of chosen lines, then those of functions.

    Args:
        flow: the kernel.
        origins: its source lines.
        waits: its waits for loads.
        lines: the chosen lines.
        names: the names of chosen functions.
    """
    code = flow.code
    for span in lines:
        matching = [file for file in files(code) if span.within(file)]
        why = no_code(code, str(span), span.first, span.last, matching)
        yield from _of(LineChoice(flow, origins, span, waits), why)
    for name in names:
        bodies = functions(code, name)
        made = [LineChoice(flow, origins, body, waits, f"{name}()") for body in bodies]
        with_code = [each for each in made if each.own]
        for each in with_code:
            yield from _of(each, "")
        if not with_code:
            yield Choice(None, no_function(code, name))


def _of(chosen: LineChoice, why: str) -> Iterator[Choice]:
    if not chosen.own:
        yield Choice(None, why)
    elif not chosen.pieces:
        yield Choice(None, f"{chosen.where} has no region that is entered and left at one point.")
    for piece in chosen.pieces if chosen.own else ():
        yield Choice(piece, chosen.message(piece))
