"""``BlockRows``: where and when blocks ran, by SM and CTA slot ("lane"); occupancy over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.lanes import pack
from ikp.core.sorting import distinct, order_by, sort_by
from ikp.core.trace import Slots, Trace
from ikp.errors import ExportError

Ints = NDArray[np.int64]

Steps = tuple[Ints, Ints]
"""When a number changes, and to what."""


@dataclass(frozen=True, slots=True)
class BlockRows:
    """One row per block that ran: sorted by track, one for each launch, SM and CTA slot (``lane``).

    ``slots`` are the slots of all blocks, block by block; block i's begin at ``first[i]``. A block
    without a warp that was to record has none.
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

    @property
    def recorded(self) -> NDArray[np.bool_]:
        """Which blocks have slots."""
        return np.diff(self.first, append=len(self.slots)) > 0

    def parts(self, at_once: int) -> Iterator[BlockRows]:
        """Yield so many blocks at a time."""
        names = ("launch", "block", "sm", "lane", "start", "end", "track")
        for low in range(0, len(self.block), at_once):
            high = low + at_once
            bounds = self.first[low : high + 1]
            if high >= len(self.first):
                bounds = np.append(bounds, len(self.slots))
            yield replace(
                self,
                **{name: getattr(self, name)[low:high] for name in names},
                first=bounds[:-1] - bounds[0],
                slots=self.slots[bounds[0] : bounds[-1]],
            )


_MANY_EVENTS: Final = 32


def slot_bounds(trace: Trace) -> Ints:
    """Return the index of each slot's first event; those of slot i end where i + 1's begin."""
    slot, slots = trace.events.slot, len(trace.slots)
    if not slots <= len(slot) < _MANY_EVENTS * slots:  # else counting all events is faster
        return np.searchsorted(slot, np.arange(slots + 1, dtype=slot.dtype))  # of one type: no copy
    return np.append(0, np.cumsum(np.bincount(slot, minlength=slots)))


def in_use(trace: Trace) -> tuple[Ints, Ints]:
    """Return the start and end of each slot's need of a track: its warp's time, and all events."""
    slots, events, bounds = trace.slots, trace.events, slot_bounds(trace)
    start, end = slots.start_ns.copy(), np.maximum(slots.start_ns, slots.end_ns)
    filled = np.flatnonzero(bounds[1:] > bounds[:-1])
    if len(filled):
        first = bounds[filled]
        start[filled] = np.minimum(start[filled], _reduce(np.minimum, events.start_ns, first))
        end[filled] = np.maximum(end[filled], _reduce(np.maximum, events.end_ns, first))
    return start, end


Progress = Callable[[int], None]
"""Called with the number of further slots that are done."""


def find_blocks(
    slots: Slots, used_start: Ints, used_end: Ints, progress: Progress = lambda _: None
) -> tuple[BlockRows, Ints]:
    """Return the blocks that ran, and the CTA slot ("lane") of each slot of records.

    Lanes are numbered by launch, SM and their number there. A block's track is that number, for
    now. ``used_start`` and ``used_end`` are the times from which to which each slot needs its lane.
    ``progress`` is called with the number of further slots that are done.

    Raises:
        ExportError: two slots claim to be the same warp of the same block.
    """
    found, lanes, tracks = [], np.zeros(len(slots), np.int64), 0
    for low, high, _ in _by_launches(slots.launch, 1):
        part = slice(low, high)
        mine = Slots(*(getattr(slots, name)[part] for name in Slots.__slots__))
        blocks, lane = _find_blocks(mine, used_start[part], used_end[part])
        lanes[part] = lane + tracks
        found.append(
            replace(
                blocks,
                track=blocks.track + tracks,
                first=blocks.first + low,
                slots=blocks.slots + low,
            )
        )
        tracks += int(lane.max(initial=-1)) + 1
        progress(high - low)
    if len(found) == 1:
        return found[0], lanes
    columns = (
        np.concatenate([getattr(one, name) for one in found]) for name in BlockRows.__slots__
    )
    return BlockRows(*columns), lanes


_AT_ONCE: Final = 1 << 16
"""Slots of launches that are placed together. Launches are independent of each other."""


def _by_launches(launch: NDArray[Any], launches: int) -> Iterator[tuple[int, int, int]]:
    """Yield parts of the slots that hold whole launches, and the first launch behind each part."""
    edges = np.flatnonzero(launch[1:] != launch[:-1]) + 1
    low = 0
    if not (launch[edges] < launch[edges - 1]).any():
        for high in edges.tolist():
            if high - low >= _AT_ONCE:
                yield low, high, int(launch[high])
                low = high
    yield low, len(launch), launches


