"""A window's trace, decoded and written by a process of its own: the program's threads need Python.

That process is no child of the program's: a service manager that kills the program and its children
does not kill it. It gets all records through its standard input, and answers on its output.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final

from ikp.analysis.kernel_times import KernelTime
from ikp.children import behind, give_way, leave_behind
from ikp.running.process_parts import Recorded

if TYPE_CHECKING:
    from ikp.session.copies import Copies

_CODE: Final = behind("ikp.running.apart")
_NICE: Final = 5
_LIMIT_S: Final = 1800
"""Seconds of processor time that it may take."""
Written = tuple[Recorded | None, list[str]]
"""The figures of a trace that was written, None of none; and lines on it."""


def write(copies: Copies, target: str, *, force: bool) -> Written:
    """Decode and write a trace, in this process.

    Args:
        copies: what was recorded.
        target: the file.
        force: replace an existing one.
    """
    from ikp.profiling.writing import write as written

    trace, lines = written(copies, target, force=force)
    return None if trace is None else Recorded.of(trace), lines


def write_apart(copies: Copies, target: str, *, force: bool) -> Callable[[], Written]:
    """Have a process of its own decode and write a trace.

    Returns:
        A function that waits for it; where it can't be started, or has died, this process writes.
    """
    otherwise = partial(write, copies, target, force=force)
    try:
        answer = _asked(copies, target, force=force)
    except (OSError, ValueError):
        return otherwise

    def written() -> Written:
        try:
            with answer:
                return _answered(answer.read())
        except (OSError, ValueError):
            return otherwise()

    return written


def _asked(copies: Copies, target: str, *, force: bool) -> IO[bytes]:
    """Start the process, send it what was recorded, and return the file with its answer.

    Raises:
        OSError: it can't be started, or has died.
    """
    buffers = list[pickle.PickleBuffer]()
    head = pickle.dumps((copies, target, force), protocol=5, buffer_callback=buffers.append)
    views = [each.raw() for each in buffers]
    with ExitStack() as its, ExitStack() as ours, ExitStack() as kept:
        files = dict[int, int]()
        read, write = os.pipe()
        files[0] = its.enter_context(os.fdopen(read, "rb")).fileno()
        into = ours.enter_context(os.fdopen(write, "wb"))
        read, write = os.pipe()
        files[1] = its.enter_context(os.fdopen(write, "wb")).fileno()
        answer = kept.enter_context(os.fdopen(read, "rb"))
        command = [sys.executable, "-I", "-S", "-c", _CODE]
        leave_behind(command, files, {**os.environ, "IKP_FOLLOW": "0"})
        its.close()
        pickle.dump(sys.path, into)
        pickle.dump([len(head), *(each.nbytes for each in views)], into)
        into.write(head)
        for each in views:
            into.write(each)
        into.close()
        kept.pop_all()
        return answer


def _answered(text: bytes) -> Written:
    """Return what the process answered.

    Raises:
        ValueError: it has died before.
    """
    recorded, lines = json.loads(text)
    if recorded is None:
        return None, lines
    times = tuple(KernelTime(**each) for each in recorded.pop("times"))
    return Recorded(**recorded, times=times), lines


def main() -> None:
    """Write one trace: what the process is for."""
    give_way(_NICE, _LIMIT_S)
    copies, target, force = _received(sys.stdin.buffer)
    recorded, lines = write(copies, target, force=force)
    json.dump((None if recorded is None else asdict(recorded), lines), sys.stdout)


def _received(source: IO[bytes]) -> Any:
    head, *sizes = pickle.load(source)  # noqa: S301 - of the process that started this one
    text = source.read(head)
    buffers = [bytearray(source.read(size)) for size in sizes]
    return pickle.loads(text, buffers=buffers)  # noqa: S301
