"""The run-time loops and branches around a verb in an interpreted kernel, from the kernel's source.

In Python, a range may begin in one branch and end in another. A name may be made of a number known
at run time. A compiled kernel can't do that. So the blocks around a verb are looked up in the
source: the loops and branches that a compiled kernel decides at run time. They are those of the
kernel, and of the helpers that it called down to the verb.

A branch is decided at run time where its test has a tensor in it, or a call of Triton's language.
Others are decided when the kernel is compiled. A verb whose source can't be found is not refused.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType, ModuleType

import triton
import triton.language as tl

from ikp.backends.triton import foreign
from ikp.verbs.caller import OURS, around, formatted

Level = tuple[tuple[str, int, int], ...]
"""Run-time blocks around a statement, outermost first: file, line, and which part of the block."""

_LAUNCHING = foreign.launching()
_TRITON = str(Path(triton.__file__).parent)
_LOOPS = (ast.For, ast.While)


@dataclass(frozen=True, slots=True)
class Standing:
    """A verb's position. It holds no frame: a kernel's variables are dropped when it returns."""

    level: Level = ()
    place: str = ""  # file:line
    calls: tuple[tuple[str, int], ...] = ()  # that of the verb, and of the functions around it
    returns: bool = field(default=False, compare=False)  # the ``with`` around it has a ``return``
    formats: bool = field(default=False, compare=False)  # its f-string has run-time values

    def again(self, before: Standing) -> bool:
        """Return whether this is the verb at ``before`` again, in a later iteration of a loop."""
        return self == before and _loops(self.level) and not _copied()


def standing() -> Standing | None:
    """Return the position of the running verb; None where no kernel runs in this thread."""
    frames = _frames()
    if not frames:
        return None
    level: Level = ()
    for frame in frames:
        if not frame.f_code.co_filename.startswith(_TRITON):
            level = (*_blocks(frame), *level)
    calls = tuple((frame.f_code.co_filename, frame.f_lineno) for frame in frames)
    formats = any(_varies(value, frames[0]) for value in formatted(*calls[0]))
    return Standing(level, "{}:{}".format(*calls[0]), calls, _with_return(*calls[0]), formats)


def running() -> bool:
    """Return whether a kernel runs now in this thread, or returns: it has not raised."""
    return bool(_frames())


def _loops(at: Level) -> bool:
    """Return whether a loop is among the blocks of a level."""
    heads = (around(file, line) for file, line, _ in at)
    return any(isinstance(blocks[-1][0], _LOOPS) for blocks in heads if blocks)


def _copied() -> bool:
    """Return whether the compiler copies the running verb, by unrolling a loop around it."""
    blocks = (
        (block, frame)
        for frame in _frames()
        if not frame.f_code.co_filename.startswith(_TRITON)
        for block, part in around(frame.f_code.co_filename, frame.f_lineno)
        if part >= 0
    )
    return any(isinstance(block, ast.For) and not _at_run_time(block, at) for block, at in blocks)


def _frames() -> list[FrameType]:
    """Return the frames from the verb's up to the launch; none outside of a launch."""
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(OURS):
            frames.append(frame)
            if isinstance(frame.f_locals.get("self"), _LAUNCHING):
                return frames
        frame = frame.f_back
    return []


def _blocks(frame: FrameType) -> Iterator[tuple[str, int, int]]:
    file = frame.f_code.co_filename
    for block, part in around(file, frame.f_lineno):
        if part >= 0 and _at_run_time(block, frame):
            yield file, block.lineno, part


def _at_run_time(block: ast.stmt, frame: FrameType) -> bool:
    if isinstance(block, ast.For):
        called = block.iter.func if isinstance(block.iter, ast.Call) else None
        return not (isinstance(called, ast.Attribute) and called.attr == "static_range")
    if isinstance(block, ast.If):
        return _varies(block.test, frame)
    return isinstance(block, ast.While)


def _varies(expression: ast.expr, frame: FrameType) -> bool:
    """Return whether a compiled kernel learns the value of an expression only at run time."""
    return any(
        _is_varying_name(node, frame)
        if isinstance(node, ast.Name)
        else isinstance(node, ast.Call) and _is_of_triton(node.func, frame)
        for node in ast.walk(expression)
    )


def _is_varying_name(name: ast.Name, frame: FrameType) -> bool:
    if isinstance(_value(name.id, frame), tl.tensor):
        return True
    counted = (
        target.id
        for block, part in around(frame.f_code.co_filename, frame.f_lineno)
        if part >= 0 and isinstance(block, ast.For) and _at_run_time(block, frame)
        for target in ast.walk(block.target)
        if isinstance(target, ast.Name)
    )
    return name.id in counted


def _is_of_triton(function: ast.expr, frame: FrameType) -> bool:
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return False
    module = _value(function.value.id, frame)
    named = isinstance(module, ModuleType) and module.__name__.startswith("triton.")
    return named and function.attr != "constexpr"


def _value(name: str, frame: FrameType) -> object:
    return frame.f_locals.get(name, frame.f_globals.get(name))


@cache
def _with_return(file: str, line: int) -> bool:
    entered = [block for block, part in around(file, line) if isinstance(block, ast.With)]
    return bool(entered) and any(isinstance(node, ast.Return) for node in ast.walk(entered[-1]))