def _find_blocks(slots: Slots, used_start: Ints, used_end: Ints) -> tuple[BlockRows, Ints]:
    launch, sm, block, warp = (
        column.astype(np.int64) for column in (slots.launch, slots.sm, slots.block, slots.warp)
    )
    number, _ = distinct(launch, sm, block)
    order = order_by(number, warp)
    in_order = number[order]
    first = np.flatnonzero(np.diff(in_order, prepend=-1))
    repeats = np.flatnonzero((np.diff(in_order) == 0) & (np.diff(warp[order]) == 0))
    if len(repeats):
        raise _same_warp(warp[order[repeats[0]]], block[order[repeats[0]]])
    one = order[first]  # any slot of each block
    last_moment = np.maximum(slots.start_ns, slots.end_ns)
    lane = pack(
        distinct(launch[one], sm[one])[0],
        _reduce(np.minimum, used_start[order], first),
        _reduce(np.maximum, used_end[order], first),
        (_reduce(np.minimum, order, first), _reduce(np.maximum, order, first)),
    )
    blocks = BlockRows(
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


def _in_order(blocks: BlockRows, track: Ints) -> BlockRows:
    """Sort blocks by lane, those of a lane in the order of their slots; give each its track."""
    begin = blocks.first
    sizes = np.diff(begin, append=len(blocks.slots))
    order = order_by(track, _reduce(np.minimum, blocks.slots, begin))
    sizes = sizes[order]
    first = np.cumsum(sizes) - sizes
    slots = np.arange(len(blocks.slots)) + np.repeat(begin[order] - first, sizes)
    return BlockRows(
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
    """Return a ufunc's reduction of each group; groups of equal size are taken column by column."""
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


def _same_warp(warp: int, block: int) -> ExportError:
    return ExportError(
        f"two slots of the trace are both warp {warp} of block {block} of one launch. A slot is "
        "one warp of one block: merge the two, or make them two launches."
    )


def with_slots(blocks: BlockRows, place: NDArray[np.intp], warps: int) -> BlockRows:
    """Return the blocks of ``warps`` warps with the slots of a trace in place of all warps.

    ``place`` is the number of each slot's warp.
    """
    if len(place) == warps:
        return blocks
    slot_of = np.full(warps, -1)
    slot_of[place] = np.arange(len(place))
    slots = slot_of[blocks.slots]
    before = np.append(0, np.cumsum(slots >= 0))
    return replace(blocks, first=before[blocks.first], slots=slots[slots >= 0])


def extents(blocks: BlockRows, count: int, idle: int) -> tuple[Ints, Ints]:
    """Return when each of ``count`` launches began and ended; ``idle`` where no block ran."""
    start, end = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(start, blocks.launch, blocks.start)
    np.maximum.at(end, blocks.launch, blocks.end)
    return np.where(end < 0, idle, start), np.where(end < 0, idle, end)


def occupancy(
    slots: Slots, blocks: BlockRows, launches: int, progress: Progress = lambda _: None
) -> list[tuple[Steps, Steps]]:
    """Return the counters of each launch: how many blocks, and how many warps, ran over time."""
    found: list[tuple[Steps, Steps]] = []
    for low, high, past in _by_launches(slots.launch, launches):
        first, start = len(found), slots.start_ns[low:high]
        last_moment = np.maximum(start, slots.end_ns[low:high])
        whole = high - low == len(slots)
        some = slice(None) if whole else slice(*np.searchsorted(blocks.launch, [first, past]))
        of_block, launch = blocks.launch[some] - first, slots.launch[low:high].astype(np.int64)
        of_blocks = _steps(of_block, blocks.start[some], blocks.end[some], past - first)
        of_warps = _steps(launch - first, start, last_moment, past - first)
        found += zip(of_blocks, of_warps, strict=True)
        progress(high - low)
    return found


def together(found: Sequence[Steps]) -> Steps:
    """Return one counter for several: their sum over time. Each ends at 0."""
    if len(found) == 1:
        return found[0]
    times = np.concatenate([moments for moments, _ in found])
    change = np.diff(np.concatenate([values for _, values in found]), prepend=0)
    if (np.diff(times) < 0).any():
        order = np.argsort(times, kind="stable")
        times, change = times[order], change[order]
    last = np.append(times[1:] != times[:-1], True)[: len(times)]
    times, values = times[last], np.cumsum(change)[last]
    changed = np.diff(values, prepend=0) != 0
    return times[changed], values[changed]


_FAR: Final = np.iinfo(np.int64).max
_DENSE: Final = 4
"""Ratio of moments to intervals up to which all moments are counted."""


def _steps(group: Ints, start: Ints, end: Ints, groups: int) -> list[Steps]:
    """Return when the number of intervals of each group that are open changes, and to what."""
    zero = int(start.min(initial=_FAR))
    span = int(end.max(initial=zero)) - zero
    if groups == 1 and span < _DENSE * len(start):  # many at each moment: no order is needed
        opened, closed = (np.bincount(times - zero, minlength=span + 1) for times in (start, end))
        values = np.cumsum(opened - closed)
        changed = np.flatnonzero(opened != closed)
        return [(changed + zero, values[changed])]
    closes = np.repeat([0, 1], len(start))
    group, times, closes = sort_by(np.tile(group, 2), np.concatenate([start, end]), closes)
    last = np.append((group[1:] != group[:-1]) | (times[1:] != times[:-1]), True)[: len(group)]
    last = np.flatnonzero(last)
    values = np.cumsum(1 - 2 * closes)[last]  # all of a group end: the next one begins at 0
    changed = np.diff(values, prepend=0) != 0
    group, times, values = group[last][changed], times[last][changed], values[changed]
    bounds = np.searchsorted(group, np.arange(groups + 1)).tolist()
    return [(times[low:high], values[low:high]) for low, high in pairwise(bounds)]
