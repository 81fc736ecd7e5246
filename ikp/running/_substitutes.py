"""Substitutes under ``ikp run``, for the session until the first launch, and for ``os._exit``."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol

from ikp import registry
from ikp.running._installed import installed
from ikp.running._windows import Windows, importing
from ikp.running.run_options import Options
from ikp.running.startup.sitecustomize import say
from ikp.signals import deferred, pass_on

if TYPE_CHECKING:
    from ikp.profiling.profile import profile
    from ikp.running._process_host import ProcessHost
    from ikp.running._watched import Watched
    from ikp.running.startup.ikp_children import Family


class ChildRecording(Protocol):
    """The interface of a process's recording for its session's substitute in a child."""

    launcher: Watched
    family: Family | None
    host: ProcessHost | None
    session: profile | None
    path: str

    def open_child(self, family: Family) -> None:
        """Open the session of a child."""

    def watch_end(self) -> None:
        """Write the trace of a child before a signal or ``os._exit`` ends it."""


class EndingRecording(Protocol):
    """The interface of a process's recording for its end."""

    session: profile | None
    windows: Windows | None
    name: str

    def end(self) -> None:
        """Write the trace and report."""


class Unprepared:
    """Finds the session; at the first launch, it imports what the trace is written with.

    A program that imports torch may launch nothing. The end would be too late: a signal may bring
    it in the midst of an import of the program's.
    """

    def __init__(
        self, launcher: Watched, session: profile, path: str, host: ProcessHost | None
    ) -> None:
        self._launcher, self._session, self._path, self._host = launcher, session, path, host
        self._first = threading.Lock()  # never given back

    def __call__(self) -> profile:
        """Return the session."""
        if self._first.acquire(blocking=False):
            with deferred(), installed():
                self._prepare()
            if self._host is not None:
                self._host.at_launch()
            if self._launcher.session is self:
                self._launcher.session = lambda: self._session
        return self._session

    def _prepare(self) -> None:
        try:
            registry.prepare(self._path)
        except Exception as error:  # noqa: BLE001 - the end tries again, and says what is lost
            pass_on(error)


class Child:
    """The session's substitute in a child of the program: opens the session at its first launch.

    Most children launch nothing, and leave no file. A child that is forked ends by ``os._exit``,
    which asks no function of ``atexit``: so that writes the trace first.
    """

    def __init__(self, recording: ChildRecording) -> None:
        self._recording = recording
        self._first = threading.Lock()

    def __call__(self) -> profile | None:
        """Return the session; None where it can't be opened."""
        with self._first:
            if self._recording.launcher.session is self:
                with deferred(), installed():
                    self._open()
                if self._recording.host is not None:
                    self._recording.host.at_launch()
        return self._recording.session

    def _open(self) -> None:
        recording = self._recording
        try:
            if recording.family is not None:
                recording.open_child(recording.family)
                recording.watch_end()
            registry.prepare(recording.path)
        except Exception as error:  # noqa: BLE001 - the program goes on
            pass_on(error)
            say(f"process {os.getpid()} is not recorded: {error}")
        recording.launcher.session = lambda: recording.session


class StandingBy:
    """The session that gives buffers to captured launches while no window is open.

    It writes nothing: windows keep the replays of the graphs.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._session: profile | Literal[False] | None = None  # None before the first capture
        self._first = threading.Lock()

    def __call__(self) -> profile | None:
        """Return the session, opened at the first capture; None where it can't be opened."""
        with self._first:
            if self._session is None:
                # In a thread of its own: it is not to be the program's current session.
                with deferred(), installed():
                    opening = threading.Thread(target=self._open)
                    opening.start()
                    opening.join()
        return self._session or None

    def _open(self) -> None:
        try:
            with importing:
                session = self._options.session(stands_by=True)
                session.__enter__()
            self._session = session
        except Exception as error:  # noqa: BLE001 - the program goes on
            pass_on(error)
            self._session = False
            say(f"process {os.getpid()}: graphs captured outside of windows replay plain: {error}")


class Forked:
    """The session's substitute in a process that the program forked, where kernels run plain."""

    def __init__(self) -> None:
        self._said = False

    def __call__(self) -> None:
        """Say at the first launch that it isn't recorded."""
        if not self._said:
            self._said = True
            say(
                f"process {os.getpid()} was forked by the program: its kernels run plain, and are "
                "in no trace."
            )


class TracingExit:
    """``os._exit`` of a child: the trace is written before the process is gone."""

    def __init__(self, really: Callable[[int], NoReturn], recording: EndingRecording) -> None:
        self._really, self._recording, self.pid = really, recording, os.getpid()

    def __call__(self, status: int) -> NoReturn:
        """Write the trace of the process that opened the session, and leave."""
        recording = self._recording
        of_windows = recording.windows is not None and recording.name  # one may be being written
        if recording.session is not None or of_windows:
            with suppress(Exception):
                recording.end()
        self._really(status)
