"""``ikp.schedule``: the steps of a program that a session records, as torch.profiler has it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from ikp.errors import UsageError


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
