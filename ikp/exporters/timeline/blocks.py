"""Where blocks ran: on which SM, and on which lane among those that ran there at the same time."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.ordering import order_by, sort_by
from ikp.core.trace import Slots, Trace
from ikp.errors import ExportError

Ints = NDArray[np.int64]

Steps = tuple[Ints, Ints]
"""When a number changes, and to what."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """One row per block that ran: sorted by track, which is one for each launch, SM and lane.

    ``slots`` are the slots of all blocks, block by block; block i's begin at ``first[i]``.
    """

    launch: Ints
    block: Ints
    sm: Ints
    lane: Ints
    start: Ints
    end: Ints
    track: Ints
    first: Ints
    slots: Ints

    def part(self, low: int, high: int) -> Blocks:
        """Return the blocks from ``low`` up to ``high``, or to the last."""
        bounds = self.first[low : high + 1]
        if high >= len(self.first):
            bounds = np.append(bounds, len(self.slots))
        names = ("launch", "block", "sm", "lane", "start", "end", "track")
        return replace(
            self,
            **{name: getattr(self, name)[low:high] for name in names},
            first=bounds[:-1] - bounds[0],
            slots=self.slots[bounds[0] : bounds[-1]],
        )


def slot_bounds(trace: Trace) -> Ints:
    """Return where each slot's events begin; those of slot i end where those of i + 1 begin."""
    slot, slots = trace.events.slot, len(trace.slots)
    if len(slot) < slots:
        return np.searchsorted(slot, np.arange(slots + 1))
    return np.append(0, np.cumsum(np.bincount(slot, minlength=slots)))


def in_use(trace: Trace) -> tuple[Ints, Ints]:
    """Return from when to when each slot needs its track: its warp's life, and all its events."""
    slots, events, bounds = trace.slots, trace.events, slot_bounds(trace)
    start, end = slots.start_ns.copy(), np.maximum(slots.start_ns, slots.end_ns)
    filled = np.flatnonzero(bounds[1:] > bounds[:-1])
    if len(filled):
        first = bounds[filled]
        start[filled] = np.minimum(start[filled], _reduce(np.minimum, events.start_ns, first))
        end[filled] = np.maximum(end[filled], _reduce(np.maximum, events.end_ns, first))
    return start, end


def find_blocks(slots: Slots, used_start: Ints, used_end: Ints) -> tuple[Blocks, Ints]:
    """Return the blocks that ran, and the lane of each slot.

    Lanes are numbered by launch, SM and their place there. A block's track is that number, for now.
    ``used_start`` and ``used_end`` say from when to when each slot needs its lane.

    Raises:
        ExportError: two slots claim to be the same warp of the same block.
    """
    launch, sm, block, warp = (
        column.astype(np.int64) for column in (slots.launch, slots.sm, slots.block, slots.warp)
    )
    number, _ = distinct(launch, sm, block)
    order = order_by(number, warp)
    in_order = number[order]
    first = np.flatnonzero(np.diff(in_order, prepend=-1))
    _refuse_twins(in_order, warp[order], block[order])
    one = order[first]  # any slot of each block
    last_moment = np.maximum(slots.start_ns, slots.end_ns)
    lane = pack(
        distinct(launch[one], sm[one])[0],
        _reduce(np.minimum, used_start[order], first),
        _reduce(np.maximum, used_end[order], first),
        (_reduce(np.minimum, order, first), _reduce(np.maximum, order, first)),
    )
    blocks = Blocks(
        launch=launch[one],
        block=block[one],
        sm=sm[one],
        lane=lane,
        start=_reduce(np.minimum, slots.start_ns[order], first),
        end=_reduce(np.maximum, last_moment[order], first),
        track=np.zeros(len(one), np.int64),
        first=first,
        slots=order,
    )
    lane_of_block, _ = distinct(blocks.launch, blocks.sm, blocks.lane)
    return _in_order(blocks, lane_of_block), lane_of_block[number]


def _in_order(blocks: Blocks, track: Ints) -> Blocks:
    """Sort blocks by lane, those of a lane as their slots stand; give each its track."""
    begin = blocks.first
    sizes = np.diff(begin, append=len(blocks.slots))
    order = order_by(track, _reduce(np.minimum, blocks.slots, begin))
    sizes = sizes[order]
    first = np.cumsum(sizes) - sizes
    slots = np.arange(len(blocks.slots)) + np.repeat(begin[order] - first, sizes)
    return Blocks(
        launch=blocks.launch[order],
        block=blocks.block[order],
        sm=blocks.sm[order],
        lane=blocks.lane[order],
        start=blocks.start[order],
        end=blocks.end[order],
        track=track[order],
        first=first,
        slots=blocks.slots[slots],
    )


