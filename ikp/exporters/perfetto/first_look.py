"""What a viewer should show first: one launch, its first wave, its first SM."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.exporters.perfetto.contents import Contents
from ikp.exporters.perfetto.evidence import to_launch
from ikp.exporters.perfetto.launches import group_names, launch_names
from ikp.exporters.perfetto.rebuild import together
from ikp.exporters.perfetto.tracks import distinct

MARGIN: Final = 0.05
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


def query(contents: Contents, number: int) -> dict[str, str]:
    """Return what to add to the UI's address, so that it opens on the first wave of a launch.

    The launch's rows are expanded, and the warps of its first SM, and no others.
    """
    launch = shown(contents)[number]
    expand = [_exactly(launch.top), _exactly(launch.row)]
    blocks = together(contents.blocks, ("launch", "track", "block", "sm", "start_ns", "end_ns"))
    mine = blocks["launch"] == number
    if not mine.any():
        return _commands(expand)
    expand.append(rf"^SM {blocks['sm'][mine].min()}( |$)")
    start, end = _window(blocks, mine)
    base = contents.base_ns or 0
    return _commands(expand) | {"visStart": str(base + start), "visEnd": str(base + end)}


def _commands(expand: list[str]) -> dict[str, str]:
    commands = [{"id": "dev.perfetto.ExpandTracksByRegex", "args": [one]} for one in expand]
    return {"startupCommands": json.dumps(commands, separators=(",", ":"), ensure_ascii=False)}


def _exactly(name: str) -> str:
    """Return a JavaScript regular expression for a name."""
    return f"^{re.sub(SPECIAL, lambda found: chr(92) + found[0], name)}$"


SPECIAL: Final = r"[][\\^$.*+?(){}|/]"


def _window(blocks: dict[str, NDArray[Any]], mine: NDArray[np.bool_]) -> tuple[int, int]:
    """Return a launch's first wave and a margin, within what the file holds.

    The wave ends when half of the lanes are done with their first block: a lane that is used late
    doesn't count for more than another. The UI ignores a window that is not within the file's times.
    """
    lane, block = blocks["track"][mine], blocks["block"][mine]
    start, end = blocks["start_ns"][mine], blocks["end_ns"][mine]
    number, one = distinct(lane, block)
    begin, done = np.full(len(one), np.iinfo(np.int64).max), np.zeros(len(one), np.int64)
    np.minimum.at(begin, number, start)
    np.maximum.at(done, number, np.maximum(start, end))
    order = np.lexsort((begin, lane[one]))
    first = order[np.flatnonzero(np.diff(lane[one][order], prepend=-1))]
    wave = int(np.median(done[first]))
    margin = max(1, int(MARGIN * (wave - int(begin.min()))))
    least, most = int(blocks["start_ns"].min()), int(blocks["end_ns"].max())
    return max(least, int(begin.min()) - margin), min(most, wave + 2 * margin)
