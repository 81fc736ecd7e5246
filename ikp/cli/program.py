"""Runs a Python program inside this process as Python itself would."""

from __future__ import annotations

import builtins
import io
import os
import runpy
import sys
import traceback
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended."""

    code: int
    error: BaseException | None = None


@contextmanager
def as_program(target: str, args: tuple[str, ...], as_module: bool) -> Iterator[None]:
    """Give the program the arguments and the import path that Python would give it."""
    argv, path = sys.argv[:], sys.path[:]
    sys.argv = [target, *args]
    sys.path[0] = os.getcwd() if as_module else str(Path(target).resolve().parent)  # noqa: PTH109
    try:
        yield
    finally:
        sys.argv[:], sys.path[:] = argv, path


def run(target: str, as_module: bool) -> Outcome:
    """Run the program to its end, and show its traceback as Python would."""
    try:
        if as_module:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        elif Path(target).is_file() and not zipfile.is_zipfile(target):
            _script(Path(target).absolute())
        else:
            runpy.run_path(target, run_name="__main__")
    except SystemExit as end:
        return Outcome(_code(end))
    except BaseException as error:  # noqa: BLE001 - whatever ends a program
        error.__traceback__ = _of_program(error.__traceback__)
        _show(error)
        return Outcome(130 if isinstance(error, KeyboardInterrupt) else 1, error)
    return Outcome(0)


def _script(path: Path) -> None:
    """Run a file as Python's main module, which stays that to the end of the process."""
    main = ModuleType("__main__")
    main.__dict__.update(__file__=str(path), __builtins__=builtins, __spec__=None, __cached__=None)
    sys.modules["__main__"] = main
    with io.open_code(str(path)) as file:
        code = compile(file.read(), str(path), "exec")
    exec(code, main.__dict__)  # noqa: S102 - the program that the user asked to run


def _code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)  # noqa: T201 - as Python does
    return 1


def _show(error: BaseException) -> None:
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except Exception:  # noqa: BLE001 - the program's own hook is broken
        traceback.print_exception(error)


def _of_program(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of ikp and of what runs the program."""
    ours = (str(Path(__file__).parents[1]) + os.sep, "<frozen runpy>", runpy.__file__)
    frames = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(ours):
            frames.append(trace)
        trace = trace.tb_next
    for frame, after in zip(frames, [*frames[1:], None], strict=True):
        frame.tb_next = after
    return frames[0] if frames else None
