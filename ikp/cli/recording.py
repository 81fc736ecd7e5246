"""The recording of a program under ``ikp run``, in the program's own process.

``ikp.cli.startup`` calls ``begin`` when the program imports Triton, and ``end`` when Python exits:
after the program's threads and its functions registered with ``atexit``, which may launch kernels.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ikp.cli import choices, frames
from ikp.cli.run_report import MIB, report, report_nothing, say

if TYPE_CHECKING:
    from ikp.auto.everything import Everything
    from ikp.core.session import profile


@dataclass(frozen=True, slots=True)
class Options:
    """What ``ikp run`` was asked for, as the program's process gets it."""

    path: str
    force: bool
    detail: str | None
    lines: tuple[str, ...]
    level: str
    mode: str
    kernel: str | None
    launch: str
    clock: str
    blocks: str | None
    warps: str | None
    buffer_mib: int | None
    memory_mib: int

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the options that ``text`` stands for."""
        return cls(**json.loads(text))

    def check(self) -> None:
        """Refuse what can't be, before the program begins.

        Raises:
            UsageError: an option names nothing, or two don't go together.
            ExportError: the trace can't be written.
        """
        from ikp.auto.plan import plan, span

        plan(self.detail, self.lines, self.level)
        span(self.launch)
        choices.kernels(self.kernel)
        choices.of_launch(self.blocks, self.warps)
        if self.mode != "timeline":  # every clock goes with that
            self.session()
        self._check_path()

    def _check_path(self) -> None:
        """Look at the path; closer, and with numpy imported, where it may not do."""
        path = Path(self.path)
        default = self.force and path.suffix == ".pftrace"
        if not default or path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
            from ikp.core.checked import check_target

            check_target(path, self.force)

    def session(self) -> profile:
        """Return the session that records the program."""
        from ikp.core.session import profile

        size = self.buffer_mib * MIB if self.buffer_mib else None
        return profile(
            self.path, force=self.force, clock=self.clock, mode=self.mode, buffer_size=size
        )

    def launcher(self) -> Everything:
        """Return what launches the program's kernels; it has no session yet."""
        from ikp.auto.everything import Everything
        from ikp.auto.plan import plan, span

        return Everything(
            plan(self.detail, self.lines, self.level),
            lambda: None,
            span(self.launch),
            choices.of_launch(self.blocks, self.warps),
            kernels=choices.kernels(self.kernel),
            room=self.memory_mib * MIB,
        )


@dataclass(frozen=True, slots=True)
class Recording:
    """What launches the program's kernels, and the session they are in."""

    launcher: Everything
    session: profile | None  # None: kernels run plain
    stepped_in: object  # steps out when nobody holds it


def begin(text: str, *, forked: bool) -> Recording:
    """Have every launch from now on go through ikp.

    Args:
        text: the options.
        forked: whether this process is a child that the program forked.

    Raises:
        ExportError: the trace can't be written any more.
    """
    from ikp.auto.everything import stepping_in

    options = Options.parse(text)
    launcher = options.launcher()
    session = None if forked else options.session().__enter__()
    launcher.session = Forked() if forked else lambda: session
    os.register_at_fork(after_in_child=lambda: setattr(launcher, "session", Forked()))
    stepped_in = stepping_in(launcher)
    stepped_in.__enter__()
    frames.hide()
    return Recording(launcher, session, stepped_in)


class Forked:
    """Stands for the session in a process that the program forked, where kernels run plain."""

    def __init__(self) -> None:
        self._told = False

    def __call__(self) -> None:
        """Say at the first launch that it isn't recorded."""
        if not self._told:
            self._told = True
            say(
                f"process {os.getpid()} was forked by the program: its kernels run plain, and are "
                "in no trace."
            )


def end(text: str, recording: Recording | None) -> None:
    """Write the trace and report: the program is over, and what it printed comes first."""
    with suppress(Exception):  # Python tries again, and says what is wrong
        sys.stdout.flush()
    options = Options.parse(text)
    if recording is None or recording.session is None:
        report_nothing(Path(options.path))
        return
    recording.launcher.session = lambda: None  # daemon threads may go on
    recording.session.export = bool(recording.launcher.recorded)
    try:
        _close(recording.session)
        report(recording.session, recording.launcher, options)
    except KeyboardInterrupt:
        say("interrupted: the trace may be lost.")


def _close(session: profile) -> None:
    failed = getattr(sys, "last_value", None)  # what Python has shown a traceback of
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            session.__exit__(type(failed) if failed else None, failed, None)
        except Exception as lost:  # noqa: BLE001 - whatever a broken GPU raises
            say(f"the trace is lost: {lost}")
    for each in told:
        say(str(each.message))
