"""The first view in the Perfetto UI, as address parameters: one launch, its first wave and SM."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.sorting import distinct
from ikp.exporters.perfetto.reader import Head
from ikp.exporters.timeline.shared_rows import OTHER_ROWS
from ikp.exporters.timeline.tracks import group_names, launch_names, name_of_lane

_MARGIN: Final = 0.05
"""Margin beside the first wave, as a share of it: it shows the wave's edges, and the next start."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A launch by its label, its own name, and the names of its row and of the row on top of that.

    Its row has its own name, but where launches share rows: then it has the label's.
    """

    label: str
    name: str
    row: str
    top: str


@dataclass(frozen=True, slots=True)
class Place:
    """A time of a launch to open on, in Unix ns, and the SM and the warp of a block to show.

    A row called ``row``, above all others, has one slice there, called ``title``; the row below it
    has the warp's ranges.
    """

    row: str
    title: str
    start_ns: int
    end_ns: int
    sm: int | None = None
    warp: tuple[int, int] | None = None  # (block, warp of the block)


def shown(head: Head) -> list[Shown]:
    """Return all launches of a file."""
    names = zip(launch_names(head.launches), group_names(head.launches), strict=True)
    return [
        Shown(one.label, name, one.label if head.shared else name, top)
        for one, (name, top) in zip(head.launches, names, strict=True)
    ]


def ranges_of(head: Head) -> list[int]:
    """Return the number of records of each launch that a viewer shows one by one."""
    return [one.kept if one.mode == "timeline" else 0 for one in head.launches]


def rows_of(head: Head) -> list[int]:
    """Return about how many rows of a viewer each launch has: of warps, of SMs, and its own."""
    warps = np.bincount(head.launch[: head.slots], minlength=len(head.launches))
    return [int(each) + OTHER_ROWS for each in warps]


def shared_rows_of(head: Head) -> int | None:
    """Return about how many rows of a viewer all launches share; None where each has its own."""
    if not head.shared:
        return None
    kernels: dict[tuple[str, str], int] = {}
    keys = ((one.top, one.row) for one in shown(head))
    kernel = np.array([kernels.setdefault(key, len(kernels)) for key in keys], np.int64)
    each, one = distinct(head.launch[: head.slots], head.sm[: head.slots])
    warps = np.bincount(each)  # of a launch on an SM
    places, first = distinct(kernel[head.launch[one]], head.sm[one])
    most = np.zeros(len(first), np.int64)
    np.maximum.at(most, places, warps)
    return int(most.sum()) + OTHER_ROWS * (len(kernels) + len(first))


def query(head: Head, number: int, place: Place | None = None) -> dict[str, str]:
    """Return the parameters of the UI's address that open it on a launch: its first wave, or a
    place of it, which a pinned row of one slice names.

    The launch's rows are expanded, and the warps of its first SM or the place's, and no others. A
    launch below many others is shown in a workspace of its own; the UI's default one still has them
    all.
    """
    launches = shown(head)
    top, row = _exactly(launches[number].top), _exactly(launches[number].row)
    mine = head.launch == number
    expand = [("ExpandTracksByRegex", one) for one in (top, row)]
    if mine.any():
        expand.append(("ExpandTracksByRegex", rf"^SM {_expanded(head, mine, place)}( |$)"))
    commands = list[tuple[str, ...]](expand)
    above = {one.row for one in launches[:number] if one.top == launches[number].top}
    if len(above - {launches[number].row}) > _MANY_ABOVE:
        commands += [*_in_workspace(launches, number), *expand]
    if place is not None:
        commands.append(("AddDebugSliceTrack", _slice_of(place), place.row))
        rows = [(one.top, one.row) for one in launches]
        alike = np.array([each == rows[number] for each in rows])
        commands += _warp_of(head, mine, alike[head.launch], place, launches[number].row)
        return _startup(commands) | _with_margin(head, place.start_ns, place.end_ns)
    return _startup(commands) | (_window(head, mine) if mine.any() else {})


def _expanded(head: Head, mine: NDArray[np.bool_], place: Place | None) -> int:
    """Return the SM whose warps are expanded: a place's, or a launch's first with warps."""
    if place is not None and place.sm is not None:
        return place.sm
    sms = head.sm[: head.slots][mine[: head.slots]]
    return int((sms if len(sms) else head.sm[mine]).min())


def _in_workspace(launches: Sequence[Shown], number: int) -> Iterator[tuple[str, ...]]:
    """Yield the commands that show a launch's rows in a workspace of its own."""
    row, own = _exactly(launches[number].row), f"launch {number}: {launches[number].name}"
    copied = f"{row}|{_COUNTERS}" if len({one.top for one in launches}) == 1 else row
    yield "CopyTracksToWorkspaceByRegexWithAncestors", copied, own
    yield "SwitchWorkspace", own


