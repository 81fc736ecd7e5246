"""The recording of a program under ``ikp run``, in the program's own process.

The start-up module calls ``begin`` when the program imports Triton, and ``end`` when Python exits:
after the program's threads and its functions registered with ``atexit``, which may launch kernels.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ikp import registry
from ikp.errors import FaultError, IkpError
from ikp.running import _choices as choices
from ikp.running import _frames as frames
from ikp.running._ending import MIB, report
from ikp.running._installed import installed
from ikp.running.startup.sitecustomize import driven, say
from ikp.session.termination import PATIENCE_S, hold, on_termination
from ikp.signals import deferred, pass_on
from ikp.warning import diverted

if TYPE_CHECKING:
    from ikp.profiling.profile import profile
    from ikp.running._watched import Watched
    from ikp.unedited.plan import Plan

_MOST_WARNINGS = 20
"""The most warnings that are printed."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of ``ikp run``, as the program's process gets them."""

    path: str
    force: bool
    detail: str | None
    lines: tuple[str, ...]
    functions: tuple[str, ...]
    ranges: bool
    max_overhead: float | None
    sample: int | None
    check_results: bool
    probe: str | None
    level: str | None
    mode: str
    kernel: str | None
    launch: str
    clock: str
    blocks: str | None
    warps: str | None
    buffer_mib: int | None
    memory_mib: int

    def __str__(self) -> str:
        choice = asdict(self)
        path = choice.pop("path")
        return f"{json.dumps(choice)}\n{path}"

    @classmethod
    def parse(cls, text: str, path: str) -> Self:
        """Return the options from the two lines of ``str(options)``."""
        return cls(path=path, **json.loads(text))

    def check(self) -> None:
        """Check the options before the program begins.

        Raises:
            UsageError: an option names nothing, or two don't go together.
            ExportError: the trace can't be written.
        """
        from ikp.unedited.plan import span

        self.plan()
        span(self.launch)
        choices.kernels(self.kernel)
        if self.mode != "timeline":  # a timeline goes with every clock
            self.session()
        self._check_path()

    def plan(self) -> Plan:
        """Return the plan of what to mark.

        Raises:
            UsageError: an option is unknown, or two don't go together.
        """
        from ikp.unedited.plan import plan

        return plan(
            *(self.detail, self.lines, self.level, self.functions, self.max_overhead),
            ranges=self.ranges,
            check=self.check_results,
            probe=self.probe,
            sample=self.sample,
            buffer=choices.of_launch(self.blocks, self.warps),
        )

    def _check_path(self) -> None:
        """Check the path; in full, which imports numpy, where it may be unusable."""
        path = Path(self.path)
        default = self.force and path.suffix == ".pftrace"
        if not default or path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
            from ikp.registry import check_target

            check_target(path, self.force)

    def session(self) -> profile:
        """Return the session that records the program."""
        from ikp.profiling.profile import profile

        size = self.buffer_mib * MIB if self.buffer_mib else None
        session = profile(
            self.path, force=self.force, clock=self.clock, mode=self.mode, buffer_size=size
        )
        session.prepared_later = True
        return session

    def launcher(self) -> Watched:
        """Return the launcher of the program's kernels; it has no session yet."""
        from ikp.unedited.plan import span

        (backend, *_) = (each for each in registry.own().values() if hasattr(each, "watch"))
        launcher: Watched = backend.watch(
            self.plan(),
            launches=span(self.launch),
            buffer=choices.of_launch(self.blocks, self.warps),
            kernels=choices.kernels(self.kernel),
            room=self.memory_mib * MIB,
        )
        return launcher


def begin(text: str, path: str, *, forked: bool) -> Recording:
    """Have every launch from now on go through ikp.

    Args:
        text: the options.
        path: where the trace goes.
        forked: whether this process is a child that the program forked.

    Raises:
        ExportError: the trace can't be written any more.
    """
    options = Options.parse(text, path)
    with installed() as shadowed:
        launcher = options.launcher()
        if shadowed:  # launches need the packages: stevedore, which finds them, is found only now
            registry.packages()
    with installed(), ExitStack() as undo:
        session = None if forked else undo.enter_context(options.session())
        launcher.session = _Unprepared(launcher, session, options.path) if session else _Forked()
        stepped_in, told = undo.enter_context(ExitStack()), dict[str, None]()
        stepped_in.enter_context(diverted(told.setdefault))
        stepped_in.enter_context(launcher.stepping_in())
        if driven(options.level) and not forked:
            _beside(launcher, stepped_in, told)
        undo.pop_all()  # no error: keep all contexts open
    os.register_at_fork(after_in_child=lambda: setattr(launcher, "session", _Forked()))
    frames.hide()
    recording = Recording(options, launcher, session, stepped_in, told)
    if session is not None:
        recording.unwatched.append(on_termination(recording.terminate))
    return recording


