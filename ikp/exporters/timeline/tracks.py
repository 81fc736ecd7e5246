"""``lay_out``: the tree of a trace's tracks, with the track of each slot, block and counter.

Outermost first::

    launches · NVIDIA H200   all launches of a rank and device, as slices
    |- (more of them)        launches that ran beside others
    |- resident blocks       counter, of those that are known
    |- active warps          counter, of those that are known
    |- gemm                  one slice, the launch, with the evidence as arguments
    |  |- SM 12 · lane 0     blocks that follow each other on one SM, as slices
    |  |  `- warp 3 producer     ranges and instants of that warp, of all the blocks in the lane
    |  |     `- overlap 1        ranges that overlap others of their warp
    `- about this file       an instant, with what concerns the whole file

A launch is no process: a process is ordered by its name among those of other traces, shows a
process id, and is one with any other process of that id. All tracks are plain ones, in an explicit
order, and each has slices or a counter to show while it is collapsed. A lane is a CTA slot. All
launches of a device share its two counters, and so one scale.

Where rows are ``shared``, the launches of a kernel are slices of one row, one after the other.
Those below them share the rows of CTA slots and warps. Two that overlap have a row each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import starmap
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ikp.core.lanes import pack
from ikp.core.sorting import distinct
from ikp.core.trace import Launch, Slots, Trace
from ikp.core.warps import Places, Seen, all_warps, seen_warps
from ikp.exporters.timeline.blocks import (
    BlockRows,
    Steps,
    extents,
    find_blocks,
    in_use,
    occupancy,
    together,
    with_slots,
)
from ikp.exporters.timeline.shared_rows import extents_of, row_of_launch

Ints = NDArray[np.int64]

_FIRST_LANE: Final = 1
"""Rank of the first CTA slot among the rows of a launch."""


class TrackKind(Enum):
    """What a track shows."""

    SLICES = "slices"
    COUNTER = "counter"


class Track(NamedTuple):
    """One row in the viewer. ``rank`` orders it among its siblings."""

    uuid: int
    name: str
    parent: int = 0
    rank: int = 0
    kind: TrackKind = TrackKind.SLICES
    description: str = ""


class LaunchTracks(NamedTuple):
    """The ids of one launch's own tracks, and when it ran."""

    overview: int  # the row of all launches that shows it
    parent: int  # of the rows that follow
    evidence: int
    start: int
    end: int


class Counted(NamedTuple):
    """A counter: its track, its name, and its steps."""

    track: int
    name: str
    steps: Steps


@dataclass(frozen=True, slots=True)
class Layout:
    """All tracks of a trace but those of overlaps, which are found while the events are written."""

    tracks: tuple[Track, ...]  # the first two: the first of all, and the one about the file
    summary: int
    launches: tuple[LaunchTracks, ...]
    blocks: BlockRows
    counters: list[Counted]  # two of each device and rank: its blocks, and its warps
    span: tuple[int, int] | None  # from when to when any track is in use; None where none is
    slot_track: Ints  # of each slot: its warp's track
    next_uuid: int  # the first track id that is still free


