"""Times with a product (MMA) under way on each SM: from the range that issues it to its wait's end.

A product lasts from its range's start to the end of the warp's next range that waits for products.
Without such a wait, its own range is taken to hold it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.coverage import Coverage
from ikp.analysis.explain.prepared import Bools, Ints, Prepared, once
from ikp.analysis.explain.warp_regions import at_once


@dataclass(frozen=True, slots=True)
class Products:
    """The moments with a product under way, by SM, and which warps make any."""

    covered: Coverage
    sm: Ints  # of each warp, as small numbers
    multiplies: Bools  # of each warp
    count: int  # ranges that issue products

    def busy_share(self, launch: Prepared) -> float:
        """Return the share of the time that SMs held a block, in which one was under way."""
        held = Coverage.of(self.sm, launch.start, launch.end, max(launch.duration, 1))
        return self.covered.total() / max(held.total(), 1)


@once
def products(launch: Prepared) -> Products | None:
    """Return the times with a product under way; None where no range is known to make any.

    None also where an SM held blocks that left no records beside those that recorded.
    """
    if not launch.sees_neighbours:
        return None
    issues = launch.of_region(launch.regions([Activity.MMA]))
    waits = launch.of_region(launch.regions([Activity.WAIT_MMA]))
    if not len(issues) and not len(waits):
        return None
    sm = np.unique(launch.sm, return_inverse=True)[1].astype(np.int64)
    opens, closes = launch.opens[issues], launch.closes[issues]
    slot = launch.slot[issues].astype(np.int64, copy=False)
    if len(waits):
        closes = np.maximum(closes, _waited(launch, slot, opens, closes, waits))
        opens, closes, slot = (
            np.concatenate(pair)
            for pair in (
                (opens, launch.opens[waits]),
                (closes, launch.closes[waits]),
                (slot, launch.slot[waits]),
            )
        )
    multiplies = np.zeros(len(launch.start), bool)
    multiplies[slot] = True
    covered = Coverage.of(sm[slot], opens, closes, max(launch.duration, 1))
    return Products(covered, sm, multiplies, len(issues) or len(waits))


def _waited(launch: Prepared, slot: Ints, opens: Ints, closes: Ints, waits: Ints) -> Ints:
    """Return when each product's wait is over: the first one of its warp that begins after it."""
    waits = launch.in_order(waits)
    key = launch.on_one_axis(launch.slot[waits], launch.opens[waits])
    result = np.empty(len(slot), np.int64)
    for rows in at_once(len(slot)):
        at = np.searchsorted(key, launch.on_one_axis(slot[rows], opens[rows]))
        found = waits[np.minimum(at, len(waits) - 1)]
        hit = (at < len(waits)) & (launch.slot[found] == slot[rows])
        result[rows] = np.where(hit, launch.closes[found], closes[rows])
    return result