def _reduce(function: np.ufunc, values: Ints, first: Ints) -> Ints:
    """Return what a function makes of each group; many of equal size are taken column by column."""
    if not len(first):
        return values[:0]
    size, left = divmod(len(values), len(first))
    if size > _SMALL or left or not np.array_equal(first, np.arange(0, len(values), size)):
        result: Ints = function.reduceat(values, first)
        return result
    out = values[::size].copy()
    for place in range(1, size):
        function(out, values[place::size], out=out)
    return out


_SMALL: Final = 32


def _refuse_twins(number: Ints, warp: Ints, block: Ints) -> None:
    twins = np.flatnonzero((np.diff(number) == 0) & (np.diff(warp) == 0))
    if len(twins):
        raise ExportError(
            f"two slots of the trace are both warp {warp[twins[0]]} of block {block[twins[0]]} of "
            "one launch. A slot is one warp of one block: merge the two, or make them two launches."
        )


def distinct(*keys: NDArray[np.integer[Any]]) -> tuple[Ints, Ints]:
    """Number the distinct rows of the given columns, in sorted order.

    Returns the number of each row, and for each number the first row that has it.
    """
    begins = _changes(keys)
    runs = np.flatnonzero(begins)  # rows in a row that are alike are sorted as one
    if 2 * len(runs) > len(begins):
        return _distinct(keys)
    numbers, one = _distinct([key[runs] for key in keys])
    return np.repeat(numbers, np.diff(runs, append=len(begins))), runs[one]


def _distinct(keys: Sequence[NDArray[np.integer[Any]]]) -> tuple[Ints, Ints]:
    order = order_by(*keys)
    new = _changes([key[order] for key in keys])
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(new) - 1
    return numbers, order[new]


def _changes(keys: Sequence[NDArray[np.integer[Any]]]) -> NDArray[np.bool_]:
    """Tell which rows differ from the one before them."""
    new = np.zeros(len(keys[0]), bool)
    new[:1] = True
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    return new


def extents(blocks: Blocks, count: int, idle: int) -> tuple[Ints, Ints]:
    """Return when each of ``count`` launches began and ended; ``idle`` where no block ran."""
    start, end = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(start, blocks.launch, blocks.start)
    np.maximum.at(end, blocks.launch, blocks.end)
    return np.where(end < 0, idle, start), np.where(end < 0, idle, end)


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
"""Groups from which on an array of their lanes takes less time than a heap for each of them."""
_FIRST_LANES, _LANES = 8, 64
"""Lanes that such an array has for each group. A group that needs more gets a heap."""


def _alike(low: Ints, high: Ints) -> tuple[_Parts, _Parts]:
    """Return groups, the largest first, of which many go on until the end; and those before."""
    sizes = high - low
    order = np.argsort(-sizes, kind="stable")
    rest = np.cumsum(sizes[order][::-1])[::-1]  # of these and all smaller ones
    alike = np.flatnonzero(rest >= _GROUPS * sizes[order])
    cut = int(alike[0]) if len(alike) else len(order)
    parts = list(zip(low[order].tolist(), high[order].tolist(), strict=True))
    return parts[cut:], parts[:cut]


def _words(start: Ints, end: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints] | None:
    """Return when each interval needs its lane, and has left it: a time and a place, as one number.

    None where that takes more than 63 bits.
    """
    zero, bits = int(start.min()), int(last.max()).bit_length()
    if (int(end.max()) - zero).bit_length() + bits > _WORD_BITS:
        return None
    return (start - zero) << bits | first, (end - zero) << bits | last


_WORD_BITS: Final = 63


def _pack_many(begin: Ints, end: Ints, parts: _Parts, lanes: Ints) -> _Parts:
    """Put the intervals of groups on lanes, the next one of all groups at a time.

    Returns the groups that have too many lanes for that.
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


def occupancy(slots: Slots, blocks: Blocks, launches: int) -> list[tuple[Steps, Steps]]:
    """Return how many blocks and how many warps of each launch ran at each moment."""
    last_moment = np.maximum(slots.start_ns, slots.end_ns)
    launch = slots.launch.astype(np.int64)
    of_blocks = _steps(blocks.launch, blocks.start, blocks.end, launches)
    of_warps = _steps(launch, slots.start_ns, last_moment, launches)
    return list(zip(of_blocks, of_warps, strict=True))


def _steps(group: Ints, start: Ints, end: Ints, groups: int) -> list[Steps]:
    """Return when the number of intervals of each group that are open changes, and to what."""
    closes = np.repeat([0, 1], len(start))
    group, times, closes = sort_by(np.tile(group, 2), np.concatenate([start, end]), closes)
    last = np.append((group[1:] != group[:-1]) | (times[1:] != times[:-1]), True)[: len(group)]
    last = np.flatnonzero(last)
    values = np.cumsum(1 - 2 * closes)[last]  # all of a group end: the next one begins at 0
    changed = np.diff(values, prepend=0) != 0
    group, times, values = group[last][changed], times[last][changed], values[changed]
    bounds = np.searchsorted(group, np.arange(groups + 1)).tolist()
    return [(times[low:high], values[low:high]) for low, high in pairwise(bounds)]
