"""Where intervals go when they are drawn: in which order they open and close, on which lane.

A timeline draws ranges that nest inside each other on one lane, as a stack. A range that overlaps
without nesting needs a lane of its own. Both questions are about order, and times alone do not
settle it: a coarse clock gives many events the same tick. The order of recording does (a range is
recorded when it ends), by these rules, for an event that was recorded before another of its slot:

- it lies *before* it if it ended no later than the other started, - else *inside* it if it started
no earlier, - else the two *overlap*.

A range goes to the lowest lane on which it nests: where the open ranges hold it. That depends on
where those before it went, so slots are taken together, and not the ranges of one: the next one of
each slot in one step of numpy.

Intervals of their own, as blocks are, have no order of recording: :func:`pack` puts each on the
lowest lane that is free.

Plain arithmetic on arrays: nothing here knows traces or file formats.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.sorting import order_by

Ints = NDArray[np.int64]
Parts = list[tuple[int, int]]
"""Where the rows of each group begin and end."""

GROUPS: Final = 16
"""Groups from which on an array of their lanes takes less time than a heap for each of them."""
FIRST_LANES, LANES = 8, 64
"""Lanes that such an array has for each group. A group that needs more gets a heap."""


_FIRST_DEPTH: Final = 8
"""Open ranges of a lane that there is room for at first."""
_NEVER: Final = np.iinfo(np.int64).max


def stack_all(opens: Ints, closes: Ints, low: Ints, high: Ints, max_depth: int) -> Ints:
    """Put the ranges of some slots on lanes, each on the lowest one on which it nests.

    Ranges are in the order of opening, those of a slot from ``low`` to ``high``; others get 0.
    """
    lanes = np.zeros(len(opens), np.int64)
    parts, left = alike(low, high)
    for known in (FIRST_LANES, LANES):
        if len(parts) >= GROUPS:
            parts = _stack_many(opens, closes, parts, lanes, known, max_depth)
    for begin, stop in parts + left:
        part = slice(begin, stop)
        lanes[part] = _stack(opens[part], closes[part], max_depth)
    return lanes


def _stack_many(
    opens: Ints, closes: Ints, parts: Parts, lanes: Ints, known: int, max_depth: int
) -> Parts:
    """Put the ranges of slots on lanes, the next one of all slots at a time.

    Returns the slots that have more lanes than ``known``.
    """
    low, high = np.array(parts).T
    goes_on = np.searchsorted(low - high, -np.arange(int(high[0] - low[0])))
    stacks = _Stacks(len(parts), known, min(max_depth, _FIRST_DEPTH))
    first = np.arange(len(parts)) * known
    for step, count in enumerate(goes_on.tolist()):
        rows = low[:count] + step
        lanes[rows] = stacks.push(first[:count], opens[rows], closes[rows], max_depth)
    return [parts[one] for one in np.flatnonzero(stacks.wide).tolist()]


class _Stacks:
    """The ends of the ranges that are open on each lane of each slot, the innermost one last.

    Cells are lanes of slots, slot by slot. Below the outermost range of each is one that never
    ends. A slot that is ``wide`` has no ends here.
    """

    def __init__(self, slots: int, lanes: int, depth: int) -> None:
        self.lanes = lanes
        self.ends = np.full((slots * lanes, depth + 1), _NEVER)
        self.height = np.zeros(slots * lanes, np.int64)
        self.top = np.full(slots * lanes, _NEVER)  # the innermost of each
        self.wide = np.zeros(slots, np.bool_)
        self.deepest = 0  # no lane holds more

    def push(self, first: Ints, opens: Ints, closes: Ints, max_depth: int) -> Ints:
        """Put one range on a lane of each slot, and return which: the lowest one that it fits.

        ``first`` are the first cells of the slots.
        """
        self._pop(opens)
        shape = len(opens), self.lanes
        top = self.top[: len(opens) * self.lanes].reshape(shape)
        fits = top > closes[:, None]
        if self.deepest >= max_depth:
            fits &= self.height[: fits.size].reshape(shape) < max_depth
        lane: Ints = fits.argmax(1)
        cells = first + lane
        there = fits.reshape(-1)[cells]
        if not there.all():
            full = np.flatnonzero(~there)
            self.wide[full] = True
            for state, empty in ((self.ends, _NEVER), (self.height, 0), (self.top, _NEVER)):
                state.reshape(len(self.wide), -1)[full] = empty
        depth = self.height[cells] + 1
        if (deepest := int(depth.max())) > self.deepest:
            self.deepest = deepest
            if deepest >= self.ends.shape[1]:
                self.ends = np.pad(self.ends, ((0, 0), (0, deepest)), constant_values=_NEVER)
        self.height[cells] = depth
        self.top[cells] = self.ends[cells, depth] = closes
        return lane

    def _pop(self, opens: Ints) -> None:
        """Take away what is over when the next range of each slot opens."""
        shape = len(opens), self.lanes
        cells = np.flatnonzero(self.top[: len(opens) * self.lanes].reshape(shape) < opens[:, None])
        while len(cells):
            height = self.height[cells] - 1
            top = self.ends[cells, height]
            self.height[cells], self.top[cells] = height, top
            cells = cells[top < opens[cells // self.lanes]]


def _stack(opens: Ints, closes: Ints, max_depth: int) -> list[int]:
    """Put each range on the lowest lane on which it nests; they are in the order of opening."""
    lanes = []
    stacks: list[list[int]] = []
    for begin, end in zip(opens.tolist(), closes.tolist(), strict=True):
        for lane, stack in enumerate(stacks):  # noqa: B007  the lane is used after the loop
            while stack and stack[-1] < begin:
                stack.pop()
            if not stack or (stack[-1] > end and len(stack) < max_depth):
                break
        else:
            lane, stack = len(stacks), []
            stacks.append(stack)
        stack.append(end)
        lanes.append(lane)
    return lanes


def alike(low: Ints, high: Ints) -> tuple[Parts, Parts]:
    """Return groups, the largest first, of which many go on until the end; and those before."""
    sizes = high - low
    order = np.argsort(-sizes, kind="stable")
    rest = np.cumsum(sizes[order][::-1])[::-1]  # of these and all smaller ones
    alike = np.flatnonzero(rest >= GROUPS * sizes[order])
    cut = int(alike[0]) if len(alike) else len(order)
    parts = list(zip(low[order].tolist(), high[order].tolist(), strict=True))
    return parts[cut:], parts[:cut]


Bools = NDArray[np.bool_]

_WORD_BITS: Final = 63
MAX_DEPTH: Final = 510
"""Ranges stacked on one lane. Perfetto's trace processor drops what is deeper than 511, and an
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

    Events are sorted by slot, and within a slot by end; equal ends are in order of recording.
    """
    first, holders = _first_inside(slot, start, end)
    closed_before = np.arange(len(slot)) if is_range.all() else np.cumsum(is_range) - is_range
    depth = _depth(first, holders)
    if int(depth.max(initial=0)) >= max_depth or _crosses(start, first, holders):
        return _untangle(slot, start, first, is_range, closed_before, max_depth)
    # Each range opens at the depth at which it closes: in front of it is what closed
    # before, and what is still open.
    closes = np.arange(len(slot)) + closed_before + is_range + depth
    opens = closes - is_range
    opens[holders] = first[holders] + closed_before[first[holders]] + depth[holders]
    return Stream(opens, closes, np.zeros(len(slot), np.int64))


def _first_inside(
    slot: NDArray[np.integer[Any]], start: Ints, end: Ints
) -> tuple[Ints, NDArray[np.intp]]:
    """Return, for each event, the first of its slot that does not lie before it; at most itself.

    Also return the events for which that is another one: ranges that hold or overlap others.
    """
    first = np.arange(len(slot))
    holders = np.flatnonzero(end[:-1] > start[1:]) + 1
    holders = holders[slot[holders - 1] == slot[holders]]
    if len(holders):
        first[holders] = _first_after(slot, start, end, holders)
    return first, holders


def _first_after(
    slot: NDArray[np.integer[Any]], start: Ints, end: Ints, rows: NDArray[np.intp]
) -> Ints:
    """Return for some events the first of their slot that ends after they start."""
    zero = int(start.min())
    span, slots = int(end.max()) - zero + 1, int(slot[-1]) - int(slot[0]) + 1
    if span * slots < 1 << _WORD_BITS:  # all slots on one axis, one behind the other
        place = (slot - slot[0]).astype(np.int64)
        place *= span
        wanted = place[rows] + (start[rows] - zero)
        place += end - zero
        found: Ints = np.searchsorted(place, wanted, "right")
        return found
    low, high = np.searchsorted(slot, slot[rows]), rows
    while np.any(low < high):  # bisect for all of them together
        middle = (low + high) // 2
        after = end[middle] > start[rows]
        low, high = np.where(after, low, middle + 1), np.where(after, middle, high)
    return low


def _crosses(start: Ints, first: Ints, holders: NDArray[np.intp]) -> bool:
    """Return whether any range overlaps another, or that takes too long to find out here."""
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
    """Order events of which some overlap or lie too deep, and put those on lanes of their own."""
    opened = np.cumsum(np.bincount(first[is_range], minlength=len(slot)))
    closes = np.arange(len(slot)) + opened
    by_opening = _opening_order(start, first, is_range)
    rank = np.zeros(len(slot), np.int64)
    rank[by_opening] = np.arange(len(by_opening))
    opens = np.where(is_range, first + rank, closes)
    # Where ranges nest, each one opens at the depth at which it closes.
    depth = opened - closed_before - is_range
    tangled = is_range & ((rank - closed_before[first] != depth) | (depth >= max_depth))
    lane = np.zeros(len(slot), np.int64)
    slots, of = np.unique(slot[tangled]), slot[by_opening]
    low, high = np.searchsorted(of, slots), np.searchsorted(of, slots, "right")
    lane[by_opening] = stack_all(opens[by_opening], closes[by_opening], low, high, max_depth)
    return Stream(opens, closes, lane)


def _opening_order(start: Ints, first: Ints, is_range: Bools) -> NDArray[np.intp]:
    """Return the ranges in the order of opening; of those that tie, outer ones first.

    Of two ranges that start together, the one recorded later holds the other, or overlaps it.
    """
    ranges = np.flatnonzero(is_range)[::-1]
    return ranges[order_by(first[ranges], start[ranges])]


def pack(group: Ints, start: Ints, end: Ints, order: tuple[Ints, Ints]) -> Ints:
    """Return the lowest lane on which each interval touches no other one of its group.

    ``order`` holds the first and the last place of each interval in some file. One interval may
    follow another on a lane at the very moment at which that ends, if it does so in the file too.
    """
    lanes = np.zeros(len(group), np.int64)
    by_start = order_by(group, start, order[0])
    group, start, end = group[by_start], start[by_start], end[by_start]
    first, last = (places[by_start] for places in order)
    free = (start[1:] > end[:-1]) | ((start[1:] == end[:-1]) & (first[1:] > last[:-1]))
    busy = np.unique(group[1:][~free & (group[1:] == group[:-1])])
    low, high = np.searchsorted(group, busy), np.searchsorted(group, busy, "right")
    found = np.zeros(len(group), np.int64)
    parts, left = alike(low, high)
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


def _words(start: Ints, end: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints] | None:
    """Return when each interval needs its lane, and has left it: a time and a place, as one number.

    None where that takes more than 63 bits.
    """
    zero, bits = int(start.min()), int(last.max()).bit_length()
    if (int(end.max()) - zero).bit_length() + bits > _WORD_BITS:
        return None
    return (start - zero) << bits | first, (end - zero) << bits | last


def _pack_many(begin: Ints, end: Ints, parts: Parts, lanes: Ints) -> Parts:
    """Put the intervals of groups on lanes, the next one of all groups at a time.

    Returns the groups that have too many lanes for that.
    """
    low, high = np.array(parts).T
    goes_on = np.searchsorted(low - high, -np.arange(int(high[0] - low[0])))
    until = np.full((len(parts), FIRST_LANES), -1)  # by lane: when it is free again
    wide = np.zeros(len(parts), bool)
    number = np.arange(len(parts))
    for step, count in enumerate(goes_on.tolist()):
        rows, groups = low[:count] + step, number[:count]
        free = until[:count] < begin[rows][:, None]
        lane = free.argmax(1)
        full = ~free[groups, lane] & ~wide[:count]
        if full.any():
            known = until.shape[1]
            if known < LANES:
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
