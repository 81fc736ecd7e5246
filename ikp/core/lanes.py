"""The layout of intervals on a timeline's lanes, and the order in which they open and close.

A timeline draws ranges that nest inside each other on one lane, as a stack. A range that overlaps
another without nesting needs a lane of its own. Both nesting and lanes depend on the order of
events, and times alone do not settle that: a coarse clock gives many events the same tick. The
order of recording does (a range is recorded when it ends). The rules, for an event that was
recorded before another of its slot:

- it lies *before* it if it ended no later than the other started,
- else *inside* it if it started no earlier,
- else the two *overlap*.

Intervals that are no records, as blocks are, have no order of recording: :func:`pack` puts each on
the lowest lane that is free.

Plain arithmetic on arrays, without traces or file formats. A lane here is one of a drawn timeline,
not a thread of a warp.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.sorting import order_by

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MAX_DEPTH: Final = 510
"""Most ranges stacked on one lane. Perfetto's trace processor drops slices deeper than 511, and an
instant inside the innermost range counts as well."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The order in which the events of many slots open and close, as positions ``0 .. n - 1``.

    ``opens`` and ``closes`` are equal for an instant, which takes one position; a range takes two.
    In stream order each lane is a correct sequence of brackets, in which times never go back.
    ``lane`` is 0 for all but ranges that overlap, or lie too deep, within their slot.
    """

    opens: Ints
    closes: Ints
    lane: Ints

    def __len__(self) -> int:
        return int(self.closes[-1]) + 1 if len(self.closes) else 0


def arrange(
    slot: NDArray[np.integer[Any]],
    start: Ints,
    end: Ints,
    is_range: Bools,
    max_depth: int = MAX_DEPTH,
) -> Stream:
    """Order the events of all slots, and give lanes to those that need one.

    Events are sorted by slot, and within a slot by end; equal ends are in the order of recording.
    """
    first, holders = _first_inside(slot, start, end)
    closed_before = np.arange(len(slot)) if is_range.all() else np.cumsum(is_range) - is_range
    depth = _depth(first, holders)
    if int(depth.max(initial=0)) >= max_depth or _crosses(start, first, holders):
        return _untangle(slot, start, first, is_range, closed_before, max_depth)
    # Each range opens at the depth at which it closes: before it come the ranges that have closed,
    # and those that are still open.
    closes = np.arange(len(slot)) + closed_before + is_range + depth
    opens = closes - is_range
    opens[holders] = first[holders] + closed_before[first[holders]] + depth[holders]
    return Stream(opens, closes, np.zeros(len(slot), np.int64))


def _first_inside(
    slot: NDArray[np.integer[Any]], start: Ints, end: Ints
) -> tuple[Ints, NDArray[np.intp]]:
    """Return, for each event, the first of its slot that does not lie before it; at most itself.

    Also return the events whose first is another event: ranges that hold or overlap others.
    """
    first = np.arange(len(slot))
    holders = np.flatnonzero(end[:-1] > start[1:]) + 1
    holders = holders[slot[holders - 1] == slot[holders]]
    if len(holders):
        low, high = np.searchsorted(slot, slot[holders]), holders
        while np.any(low < high):  # bisect for all of them together
            middle = (low + high) // 2
            after = end[middle] > start[holders]
            low, high = np.where(after, low, middle + 1), np.where(after, middle, high)
        first[holders] = low
    return first, holders


def _crosses(start: Ints, first: Ints, holders: NDArray[np.intp]) -> bool:
    """Return whether any range overlaps another; also True where finding out takes too long."""
    if int((holders - first[holders]).sum()) > MAX_VISITS * len(start):
        return True
    spans = np.column_stack([first[holders], holders]).reshape(-1)
    earliest = np.minimum.reduceat(start, spans)[::2] if len(spans) else start[:0]
    return bool(np.any(earliest < start[holders]))


def _depth(first: Ints, holders: NDArray[np.intp]) -> Ints:
    """Return how many ranges are open right after each event, where none overlap."""
    change = np.bincount(first[holders], minlength=len(first))
    change -= np.bincount(holders, minlength=len(first))
    return np.cumsum(change)


MAX_VISITS: Final = 32
"""How often each event may be looked at, on average, to see that ranges nest. Deep nesting takes
the other way, whose cost does not depend on the depth."""


def _untangle(
    slot: NDArray[np.integer[Any]],
    start: Ints,
    first: Ints,
    is_range: Bools,
    closed_before: Ints,
    max_depth: int,
) -> Stream:
    """Order events of which some overlap or lie too deep, and put these on lanes of their own."""
    opened = np.cumsum(np.bincount(first[is_range], minlength=len(slot)))
    closes = np.arange(len(slot)) + opened
    rank = _ranks(start, first, is_range)
    opens = np.where(is_range, first + rank, closes)
    # Where ranges nest, each one opens at the depth at which it closes.
    depth = opened - closed_before - is_range
    tangled = is_range & ((rank - closed_before[first] != depth) | (depth >= max_depth))
    lane = np.zeros(len(slot), np.int64)
    for events in _slots_with(slot, tangled, is_range):
        lane[events] = _stack(opens[events], closes[events], max_depth)
    return Stream(opens, closes, lane)


def _ranks(start: Ints, first: Ints, is_range: Bools) -> Ints:
    """Return the rank of each range in the order of opening; of ranges that tie, outer ones first.

    Of two ranges that start together, the one recorded later holds the other, or overlaps it.
    """
    ranges = np.flatnonzero(is_range)
    order = np.lexsort((-ranges, start[ranges], first[ranges]))
    rank = np.zeros(len(start), np.int64)
    rank[ranges[order]] = np.arange(len(ranges))
    return rank


def _slots_with(
    slot: NDArray[np.integer[Any]], chosen: Bools, is_range: Bools
) -> list[NDArray[np.intp]]:
    """Return the ranges of each slot that holds any of the chosen events."""
    slots = np.unique(slot[chosen])
    low, high = np.searchsorted(slot, slots), np.searchsorted(slot, slots, "right")
    return [
        begin + np.flatnonzero(is_range[begin:stop]) for begin, stop in zip(low, high, strict=True)
    ]


def _stack(opens: Ints, closes: Ints, max_depth: int) -> Ints:
    """Put each range on the lowest lane on which it nests."""
    lanes = np.empty(len(opens), np.int64)
    stacks: list[list[int]] = []
    order = np.argsort(opens)
    for i, begin, end in zip(
        order.tolist(), opens[order].tolist(), closes[order].tolist(), strict=True
    ):
        for lane, stack in enumerate(stacks):  # noqa: B007  the lane is used after the loop
            while stack and stack[-1] < begin:
                stack.pop()
            if not stack or (stack[-1] > end and len(stack) < max_depth):
                break
        else:
            lane, stack = len(stacks), []
            stacks.append(stack)
        stack.append(end)
        lanes[i] = lane
    return lanes


def pack(group: Ints, start: Ints, end: Ints, order: tuple[Ints, Ints]) -> Ints:
    """Return the lowest lane on which each interval touches no other one of its group.

    ``order`` holds the first and the last position of each interval in some file. One interval may
    start on a lane at the time at which another ends, if it follows that one in the file too.
    """
    lanes = np.zeros(len(group), np.int64)
    by_start = order_by(group, start, order[0])
    group, start, end = group[by_start], start[by_start], end[by_start]
    first, last = (places[by_start] for places in order)
    free = (start[1:] > end[:-1]) | ((start[1:] == end[:-1]) & (first[1:] > last[:-1]))
    busy = np.unique(group[1:][~free & (group[1:] == group[:-1])])
    low, high = np.searchsorted(group, busy), np.searchsorted(group, busy, "right")
    found = np.zeros(len(group), np.int64)
    parts, left = _alike(low, high)
    until = _words(start, end, first, last) if len(parts) else None
    if until is None:
        left = [*parts, *left]
    else:
        left += _pack_many(*until, parts, found)
    for begin, stop in left:
        part = slice(begin, stop)
        found[part] = _pack_one(start[part], end[part], first[part], last[part])
    lanes[by_start] = found
    return lanes


_Parts = list[tuple[int, int]]

_GROUPS: Final = 16
"""Fewest groups for which one array of their lanes takes less time than a heap per group."""
_FIRST_LANES, _LANES = 8, 64
"""Lanes of that array for each group, at first and at most. A group that needs more gets a heap."""


def _alike(low: Ints, high: Ints) -> tuple[_Parts, _Parts]:
    """Split groups by size: those of about one size, largest first, and the few larger ones."""
    sizes = high - low
    order = np.argsort(-sizes, kind="stable")
    rest = np.cumsum(sizes[order][::-1])[::-1]  # of these and all smaller ones
    alike = np.flatnonzero(rest >= _GROUPS * sizes[order])
    cut = int(alike[0]) if len(alike) else len(order)
    parts = list(zip(low[order].tolist(), high[order].tolist(), strict=True))
    return parts[cut:], parts[:cut]


def _words(start: Ints, end: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints] | None:
    """Return the begin and end of each interval as words: a time, then a position in the file.

    None where a word takes more than 63 bits.
    """
    zero, bits = int(start.min()), int(last.max()).bit_length()
    if (int(end.max()) - zero).bit_length() + bits > _WORD_BITS:
        return None
    return (start - zero) << bits | first, (end - zero) << bits | last


_WORD_BITS: Final = 63


def _pack_many(begin: Ints, end: Ints, parts: _Parts, lanes: Ints) -> _Parts:
    """Put the intervals of groups on lanes: in each step, the next interval of every group.

    Returns the groups that need too many lanes for an array.
    """
    low, high = np.array(parts).T
    goes_on = np.searchsorted(low - high, -np.arange(int(high[0] - low[0])))
    until = np.full((len(parts), _FIRST_LANES), -1)  # by lane: when it is free again
    wide = np.zeros(len(parts), bool)
    number = np.arange(len(parts))
    for step, count in enumerate(goes_on.tolist()):
        rows, groups = low[:count] + step, number[:count]
        free = until[:count] < begin[rows][:, None]
        lane = free.argmax(1)
        full = ~free[groups, lane] & ~wide[:count]
        if full.any():
            known = until.shape[1]
            if known < _LANES:
                until = np.pad(until, ((0, 0), (0, known)), constant_values=-1)
                lane[full] = known
            else:
                wide[:count] |= full
        until[groups, lane] = end[rows]
        lanes[rows] = lane
    return [parts[one] for one in np.flatnonzero(wide).tolist()]


def _pack_one(start: Ints, end: Ints, first: Ints, last: Ints) -> list[int]:
    lanes = []
    busy: list[tuple[int, int, int]] = []  # end, last place, lane
    free: list[int] = []
    for begin, stop, low, high in zip(
        start.tolist(), end.tolist(), first.tolist(), last.tolist(), strict=True
    ):
        while busy and (busy[0][0], busy[0][1]) < (begin, low):
            heapq.heappush(free, heapq.heappop(busy)[2])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (stop, high, lane))
        lanes.append(lane)
    return lanes
