"""Ranges extended by the time in no range beside them, up to their warp's neighbouring ranges.

In that time a warp still waits for what a range has asked for, or can't issue the range's first
instructions: what slows a range often shows next to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.explain.prepared import Ints, Prepared


def with_beside(launch: Prepared, rows: NDArray[np.intp]) -> tuple[Ints, Ints]:
    """Return when some ranges begin and end, with the time beside them.

    That is from the end of the last range before to the next range's start. The time between two of
    ``rows`` counts for the first one; a warp's time before its first range counts for none.
    """
    wanted = np.zeros(len(launch.slot), bool)
    wanted[rows] = True
    before = _before(launch, rows)
    free = (before >= 0) & ~wanted[before]
    over = np.maximum(launch.closes[before], _began(launch)[rows])
    opens = np.where(free, np.minimum(over, launch.opens[rows]), launch.opens[rows])
    return opens, np.maximum(launch.next_opens[rows], launch.closes[rows])


def _before(launch: Prepared, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return, for each of some ranges, the range of its warp that ended last before it; -1 for
    none.
    """
    key = launch.on_one_axis(launch.slot, launch.closes)
    order = np.argsort(key, kind="stable")
    wanted = launch.on_one_axis(launch.slot[rows], launch.opens[rows])
    at = np.searchsorted(key[order], wanted, "right") - 1
    found = order[np.maximum(at, 0)]
    hit = (at >= 0) & (launch.slot[found] == launch.slot[rows])
    result: NDArray[np.intp] = np.where(hit, found, -1)
    return result


def _began(launch: Prepared) -> Ints:
    """Return, for each range, the start of the range that began before it; 0 for a warp's first."""
    order = np.argsort(launch.on_one_axis(launch.slot, launch.opens), kind="stable")
    found = np.zeros(len(order), np.int64)
    slot = launch.slot[order]
    found[order[1:]] = np.where(slot[1:] == slot[:-1], launch.opens[order[:-1]], 0)
    return found
