"""``hot_code``: the code in which warps spend their time, and what it issues.

Of a range whose time goes into loops of unknown trips, one iteration of these counts: how often
they go round is not known, but what each unit has of their instructions is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ikp.analysis.explain.counted_work import CountedWork, RangeWork, counted_work
from ikp.analysis.explain.peaks import latency
from ikp.analysis.explain.places import self_time, short_line
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.verdict import HotCode
from ikp.core.code_facts import LineFacts

_SEVERAL: Final = 8.0
"""Instructions in loops of unknown trips from which on these loops are the range's time. And those
of a range from which on they say anything: a wait is one."""
_MOST: Final = 3
_UNITS: Final = 7
_LINES: Final = 3
_LEAST: Final = 0.05
"""Share of the warps' time below which code is not hot."""


@dataclass(frozen=True, slots=True)
class Hot:
    """A range with time of its own.

    ``mix`` has its instructions by unit, of one execution; of one iteration where ``looped``.
    """

    work: RangeWork
    share: float  # of the warps' time
    mix: Mapping[str, float]
    looped: bool  # its time is in loops of unknown trips

    @property
    def total(self) -> float:
        """All instructions of the mix."""
        return sum(self.mix.values())

    def part(self, chosen: Callable[[str], bool]) -> float:
        """Return the part of the time for which instructions of chosen units hold a warp up."""
        held = sum(count * latency(unit) for unit, count in self.mix.items() if chosen(unit))
        return held / self._held

    def part_of_lines(self, lines: Iterable[LineFacts]) -> float:
        """Return the same for arithmetic of some source lines."""
        counts = (each.looped if self.looped else each.count for each in lines)
        return min(sum(counts) * latency("integer") / self._held, 1.0)

    @property
    def _held(self) -> float:
        return max(sum(count * latency(unit) for unit, count in self.mix.items()), 1.0)


def hot_ranges(launch: Prepared, work: CountedWork) -> list[Hot]:
    """Return the ranges whose own code takes time, those with the most first."""
    whole = max(launch.warp_time, 1)
    found = []
    for one in work.ranges:
        share = self_time(launch, one, work.kernel) / whole
        if share >= _LEAST:
            looped = sum(one.uncounted.values()) >= _SEVERAL
            found.append(Hot(one, share, one.uncounted if looped else one.once, looped))
    return sorted(found, key=lambda each: -each.share)


def laid_to(launch: Prepared, work: CountedWork, chosen: Callable[[str], bool]) -> float:
    """Return the part of the warps' time that instructions of chosen units hold warps up for.

    The time of each range is laid to its instructions by their latencies.
    """
    return sum(one.share * one.part(chosen) for one in hot_ranges(launch, work))


def hot_code(launch: Prepared) -> tuple[HotCode, ...]:
    """Return the hottest code of a launch for its verdict; none if not counted."""
    work = counted_work(launch)
    some = [one for one in hot_ranges(launch, work) if one.total >= _SEVERAL] if work else []
    return tuple(map(_described, some[:_MOST]))


def _described(one: Hot) -> HotCode:
    lines = {
        each.line: each.looped if one.looped else each.count
        for each in one.work.facts.lines
        if (each.looped if one.looped else each.count) >= 1
    }
    return HotCode(
        one.work.name,
        one.share,
        "iteration" if one.looped else "execution",
        one.total,
        _largest(one.mix, _UNITS),
        tuple((short_line(line), count) for line, count in _largest(lines, _LINES)),
    )


def _largest(counts: Mapping[str, float], most: int) -> tuple[tuple[str, float], ...]:
    """Return the largest counts, with their names."""
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple((name, round(count, 1)) for name, count in order[:most] if count)
