"""Which tracks a trace gets, and which slot goes where.

Outermost first::

    process   one launch: its rank, "gemm", its number among launches of that label, the device
    |- ikp                one slice, the launch, with the evidence as arguments
    |- resident blocks    counter
    |- active warps       counter
    `- SMs
       `- SM 12
          `- lane 0       blocks that follow each other on one SM, as slices
             `- warp 3 producer    ranges and instants of that warp, of all the blocks in the lane
                `- overlap 1    ranges that overlap others of their warp

``SMs`` has a reason: a process orders its own tracks by name, which would put SM 10 before SM 2.
Track ids are small numbers, the warps' the smallest: they stand in every packet.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.core.lanes import pack
from ikp.core.trace import Launch, Slots, Trace
from ikp.errors import ExportError
from ikp.exporters.perfetto.varints import same_size

Ints = NDArray[np.int64]


class Kind(Enum):
    """What a track shows."""

    PLAIN = "plain"
    PROCESS = "process"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Track:
    """One row in the viewer. ``rank`` orders it among its siblings; of a process it is the pid."""

    uuid: int
    name: str
    parent: int = 0
    rank: int = 0
    kind: Kind = Kind.PLAIN


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
class LaunchTracks:
    """The ids of one launch's own tracks."""

    evidence: int
    blocks: int
    warps: int


@dataclass(frozen=True, slots=True)
class Layout:
    """All tracks of a trace but the overlap lanes, which are found while the events are written."""

    tracks: tuple[Track, ...]
    summary: int
    launches: tuple[LaunchTracks, ...]
    blocks: Blocks
    slot_track: Ints  # of each slot: its warp's track

    @property
    def next_uuid(self) -> int:
        """The first track id that is still free."""
        return self.summary + 1


def lay_out(trace: Trace, used_start: Ints, used_end: Ints) -> Layout:
    """Place every block and warp on a track.

    ``used_start`` and ``used_end`` say, per slot, from when to when its track is in use: as long as
    its warp ran, and as long as it recorded.

    Raises:
        ExportError: two slots claim to be the same warp of the same block.
    """
    blocks, block_of_slot = _find_blocks(trace.slots, used_start, used_end)
    sm_of_block, sms = distinct(blocks.launch, blocks.sm)
    lane_of_block, lanes = distinct(blocks.launch, blocks.sm, blocks.lane)
    lane_of_slot = lane_of_block[block_of_slot]
    warp = trace.slots.warp.astype(np.int64)
    warp_of_slot, warps = distinct(lane_of_slot, warp)

    warp_uuid = same_size(len(warps))
    lane_uuid = warp_uuid + len(warps)
    sm_uuid = lane_uuid + len(lanes)
    launch_uuid = sm_uuid + len(sms)
    summary = launch_uuid + len(_PER_LAUNCH) * len(trace.launches)
    root = launch_uuid + np.arange(len(trace.launches)) * len(_PER_LAUNCH)
    tracks = [
        Track(summary, "ikp"),
        *_launch_tracks(trace.launches, launch_uuid),
        *_family(sm_uuid, root[blocks.launch[sms]] + _SMS, "SM", blocks.sm[sms]),
        *_family(lane_uuid, sm_uuid + sm_of_block[lanes], "lane", blocks.lane[lanes]),
        *_with_roles(
            _family(warp_uuid, lane_uuid + lane_of_slot[warps], "warp", warp[warps]),
            _roles(trace, warp_of_slot, len(warps)),
        ),
    ]
    return Layout(
        tracks=tuple(tracks),
        summary=summary,
        launches=tuple(LaunchTracks(uuid + 1, uuid + 2, uuid + 3) for uuid in root.tolist()),
        blocks=_in_order(blocks, lane_uuid + lane_of_block),
        slot_track=warp_uuid + warp_of_slot,
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


def process_names(launches: tuple[Launch, ...]) -> list[str]:
    """Return what each launch is called: rank if it has one, label, number among those, device."""
    seen: Counter[tuple[int | None, str]] = Counter()
    names = []
    for launch in launches:
        who = (launch.rank, launch.label)
        rank = "" if launch.rank is None else f"rank {launch.rank} · "
        names.append(f"{rank}{launch.label} #{seen[who]} · {launch.device}")
        seen[who] += 1
    return names


_PER_LAUNCH = ("process", "ikp", "resident blocks", "active warps", "SMs")
_SMS = _PER_LAUNCH.index("SMs")


def _launch_tracks(launches: tuple[Launch, ...], uuid: int) -> list[Track]:
    tracks = []
    for pid, name in enumerate(process_names(launches), 1):
        tracks.append(Track(uuid, name, rank=pid, kind=Kind.PROCESS))
        for rank, child in enumerate(_PER_LAUNCH[1:], 1):
            kind = Kind.COUNTER if rank in {2, 3} else Kind.PLAIN
            tracks.append(Track(uuid + rank, child, uuid, rank, kind))
        uuid += len(_PER_LAUNCH)
    return tracks


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
