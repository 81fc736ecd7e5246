"""The recording of a program under ``ikp run``, in the program's own process.

The start-up module calls ``begin`` when the program imports Triton or another way to the CUDA
driver, such as torch. It calls ``end`` when Python exits: after the program's threads and its
functions registered with ``atexit``, which may launch kernels.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ikp import registry
from ikp.core.run_figures import REPLAYED
from ikp.errors import IkpError
from ikp.running._ending import (
    aside,
    closed,
    count_replays,
    die_of_interrupt,
    failure,
    file_state,
    first_of,
    report,
    report_of_child,
    trace_of,
)
from ikp.running._following import (
    claimed,
    ended,
    of_window,
    window_ended,
    window_handed_on,
    without,
)
from ikp.running._installed import installed
from ikp.running._process_host import ProcessHost
from ikp.running._substitutes import Child, Forked, StandingBy, TracingExit, Unprepared
from ikp.running._windows import Windows, importing
from ikp.running.run_options import Options
from ikp.running.startup import ikp_frames
from ikp.running.startup.ikp_children import ROOT
from ikp.running.startup.sitecustomize import driven, say
from ikp.session.termination import PATIENCE_S, held_off, hold, on_termination
from ikp.signals import deferred, pass_on
from ikp.warning import diverted

if TYPE_CHECKING:
    from ikp.profiling.profile import profile
    from ikp.running._watched import Watched
    from ikp.running.apart import Written
    from ikp.running.process_parts import Part, WindowCounts
    from ikp.running.startup.ikp_children import Family
    from ikp.trace import Trace


def begin(text: str, path: str, *, forked: bool, family: Family | None = None) -> Recording:
    """Have every launch from now on go through ikp.

    Args:
        text: the options.
        path: where the trace of the first process goes.
        forked: whether this process is a child that the program forked.
        family: the processes of this run, where children are recorded, too.

    Raises:
        ExportError: the trace can't be written any more.
    """
    options = Options.parse(text, path)
    with installed() as shadowed:
        launcher = options.launcher()
        if shadowed:  # launches need the packages: stevedore, which finds them, is found only now
            registry.packages()
            registry.triton_target_folders()
    recording = Recording(options, launcher, family)
    if options.host:
        recording.host = ProcessHost(options.host_seconds)
    with installed(), ExitStack() as undo:
        if options.is_idle:
            recording.windows = Windows(recording, options.while_file)
            launcher.look_ahead()
            launcher.standby = StandingBy(options) if options.replays else None
        elif family is not None and not family.is_root:
            launcher.session = Child(recording)
        elif forked:
            launcher.session = Forked()
        else:
            recording.open(undo, path)
        if family is not None or not forked:
            launcher.exits = recording.exits
        undo.enter_context(recording.stepped_in)
        recording.step_in(beside=family is not None or not forked)
        undo.pop_all()  # no error: keep all contexts open
    os.register_at_fork(after_in_child=recording.forked)
    ikp_frames.hide()
    if recording.session is not None or recording.windows is not None:
        recording.unwatched.append(on_termination(recording.terminate))
    if recording.windows is not None:
        recording.windows.start()
    return recording


def _beside(launcher: Watched, stepped_in: ExitStack, printed: dict[str, None]) -> None:
    """Step in at launches that do not go through the launcher's language, as by the CUDA driver."""
    for backend in registry.own().values():
        if hasattr(backend, "beside"):
            try:
                stepped_in.enter_context(backend.beside(launcher))
            except (IkpError, OSError) as error:
                pass_on(error)
                printed[f"kernels that Triton does not launch run plain: {error}"] = None


