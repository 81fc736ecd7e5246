"""Matches launches with another profiler's kernel records: by number, by time, or by order.

A record of CUPTI's holds the launch, first warp to last, with less than a microsecond around it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.host_trace import HostSlice
from ikp.core.trace import Launch
from ikp.core.turns import IN_TURN

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

    @classmethod
    def of(cls, records: Sequence[HostSlice]) -> Spans:
        """Return when launches ran by their records."""
        starts, ends = ([each.start_ns for each in records], [each.end_ns for each in records])
        return cls(np.array(starts, np.int64), np.array(ends, np.int64))

    @property
    def middle(self) -> Ints:
        """The middles."""
        return self.first + (self.last - self.first) // 2

    def moved(self, by: Ints) -> Spans:
        """Return the spans, each later by its own number of ns."""
        return Spans(self.first + by, self.last + by)


@dataclass(frozen=True, slots=True)
class MatchGroup:
    """Launches and records that may belong together, by index."""

    launches: list[int]
    records: list[int]
    named: bool  # by their name; else by grid and block alone


@dataclass(frozen=True, slots=True)
class Matched:
    """Launches and their records, by index, and by how many ns a launch is outside of its own."""

    launch: Ints
    record: Ints
    overhang: Ints
    named: NDArray[np.bool_]  # by name or number; else by grid, block and time alone
    unclear: int  # how many lie within another record of their kernel, too: it ran at once
    numbered: int = 0  # how many are matched by their numbers, and so by correlation ids

    def misfits(self, slack_ns: float) -> int:
        """Return how many launches are outside by more than that."""
        return int((self.overhang > slack_ns).sum())

    def certain(self, slack_ns: float, most: float) -> Matched:
        """Return the matches without records of other kernels, as clocks show them to be.

        A launch that the profiler did not see takes a record of its grid and block nearby, of a
        name that no launch has. It has none where it is outside, and launches whose names decided
        are inside, but for a share of ``most``.
        """
        outside = self.overhang > slack_ns
        if not self.named.any() or outside[self.named].mean() > most:
            return self
        kept = self.named | ~outside
        launch, record, overhang = self.launch[kept], self.record[kept], self.overhang[kept]
        return Matched(launch, record, overhang, self.named[kept], self.unclear, self.numbered)


@dataclass(frozen=True, slots=True)
class Numbered:
    """Launches whose records are known by their numbers, and those that contradict them."""

    record: Mapping[int, int]  # by launch
    odd: Sequence[int]  # launches whose record has another grid or name


def _names(launch: Launch) -> dict[str, None]:
    """Return the names that a launch's record may have, the likeliest first.

    A record has the name of a function alone; a kernel's full name may begin with its module's.
    """
    own = [each for each in (launch.kernel, launch.label) if each]
    return dict.fromkeys([*own, *(each.rpartition(".")[2] for each in own)])


def _agrees(launch: Launch, record: HostSlice, names: set[str]) -> bool:
    """Whether a record is of a launch's grid, and of its name where any record has that."""
    known = [each for each in _names(launch) if each in names]
    return launch.grid == _shape(record)[0] and (record.name in known or not known)


def by_number(launches: Sequence[Launch], records: Sequence[HostSlice]) -> Numbered:
    """Match launches with the records that have their numbers.

    Grid and name are compared. A name counts only where any record has it: labels are the user's.
    """
    where = {each.launch: index for index, each in enumerate(records) if each.launch}
    names = {each.name for each in records}
    made, odd = dict[int, int](), list[int]()
    for number, launch in enumerate(launches):
        index = where.get(launch.number) if launch.number else None
        if index is None:
            continue
        if _agrees(launch, records[index], names):
            made[number] = index
        else:
            odd.append(number)
    return Numbered(made, odd)


def groups(launches: Sequence[Launch], records: Sequence[HostSlice]) -> list[MatchGroup]:
    """Return the launches and records that may belong together, by grid, block and name.

    Names decide only where both sides have some in common: labels are the user's.
    """
    ours, theirs = defaultdict[Shape, list[int]](list), defaultdict[Shape, list[int]](list)
    for index, launch in enumerate(launches):
        ours[launch.grid, launch.block].append(index)
    for index, record in enumerate(records):
        theirs[_shape(record)].append(index)
    made = list[MatchGroup]()
    for shape, some in ours.items():
        made += _by_name(launches, records, some, theirs[shape])
    return made


def _by_name(
    launches: Sequence[Launch], records: Sequence[HostSlice], ours: list[int], theirs: list[int]
) -> Iterator[MatchGroup]:
    """Yield the launches and records of one shape that may belong together."""
    names = {records[index].name for index in theirs}
    apart = defaultdict[str, list[int]](list)
    for index in ours:
        apart[next((name for name in _names(launches[index]) if name in names), "")].append(index)
    others = defaultdict[str, list[int]](list)
    for index in theirs:
        name = records[index].name
        others[name if name in apart else ""].append(index)
    for name, mine in apart.items():
        yield MatchGroup(mine, others[name], bool(name))


def _shape(record: HostSlice) -> Shape:
    return _triple(record.args, "grid"), _triple(record.args, "block")


def _triple(args: Mapping[str, Any], name: str) -> tuple[int, ...]:
    found = args.get(name)
    return tuple(found) if isinstance(found, (list, tuple)) else ()


