"""Matches launches with another profiler's kernel records: by time, or by order of launch.

A record of CUPTI's holds the launch, first warp to last, with less than a microsecond around it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.host_trace import HostSlice
from ikp.core.trace import Launch

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Shape = tuple[Any, ...]

NEAR_NS: Final = 1_000_000
"""A launch without a record of its shape so near has none."""
SLACK_NS: Final = 1_000
"""By how much a launch may be outside of its record: CUPTI's times have their own error."""
_LIKE: Final = 2.0
"""Another order of launches is as good where its spread is at most so many times the best one's."""
_STEADY_NS: Final = 2_000.0
"""A spread that comes from the clocks alone, in any order of launches."""


@dataclass(frozen=True, slots=True)
class Spans:
    """When some launches ran: first warp and last one. Two columns, by launch."""

    first: Ints
    last: Ints

    @property
    def middle(self) -> Ints:
        """The middles."""
        return self.first + (self.last - self.first) // 2

    def moved(self, by: Ints) -> Spans:
        """Return the spans, each later by its own number of ns."""
        return Spans(self.first + by, self.last + by)


@dataclass(frozen=True, slots=True)
class Matched:
    """Launches and their records, by index, and by how many ns a launch is outside of its own."""

    launch: Ints
    record: Ints
    overhang: Ints
    unclear: int  # how many lie within another record of their kernel, too: it ran at once

    def misfits(self, slack_ns: float) -> int:
        """Return how many launches are outside by more than that."""
        return int((self.overhang > slack_ns).sum())


def groups(
    launches: Sequence[Launch], records: Sequence[HostSlice]
) -> list[tuple[list[int], list[int]]]:
    """Return indices of launches and records that may belong together, by grid, block and name.

    Names decide only where both sides have some in common: labels are the user's.
    """
    ours, theirs = defaultdict[Shape, list[int]](list), defaultdict[Shape, list[int]](list)
    for index, launch in enumerate(launches):
        ours[launch.grid, launch.block].append(index)
    for index, record in enumerate(records):
        theirs[_triple(record.args, "grid"), _triple(record.args, "block")].append(index)
    made = []
    for shape, some in ours.items():
        names = {records[index].name for index in theirs[shape]}
        apart = defaultdict[str, list[int]](list)
        for index in some:
            own = launches[index].kernel, launches[index].label
            apart[next((name for name in own if name in names), "")].append(index)
        named = set(apart) - {""}
        for name, mine in apart.items():
            found = [
                index
                for index in theirs[shape]
                if (records[index].name == name if name else records[index].name not in named)
            ]
            made.append((mine, found))
    return made


def _triple(args: Mapping[str, Any], name: str) -> tuple[int, ...]:
    found = args.get(name)
    return tuple(found) if isinstance(found, (list, tuple)) else ()


def by_time(spans: Spans, records: Spans, alike: Sequence[tuple[list[int], list[int]]]) -> Matched:
    """Match each launch with the nearest record that no other launch has; both keep their order."""
    pairs: list[tuple[int, int]] = []
    unclear = 0
    for mine, theirs in alike:
        if not mine or not theirs:
            continue
        launch = np.array(mine)[np.argsort(spans.middle[mine], kind="stable")]
        record = np.array(theirs)[np.argsort(records.middle[theirs], kind="stable")]
        at, there = spans.middle[launch], records.middle[record]
        behind = -1
        for number, middle in enumerate(at.tolist()):
            low = max(int(np.searchsorted(there, middle)) - 1, behind + 1)
            near = range(low, min(low + 2, len(there)))
            far, best = min(((abs(int(there[i]) - middle), i) for i in near), default=(0, -1))
            if best >= 0 and far <= NEAR_NS:
                pairs.append((int(launch[number]), int(record[best])))
                behind = best
                others = record[[each for each in (best - 1, best + 1) if 0 <= each < len(there)]]
                first, last = spans.first[launch[number]], spans.last[launch[number]]
                within = (records.first[others] <= first) & (last <= records.last[others])
                unclear += bool(within.any())
    table = np.array(sorted(pairs), np.int64).reshape(-1, 2)
    one, other = table.T
    over = np.maximum(
        records.first[other] - spans.first[one], spans.last[one] - records.last[other]
    )
    return Matched(one, other, over, unclear)


_OUTLIER: Final = 6.0
"""An offset so many times as far from the middle one as half of them does not shape the line."""


class UnclearError(Exception):
    """Launches and records can't be matched by their order alone; the text says why."""


def by_order(
    spans: Spans, records: Spans, alike: Sequence[tuple[list[int], list[int]]]
) -> tuple[Ints, Ints]:
    """Match launches with records without a common clock, by the rhythm in which they come.

    Returns:
        The indices of launches and records.

    Raises:
        UnclearError: too few, or several matches are equally good.
    """
    usable = [each for each in alike if 1 < len(each[0]) <= len(each[1])]
    equal = [each for each in alike if each[0] and len(each[0]) == len(each[1])]
    usable += [each for each in equal if len(each[0]) == 1]
    if not usable:
        raise UnclearError(
            "no kernel has as many records as launches, or more: the profiler did not see them"
        )
    best = max(usable, key=lambda each: (len(each[0]) == len(each[1]), len(each[0])))
    launch = np.array(best[0])[np.argsort(spans.middle[best[0]], kind="stable")]
    record = np.array(best[1])[np.argsort(records.middle[best[1]], kind="stable")]
    at, there = spans.middle[launch], records.middle[record]
    apart = [_spread(there[k : k + len(at)] - at) for k in range(len(there) - len(at) + 1)]
    order = np.argsort(apart, kind="stable")
    if len(apart) > 1 and apart[order[1]] <= max(_LIKE * apart[order[0]], _STEADY_NS):
        raise UnclearError(
            f"{len(launch)} launches and {len(record)} records of a kernel come so regularly that "
            "several orders fit"
        )
    return launch, record[order[0] : order[0] + len(launch)]


def _spread(apart: Ints) -> float:
    """Return how far offsets are from a line: the clocks drift."""
    from_first = (apart - apart[0]).astype(np.float64)
    return float(np.median(np.abs(from_first - np.median(from_first))))


def line_through(at: Ints, apart: Ints) -> tuple[int, int, float]:
    """Return a line through offsets at some times: its zero, its offset there, and its slope."""
    zero, first = int(at[len(at) // 2]), int(np.median(apart))
    x, y = (at - zero).astype(np.float64), (apart - first).astype(np.float64)
    far = np.abs(y - np.median(y))
    near = far <= max(_STEADY_NS, _OUTLIER * float(np.median(far)))
    x, y = x[near], y[near]
    if np.ptp(x) < NEAR_NS:  # too short for a drift to be seen
        return zero, first + round(float(np.median(y))), 0.0
    slope, offset = np.polyfit(x, y, 1)
    return zero, first + round(float(offset)), float(slope)
