"""Forked processes with a time limit, whose events are read as they come.

A GPU fault ends a CUDA context, so each task has a process of its own. The parent has imported what
is slow to import, and has not initialised CUDA: a context does not survive a fork.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import selectors
import signal
import tempfile
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Work = Callable[[Callable[[Event], None]], None]
"""What a process does; it is passed a function that sends an event to the parent."""

DONE = "done"
TIME_LIMIT = "time limit"
NOT_FINISHED = "stopped with the run"
_TAIL = 20_000
"""Characters kept of what a process wrote on stderr."""
_SAY_WHERE = signal.SIGUSR2
"""Has a process write on stderr where each of its threads is."""
_SAYING_S = 0.2
_GRACE_S = 10.0
"""For a killed process to be gone: a driver call may hold it for a while."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that has ended: its events, how it ended, what it wrote on stderr."""

    key: Any
    events: list[Event]
    end: str  # DONE, TIME_LIMIT, NOT_FINISHED, "exit code N" or "signal NAME"
    stderr: str
    seconds: float


@dataclass(slots=True)
class _Running:
    key: Any
    pid: int
    pipe: int
    errors: Path
    began: float
    limit_s: float
    received: bytearray = field(default_factory=bytearray)

    def left_s(self) -> float:
        return self.began + self.limit_s - time.monotonic()


class Pool:
    """Runs work in forked processes, some at a time.

    Args:
        jobs: processes at a time.
        limit_s: seconds until a process, and what it started, is killed.
        minutes: of the whole run; None is without end. What has not begun by then never does.
    """

    def __init__(self, jobs: int, limit_s: float, minutes: float | None = None) -> None:
        self._jobs, self._limit_s = jobs, limit_s
        self._deadline = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
        self._waiting: deque[tuple[Any, Work]] = deque()
        self._running: dict[int, _Running] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._selector = selectors.DefaultSelector()

    def submit(self, key: Any, work: Work, *, first: bool = False) -> None:
        """Have work done; ``first`` puts it before what is waiting."""
        (self._waiting.appendleft if first else self._waiting.append)((key, work))

    @property
    def waiting(self) -> int:
        """How many tasks have not begun."""
        return len(self._waiting)

    def results(self) -> Iterator[Ended]:
        """Yield each process as it ends; tasks may be submitted meanwhile."""
        try:
            while self._running or (self._waiting and time.monotonic() < self._deadline):
                while self._waiting and len(self._running) < self._jobs and self._time_left():
                    self._start(*self._waiting.popleft())
                yield from self._step()
        finally:
            for each in list(self._running.values()):
                self._end(each, NOT_FINISHED)
            self._folder.cleanup()

    def _time_left(self) -> bool:
        return time.monotonic() < self._deadline

    def _step(self) -> Iterator[Ended]:
        now = time.monotonic()
        wait = [each.left_s() for each in self._running.values()] + [self._deadline - now, 1.0]
        for key, _ in self._selector.select(max(0.0, min(wait))):
            running = self._running[key.fd]
            data = os.read(running.pipe, 1 << 16)
            running.received += data
            if not data:
                yield self._end(running, DONE)
        for each in list(self._running.values()):
            if each.left_s() <= 0:
                yield self._end(each, TIME_LIMIT)
            elif not self._time_left():
                yield self._end(each, NOT_FINISHED)

    def _start(self, key: Any, work: Work) -> None:
        ours, theirs = os.pipe()
        errors = Path(tempfile.mkstemp(dir=self._folder.name)[1])
        with warnings.catch_warnings():  # threads that torch leaves behind hold no lock
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            _child(work, theirs, errors)
        os.close(theirs)
        self._running[ours] = _Running(key, pid, ours, errors, time.monotonic(), self._limit_s)
        self._selector.register(ours, selectors.EVENT_READ)

    def _end(self, running: _Running, end: str) -> Ended:
        """Kill what is left of a process, and return what is known of it."""
        self._selector.unregister(running.pipe)
        del self._running[running.pipe]
        if end != DONE:
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.pid, _SAY_WHERE)
                time.sleep(_SAYING_S)
                os.killpg(running.pid, signal.SIGKILL)
            running.received += _rest(running.pipe)
        os.close(running.pipe)
        status = _reaped(running.pid)
        with contextlib.suppress(ProcessLookupError):  # what it started may go on without it
            os.killpg(running.pid, signal.SIGKILL)
        if end == DONE and status is None:
            end = f"not gone after {_GRACE_S:g} s"
        elif end == DONE and status:
            end = _how(status)
        stderr = running.errors.read_text(encoding="utf-8", errors="replace")[-_TAIL:]
        running.errors.unlink()
        lines = bytes(running.received).split(b"\n")[:-1]  # behind the last: cut off by a kill
        seconds = time.monotonic() - running.began
        return Ended(running.key, [json.loads(line) for line in lines], end, stderr, seconds)


def _rest(pipe: int) -> bytes:
    """Return what lies in a pipe whose writer may live."""
    os.set_blocking(pipe, False)
    data = b""
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(pipe, 1 << 16):
            data += piece
    return data


def _reaped(pid: int) -> int | None:
    """Return a process's wait status; None where it is not gone in time."""
    until = time.monotonic() + _GRACE_S
    while time.monotonic() < until:
        gone, status = os.waitpid(pid, os.WNOHANG)
        if gone:
            return status
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    return None


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit code {os.WEXITSTATUS(status)}"


def _child(work: Work, pipe: int, errors: Path) -> None:
    """Do the work and leave, without what Python does at its end."""
    os.setsid()
    log = os.open(errors, os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.disable()  # else enabling changes the file alone, below handlers that came since
    faulthandler.enable(2)
    faulthandler.register(_SAY_WHERE, 2)

    def send(event: Event) -> None:
        data = memoryview(json.dumps(event).encode() + b"\n")
        while data:
            data = data[os.write(pipe, data) :]

    code = 1
    try:
        work(send)
        code = 0
    except BaseException:  # noqa: BLE001 - the parent reads it
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)
