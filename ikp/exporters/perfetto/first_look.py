"""What a viewer should show first: one launch, its first wave, its first SM."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.exporters.perfetto._arguments import Columns
from ikp.exporters.perfetto._evidence import to_launch
from ikp.exporters.perfetto._rebuild import together
from ikp.exporters.perfetto.contents import Contents
from ikp.exporters.timeline.blocks import distinct
from ikp.exporters.timeline.tracks import group_names, launch_names

_MARGIN: Final = 0.05
"""Of the first wave, on both sides of it: its edges are seen, and where the next one starts."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A launch by its label, and by the names of its row and of the row on top of that."""

    label: str
    row: str
    top: str


def shown(contents: Contents) -> list[Shown]:
    """Return all launches of a file, of which at least the head was read."""
    launches = tuple(to_launch(contents.launches[key]) for key in sorted(contents.launches))
    names = zip(launch_names(launches), group_names(launches), strict=True)
    return [Shown(one.label, row, top) for one, (row, top) in zip(launches, names, strict=True)]


def ranges_of(contents: Contents) -> list[int]:
    """Return how many records each launch of a file has that a viewer shows one by one."""
    launches = (to_launch(contents.launches[key]) for key in sorted(contents.launches))
    return [one.kept if one.mode == "timeline" else 0 for one in launches]


def query(contents: Contents, number: int) -> dict[str, str]:
    """Return what to add to the UI's address, so that it opens on the first wave of a launch.

    The launch's rows are expanded, and the warps of its first SM, and no others. A launch below
    many others is shown in a workspace of its own; the UI's default one still has them all.
    """
    launches = shown(contents)
    top, row = _exactly(launches[number].top), _exactly(launches[number].row)
    blocks = together(contents.blocks, ("launch", "track", "block", "sm", "start_ns", "end_ns"))
    mine = blocks["launch"] == number
    expand = [("ExpandTracksByRegex", one) for one in (top, row)]
    if mine.any():
        expand.append(("ExpandTracksByRegex", rf"^SM {blocks['sm'][mine].min()}( |$)"))
    commands = list[tuple[str, ...]](expand)
    if sum(one.top == launches[number].top for one in launches[:number]) > _MANY_ABOVE:
        own = f"launch {number}: {launches[number].row}"
        commands.append(("CopyTracksToWorkspaceByRegexWithAncestors", row, own))
        commands += [("SwitchWorkspace", own), *expand]
    return _startup(commands) | (_window(contents, blocks, mine) if mine.any() else {})


def _startup(commands: list[tuple[str, ...]]) -> dict[str, str]:
    calls = [{"id": f"dev.perfetto.{name}", "args": args} for name, *args in commands]
    return {"startupCommands": json.dumps(calls, separators=(",", ":"), ensure_ascii=False)}


def _exactly(name: str) -> str:
    """Return a JavaScript regular expression for a name."""
    return f"^{re.sub(_SPECIAL, lambda found: chr(92) + found[0], name)}$"


_SPECIAL: Final = r"[][\\^$.*+?(){}|/]"
_MANY_ABOVE: Final = 5
"""Rows of other launches that may stand above the one to show."""


def _window(contents: Contents, blocks: Columns, mine: NDArray[np.bool_]) -> dict[str, str]:
    """Return a launch's first wave and a margin. The UI ignores what is not within the file."""
    start, end = _first_wave({name: column[mine] for name, column in blocks.items()})
    margin = max(1, int(_MARGIN * (end - start)))
    start = max(int(blocks["start_ns"].min()), start - margin)
    end = min(int(blocks["end_ns"].max()), end + 2 * margin)
    base = contents.base_ns or 0
    return {"visStart": str(base + start), "visEnd": str(base + end)} if start < end else {}


def _first_wave(warps: Columns) -> tuple[int, int]:
    """Return when the blocks of a launch's first wave ran.

    It is over when half of the lanes are done with their first block: a lane that is used late
    counts for no more than another one.
    """
    number, one = distinct(warps["track"], warps["block"])
    begin, done = np.full(len(one), np.iinfo(np.int64).max), np.zeros(len(one), np.int64)
    np.minimum.at(begin, number, warps["start_ns"])
    np.maximum.at(done, number, warps["end_ns"])
    lane = warps["track"][one]
    order = np.lexsort((begin, lane))
    first = order[np.flatnonzero(np.diff(lane[order], prepend=-1))]
    return int(begin.min()), int(np.median(done[first]))
