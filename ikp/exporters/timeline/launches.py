"""The rows on top: all launches of a rank and device in one, and below it one for each launch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.lanes import pack
from ikp.core.trace import Launch

Ints = NDArray[np.int64]

FIRST_LANE: Final = 3
"""Where lanes stand among the rows of a launch: below its two counters."""


class Kind(Enum):
    """What a track shows."""

    SLICES = "slices"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Track:
    """One row in the viewer. ``rank`` orders it among its siblings."""

    uuid: int
    name: str
    parent: int = 0
    rank: int = 0
    kind: Kind = Kind.SLICES
    description: str = ""


@dataclass(frozen=True, slots=True)
class LaunchTracks:
    """The ids of one launch's own tracks, and when it ran."""

    overview: int  # where it is one of all launches
    evidence: int
    blocks: int
    warps: int
    start: int
    end: int


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


def launch_names(launches: tuple[Launch, ...]) -> list[str]:
    """Return what each launch's row is called: its label, numbered if others have it, too."""
    all_of = Counter((launch.rank, launch.label) for launch in launches)
    seen: Counter[tuple[int | None, str]] = Counter()
    names = []
    for launch in launches:
        who = (launch.rank, launch.label)
        names.append(f"{launch.label} #{seen[who]}" if all_of[who] > 1 else launch.label)
        seen[who] += 1
    return names


def launch_tracks(
    launches: tuple[Launch, ...], when: tuple[Ints, Ints], first_uuid: int
) -> tuple[list[Track], tuple[LaunchTracks, ...]]:
    """Return the rows on top and those of each launch; launches ran ``when`` (from, to).

    The first row is that of the first launch, the second the one about the file.
    """
    tops, top_of = _tops(launches, when, first_uuid)
    tracks, found = list(tops), []
    start, end = when[0].tolist(), when[1].tolist()
    for i, name in enumerate(launch_names(launches)):
        uuid = first_uuid + len(tracks)
        overview, parent = top_of[i]
        found.append(LaunchTracks(overview, uuid, uuid + 1, uuid + 2, start[i], end[i]))
        tracks += _rows_of(launches[i], Track(uuid, name, parent, i + 1))
    return tracks, tuple(found)


def _tops(
    launches: tuple[Launch, ...], when: tuple[Ints, Ints], uuid: int
) -> tuple[list[Track], list[tuple[int, int]]]:
    """Return the rows on top, and of each launch the one that shows it, and the first of those.

    Launches that ran at the same time can't be slices of one row.
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
            row = replace(row, name=_BESIDE, parent=known[name, 0], rank=lane - LAST)
        tracks.append(row)
    return tracks, [
        (known[name, lane], known[name, 0]) for name, lane in zip(names, lanes, strict=True)
    ]


def _by_lane(row: tuple[str, int]) -> tuple[int, str]:
    return row[1], row[0]


def group_names(launches: tuple[Launch, ...]) -> list[str]:
    """Return what the row on top is called in which each launch is.

    Perfetto orders rows on top by their names: ranks have equally many digits.
    """
    digits = max((len(str(one.rank)) for one in launches if one.rank is not None), default=1)
    return [
        " · ".join(
            [_ALL, *([] if one.rank is None else [f"rank {one.rank:0{digits}}"]), one.device]
        )
        for one in launches
    ]


def _rows_of(launch: Launch, row: Track) -> list[Track]:
    """Return a launch's own row, described, and its counters."""
    return [
        replace(row, description=_describe(launch)),
        Track(row.uuid + 1, BLOCKS, row.uuid, 1, Kind.COUNTER, "Blocks on the GPU at each moment."),
        Track(row.uuid + 2, WARPS, row.uuid, 2, Kind.COUNTER, "Warps on the GPU at each moment."),
    ]


def _describe(launch: Launch) -> str:
    x, y, z = launch.grid
    lost = f"{launch.dropped:,} dropped" if launch.dropped else "none dropped"
    if launch.unfinished:
        lost = f"{launch.unfinished:,} warps never finished, their losses are unknown"
    in_time = launch.mode == "timeline"
    kept = f"{launch.kept:,} records; {lost}" if in_time else launch.mode.capitalize()
    return (
        f"{launch.label}: {x} x {y} x {z} blocks of {launch.warps_per_block} warps, on "
        f"{launch.device}. {kept}. The slice's arguments say the rest."
    )


_ALL: Final = "launches"
_BESIDE: Final = "launches at the same time"
_ABOUT: Final = "about this file"
BLOCKS: Final = "resident blocks"
WARPS: Final = "active warps"
OVERVIEW: Final = "All launches recorded, each from its first warp's start to its last one's end."
LAST: Final = 1 << 30
"""Behind all launches, whose ranks are 1, 2, ...; as a negative number, in front of them."""
