"""List scheduler: ``reordered`` puts a sequence of instructions in an order with fewer stalls."""

from __future__ import annotations

from collections.abc import Sequence

from ikp.sass.assembly.assembler import CHAINED, GUARD_LATER, NEVER, Step

_LATE = 30
"""Assumed latency, in cycles, of an instruction whose end a scoreboard reports."""


def reordered(steps: Sequence[Step]) -> list[Step]:
    """Return the same steps in an order in which operands are ready when a step needs them.

    Each step still follows the steps whose results it reads or overwrites, and the readers of what
    it overwrites. Waits keep their position among all steps, and stores among stores. There must be
    no branches among the steps: these count the steps that they skip.
    """
    made: list[Step] = []
    part: list[Step] = []
    for step in steps:
        if step.waits:
            made += [*_part(part), step]
            part = []
        else:
            part.append(step)
    return [*made, *_part(part)]


def _part(steps: Sequence[Step]) -> list[Step]:
    before = [_needed(steps, at) for at in range(len(steps))]
    length = _lengths(steps, before)
    left, now = set(range(len(steps))), 0
    done: dict[int, int] = {}  # step -> when its results are there
    order: list[Step] = []
    while left:
        ready = [at for at in left if not before[at] & left]
        due = {
            at: max((_due(steps[at], steps[each], done[each]) for each in before[at]), default=0)
            for at in ready
        }
        at = min(ready, key=lambda each: (max(due[each], now), -length[each], each))
        left.discard(at)
        order.append(steps[at])
        now = max(now, due[at]) + 1
        done[at] = now - 1 + _time(steps[at])
    return order


def _needed(steps: Sequence[Step], at: int) -> set[int]:
    """Return the steps that must come before one."""
    step = steps[at]
    return {
        number
        for number, earlier in enumerate(steps[:at])
        if earlier.writes & (step.reads | step.writes)
        or earlier.reads & step.writes
        or (earlier.keeps and step.keeps)
    }


def _lengths(steps: Sequence[Step], before: Sequence[set[int]]) -> list[int]:
    """Return the critical path of each step: cycles from its issue to the end of all dependants."""
    length = [_time(step) for step in steps]
    for at in range(len(steps) - 1, -1, -1):
        for each in before[at]:
            length[each] = max(length[each], _time(steps[each]) + length[at])
    return length


def _due(step: Step, needed: Step, done: int) -> int:
    """Return when a step may issue behind another, whose operands are read at its issue."""
    if not needed.writes & (step.reads | step.writes):
        return 0
    return done + _later(step, needed)


def _later(step: Step, needed: Step) -> int:
    """Return how many cycles later than usual a step can read another's result."""
    if step.uniform and needed.uniform:
        return min(CHAINED - needed.time, 0)
    return GUARD_LATER if ("P", step.guard) in needed.writes else 0


def _time(step: Step) -> int:
    return _LATE if step.time == NEVER else step.time
