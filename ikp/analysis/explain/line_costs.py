"""``line_costs``: the part of the warps' time that source lines take, by what their code does.

A range's time is laid to its instructions by how long each holds its warp up; those of one line,
over all ranges, are its cost. What waits for memory is laid to the loads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from ikp.analysis.explain.counted_work import GUESS, RangeWork, counted_work
from ikp.analysis.explain.peaks import latency
from ikp.analysis.explain.places import Hot, hot_ranges
from ikp.analysis.explain.prepared import Prepared, once

_HELD: Final = {"clock": 20.0, "vote": 12.0}
"""Cycles for which reads of clocks and votes hold a warp up, about."""


@dataclass(frozen=True, slots=True)
class LineCost:
    """A source line's part of a launch.

    ``share`` is of the warps' time, ``parts`` that of its instructions by what they do, as
    ``LineFacts.parts``; ``counts`` are instructions of all warps, by the same.
    """

    line: str
    share: float
    parts: Mapping[str, float]
    counts: Mapping[str, float]
    ranges: tuple[RangeWork, ...]  # that hold its code, those of most of its time first
    slow: frozenset[str] = frozenset()  # the slow functions that it calculates

    def share_of(self, kinds: Collection[str]) -> float:
        """Return the part of the warps' time of its instructions of some kinds."""
        return sum(share for kind, share in self.parts.items() if kind in kinds)

    def count_of(self, kinds: Collection[str]) -> float:
        """Return how many instructions of some kinds all warps executed."""
        return sum(count for kind, count in self.counts.items() if kind in kinds)

    @property
    def count(self) -> float:
        """All its instructions."""
        return sum(self.counts.values())


@once
def line_costs(launch: Prepared) -> tuple[LineCost, ...]:
    """Return the lines of a launch's hot code, the dearest first; none if not counted."""
    work = counted_work(launch)
    parts: dict[str, dict[str, float]] = {}
    counts: dict[str, dict[str, float]] = {}
    where: dict[str, list[tuple[float, RangeWork]]] = {}
    slow: dict[str, set[str]] = {}
    for hot in hot_ranges(launch, work) if work is not None else ():
        held = _held(hot)
        for one in hot.work.facts.lines:
            cost = {k: n * _held_by(k) * hot.share / held for k, n in one.parts.items()}
            for kind, share in cost.items():
                known, number = parts.setdefault(one.line, {}), counts.setdefault(one.line, {})
                known[kind] = known.get(kind, 0.0) + share
                executed = one.parts[kind] * hot.work.executions
                number[kind] = number.get(kind, 0.0) + executed
            where.setdefault(one.line, []).append((sum(cost.values()), hot.work))
            slow.setdefault(one.line, set()).update(one.slow)
    found = [
        LineCost(
            line,
            sum(known.values()),
            known,
            counts[line],
            tuple(one for _, one in sorted(where[line], key=lambda pair: -pair[0])),
            frozenset(slow[line]),
        )
        for line, known in parts.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.share))


def _held_by(kind: str) -> float:
    """Return the cycles for which an instruction of a kind holds its warp up, about."""
    return _HELD.get(kind) or latency(kind)


def _held(hot: Hot) -> float:
    """Return the cycles for which all instructions of a range hold a warp up."""
    once, looped = hot.work.once, hot.work.uncounted
    every = {unit: once.get(unit, 0.0) + GUESS * looped.get(unit, 0.0) for unit in {*once, *looped}}
    return max(sum(count * latency(unit) for unit, count in every.items()), 1.0)
