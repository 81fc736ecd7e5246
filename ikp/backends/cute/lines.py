"""Source lines of CuTe kernels, with their call stacks, written as MLIR locations of inlined calls.

CuTe writes lines where ``CUTE_DSL_LINEINFO`` is set: for each operation, the innermost line that is
not of CuTe itself. An operation in a helper has the helper's line, from every caller. But a kernel
is traced by running its Python, so the stack has the calls. They are written beside that line as
MLIR writes inlined functions. The compiled machine code is the same.

A call's *column* is its number among the calls of this process. The assembler identifies the call
that code is inlined at by file, line and column. Without, it would take two call paths for one.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import PurePath
from types import FrameType, ModuleType
from typing import Final, NamedTuple, TypeVar

from ikp.after_import import stepping_into
from ikp.backends.cute import _foreign as foreign
from ikp.probing import Untyped
from ikp.signals import pass_on

LINES: Final = "CUTE_DSL_LINEINFO"
_DEEPEST: Final = 16
"""The most calls that are written for an operation, the innermost ones."""
_FIRST_COLUMN: Final = 1 << 15
"""A column beyond the length of any line that is written by hand."""
_COLUMNS: Final = 1 << 15

_Key = TypeVar("_Key")
_numbering = threading.Lock()
_numbers: dict[tuple[Call, ...], int] = {}
_functions: dict[tuple[str, str], int] = {}


class Call(NamedTuple):
    """A call: its file and line, and the function that contains it."""

    file: str
    line: int
    function: str


@contextmanager
def with_lines() -> Iterator[None]:
    """Have kernels compiled with lines and calls from now on, until the context is left.

    CuTe may not be imported yet. The environment of a program that never imports it stays as it is.
    """
    with stepping_into(
        {
            foreign.OPERATIONS: _place,
            foreign.CONTROL: lambda module: foreign.place_control(module, _here),
        }
    ):
        yield


def _place(operations: ModuleType) -> Callable[[], None]:
    """Have operations placed, and lines written; return what undoes both.

    CuTe reads the environment later in its import. A value that the user has set there holds.
    """
    value = os.environ.get(LINES)
    os.environ.setdefault(LINES, "1")
    restore = foreign.place(operations, _placed)

    def undo() -> None:
        restore()
        if value is None:
            os.environ.pop(LINES, None)

    return undo


def _placed(location: Untyped) -> Untyped:
    """Return the location of the operation that is traced now, with the calls that it is in.

    A location that has calls was made here before: an operation passes it to those it is made of.
    """
    if location is None or not foreign.CUTE.has(foreign.LINES):
        return location
    try:
        if foreign.has_calls(location):
            return location
        calls = _calls(sys._getframe(2))[1:]  # noqa: SLF001 - a stack of frames costs least
        return foreign.called(location, list(_locations(calls))) if calls else location
    except Exception as error:  # noqa: BLE001 - no error here may end the program
        pass_on(error)
        _lose(error)
        return location


def _here() -> AbstractContextManager[object]:
    """Return a context manager that enters the location of the statement that is traced now.

    CuTe gives loops, branches and some operations in them the line of the decorator.
    """
    try:
        calls = _calls(sys._getframe(2))  # noqa: SLF001
        if not calls:
            return nullcontext()
        here, *callers = _locations(calls)
        return foreign.called(here, callers) if callers else here  # type: ignore[no-any-return]
    except Exception as error:  # noqa: BLE001
        pass_on(error)
        _lose(error)
        return nullcontext()


def _lose(error: Exception) -> None:
    foreign.CUTE.lose(foreign.LINES, f"refuses the location of a call ({error})")


def _calls(frame: FrameType | None) -> tuple[Call, ...]:
    """Return the program's current line and the calls around it; none outside of a kernel."""
    found: list[FrameType] = []
    while frame is not None:
        if not foreign.is_own(frame):
            found.append(frame)
        elif found and foreign.calls_kernel(frame):
            return tuple(_merged(found))[:_DEEPEST]
        frame = frame.f_back
    return ()


def _merged(frames: list[FrameType]) -> Iterator[Call]:
    """Yield one call for each function, the innermost first.

    CuTe makes functions of the bodies of loops and branches, and calls each at its own line.
    """
    inner = frames[0]
    for at, frame in enumerate(frames):
        outer = frames[at + 1] if at + 1 < len(frames) else None
        if outer is None or not _is_body(frame, outer):
            yield Call(inner.f_code.co_filename, inner.f_lineno, frame.f_code.co_name)
            inner = outer or frame


def _is_body(frame: FrameType, outer: FrameType) -> bool:
    """Return whether a function is a part of another one, called on the line where it begins."""
    inside = frame.f_code.co_qualname.startswith(f"{outer.f_code.co_qualname}.<locals>.")
    return inside and frame.f_code.co_firstlineno == outer.f_lineno


def _locations(calls: tuple[Call, ...]) -> Iterator[Untyped]:
    """Yield the location of each call; the last one is in the kernel, whose scope MLIR knows."""
    for at, call in enumerate(calls):
        inner = calls[at:]
        number = _number(_numbers, inner)
        column = _FIRST_COLUMN + number if number < _COLUMNS else 0
        yield foreign.line(call.file, call.line, column, _scope(call) if inner[1:] else "")


def _number(numbers: dict[_Key, int], key: _Key) -> int:
    """Return a key's own number; threads may trace at once."""
    if (number := numbers.get(key)) is None:
        with _numbering:
            number = numbers.setdefault(key, len(numbers))
    return number


def _scope(call: Call) -> str:
    """Return the text of MLIR's attribute of the function that contains a call."""
    number = _number(_functions, (call.file, call.function))
    path = PurePath(call.file)
    file = f"<{_quoted(path.name)} in {_quoted(str(path.parent))}>"
    unit = (
        f'<id = distinct[0]<>, sourceLanguage = DW_LANG_C, file = {file}, producer = "CuTe DSL", '
        "isOptimized = true, emissionKind = DebugDirectivesOnly>"
    )
    return (
        f"#llvm.di_subprogram<id = distinct[{number + 1}]<>, compileUnit = {unit}, "
        f"scope = #llvm.di_file{file}, name = {_quoted(call.function)}, file = {file}, "
        'subprogramFlags = "Definition|Optimized", type = <callingConvention = DW_CC_normal>>'
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