def lay_out(
    trace: Trace,
    first_uuid: int = 1,
    progress: Callable[[int], None] = lambda _: None,
    *,
    shared: bool = False,
) -> Layout:
    """Place every block and warp on a track. Track ids count from ``first_uuid``.

    A slot's track is in use as long as its warp ran, and as long as it recorded. Blocks that left
    no records are in CTA slots as others are; their warps have no tracks. ``progress`` is called
    with the number of further warps that are done, twice for each warp. ``shared``: launches of a
    kernel share rows.

    Raises:
        ExportError: two slots claim to be the same warp of the same block.
    """
    every, place = all_warps(trace)
    used_start, used_end = _in_use(trace, every, place)
    span = (int(used_start.min()), int(used_end.max())) if len(used_start) else None
    blocks, lane_of_warp = find_blocks(every, used_start, used_end, progress)
    blocks, lane_of_slot = with_slots(blocks, place, len(every)), lane_of_warp[place]
    warp = trace.slots.warp.astype(np.int64)
    when = extents(blocks, len(trace.launches), span[0] if span else 0)
    running = occupancy(every, blocks, len(trace.launches), progress)
    seen = seen_warps(trace.launches, every)

    tops, top_of = _tops(trace.launches, when, first_uuid)
    row = np.arange(len(trace.launches))
    lanes = np.flatnonzero(np.diff(blocks.track, prepend=-1))  # the first block of each
    if shared:
        used = extents_of(every.launch, (used_start, used_end), when)
        row = row_of_launch(trace.launches, [top for _, top in top_of], used)
        number, one = distinct(row[blocks.launch[lanes]], blocks.sm[lanes], blocks.lane[lanes])
        blocks, lane_of_slot = replace(blocks, track=number[blocks.track]), number[lane_of_slot]
        lanes = lanes[one]
    warp_of_slot, warps = distinct(lane_of_slot, warp)
    launches = _launch_tracks(top_of, when, first_uuid + len(tops) + row)
    next_uuid = first_uuid + len(tops) + int(row.max(initial=-1)) + 1
    counters, counter_rows = _counters(launches, seen, running, next_uuid)
    lane_uuid = next_uuid + len(counters)
    warp_uuid = lane_uuid + len(lanes)
    lane_rows = _lane_tracks(
        lane_uuid, first_uuid + len(tops), row[blocks.launch[lanes]], blocks.sm[lanes],
        blocks.lane[lanes],
    )  # fmt: skip
    warp_rows = _with_roles(
        _family(warp_uuid, lane_uuid + lane_of_slot[warps], "warp", warp[warps]),
        _roles(trace, warp_of_slot, len(warps)),
    )
    launch_rows = (_shared_rows if shared else _launch_rows)(trace.launches, launches)
    return Layout(
        tracks=(*tops, *launch_rows, *counter_rows, *lane_rows, *warp_rows),
        summary=tops[1].uuid,
        launches=launches,
        blocks=replace(blocks, track=lane_uuid + blocks.track),
        counters=counters,
        span=span,
        slot_track=warp_uuid + warp_of_slot,
        next_uuid=warp_uuid + len(warps),
    )


def _in_use(trace: Trace, every: Slots, place: Places) -> tuple[Ints, Ints]:
    """Return the start and end of each warp's need of a track: without a slot, while it ran."""
    used = in_use(trace)
    if len(place) == len(every):
        return used
    start, end = every.start_ns.copy(), np.maximum(every.start_ns, every.end_ns)
    start[place], end[place] = used
    return start, end


def process_names(launches: tuple[Launch, ...]) -> list[str]:
    """Return each launch's name: rank if it has one, label, number among those, device."""
    seen: Counter[tuple[int | None, str]] = Counter()
    names = []
    for launch in launches:
        who = (launch.rank, launch.label)
        rank = "" if launch.rank is None else f"rank {launch.rank} · "
        names.append(f"{rank}{launch.label} #{seen[who]} · {launch.device}")
        seen[who] += 1
    return names


def launch_names(launches: tuple[Launch, ...]) -> list[str]:
    """Return the name of each launch's row: its label, numbered if others have it, too."""
    all_of = Counter((launch.rank, launch.label) for launch in launches)
    seen: Counter[tuple[int | None, str]] = Counter()
    names = []
    for launch in launches:
        who = (launch.rank, launch.label)
        names.append(f"{launch.label} #{seen[who]}" if all_of[who] > 1 else launch.label)
        seen[who] += 1
    return names


def _launch_tracks(
    top_of: list[tuple[int, int]], when: tuple[Ints, Ints], evidence: Ints
) -> tuple[LaunchTracks, ...]:
    """Return the ids of each launch's rows; ``when`` are starts and ends."""
    rows = zip(top_of, evidence.tolist(), when[0].tolist(), when[1].tolist(), strict=True)
    return tuple(
        LaunchTracks(overview, parent, uuid, start, end)
        for (overview, parent), uuid, start, end in rows
    )


