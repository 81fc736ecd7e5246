"""The windows of ``ikp run --idle`` and ``--while``: a program is recorded while a file is there.

A thread of ikp's own looks for the file, so a program that waits in C is no hindrance. Each window
has a session and a trace of its own. In between, a launch costs one look at a flag. A program may
also open a window in its own process: by cudaProfilerStart, until cudaProfilerStop.
"""

from __future__ import annotations

import logging  # noqa: F401 - see where the hooks are registered
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from ikp.running._installed import installed
from ikp.running.startup.sitecustomize import say
from ikp.signals import pass_on

if TYPE_CHECKING:
    from ikp.running._watched import Watched
    from ikp.running.startup.ikp_children import Family

_POLL_S: Final = 0.05
_PATIENCE_S: Final = 30.0
"""The longest that a fork waits for imports."""
importing = threading.Lock()
"""Held by threads of ikp's own while they import."""
_held: list[bool] = []  # whether each fork under way has the lock


def _before_fork() -> None:
    """Wait for the imports of ikp's threads.

    A child that is forked meanwhile would wait for ever as it imports the same module.
    """
    _held.append(importing.acquire(timeout=_PATIENCE_S))


def _after_fork() -> None:
    if _held.pop():
        importing.release()


# Imports take logging's lock. Its own hook, registered before this one, runs after this one.
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


class Windowed(Protocol):
    """The interface of a process's recording for its windows."""

    launcher: Watched
    family: Family | None

    def prepare(self) -> None:
        """Import what sessions and traces need."""

    def patch_ahead(self) -> None:
        """Have another process patch kernels that ran plain, before a window opens."""

    def open_window(self, number: int) -> None:
        """Open the session of a window, and record from now on."""

    def close_window(self, number: int) -> Callable[[], list[str]]:
        """Record no more, and have the window's trace written.

        Returns:
            A function that waits for that, and returns what is to be said of the window.
        """


class Windows:
    """The windows of one process.

    Args:
        recording: of the process.
        while_file: the user's own file that opens one; None for no such file.
    """

    def __init__(self, recording: Windowed, while_file: str | None) -> None:
        self._recording, self._number = recording, 0
        recording.launcher.idle = True
        recording.launcher.session = lambda: None
        recording.launcher.profiler = self.called
        family = recording.family
        self._files = [each for each in (while_file, family and family.switch) if each]
        self._open = self._started = False
        self._calls, self._woken = list[tuple[bool, threading.Event]](), threading.Event()
        self._over = threading.Event()
        self._writing = list[threading.Thread]()  # that wait for traces of windows
        self._thread = threading.Thread(target=self._run, name="ikp: windows", daemon=True)

    def start(self) -> None:
        """Look for the file from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more, and wait for traces that are being written; an open window stays so."""
        self._over.set()
        self._woken.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
        self._wait()

    def called(self, starts: bool) -> None:
        """Open a window, or end it, as the program calls cudaProfilerStart or cudaProfilerStop.

        When the call returns, launches are recorded, or the window's trace is written.
        """
        done = threading.Event()
        self._calls.append((starts, done))
        self._woken.set()
        while self._thread.is_alive() and not done.wait(_POLL_S):
            pass

    def _run(self) -> None:
        with suppress(Exception), importing, installed():
            self._recording.prepare()  # so that the first window opens at once
        while not self._over.is_set():
            if not self._calls:
                self._woken.wait(_POLL_S)
                self._woken.clear()
            call = self._calls.pop(0) if self._calls else None
            if call is not None:
                self._started = call[0]
            if not self._over.is_set() and self._wanted() != self._open:
                self._open = not self._open
                self._change()
            if not self._open and call is None:
                with suppress(Exception):  # a window patches what it needs
                    self._recording.patch_ahead()
            if call is not None:
                self._wait()
                call[1].set()
        if not self._open and self._wanted():
            text = "not recorded: the program ended before it was open"
            say(f"process {os.getpid()}, window {self._number + 1} is {text}.")

    def _wanted(self) -> bool:
        """Return whether a file is there that opens a window, or the program has asked for one."""
        return self._started or any(map(os.path.exists, self._files))

    def _change(self) -> None:
        """Begin or end a window; no error of ikp may stop the program."""
        number, lines = self._number + self._open, list[str]()
        self._number = number
        try:
            with installed():
                if self._open:
                    self._recording.open_window(number)
                else:
                    self._wait_beside(number, self._recording.close_window(number))
        except Exception as error:  # noqa: BLE001 - the program goes on
            pass_on(error)
            lines = [f"window {number} is not recorded: {error}"]
        _say(number, lines)

    def _wait_beside(self, number: int, written: Callable[[], list[str]]) -> None:
        """Have another thread wait for a window's trace: the next window opens meanwhile."""
        waiting = threading.Thread(
            target=self._say_end, args=(number, written), name="ikp: a window's trace", daemon=True
        )
        self._writing = [each for each in self._writing if each.is_alive()]
        self._writing.append(waiting)
        waiting.start()

    @staticmethod
    def _say_end(number: int, written: Callable[[], list[str]]) -> None:
        try:
            lines = written()
        except Exception as error:  # noqa: BLE001 - the program goes on
            pass_on(error)
            lines = [f"the trace is lost: {error}"]
        _say(number, lines)

    def _wait(self) -> None:
        """Wait until all traces of windows are written."""
        for each in tuple(self._writing):
            if each is not threading.current_thread():
                each.join()


def _say(number: int, lines: list[str]) -> None:
    for line in lines:
        say(f"process {os.getpid()}, window {number}: {line}")
