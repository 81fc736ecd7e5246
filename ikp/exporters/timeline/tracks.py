"""Which tracks a trace gets, and which slot goes where.

Outermost first::

    launches · NVIDIA H200   all launches of a rank and device, as slices
    |- (more of them)        launches that ran beside others
    |- gemm                  one slice, the launch, with the evidence as arguments
    |  |- resident blocks    counter
    |  |- active warps       counter
    |  |- SM 12 · lane 0     blocks that follow each other on one SM, as slices
    |  |  `- warp 3 producer     ranges and instants of that warp, of all the blocks in the lane
    |  |     `- overlap 1        ranges that overlap others of their warp
    `- about this file       an instant, with what concerns the whole file

A launch is no process: a process is ordered by its name among those of other traces, shows a
process id, and is one with any other process of that id. All tracks are plain ones, in the order
that is told, and each has something to show while it is collapsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.core.lanes import pack
from ikp.core.trace import Slots, Trace
from ikp.errors import ExportError
from ikp.exporters.timeline.launches import (
    BLOCKS,
    FIRST_LANE,
    WARPS,
    LaunchTracks,
    Track,
    launch_tracks,
)

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Blocks:
    """One row per block that ran: sorted by launch, SM and lane.

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

    def __len__(self) -> int:
        return len(self.launch)

    def part(self, low: int, high: int) -> Blocks:
        """Return the blocks from ``low`` up to ``high``."""
        bounds = np.append(self.first, len(self.slots))[low : high + 1]
        names = ("launch", "block", "sm", "lane", "start", "end", "track")
        return replace(
            self,
            **{name: getattr(self, name)[low:high] for name in names},
            first=bounds[:-1] - bounds[0],
            slots=self.slots[bounds[0] : bounds[-1]],
        )

    def of_launch(self, launch: int) -> Blocks:
        """Return the blocks of one launch."""
        low, high = np.searchsorted(self.launch, [launch, launch + 1]).tolist()
        return self.part(low, high)


@dataclass(frozen=True, slots=True)
class Layout:
    """All tracks of a trace but the overlap lanes, which are found while the events are written."""

    tracks: tuple[Track, ...]  # the first two: the first of all, and the one about the file
    summary: int
    launches: tuple[LaunchTracks, ...]
    blocks: Blocks
    slot_track: Ints  # of each slot: its warp's track
    next_uuid: int  # the first track id that is still free


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


def lay_out(trace: Trace, used_start: Ints, used_end: Ints, first_uuid: int = 1) -> Layout:
    """Place every block and warp on a track. Track ids count from ``first_uuid``.

    ``used_start`` and ``used_end`` say, per slot, from when to when its track is in use: as long as
    its warp ran, and as long as it recorded.

    Raises:
        ExportError: two slots claim to be the same warp of the same block.
    """
    blocks, block_of_slot = _find_blocks(trace.slots, used_start, used_end)
    lane_of_block, lanes = distinct(blocks.launch, blocks.sm, blocks.lane)
    lane_of_slot = lane_of_block[block_of_slot]
    warp = trace.slots.warp.astype(np.int64)
    warp_of_slot, warps = distinct(lane_of_slot, warp)

    start = int(used_start.min()) if len(used_start) else 0
    tops, rows = launch_tracks(trace.launches, _extents(trace, blocks, start), first_uuid)
    lane_uuid = first_uuid + len(tops)
    warp_uuid = lane_uuid + len(lanes)
    evidence = np.array([row.evidence for row in rows], np.int64)
    tracks = [
        *tops,
        *_lane_tracks(
            lane_uuid, evidence, blocks.launch[lanes], blocks.sm[lanes], blocks.lane[lanes]
        ),
        *_with_roles(
            _family(warp_uuid, lane_uuid + lane_of_slot[warps], "warp", warp[warps]),
            _roles(trace, warp_of_slot, len(warps)),
        ),
    ]
    return Layout(
        tracks=tuple(tracks),
        summary=tops[1].uuid,
        launches=rows,
        blocks=_in_order(blocks, lane_uuid + lane_of_block),
        slot_track=warp_uuid + warp_of_slot,
        next_uuid=warp_uuid + len(warps),
    )


def _extents(trace: Trace, blocks: Blocks, idle: int) -> tuple[Ints, Ints]:
    """Return when each launch began and ended; ``idle`` for those of which no block ran."""
    count = len(trace.launches)
    start, end = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(start, blocks.launch, blocks.start)
    np.maximum.at(end, blocks.launch, blocks.end)
    return np.where(end < 0, idle, start), np.where(end < 0, idle, end)


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


def _lane_tracks(uuid: int, launch_row: Ints, launch: Ints, sm: Ints, lane: Ints) -> list[Track]:
    """Return the rows of blocks: of each launch in turn, by SM and lane."""
    _, first = distinct(launch, sm)
    alone = np.repeat(np.diff(first, append=len(sm)) == 1, np.diff(first, append=len(sm)))
    place = np.arange(len(launch)) - np.searchsorted(launch, launch)
    return [
        Track(uuid + i, _name_of_lane(one, None if single else number), parent, FIRST_LANE + rank)
        for i, (one, number, single, parent, rank) in enumerate(
            zip(*(c.tolist() for c in (sm, lane, alone, launch_row[launch], place)), strict=True)
        )
    ]


def _name_of_lane(sm: int, lane: int | None) -> str:
    """Return what the row of a lane is called; the only one of an SM is the SM."""
    return f"SM {sm}" if lane is None else f"SM {sm} · lane {lane}"


def _family(uuid: int, parents: Ints, name: str, ranks: Ints) -> list[Track]:
    return [
        Track(uuid + i, f"{name} {rank}", parent, rank)
        for i, (parent, rank) in enumerate(zip(parents.tolist(), ranks.tolist(), strict=True))
    ]


def _roles(trace: Trace, track: Ints, count: int) -> list[str]:
    """Return the role of each warp's track: its slots' where they agree, else none."""
    role = trace.slots.role.astype(np.int64)
    least, most = np.full(count, len(trace.roles)), np.zeros(count, np.int64)
    np.minimum.at(least, track, role)
    np.maximum.at(most, track, role)
    return [trace.roles[number] for number in np.where(least == most, most, 0).tolist()]


def _with_roles(tracks: list[Track], roles: list[str]) -> list[Track]:
    return [
        replace(track, name=f"{track.name} {role}") if role else track
        for track, role in zip(tracks, roles, strict=True)
    ]


def _find_blocks(slots: Slots, used_start: Ints, used_end: Ints) -> tuple[Blocks, Ints]:
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
    return blocks, number


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


def counters(slots: Slots, layout: Layout) -> Iterator[tuple[int, str, Ints, Ints]]:
    """Yield each launch's counters: track, name, when it changed, and to what."""
    last_moment = np.maximum(slots.start_ns, slots.end_ns)
    for launch, tracks in enumerate(layout.launches):
        part = layout.blocks.of_launch(launch)
        rows = part.slots
        yield tracks.blocks, BLOCKS, *_steps(part.start, part.end)
        yield tracks.warps, WARPS, *_steps(slots.start_ns[rows], last_moment[rows])


def _steps(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return when the number of intervals that are open changes, and to what."""
    changes = np.concatenate([np.ones(len(start), np.int64), np.full(len(end), -1)])
    times, where = np.unique(np.concatenate([start, end]), return_inverse=True)
    change = np.bincount(where, changes, len(times)).astype(np.int64)
    changed = change != 0
    return times[changed], np.cumsum(change[changed])