def _counters(
    launches: tuple[LaunchTracks, ...],
    seen: list[Seen],
    running: list[tuple[Steps, Steps]],
    uuid: int,
) -> tuple[list[Counted], list[Track]]:
    """Return the counters of each device and rank, and their rows, above those of its launches."""
    counters: list[Counted] = []
    rows: list[Track] = []
    for parent in dict.fromkeys(one.parent for one in launches):
        mine = [at for at, one in enumerate(launches) if one.parent == parent]
        known = [seen[at] for at in mine]
        for i, (state, what) in enumerate((("resident", "blocks"), ("active", "warps"))):
            every, *counts = _all_seen(known)[i]
            name = f"{state} {what}" if every else f"{state} recorded {what}"
            about = _counts(what.capitalize(), every, *counts)
            counters.append(Counted(uuid, name, together([running[at][i] for at in mine])))
            rows.append(Track(uuid, name, parent, i - 1, TrackKind.COUNTER, about))
            uuid += 1
    return counters, rows


def _tops(
    launches: tuple[Launch, ...], when: tuple[Ints, Ints], uuid: int
) -> tuple[list[Track], list[tuple[int, int]]]:
    """Return the top rows, and for each launch the row that shows it, and the first of its group.

    The first row is that of the first launch, the second the one about the file. Launches that ran
    at the same time can't be slices of one row.
    """
    names = group_names(launches)
    groups = list(dict.fromkeys(names)) or [_ALL]
    group = np.array([groups.index(name) for name in names], np.int64)
    number = np.arange(len(launches))
    lanes = pack(group, *when, (number, number)).tolist()
    about = Track(uuid + 1, _ABOUT, uuid, LAST)
    tracks = [Track(uuid, groups[0], description=OVERVIEW), about]
    known = {(groups[0], 0): uuid}
    for name, lane in sorted(set(zip(names, lanes, strict=True)) - known.keys(), key=_by_lane):
        known[name, lane] = uuid + len(tracks)
        row = Track(known[name, lane], name, description=OVERVIEW)
        if lane:  # ranks from 1 on are the launches'
            row = row._replace(name=_BESIDE, parent=known[name, 0], rank=lane - LAST)
        tracks.append(row)
    return tracks, [
        (known[name, lane], known[name, 0]) for name, lane in zip(names, lanes, strict=True)
    ]


def _by_lane(row: tuple[str, int]) -> tuple[int, str]:
    return row[1], row[0]


def group_names(launches: tuple[Launch, ...]) -> list[str]:
    """Return the name of the top row of each launch.

    Perfetto orders rows on top by their names: ranks have equally many digits.
    """
    digits = max((len(str(one.rank)) for one in launches if one.rank is not None), default=1)
    return [
        " · ".join(
            [_ALL, *([] if one.rank is None else [f"rank {one.rank:0{digits}}"]), one.device]
        )
        for one in launches
    ]


def _launch_rows(launches: tuple[Launch, ...], tracks: tuple[LaunchTracks, ...]) -> Iterator[Track]:
    """Yield each launch's own row, described."""
    names = launch_names(launches)
    for number, (launch, one, name) in enumerate(zip(launches, tracks, names, strict=True), 1):
        yield Track(one.evidence, name, one.parent, number, description=_describe(launch))


def _shared_rows(launches: tuple[Launch, ...], tracks: tuple[LaunchTracks, ...]) -> Iterator[Track]:
    """Yield the rows that launches share, named after their kernel."""
    of_row: dict[int, list[int]] = {}
    for at, one in enumerate(tracks):
        of_row.setdefault(one.evidence, []).append(at)
    for number, (uuid, mine) in enumerate(sorted(of_row.items()), 1):
        label, parent = launches[mine[0]].label, tracks[mine[0]].parent
        about = (
            f"{len(mine):,} launches of {label}, one after the other: a slice each, whose "
            "arguments say the rest."
        )
        yield Track(uuid, label, parent, number, description=about)


