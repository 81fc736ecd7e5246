"""Where blocks ran: on which SM, and on which lane among those that ran there at the same time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

    def parts(self, most: int) -> Iterator[Blocks]:
        """Yield all blocks, so many at once."""
        every = np.append(self.first, len(self.slots))
        names = ("launch", "block", "sm", "lane", "start", "end", "track")
        for low in range(0, len(self.block), most):
            bounds = every[low : low + most + 1]
            yield replace(
                self,
                **{name: getattr(self, name)[low : low + most] for name in names},
                first=bounds[:-1] - bounds[0],
                slots=self.slots[bounds[0] : bounds[-1]],
            )


def slot_bounds(trace: Trace) -> Ints:
    """Return where each slot's events begin; those of slot i end where those of i + 1 begin."""
    return np.searchsorted(trace.events.slot, np.arange(len(trace.slots) + 1))


def in_use(trace: Trace) -> tuple[Ints, Ints]:
    """Return from when to when each slot needs its track: its warp's life, and all its events."""
    slots, events, bounds = trace.slots, trace.events, slot_bounds(trace)
    start, end = slots.start_ns.copy(), np.maximum(slots.start_ns, slots.end_ns)
    filled = np.flatnonzero(bounds[1:] > bounds[:-1])
    if len(filled):
        first = bounds[filled]
        start[filled] = np.minimum(start[filled], np.minimum.reduceat(events.start_ns, first))
        end[filled] = np.maximum(end[filled], np.maximum.reduceat(events.end_ns, first))
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
    order = np.lexsort((warp, number))
    first = np.flatnonzero(np.diff(number[order], prepend=-1))
    _refuse_twins(number[order], warp[order], block[order])
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
    order = np.lexsort((_reduce(np.minimum, blocks.slots, begin), track))
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
    result: Ints = function.reduceat(values, first) if len(first) else values[:0]
    return result


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
    order = np.lexsort(keys[::-1])
    new = np.zeros(len(order), bool)
    new[:1] = True
    for key in keys:
        new[1:] |= np.diff(key[order]) != 0
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(new) - 1
    return numbers, order[new]


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
    by_start = np.lexsort((order[0], start, group))
    group, start, end = group[by_start], start[by_start], end[by_start]
    first, last = (places[by_start] for places in order)
    free = (start[1:] > end[:-1]) | ((start[1:] == end[:-1]) & (first[1:] > last[:-1]))
    busy = np.unique(group[1:][~free & (group[1:] == group[:-1])])
    for begin, stop in zip(
        np.searchsorted(group, busy), np.searchsorted(group, busy, "right"), strict=True
    ):
        part = slice(begin, stop)
        lanes[by_start[part]] = _pack_one(start[part], end[part], first[part], last[part])
    return lanes


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
    group, times = np.concatenate([group, group]), np.concatenate([start, end])
    change = np.repeat([1, -1], len(start))
    order = np.lexsort((times, group))
    group, times = group[order], times[order]
    first = np.flatnonzero(
        np.diff(group, prepend=-1).astype(bool) | np.diff(times, prepend=-1).astype(bool)
    )
    change = np.add.reduceat(change[order], first) if len(first) else change
    changed = change != 0
    group, times = group[first][changed], times[first][changed]
    values = np.cumsum(change[changed])  # all of a group end: the next one begins at 0
    bounds = np.searchsorted(group, np.arange(groups + 1)).tolist()
    return [(times[low:high], values[low:high]) for low, high in pairwise(bounds)]