def _slice_of(place: Place) -> str:
    """Return SQL of one slice, which the UI draws above all rows."""
    length = place.end_ns - place.start_ns
    return f"SELECT {place.start_ns} AS ts, {length} AS dur, {_quoted(place.title)} AS name"


def _warp_of(
    head: Head, mine: NDArray[np.bool_], alike: NDArray[np.bool_], place: Place, row: str
) -> list[tuple[str, str, str]]:
    """Return the command that draws the place's warp above all rows; [] if it left no records.

    ``mine`` are the launch's warps, ``alike`` those of all launches on its row.
    """
    if place.warp is None:
        return []
    block, warp = place.warp
    own = np.flatnonzero(mine & (head.block == block))
    own = own[own < head.slots]
    if not len(own):
        return []
    sm, lane = int(head.sm[own[0]]), head.lane[own[0]]
    lanes, there = np.unique(head.lane[mine & (head.sm == sm)]), alike & (head.sm == sm)
    alone = len(np.unique(head.lane[there])) == len(np.unique(head.launch[there]))
    name = name_of_lane(sm, None if alone else int(np.searchsorted(lanes, lane)))
    start, end = int(head.start_ns[own].min()), int(head.end_ns[own].max())
    sql = (
        "SELECT s.ts, s.dur, s.name FROM slice s "  # noqa: S608 - run by the UI, on this file
        "JOIN track w ON s.track_id = w.id "
        "JOIN track b ON w.parent_id = b.id JOIN track k ON b.parent_id = k.id "
        f"WHERE k.name = {_quoted(row)} AND b.name = {_quoted(name)} "
        f"AND (w.name = 'warp {warp}' OR w.name GLOB 'warp {warp} *') "
        f"AND s.ts >= {start} AND s.ts <= {end}"
    )
    return [("AddDebugSliceTrack", sql, f"block {block} warp {warp}")]


def _quoted(text: str) -> str:
    """Return a string of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _startup(commands: list[tuple[str, ...]]) -> dict[str, str]:
    calls = [{"id": f"dev.perfetto.{name}", "args": args} for name, *args in commands]
    return {"startupCommands": json.dumps(calls, separators=(",", ":"), ensure_ascii=False)}


def _exactly(name: str) -> str:
    """Return a JavaScript regular expression for a name."""
    return f"^{re.sub(_SPECIAL, lambda found: chr(92) + found[0], name)}$"


_SPECIAL: Final = r"[][\\^$.*+?(){}|/]"
_COUNTERS: Final = "^(resident|active) (recorded )?(blocks|warps)$"
"""The rows of a device's counters, which are beside its launches."""
_MANY_ABOVE: Final = 5
"""Rows of other launches that may lie above the one to show."""


def _window(head: Head, mine: NDArray[np.bool_]) -> dict[str, str]:
    """Return a launch's first wave and a margin, cut to the file's times: the UI ignores others."""
    return _with_margin(head, *_first_wave(head, mine))


def _with_margin(head: Head, start: int, end: int) -> dict[str, str]:
    """Return a window of Unix ns and a margin, cut to the file's times."""
    margin = max(1, int(_MARGIN * (end - start)))
    start = max(int(head.start_ns.min()), start - margin)
    end = min(int(head.end_ns.max()), end + 2 * margin)
    return {"visStart": str(start), "visEnd": str(end)} if start < end else {}


def _first_wave(head: Head, mine: NDArray[np.bool_]) -> tuple[int, int]:
    """Return when the blocks of a launch's first wave ran.

    It is over when half of the CTA slots are done with their first block: a slot that is used late
    counts for no more than another one.
    """
    number, one = distinct(head.lane[mine], head.block[mine])
    begin, done = np.full(len(one), np.iinfo(np.int64).max), np.zeros(len(one), np.int64)
    np.minimum.at(begin, number, head.start_ns[mine])
    np.maximum.at(done, number, head.end_ns[mine])
    zero = int(begin.min())
    lane = head.lane[mine][one]
    order = np.lexsort((begin, lane))
    first = order[np.flatnonzero(np.diff(lane[order], prepend=-1))]
    return zero, zero + int(np.median(done[first] - zero))  # as floats, Unix times are too coarse
