"""``ikp.schedule``: which steps of a program a session records, in cycles as torch.profiler has.

``Schedule`` has the phase of each step. ``Cycles`` has what changes in a session: the current step,
the file of each cycle, and the room on the disk.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ikp.errors import UsageError
from ikp.session.current import STEP

if TYPE_CHECKING:
    from ikp.trace import Trace


class Phase(Enum):
    """The phases of a schedule's step."""

    WAIT = "wait"  # no buffers: kernels run as without ikp
    WARMUP = "warmup"  # buffers with recording off: kernels are compiled as for records
    ACTIVE = "active"  # recorded


@dataclass(frozen=True, slots=True)
class Schedule:
    """Cycles of steps to wait for, to warm up in, and to record; made by ``ikp.schedule``."""

    wait: int
    warmup: int
    active: int
    repeat: int
    skip_first: int

    @property
    def cycle(self) -> int:
        """Steps of one cycle."""
        return self.wait + self.warmup + self.active

    def phase(self, step: int) -> Phase:
        """Return the phase of a step, counted from 0."""
        number, at = divmod(step - self.skip_first, self.cycle)
        if number < 0 or (self.repeat and number >= self.repeat) or at < self.wait:
            return Phase.WAIT
        return Phase.WARMUP if at < self.wait + self.warmup else Phase.ACTIVE

    def first(self, step: int) -> int:
        """Return the first recorded step of a step's cycle."""
        number = max(0, step - self.skip_first) // self.cycle
        return self.skip_first + number * self.cycle + self.wait + self.warmup

    def ends(self, step: int) -> bool:
        """Return whether a step is the last recorded one of its cycle."""
        return self.phase(step) is Phase.ACTIVE and step == self.first(step) + self.active - 1


def schedule(
    *, wait: int = 0, warmup: int = 0, active: int, repeat: int = 0, skip_first: int = 0
) -> Schedule:
    """Return which steps a session records: ``ikp.profile(path, steps=...)``, ``prof.step()``.

    A cycle is ``wait`` steps without records, ``warmup`` steps in which kernels are compiled and
    launched as for records but record nothing, and ``active`` recorded steps.

    Args:
        wait: steps.
        warmup: steps.
        active: steps, at least one.
        repeat: cycles; 0 goes on to the end.
        skip_first: steps before the first cycle.

    Raises:
        UsageError: a number is no such count.
    """
    counts: dict[str, Any] = {"wait": wait, "warmup": warmup, "active": active}
    counts |= {"repeat": repeat, "skip_first": skip_first}
    for name, value in counts.items():
        least = int(name == "active")
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UsageError(f"{name}={value!r} is no number of steps: use {least} or more.")
    return Schedule(**counts)


@dataclass(slots=True)
class Cycles:
    """The schedule of a session and what has been written of it; without one, all is recorded."""

    schedule: Schedule | None
    on_trace_ready: Callable[[Trace], object] | None
    disk: int | None  # bytes
    step: int = 0  # the program's
    written: deque[tuple[str, int]] = field(default_factory=deque)  # files and bytes, oldest first
    phase: Phase = Phase.ACTIVE
    """Of the current step: worked out once a step, as each launch asks for it."""

    def __post_init__(self) -> None:
        """Find the first step's phase; ``check`` refuses what is no schedule."""
        if isinstance(self.schedule, Schedule):
            self.phase = self.schedule.phase(self.step)

    def next_step(self) -> None:
        """Go on to the next step."""
        self.step += 1
        if self.schedule is not None:
            self.phase = self.schedule.phase(self.step)

    @property
    def ends(self) -> bool:
        """Whether the current step is the last recorded one of its cycle."""
        if self.schedule is None or self.phase is not Phase.ACTIVE:  # as in most steps
            return False
        return self.schedule.ends(self.step)

    @staticmethod
    def has_place(path: str | os.PathLike[str]) -> bool:
        """Return whether each cycle has a file of its own."""
        return STEP in os.fspath(path)

    def check(self, path: str | os.PathLike[str] | None) -> None:
        """Check the options.

        Raises:
            UsageError: one is of no use without another.
        """
        place = path is not None and self.has_place(path)
        _check_schedule(self.schedule)
        for name, value in (("on_trace_ready", self.on_trace_ready), ("disk", self.disk)):
            if value is not None and self.schedule is None:
                raise UsageError(f"{name} is for a session with steps=ikp.schedule(...).")
        if place and self.schedule is None:
            raise UsageError(
                f"{os.fspath(path or '')} wants the step of each cycle, and the session has none: "
                "give it steps=ikp.schedule(...)."
            )
        if self.disk is not None and not place:
            raise UsageError(
                f"disk={self.disk} bounds the files of cycles: write {STEP} into the path."
            )

    def path(self, path: str) -> str:
        """Return a path with the first recorded step of the current cycle in its place."""
        first = 0 if self.schedule is None else self.schedule.first(self.step)
        return path.replace(STEP, str(first))

    def wrote(self, path: str) -> None:
        """Note a file, and delete the oldest ones beyond the room on the disk."""
        self.written.append((path, Path(path).stat().st_size))
        while (
            self.disk is not None
            and len(self.written) > 1
            and sum(size for _, size in self.written) > self.disk
        ):
            with suppress(FileNotFoundError):
                Path(self.written.popleft()[0]).unlink()


def _check_schedule(given: object) -> None:
    """Refuse what is no schedule: annotated types of what users pass are not trusted."""
    if given is not None and not isinstance(given, Schedule):
        raise UsageError(f"steps={given!r} is no schedule: make one with ikp.schedule(active=...).")
