"""Barriers met again and again: which warps' waits belong to one meeting of a block.

The n-th time that each warp of a group waits in a region, for one payload if it has any, is the
n-th meeting. It is a barrier among these warps if they leave it together, and do so as the last of
them arrives; else they wait for somebody else, and no meeting is made of it. They have left when
their next range begins, where the range itself is too short to hold the wait: a compiler may put
the barrier behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.explain.prepared import Ints, Prepared, once

Rows = NDArray[np.intp]

_TOGETHER: Final = 0.3
"""Of the time that warps wait for the last of them, how long they may wait for something else."""


_EMPTY: Final = 0.1
"""Of the time between the first and the last arrival: a range that is shorter holds no wait."""


@dataclass(frozen=True, slots=True)
class Meetings:
    """The meetings of one region: rows of ranges, meeting by meeting."""

    rows: Rows
    number: Ints  # of the meeting that each row is of
    count: Ints  # warps of each meeting
    last: Ints  # when the last warp of each came
    last_row: Rows  # its range
    mean: NDArray[np.float64]  # when they came on average


@once
def meetings(launch: Prepared, region: int) -> Meetings | None:
    """Return a region's meetings; None where it is no barrier among the warps that record it."""
    rows = launch.of_region([region])
    rows = launch.in_order(rows)
    slot = launch.slot[rows]
    first = np.flatnonzero(np.diff(slot, prepend=-1))
    turn = np.arange(len(rows)) - np.repeat(first, np.diff(first, append=len(rows)))
    who = launch.block_of[slot] * len(launch.groups) + launch.groups.of_warp[slot]
    what = np.unique(np.nan_to_num(launch.payload(rows), nan=-1.0), return_inverse=True)[1]
    key = (who * (int(what.max(initial=0)) + 1) + what) * (int(turn.max(initial=0)) + 1) + turn
    order = np.lexsort((launch.opens[rows], key))
    rows, key = rows[order], key[order]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    count = np.diff(starts, append=len(rows))
    if not len(rows) or count.max() < 2:
        return None
    opens, closes = launch.opens[rows], launch.closes[rows]
    last = np.maximum.reduceat(opens, starts)
    if np.median(launch.took(rows)) < _EMPTY * np.median(last - np.minimum.reduceat(opens, starts)):
        closes = np.maximum(launch.next_opens[rows], closes)
    mean = np.add.reduceat(opens, starts) / count
    left = np.maximum.reduceat(closes, starts)
    apart = float((left - np.minimum.reduceat(closes, starts)).sum())
    for_each_other, for_others = float((last - mean).sum()), float((left - last).sum())
    if for_each_other <= 0 or max(for_others, apart) > _TOGETHER * (for_each_other + for_others):
        return None
    number = np.repeat(np.arange(len(starts)), count)
    return Meetings(rows, number, count, last, rows[starts + count - 1], mean)