@dataclass(slots=True)
class Recording:
    """The recording of one process: its launcher, its session, and its end."""

    options: Options
    launcher: Watched
    family: Family | None = None  # the processes of this run
    session: profile | None = None  # None: kernels run plain
    path: str = ""  # of its trace
    first: str = ""  # the path that those of windows are made of
    name: str = ""  # of its note in the family
    stepped_in: ExitStack = field(default_factory=ExitStack)  # contexts, left by ``step_out``
    messages: dict[str, None] = field(default_factory=dict)  # warnings, each once
    unwatched: list[Callable[[], None]] = field(default_factory=list)  # take back signal handling
    ending: threading.Lock = field(default_factory=threading.Lock)
    ended: bool = False
    windows: Windows | None = None
    host: ProcessHost | None = None  # where that is recorded, too
    parts: list[Part] = field(default_factory=list)  # what this process has recorded
    wrote: int = 0  # the latest window whose trace it has written
    traces: dict[str, Trace] = field(default_factory=dict)  # in memory, by their files

    def step_in(self, *, beside: bool) -> None:
        """Have launches go through the launcher, until ``step_out``.

        Args:
            beside: also those that do not go through a language, as by the CUDA driver.
        """
        self.stepped_in.enter_context(diverted(self.messages.setdefault))
        self.stepped_in.enter_context(self.launcher.stepping_in())
        if self.host is not None:
            self.stepped_in.enter_context(self.host.stepping_in())
        if beside and driven(self.options.level):
            _beside(self.launcher, self.stepped_in, self.messages)

    def open(self, undo: ExitStack, path: str) -> None:
        """Open the session of the first process."""
        self.path = path
        if self.family is not None:
            self.name, self.path = claimed(self.family, path, self.options.template)
        self.session = undo.enter_context(self.options.session(self.path))
        self.launcher.session = Unprepared(self.launcher, self.session, self.path, self.host)
        if self.host is not None:
            self.host.accompany(self.session)

    def open_child(self, family: Family) -> None:
        """Open the session of a child.

        Raises:
            IkpError: it can't be opened.
            OSError: the first process has ended.
        """
        self.name, self.path = claimed(family, self.options.path, self.options.template)
        session = self.options.session(self.path)
        session.__enter__()
        self.session = session
        if self.host is not None:
            self.host.accompany(session)

    def watch_end(self) -> None:
        """Write the trace of a child before a signal or ``os._exit`` ends it."""
        self.unwatched.append(on_termination(self.terminate))
        self.watch_exit()

    def watch_exit(self) -> None:
        """Have ``os._exit`` write the trace first: ``multiprocessing`` ends forked children so."""
        os_: Any = os
        now = os_._exit  # noqa: SLF001
        if not (isinstance(now, TracingExit) and now.pid == os.getpid()):
            os_._exit = TracingExit(now, self)  # noqa: SLF001

    def prepare(self) -> None:
        """Import what sessions and traces need, before the first window.

        That of its end, too: no fork waits for imports from then on.
        """
        import numpy.ma  # noqa: F401 - numpy imports it late

        import ikp.analysis.kernel_times
        import ikp.analysis.perturbation
        import ikp.core.decoding.decode
        import ikp.profiling.profile
        import ikp.running.apart  # noqa: F401

        registry.prepare(self.options.path)

    def patch_ahead(self) -> None:
        """Have another process patch kernels that ran plain, before a window opens.

        Raises:
            OSError: it can't be started.
        """
        ahead = self.launcher.ahead
        if ahead is not None and ahead.is_due:
            with importing, installed():  # not while a process starts: forks and captures wait
                kernels, paths = ahead.take(), list(sys.path)
            if kernels:
                ahead.send(kernels, paths)

    def open_window(self, number: int) -> None:
        """Open the session of a window, and record from now on.

        Raises:
            IkpError: it can't be opened.
            OSError: the first process has ended.
        """
        if self.family is not None and not self.name:
            path = self.options.path
            self.name, self.first = claimed(self.family, path, self.options.template)
        self.path = of_window(self.first or self.options.path, number)
        session = self.options.session(self.path)
        session.__enter__()
        self.session = session
        self.watch_exit()
        self.launcher.begin_anew()
        self.launcher.session = lambda: session
        self.launcher.idle = False

    def close_window(self, number: int) -> Callable[[], list[str]]:
        """Record no more, and have the window's trace written.

        Returns:
            A function that waits for that, and returns what is to be said of the window.
        """
        session, self.session = self.session, None
        self.launcher.idle = True
        self.launcher.session = lambda: None
        if session is None:
            return list[str]
        from ikp.running.process_parts import WindowCounts

        counts, written = WindowCounts.of(self.launcher), self._written(session, number)
        return partial(self._window_ended, number, self.path, counts, written)

    def _window_ended(
        self, number: int, path: str, counts: WindowCounts, written: Callable[[], Written]
    ) -> list[str]:
        """Wait until a window's trace is written; note it, and return what is to be said of it."""
        from ikp.running.process_parts import Part

        recorded, lines = written()
        if recorded is None:
            if self.session is None:  # no other window is open
                self._disclaim()
            return lines
        count_replays(counts, {REPLAYED: recorded.replays})
        part = Part.having(counts, recorded, path)
        self.wrote = max(self.wrote, number)
        family = self.family if self.family is not None and not self.family.is_root else None
        if family is None or not window_ended(family, self.name, number, part):
            self.parts.append(part)
        return [*lines, *report_of_child(counts, path, wrote=True)]

    def _written(self, session: profile, number: int) -> Callable[[], Written]:
        """Have a window's trace written, if it recorded anything; return what waits for that.

        A process of its own writes it, where it can.
        """
        from ikp.running.apart import write_apart
        from ikp.running.process_parts import Recorded

        if not (self.launcher.recorded or self._has_replays()):
            said = self._close(session, None)
            return lambda: (None, said)
        lines = list[str]()
        try:
            found = session.end_with_copies()
        except Exception as error:  # noqa: BLE001 - what was recorded is there, and read anew
            pass_on(error)
            found, lines = None, [f"not written by another process: {error}."]
        if found is not None:
            copies, target, force = found
            written = write_apart(copies, target, force=force)
            if self.family is not None and not self.family.is_root:
                window_handed_on(self.family, self.name, number, self.path)
            return written
        before = file_state(self.path)
        lines += self._close(session, None)
        trace = trace_of(session) if file_state(self.path) != before else None
        made = None if trace is None else Recorded.of(trace)
        return lambda: (made, lines)

    def _disclaim(self) -> None:
        """Give back the name of a process that has written no window: it may never record."""
        if self.family is not None and self.name not in ("", ROOT) and not self.wrote:
            with suppress(OSError):
                self.family.drop(self.name)
            self.name = self.first = ""

    def forked(self) -> None:
        """Begin anew in a child that the program forked: the parent's launches are the parent's."""
        if self.family is None:
            self.launcher.session = Forked()
            self.launcher.exits = _nothing
            return
        self.session, self.ended, self.ending = None, False, threading.Lock()
        self.name = self.path = self.first = ""
        self.wrote = 0
        if self.windows is not None:
            self.windows = Windows(self, self.options.while_file)
            self.windows.start()
            return
        self.messages.clear()
        self.unwatched.clear()
        self.parts.clear()
        if self.host is not None:
            self.host.forked()
        self.launcher.begin_anew()
        self.launcher.session = Child(self)

    def step_out(self) -> None:
        """Restore the program's launches, before Python tears modules down in any order."""
        self.launcher.session = lambda: None  # for a launch on its way, in a daemon thread
        with suppress(ValueError):  # the program has cleaned up sys.meta_path
            self.stepped_in.__exit__(None, None, None)

    def end(self) -> None:
        """Write the trace and report, as Python exits."""
        hold()
        self._end(None)
        self._unwatch()
        if isinstance(failure(), KeyboardInterrupt):
            die_of_interrupt()

    def exits(self) -> None:
        """Write the trace and report, as the program calls C's ``exit``; end ikp's threads.

        This thread's variables are being destroyed, so another thread ends the recording. Handlers
        of signals would not run now without ikp, as the program is in C.
        """
        ending = threading.Thread(target=self.end, name="ikp: writes the trace")
        with deferred(hand_over=True, sparing=(signal.SIGINT,), windows=False):
            ending.start()
            ending.join()
        from ikp.session.service import end_services

        end_services("the program has ended.")

    def leave(self) -> None:
        """Write the trace before the process becomes another program, which goes on with the run.

        The first process gives its path back where it has recorded nothing.
        """
        hold()
        recorded = bool(self.launcher.recorded)
        self._end(None, over=False)
        self._unwatch()
        if self.family is not None and self.name == ROOT and not recorded:
            with suppress(OSError):
                self.family.drop(ROOT)

    def _unwatch(self) -> None:
        for each in self.unwatched:
            each()

    def terminate(self) -> None:
        """Write the trace and report, because a signal ends the process."""
        self._end(PATIENCE_S)

    def _end(self, patience_s: float | None, *, over: bool = True) -> None:
        with self.ending, held_off():
            if not self.ended:
                self.ended = True
                self._end_now(patience_s, over=over)

    def _end_now(self, patience_s: float | None, *, over: bool) -> None:
        if self.windows is not None:
            self.windows.stop()
        self.step_out()
        lines = first_of(list(self.messages))
        root = self.family is None or self.family.is_root
        for text in lines if root else ():
            say(text)
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 1000))  # the program may have lowered it
        try:
            with installed():
                lines += self._write(patience_s, root=root)
        except KeyboardInterrupt:
            say("interrupted: the trace may be lost.")
        except Exception as error:  # noqa: BLE001 - limits or a root of the program's own hide files
            pass_on(error)
            lines += self._lost(error, root=root)
        if root and over:
            self._finish(lines, hasty=patience_s is not None)
        elif self.family is not None and self.name:
            ended(self.family, self.name, lines, self.parts)
        elif self.family is not None and not root:
            off = "" if self.host is None else self.host.off
            without(self.family, off or "it launched no kernel that ikp records")
        # Kernels of the program's, and what their modules hold, end when they would without ikp.
        self.launcher.begin_anew()

    def _lost(self, error: Exception, *, root: bool) -> list[str]:
        """Return the line on a trace that could not be written, printed in the first process."""
        line = f"the trace is lost: {type(error).__name__}: {error}".removesuffix(": ")
        if root:
            say(line)
        return [line]

    def _note(self, trace: Trace | None, path: str | None) -> None:
        """Keep what was recorded for the end of the run."""
        from ikp.running.process_parts import Part

        self.parts.append(Part.of(self.launcher, trace, path))

    def _finish(self, lines: list[str], *, hasty: bool) -> None:
        """Print the end of the run, where there is anything to say of it."""
        followed = self.family is not None and not self.family.is_alone
        if self.parts or followed or self.options.output == "json":
            with installed():
                from ikp.running.finishing import finish

                path = self.path or self.options.path
                own = self.parts, self.traces
                finish(self.options, path, self.family, *own, hasty=hasty, lines=lines)
        elif self.family is not None:
            self.family.end()

    def _write(self, patience_s: float | None, *, root: bool) -> list[str]:
        """Write the trace; report on stderr, or return the lines that a child's report has."""
        if self.host is not None:
            if patience_s is None:
                self._open_for_host(self.host)
            self.host.end(waits=patience_s is None)
        if self.session is None:
            return [] if root or self.name else self._set_aside()
        before = file_state(self.path)
        lines = self._close(self.session, patience_s)
        wrote = file_state(self.path) != before
        trace = trace_of(self.session) if self.session.export else None
        if trace is not None:
            count_replays(self.launcher, trace.provenance)
            self.traces[self.path] = trace
        if self.launcher.recorded or self.launcher.plain or wrote:
            self._note(trace, self.path if wrote else None)
        if not root:
            child = report_of_child(self.launcher, self.path, wrote=wrote)
            return [*lines, *child, *self._of_host()]
        for line in lines:
            say(line)
        self._report(self.session, trace, wrote=wrote)
        return lines

    def _report(self, session: profile, trace: Trace | None, *, wrote: bool) -> None:
        """Report on the first process, on stderr."""
        followed = self.family is not None and not self.family.is_alone
        if self.path != self.options.path:  # the program has become this one, by ``exec``
            self.options = replace(self.options, path=self.path)
        report(session, self.launcher, self.options, trace, wrote=wrote, followed=followed)
        for line in self._of_host():
            say(line)

    def _of_host(self) -> list[str]:
        """Return the lines on the host's part of the file that was written."""
        if self.host is None or self.session is None or not self.session.export:
            return []
        return [*filter(None, [self.session.joined]), *self.host.lines()]

    def _open_for_host(self, host: ProcessHost) -> None:
        """Open the session of a child that launched nothing that ikp records, for its host."""
        if self.session is None and self.family is not None and host.has_any():
            try:
                self.open_child(self.family)
            except (IkpError, OSError) as error:
                say(f"process {os.getpid()}: what the host did is lost: {error}")

    def _set_aside(self) -> list[str]:
        """Return the line on a child that launched kernels of libraries alone."""
        lines = aside(self.launcher)
        if lines and self.family is not None:
            self.name, _ = claimed(self.family, self.options.path, self.options.template)
        return lines

    def _has_replays(self) -> bool:
        """Return whether a window has replays of graphs that were captured before it."""
        if self.launcher.standby is None:
            return False
        from ikp.session.replays import are_there

        return are_there()

    def _close(self, session: profile, patience_s: float | None) -> list[str]:
        """End the session; return what is to be said of it."""
        # A signal waits for no profiler of a process without launches: a kernel may never end.
        session.export = bool(self.launcher.recorded) or self._has_replays()
        if not session.export and patience_s is None and self.host is not None:
            session.export = self.host.has_any()
        session.patience_s = patience_s
        return closed(session, silent=self.ended)


def _nothing() -> None:
    """Do nothing as a child exits: its kernels run plain."""
