"""``Meetings`` of warps at a barrier: which waits of a block's warps belong together.

The n-th time that each warp of a group waits in a region, for one payload if it has any, is the
n-th meeting. The region is a barrier among these warps if they leave it together, as the last of
them arrives; else they wait for other warps, and there are no meetings. Where the range itself is
too short to hold the wait, a warp has left when its next range begins: a compiler may put the
barrier behind the range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.prepared import Ints, Prepared, once
from ikp.core.sorting import order_by

Rows = NDArray[np.intp]

_TOGETHER: Final = 0.3
"""Share of the waits' time in which warps may wait for something else than the last of them."""


_SMALL: Final = 1 << 12
"""Ranges up to which regions are looked at together: of thousands of names each has few."""
_EMPTY: Final = 0.1
"""Share of the time between the first and the last arrival: a range that is shorter holds no wait.
"""


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
    if launch.counts[region] > _SMALL:
        return _meetings(launch, [region]).get(region)
    return _of_small_regions(launch, launch.known[region].activity).get(region)


@once
def _of_small_regions(launch: Prepared, activity: Activity) -> dict[int, Meetings]:
    """Return the meetings of all regions of an activity that have few ranges: one sort for all."""
    regions = launch.regions([activity])
    return _meetings(launch, regions[launch.counts[regions] <= _SMALL].tolist())


def _meetings(launch: Prepared, regions: list[int]) -> dict[int, Meetings]:
    """Return the meetings of the regions that are barriers."""
    rows = np.concatenate([launch.of_region([one]) for one in regions])
    rows = rows[order_by(launch.region[rows], launch.slot[rows], launch.opens[rows])]
    region, slot = launch.region[rows], launch.slot[rows]
    first = _begins(region, slot)
    turn = np.arange(len(rows)) - np.repeat(first, np.diff(first, append=len(rows)))
    who = launch.block_of[slot] * len(launch.groups) + launch.groups.of_warp[slot]
    what = _numbers(launch, rows)
    order = order_by(region, who, what, turn, launch.opens[rows])
    rows, region = rows[order], region[order]
    starts = _begins(region, who[order], what[order], turn[order])
    count = np.diff(starts, append=len(rows))
    opens = launch.opens[rows]
    apart = opens[starts + count - 1] > opens[starts]  # where all come at once, nobody waits
    low = _begins(region[starts])
    high = np.append(low[1:], len(starts))
    found = {}
    for a, b in zip(low.tolist(), high.tolist(), strict=True):
        if apart[a:b].any():
            begin = int(starts[a])
            mine = slice(begin, int(starts[b]) if b < len(starts) else len(rows))
            made = _of_one(launch, rows[mine], opens[mine], starts[a:b] - begin, count[a:b])
            if made is not None:
                found[int(region[begin])] = made
    return found


def _begins(*columns: NDArray[np.integer[Any]]) -> Rows:
    """Return the rows that differ from the one before in any of some columns, and the first."""
    new = np.ones(len(columns[0]), np.bool_)
    new[1:] = False
    for one in columns:
        new[1:] |= one[1:] != one[:-1]
    return np.flatnonzero(new)


def _numbers(launch: Prepared, rows: Rows) -> Ints:
    """Return numbers of payloads, in their order; one of those that are none."""
    if not launch.has_payloads:
        return np.zeros(len(rows), np.int64)
    payload = np.nan_to_num(launch.payload(rows), nan=-1.0)
    return np.unique(payload, return_inverse=True)[1].astype(np.int64)


def _of_one(
    launch: Prepared, rows: Rows, opens: Ints, starts: Rows, count: Ints
) -> Meetings | None:
    """Return meetings of one region, whose rows begin at ``starts``; None if it is no barrier."""
    closes = launch.closes[rows]
    last = np.maximum.reduceat(opens, starts)
    if np.median(closes - opens) < _EMPTY * np.median(last - np.minimum.reduceat(opens, starts)):
        closes = np.maximum(launch.next_opens[rows], closes)
    mean = np.add.reduceat(opens, starts) / count
    left = np.maximum.reduceat(closes, starts)
    apart = float((left - np.minimum.reduceat(closes, starts)).sum())
    for_each_other, for_others = float((last - mean).sum()), float((left - last).sum())
    if for_each_other <= 0 or max(for_others, apart) > _TOGETHER * (for_each_other + for_others):
        return None
    number = np.repeat(np.arange(len(starts)), count)
    return Meetings(rows, number, count, last, rows[starts + count - 1], mean)