def by_time(
    spans: Spans,
    records: Spans,
    alike: Sequence[MatchGroup],
    known: Mapping[int, int],
) -> Matched:
    """Match each launch with its nearest record, if no other launch is nearer to that.

    So a launch without a record takes none of its neighbours'. Launches that are left get what is
    left, where both overlap. ``known`` has records by launch, where these are known: no other
    launch gets them.
    """
    pairs = [(*each, True) for each in known.items()]
    taken = set(known.values())
    unclear = 0
    for some in alike:
        mine = [each for each in some.launches if each not in known]
        theirs = [each for each in some.records if each not in taken]
        if not mine or not theirs:
            continue
        launch = np.array(mine)[np.argsort(spans.middle[mine], kind="stable")]
        record = np.array(theirs)[np.argsort(records.middle[theirs], kind="stable")]
        one, other = _mutual(spans, records, launch, record)
        found = zip(launch[one].tolist(), record[other].tolist(), strict=True)
        pairs += [(*each, some.named) for each in found]
        unclear += _unclear(spans, records, launch[one], record, other)
    table = np.array(sorted(pairs), np.int64).reshape(-1, 3)
    one, other, named = table.T
    over = np.maximum(
        records.first[other] - spans.first[one], spans.last[one] - records.last[other]
    )
    return Matched(one, other, over, named.astype(bool), unclear, len(known))


def _unclear(spans: Spans, records: Spans, launch: Ints, record: Ints, nearest: Ints) -> int:
    """Return how many launches are also within a record beside their nearest one."""
    count = 0
    for own, at in zip(launch.tolist(), nearest.tolist(), strict=True):
        others = record[[each for each in (at - 1, at + 1) if 0 <= each < len(record)]]
        first, last = spans.first[own], spans.last[own]
        within = (records.first[others] <= first) & (last <= records.last[others])
        count += bool(within.any())
    return count


def _mutual(spans: Spans, records: Spans, launch: Ints, record: Ints) -> tuple[Ints, Ints]:
    """Return places of launches and records, in order of time, that are nearest to each other."""
    at, there = spans.middle[launch], records.middle[record]
    left, free = np.arange(len(at)), np.arange(len(there))
    one, other = np.zeros(0, np.int64), np.zeros(0, np.int64)
    while len(left) and len(free):
        best = _nearest(at[left], there[free])
        found = _nearest(there[free], at[left])[best] == np.arange(len(left))
        mine, theirs = left[found], free[best[found]]
        if not len(one):
            near = np.abs(there[theirs] - at[mine]) <= NEAR_NS
        else:
            a, b = launch[mine], record[theirs]
            near = (records.first[b] <= spans.last[a]) & (spans.first[a] <= records.last[b])
        if not near.any():
            break
        one, other = np.append(one, mine[near]), np.append(other, theirs[near])
        left, free = np.setdiff1d(left, one), np.setdiff1d(free, other)
    return one, other


def _nearest(times: Ints, others: Ints) -> Ints:
    """Return by time the index of the nearest of other times, which are in order."""
    right = np.clip(np.searchsorted(others, times), 1, max(len(others) - 1, 1))
    right = np.minimum(right, len(others) - 1)
    left = np.maximum(right - 1, 0)
    made: Ints = np.where(times - others[left] <= others[right] - times, left, right)
    return made


_OUTLIER: Final = 6.0
"""An offset so many times as far from the middle one as half of them does not shape the line."""


class UnclearError(Exception):
    """Launches and records can't be matched by their order alone; the text says why."""


def by_order(spans: Spans, records: Spans, alike: Sequence[MatchGroup]) -> tuple[Ints, Ints]:
    """Match launches with records without a common clock, by the rhythm in which they come.

    Returns:
        The indices of launches and records.

    Raises:
        UnclearError: too few, or several matches are equally good.
    """
    sizes = [(len(each.launches), len(each.records)) for each in alike]
    usable = [at for at, (mine, theirs) in enumerate(sizes) if 1 < mine <= theirs]
    usable += [at for at, each in enumerate(sizes) if each == (1, 1)]
    if not usable:
        raise UnclearError(
            "no kernel has as many records as launches, or more: the profiler did not see them"
        )
    best = alike[max(usable, key=lambda at: (sizes[at][0] == sizes[at][1], sizes[at][0]))]
    launch = np.array(best.launches)[np.argsort(spans.middle[best.launches], kind="stable")]
    record = np.array(best.records)[np.argsort(records.middle[best.records], kind="stable")]
    at, there = spans.middle[launch], records.middle[record]
    orders = [*_orders(len(at), len(there))]
    apart = [_spread(there[each] - at) for each in orders]
    by_spread = np.argsort(apart, kind="stable")
    first = int(by_spread[0])
    if any(apart[each] <= max(_LIKE * apart[first], _STEADY_NS) for each in by_spread[1:2]):
        raise UnclearError(
            f"{len(launch)} launches and {len(record)} records of a kernel come so regularly that "
            "several orders fit"
        )
    return launch, record[orders[first]]


def _orders(launches: int, records: int) -> Iterator[Ints]:
    """Yield the places among records that launches may have: in a row, or as ``ikp run`` chose."""
    row, chosen = np.arange(launches), np.array(IN_TURN[:launches])
    for places in [row] if launches > len(chosen) or (row == chosen).all() else [row, chosen]:
        yield from (places + first for first in range(records - int(places[-1])))


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
