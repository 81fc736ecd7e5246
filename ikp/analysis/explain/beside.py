"""Ranges with the time beside them: up to where their warp's ranges before and behind stand.

There a warp still waits for what a range has asked for, or can't issue what it begins with: what
slows a range often shows next to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.explain.prepared import Ints, Prepared, once


def with_beside(launch: Prepared, rows: NDArray[np.intp]) -> tuple[Ints, Ints]:
    """Return when some ranges begin and end, with the time beside them.

    That is from the end of the last range before to the next range's start. The time between two of
    ``rows`` is the first one's; a warp's time before its first range is nobody's.
    """
    wanted = np.zeros(len(launch.row), bool)
    wanted[rows] = True
    before = _before(launch)[rows]
    free = (before >= 0) & ~wanted[before]
    opens = np.where(free, _over(launch)[rows], launch.opens[rows])
    closes = np.maximum(launch.next_opens[rows], launch.closes[rows])
    return np.minimum(opens, launch.opens[rows]), closes


@once
def _before(launch: Prepared) -> NDArray[np.intp]:
    """Return which range of its warp ended last before each one begins; -1 for none."""
    order = np.lexsort((launch.closes, launch.slot))
    span = max(launch.duration, 1) + 1
    key = launch.slot[order] * span + np.clip(launch.closes[order], 0, span - 1)
    wanted = launch.slot * span + np.clip(launch.opens, 0, span - 1)
    at = np.searchsorted(key, wanted, "right") - 1
    found = order[np.maximum(at, 0)]
    hit = (at >= 0) & (launch.slot[found] == launch.slot)
    result: NDArray[np.intp] = np.where(hit, found, -1)
    return result


@once
def _over(launch: Prepared) -> Ints:
    """Return when what came before each range was over: a range ended, or one around it began."""
    ended = launch.closes[_before(launch)]
    order = np.lexsort((launch.opens, launch.slot))
    began = np.zeros(len(order), np.int64)
    slot = launch.slot[order]
    began[order[1:]] = np.where(slot[1:] == slot[:-1], launch.opens[order[:-1]], 0)
    result: Ints = np.maximum(ended, began)
    return result