def _all_seen(launches: Sequence[Seen]) -> tuple[tuple[bool, int, int], tuple[bool, int, int]]:
    """Return of blocks, and of warps: whether all recorded, how many did, and how many ran."""
    blocks = [(one.every_block, one.blocks, one.of_blocks) for one in launches]
    warps = [(one.every_warp, one.warps, one.of_warps) for one in launches]
    return _summed(blocks), _summed(warps)


def _summed(rows: Sequence[tuple[bool, int, int]]) -> tuple[bool, int, int]:
    every, recorded, there = zip(*rows, strict=True)
    return all(every), sum(recorded), sum(there)


def _counts(what: str, every: bool, known: int, there: int) -> str:
    if every:
        return f"{what} on the GPU at each moment."
    return (
        f"Recorded {what.lower()} on the GPU at each moment: {known:,} of {there:,} recorded, and "
        "the others are not counted."
    )


def _describe(launch: Launch) -> str:
    x, y, z = launch.grid
    lost = f"{launch.dropped:,} dropped" if launch.dropped else "none dropped"
    if launch.unfinished:
        lost = f"{launch.unfinished:,} warps never finished, their losses are unknown"
    replay = f" It is of {launch.replay}." if launch.replay else ""
    in_time = launch.mode == "timeline"
    kept = f"{launch.kept:,} records; {lost}" if in_time else launch.mode.capitalize()
    return (
        f"{launch.label}: {x} x {y} x {z} blocks of {launch.warps_per_block} warps, on "
        f"{launch.device}. {kept}.{replay} The slice's arguments say the rest."
    )


_ALL: Final = "launches"
_BESIDE: Final = "launches at the same time"
_ABOUT: Final = "about this file"
OVERVIEW: Final = "All launches recorded, each from its first warp's start to its last one's end."
LAST: Final = 1 << 30
"""Behind all launches, whose ranks are 1, 2, ...; as a negative number, in front of them."""


def _lane_tracks(uuid: int, first_row: int, row: Ints, sm: Ints, lane: Ints) -> list[Track]:
    """Return the rows of blocks, by the row of their launch, SM and CTA slot."""
    _, first = distinct(row, sm)
    alone = np.repeat(np.diff(first, append=len(sm)) == 1, np.diff(first, append=len(sm)))
    place = np.arange(len(row)) - np.searchsorted(row, row)
    return [
        Track(uuid + i, name_of_lane(one, None if single else number), parent, _FIRST_LANE + rank)
        for i, (one, number, single, parent, rank) in enumerate(
            zip(*(c.tolist() for c in (sm, lane, alone, first_row + row, place)), strict=True)
        )
    ]


def name_of_lane(sm: int, lane: int | None) -> str:
    """Return the name of a CTA slot's row; the only slot of an SM has the SM's name."""
    return f"SM {sm}" if lane is None else f"SM {sm} · lane {lane}"


def _family(uuid: int, parents: Ints, name: str, ranks: Ints) -> list[Track]:
    number = ranks.tolist()
    names, ids = map(f"{name} {{}}".format, number), range(uuid, uuid + len(number))
    return [*starmap(Track, zip(ids, names, parents.tolist(), number, strict=True))]


def _roles(trace: Trace, track: Ints, count: int) -> list[str]:
    """Return the role of each warp's track: its slots' where they agree, else none."""
    role = trace.slots.role.astype(np.int64)
    least, most = np.full(count, len(trace.roles)), np.zeros(count, np.int64)
    np.minimum.at(least, track, role)
    np.maximum.at(most, track, role)
    return [trace.roles[number] for number in np.where(least == most, most, 0).tolist()]


def _with_roles(tracks: list[Track], roles: list[str]) -> list[Track]:
    return [
        track._replace(name=f"{track.name} {role}") if role else track
        for track, role in zip(tracks, roles, strict=True)
    ]
