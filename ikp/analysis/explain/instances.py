"""Barriers met again and again: which warps' waits belong to one meeting of a block.

The n-th time that each warp waits in a region is the n-th meeting. It is a barrier among these
warps if they leave it together, and do so as the last of them arrives; else they wait for somebody
else, and no meeting is made of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.explain.prepared import Ints, Prepared

Rows = NDArray[np.intp]

_TOGETHER: Final = 0.3
"""Of the time that warps wait for the last of them, how long they may wait for something else."""


@dataclass(frozen=True, slots=True)
class Meetings:
    """The meetings of one region: rows of ranges, meeting by meeting."""

    rows: Rows
    number: Ints  # of the meeting that each row is of
    count: Ints  # warps of each meeting
    last: Ints  # when the last warp of each came
    last_row: Rows  # its range
    mean: NDArray[np.float64]  # when they came on average


def meetings(launch: Prepared, region: int) -> Meetings | None:
    """Return a region's meetings; None where it is no barrier among the warps that record it."""
    rows = launch.of_region([region])
    rows = rows[np.lexsort((launch.opens[rows], launch.slot[rows]))]
    slot = launch.slot[rows]
    first = np.flatnonzero(np.diff(slot, prepend=-1))
    turn = np.arange(len(rows)) - np.repeat(first, np.diff(first, append=len(rows)))
    key = launch.block_of[slot] * (int(turn.max(initial=0)) + 1) + turn
    order = np.lexsort((launch.opens[rows], key))
    rows, key = rows[order], key[order]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    count = np.diff(starts, append=len(rows))
    if not len(rows) or count.max() < 2:
        return None
    opens, closes = launch.opens[rows], launch.closes[rows]
    last = np.maximum.reduceat(opens, starts)
    mean = np.add.reduceat(opens, starts) / count
    left = np.add.reduceat(closes, starts) / count
    for_each_other, for_others = float((last - mean).sum()), float((left - last).sum())
    if for_each_other <= 0 or for_others > _TOGETHER * (for_each_other + for_others):
        return None
    number = np.repeat(np.arange(len(starts)), count)
    return Meetings(rows, number, count, last, rows[starts + count - 1], mean)