def _beside(launcher: Watched, stepped_in: ExitStack, told: dict[str, None]) -> None:
    """Step in at launches that do not go through the launcher's language, as by the CUDA driver."""
    for backend in registry.own().values():
        if hasattr(backend, "beside"):
            try:
                stepped_in.enter_context(backend.beside(launcher))
            except (IkpError, OSError) as error:
                pass_on(error)
                told[f"kernels that Triton does not launch run plain: {error}"] = None


class _Unprepared:
    """Finds the session; at the first launch, it imports what the trace is written with.

    A program that imports torch may launch nothing. The end would be too late: a signal may bring
    it in the midst of an import of the program's.
    """

    def __init__(self, launcher: Watched, session: profile, path: str) -> None:
        self._launcher, self._session, self._path = launcher, session, path
        self._first = threading.Lock()  # never given back

    def __call__(self) -> profile:
        """Return the session."""
        if self._first.acquire(blocking=False):
            with deferred(), installed():
                self._prepare()
            if self._launcher.session is self:
                self._launcher.session = lambda: self._session
        return self._session

    def _prepare(self) -> None:
        try:
            registry.prepare(self._path)
        except Exception as error:  # noqa: BLE001 - the end tries again, and says what is lost
            pass_on(error)


class _Forked:
    """The session's stand-in in a process that the program forked, where kernels run plain."""

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


@dataclass(frozen=True, slots=True)
class Recording:
    """The recording of one program: its launcher, its session, and its end."""

    options: Options
    launcher: Watched
    session: profile | None  # None: kernels run plain
    stepped_in: ExitStack  # the launcher's contexts, left by ``step_out``
    told: dict[str, None]  # warnings, each once, in their order: the program sees none
    unwatched: list[Callable[[], None]] = field(default_factory=list)  # take back signal handling
    ending: threading.Lock = field(default_factory=threading.Lock)
    ended: list[bool] = field(default_factory=list)  # not empty once it has

    def step_out(self) -> None:
        """Restore the program's launches, before Python tears modules down in any order."""
        self.launcher.session = lambda: None  # for a launch on its way, in a daemon thread
        with suppress(ValueError):  # the program has cleaned up sys.meta_path
            self.stepped_in.__exit__(None, None, None)

    def end(self) -> None:
        """Write the trace and report, as Python exits."""
        hold()
        self._end(None)
        for each in self.unwatched:
            each()
        if isinstance(_failure(), KeyboardInterrupt):
            _die_of_interrupt()

    def terminate(self) -> None:
        """Write the trace and report, because a signal ends the process."""
        self._end(PATIENCE_S)

    def _end(self, patience_s: float | None) -> None:
        with self.ending:
            if not self.ended:
                self.ended.append(True)
                self._end_now(patience_s)

    def _end_now(self, patience_s: float | None) -> None:
        self.step_out()
        for text in list(self.told)[:_MOST_WARNINGS]:
            say(text)
        if len(self.told) > _MOST_WARNINGS:
            say(f"and {len(self.told) - _MOST_WARNINGS} more warnings.")
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 1000))  # the program may have lowered it
        try:
            with installed():
                self._write(patience_s)
        except KeyboardInterrupt:
            say("interrupted: the trace may be lost.")

    def _write(self, patience_s: float | None) -> None:
        if self.session is not None:
            before = _state(self.options.path)
            self._close(self.session, patience_s)
            wrote = _state(self.options.path) != before
            report(self.session, self.launcher, self.options, wrote=wrote)

    def _close(self, session: profile, patience_s: float | None) -> None:
        """End the session. Without ikp the process would be over: none of its handlers run here."""
        session.export = bool(self.launcher.recorded)
        failed = _failure()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                session.patience_s = patience_s
                with deferred(hand_over=True, sparing=(signal.SIGINT,), windows=False):
                    session.__exit__(type(failed) if failed else None, failed, None)
            except FaultError as fault:  # the trace is written all the same
                say(str(fault))
            except Exception as lost:  # noqa: BLE001 - a broken GPU may raise any error
                pass_on(lost)
                say(f"the trace is lost: {lost}")
        for each in caught:
            say(str(each.message))


def _state(path: str) -> tuple[int, int] | None:
    """Return a file's inode and modification time, which differ after it was replaced."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _failure() -> BaseException | None:
    """Return the error of which Python has printed a traceback, if the program failed."""
    found: BaseException | None = getattr(sys, "last_value", None)
    return found


def _die_of_interrupt() -> None:
    """Let Python die by SIGINT, as it does after a program that Ctrl-C ended.

    It remembers whether the latest text that it ran as a program was interrupted, but ``exec`` of a
    text counts as one, and dataclasses are made by that (CPython's ``run_eval_code_obj``).
    """
    with suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")  # noqa: S102
