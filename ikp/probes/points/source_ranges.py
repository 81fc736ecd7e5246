"""Ranges that a kernel's Python source names, for ``ikp`` or NVIDIA's IKET, read as lines.

Compiled without a buffer, or not under IKET's own runner, they leave nothing in the kernel. But the
source still says where each begins and ends: between two statements of one block.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from ikp.sass.disassembly.sources import syntax

_IKET: Final = "cutlass.cute.experimental.iket"
_AROUND: Final = {"ikp.range": 0}
"""The functions of ``with`` statements -> the position of the argument with the name."""
_OPENS: Final = {"ikp.start": 1, f"{_IKET}.range_push": 0}
_CLOSES: Final = {"ikp.end", f"{_IKET}.range_pop"}
"""The functions that close the range opened last."""
_TOKENS: Final = {"ikp.start_async": 1, f"{_IKET}.range_start": 0}
_TOKENS_END: Final = {"ikp.end_async": 1, f"{_IKET}.range_end": 0}
"""The functions that close the range of a token -> the position of the token's argument."""
_NAMED: Final = ("region", "event_name")
"""The keywords of the argument with the name."""


class NamedRange(NamedTuple):
    """A range, and the lines between its start and its end."""

    name: str
    file: str
    first: int
    last: int
    function: str
    around: range  # the lines of that function

    def within(self, path: str) -> bool:
        """Return whether the range is in a file."""
        return path == self.file


class Unpaired(NamedTuple):
    """A range whose start and end are not in one block of statements."""

    name: str
    file: str
    line: int
    function: str
    around: range


@lru_cache(maxsize=64)
def written(file: str) -> tuple[NamedRange | Unpaired, ...]:
    """Return the ranges that a file of Python names; none where it can't be read."""
    if (tree := syntax(file)) is None:
        return ()
    names = _imported(tree)
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]
    found = [
        made
        for each in functions
        if names
        for made in _StatementReader(file, each, names).block(each.body)
    ]
    return tuple(sorted(found, key=lambda each: (each[2], each.name)))


def _imported(tree: ast.Module) -> dict[str, str]:
    """Return local names -> the full names that they import from ``ikp`` or IKET."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        within = _prefix(node)
        if within is not None and isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {each.asname or each.name: f"{within}{each.name}" for each in node.names}
    return {name: of for name, of in found.items() if of.startswith(("ikp", _IKET))}


def _prefix(node: ast.AST) -> str | None:
    """Return what an import takes names from, with a dot; None of what is no absolute import."""
    if isinstance(node, ast.ImportFrom):
        return f"{node.module}." if node.module and not node.level else None
    return "" if isinstance(node, ast.Import) else None


@dataclass
class _StatementReader:
    """Reads the statements of a function; functions in it have readers of their own."""

    file: str
    function: ast.FunctionDef
    names: dict[str, str]

    def block(self, body: list[ast.stmt]) -> Iterator[NamedRange | Unpaired]:
        """Yield the ranges of consecutive statements, and of the statements nested in them."""
        last: list[tuple[str, int]] = []
        tokens: dict[str, tuple[str, int]] = {}
        for statement in body:
            if isinstance(statement, ast.FunctionDef):
                continue
            yield from self._around(statement)
            if call := _own_call(statement):
                of, end = self._of(call), statement.end_lineno or statement.lineno
                if of in _OPENS:
                    last.append((_name(call, _OPENS[of]), end))
                elif of in _TOKENS and (target := _target(statement)):
                    tokens[target] = (_name(call, _TOKENS[of]), end)
                elif of in _CLOSES and last:
                    yield from self._made(*last.pop(), statement.lineno)
                elif of in _TOKENS_END and (key := _token(call, _TOKENS_END[of])) in tokens:
                    yield from self._made(*tokens.pop(key), statement.lineno)
            for inner in _blocks(statement):
                yield from self.block(inner)
        for name, line in (*last, *tokens.values()):
            yield Unpaired(name, self.file, line, self.function.name, self._lines)

    @property
    def _lines(self) -> range:
        return range(self.function.lineno, (self.function.end_lineno or 0) + 1)

    def _around(self, statement: ast.stmt) -> Iterator[NamedRange]:
        if isinstance(statement, ast.With):
            for item in statement.items:
                call = item.context_expr
                if isinstance(call, ast.Call) and (of := self._of(call)) in _AROUND:
                    first, last = statement.body[0].lineno, statement.end_lineno or statement.lineno
                    yield self._range(_name(call, _AROUND[of]), first, last)

    def _made(self, name: str, start: int, end: int) -> Iterator[NamedRange]:
        if start + 1 <= end - 1:
            yield self._range(name, start + 1, end - 1)

    def _range(self, name: str, first: int, last: int) -> NamedRange:
        return NamedRange(name, self.file, first, last, self.function.name, self._lines)

    def _of(self, call: ast.Call) -> str:
        """Return the full name of a called function: ``"ikp.range"``; "" for another expression."""
        parts: list[str] = []
        node = call.func
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self.names.get(node.id, node.id), *reversed(parts)])


def _own_call(statement: ast.stmt) -> ast.Call | None:
    """Return the call that a statement is, or whose value it keeps."""
    if not isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign):
        return None
    return statement.value if isinstance(statement.value, ast.Call) else None


def _name(call: ast.Call, at: int) -> str:
    """Return a range's name; the argument's source text, where that is no constant."""
    given = _given(call, at, _NAMED)
    if isinstance(given, ast.Constant):
        return str(given.value)
    return ast.unparse(given) if given else "range"


def _token(call: ast.Call, at: int) -> str:
    """Return the variable with the token of the range to end, as source text."""
    given = _given(call, at, ("token",))
    return ast.unparse(given) if given else ""


def _given(call: ast.Call, at: int, names: Sequence[str]) -> ast.expr | None:
    """Return an argument, by its position or by one of its keywords."""
    named = (each.value for each in call.keywords if each.arg in names)
    return call.args[at] if len(call.args) > at else next(named, None)


def _target(statement: ast.stmt) -> str:
    return ast.unparse(statement.targets[0]) if isinstance(statement, ast.Assign) else ""


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for part in ("body", "orelse", "finalbody"):
        if inner := getattr(statement, part, None):
            yield inner
