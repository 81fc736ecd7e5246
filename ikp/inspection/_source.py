"""``Source``: the lines of source code that a range encloses, and the calls in them."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ikp.sass.disassembly.listing import Instruction, Line
from ikp.sass.disassembly.sources import syntax

_TOKEN = re.compile(r"(^|\.)(start|end)_async$")


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """Lines ``first`` to ``last`` of a file, and the calls in them where the file is there."""

    file: str
    first: int
    last: int
    calls: frozenset[str] = frozenset()  # dotted: "tl.load"

    def __str__(self) -> str:
        where = f"{Path(self.file).name}:{self.first}"
        return where if self.first == self.last else f"{where}-{self.last}"

    @property
    def has_no_body(self) -> bool:
        """Whether the lines are a ``with`` statement around ``pass``."""
        return any(
            isinstance(node, ast.With)
            and (node.lineno, node.end_lineno) == (self.first, self.last)
            and all(isinstance(each, ast.Pass) for each in node.body)
            for node in _nodes(self.file)
        )

    def written(self, calls: re.Pattern[str]) -> int:
        """Return how often the lines call something of some dotted names."""
        return sum(
            self.first <= node.lineno <= self.last and bool(calls.search(_dotted(node.func)))
            for node in _nodes(self.file)
            if isinstance(node, ast.Call)
        )

    def holds(self, instruction: Instruction) -> bool:
        """Whether an instruction comes from one of the lines between those of the verbs.

        These have none of the range's work, and what ends a kernel without ``finish`` bears the
        line of its last range.
        """
        first, last = _between(self.file, self.first, self.last)
        return any(
            line.file == self.file and first <= line.number <= last
            for line in instruction.lines[:1]
        )

    @property
    def is_of_token(self) -> bool:
        """Whether tokens are opened or closed here: work between may be of other iterations."""
        return any(_TOKEN.search(call) for call in self.calls)


def between(start: Instruction, end: Instruction) -> Source | None:
    """Return the lines of a range, from where its clock reads are; None if that isn't known.

    A ``with`` statement's reads are both at its first line: its body is looked up in the file. A
    range that is opened in one function and closed in another has the line where it is opened.
    """
    if not start.lines or not end.lines:
        return None
    first, last = start.lines[0], end.lines[0]
    if last.number < first.number or _function(first) != _function(last):
        last = first
    inside = _body(first.file, first.number) if first.number == last.number else None
    numbers = inside or (first.number, last.number)
    return Source(first.file, *numbers, calls=_calls(first.file, *numbers))


def lines_of(instructions: list[Instruction]) -> str:
    """Return ``"gemm.py:40-41"`` for the lines that instructions come from; "" if not known."""
    numbers: dict[str, list[int]] = {}
    for instruction in instructions:
        for line in instruction.lines[:1]:
            numbers.setdefault(line.file, []).append(line.number)
    return ", ".join(str(Source(file, min(ns), max(ns))) for file, ns in numbers.items())


def calls_none(line: Line, calls: re.Pattern[str]) -> bool:
    """Whether a line of a file that is there is in no call of some dotted names."""
    nodes = _nodes(line.file)
    return bool(nodes) and not any(
        isinstance(node, ast.Call)
        and node.lineno <= line.number <= (node.end_lineno or node.lineno)
        and calls.search(_dotted(node.func))
        for node in nodes
    )


@lru_cache(maxsize=64)
def _nodes(file: str) -> tuple[ast.FunctionDef | ast.With | ast.Call, ...]:
    """Return what is asked of a file's syntax, outer nodes first; a tree is walked once."""
    nodes = ast.walk(tree) if (tree := syntax(file)) else ()
    kinds = (ast.FunctionDef, ast.With, ast.Call)
    return tuple(node for node in nodes if isinstance(node, kinds))


def _function(line: Line) -> tuple[str, int]:
    """Return the file of a line, and where the innermost function around it begins; 0 for none."""
    starts = [
        node.lineno
        for node in _nodes(line.file)
        if isinstance(node, ast.FunctionDef)
        and node.lineno <= line.number <= (node.end_lineno or node.lineno)
    ]
    return line.file, max(starts, default=0)


def _body(file: str, line: int) -> tuple[int, int] | None:
    """Return the lines of the ``with`` statement whose range is opened at ``line``."""
    for node in _nodes(file):
        if isinstance(node, ast.With) and any(
            item.context_expr.lineno <= line <= (item.context_expr.end_lineno or 0)
            for item in node.items
        ):
            return node.lineno, node.end_lineno or node.lineno
    return None


@lru_cache(maxsize=1024)
def _between(file: str, first: int, last: int) -> tuple[int, int]:
    """Return the lines of a range without those of its verbs, as far as the file is there."""
    if not _nodes(file):
        return first, last
    for node in _nodes(file):
        if isinstance(node, ast.With) and (node.lineno, node.end_lineno) == (first, last):
            return node.body[0].lineno, last
    return first + 1, last - 1


@lru_cache(maxsize=1024)
def _calls(file: str, first: int, last: int) -> frozenset[str]:
    inside = (
        node.func
        for node in _nodes(file)
        if isinstance(node, ast.Call) and first <= node.lineno <= last
    )
    return frozenset(name for function in inside if (name := _dotted(function)))


def _dotted(function: ast.expr) -> str:
    """Return ``"tl.load"`` of what is called; "" of what is nested deeper than Python prints."""
    try:
        return ast.unparse(function)
    except RecursionError:
        return ""
