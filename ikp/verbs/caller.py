"""The user's source line that calls a verb, found by the stack; the loops and branches around that
line, and values in its f-strings.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import FrameType

_HERE = Path(__file__).parents[1]
OURS = tuple(str(_HERE / room) + os.sep for room in ("backends", "verbs"))
"""Prefixes of the paths of verbs and adapters."""


def calling() -> FrameType | None:
    """Return the innermost frame that is no verb's and no adapter's."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None and frame.f_code.co_filename.startswith(OURS):
        frame = frame.f_back
    return frame


def place() -> str:
    """Return the source line that called the running verb: ``file:line``."""
    frame = calling()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""


@cache
def _module(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:  # the file was changed meanwhile
        return None


@cache
def around(file: str, line: int) -> tuple[tuple[ast.stmt, int], ...]:
    """Return the statements around a line in its function, each with the part that has the line.

    The part is -1 where the line is the statement's own, such as a loop's head.
    """
    module = _module(file)
    return tuple(_path(module.body, line)) if module else ()


def _path(body: Sequence[ast.stmt], line: int) -> Iterator[tuple[ast.stmt, int]]:
    for statement in body:
        if not statement.lineno <= line <= (statement.end_lineno or line):
            continue
        parts = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        inner = [tuple(_path(part, line)) for part in parts]
        part = next((at for at, found in enumerate(inner) if found), -1)
        if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield statement, part
        yield from inner[part] if part >= 0 else ()


@cache
def formatted(file: str, line: int) -> tuple[ast.expr, ...]:
    """Return the expressions that f-strings format in the calls that begin on a line."""
    blocks = around(file, line)
    calls = ast.walk(blocks[-1][0]) if blocks else ()
    return tuple(
        node.value
        for call in calls
        if isinstance(call, ast.Call) and call.lineno == line
        for node in ast.walk(call)
        if isinstance(node, ast.FormattedValue)
    )
