"""Times with a product (MMA) under way on each SM (``Products``), and how much of other intervals
they cover.

A product lasts from its range's start to the end of the warp's next range that waits for products.
Without such a wait, its own range is taken to hold it. ``Coverage`` is the union of intervals on
each SM.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.prepared import Bools, Prepared, once
from ikp.analysis.explain.warp_groups import at_once

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The moments of each SM that any of some intervals covers.

    SMs lie one behind the other on one axis, ``span`` apart, so that one search serves all.
    """

    span: int
    opens: Ints  # of the pieces of the union, ascending, apart from each other
    closes: Ints  # of nothing, then of each piece
    shift: Ints  # from a moment in it to how much is covered before that moment

    @classmethod
    def of(
        cls, launch: Prepared, sm: Ints, ranges: NDArray[np.intp], until: Ints | None = None
    ) -> Coverage:
        """Return the union of ranges' times.

        Args:
            launch: the launch.
            sm: of each warp, small numbers.
            ranges: which.
            until: when each ends, if not where its range does.
        """
        step = _step(launch)
        low, high = np.empty(len(ranges), np.int64), np.empty(len(ranges), np.int64)
        for some in at_once(len(ranges)):
            rows = ranges[some]
            base = sm[launch.slot[rows]] * step
            closes = launch.closes[rows] if until is None else until[some]
            low[some] = base + np.clip(launch.opens[rows], 0, step - 1)
            high[some] = base + np.clip(closes, 0, step - 1)
        return cls.of_intervals(low, high, step)

    @classmethod
    def of_intervals(cls, low: Ints, high: Ints, step: int) -> Coverage:
        """Return the union of intervals on one axis, ``step`` for each SM; both are overwritten."""
        np.maximum(low, high, out=high)
        low.sort(kind="stable")  # each warp's intervals ascend: such runs are merged, not sorted
        high.sort(kind="stable")
        # What is over before a moment has begun before it: as many as have begun are over.
        new = np.ones(len(low) + 1, bool)  # whether a piece begins, or all before it are over
        np.greater(low[1:], high[:-1], out=new[1:-1])
        opens, closes, shift = low[new[:-1]], *np.zeros((2, np.count_nonzero(new)), np.int64)
        if len(low):
            closes[1:] = high[new[1:]]
            np.subtract(closes[1:], opens, out=shift[1:])
            np.cumsum(shift, out=shift)
            shift -= closes
        return cls(step, opens, closes, shift)

    def total(self) -> int:
        """Return how much is covered, over all SMs."""
        return int(self.closes[-1] + self.shift[-1])

    def inside(self, sm: Ints, opens: Ints, closes: Ints) -> Ints:
        """Return how much of each of some intervals is covered."""
        top = self.span - 1
        low = np.clip(opens, 0, top) + sm * self.span
        high = np.clip(np.maximum(closes, opens), 0, top) + sm * self.span
        return self._until(high) - self._until(low)

    def _until(self, time: Ints) -> Ints:
        """Return how much is covered before each moment."""
        piece = np.searchsorted(self.opens, time, "right")
        found = np.minimum(time, self.closes[piece])
        found += self.shift[piece]
        return found


def _step(launch: Prepared) -> int:
    """Return how far the SMs are apart on the axis."""
    return max(launch.duration, 1) + 1


@dataclass(frozen=True, slots=True)
class Products:
    """The moments with a product under way, by SM, and which warps make any."""

    covered: Coverage
    sm: Ints  # of each warp, as small numbers
    multiplies: Bools  # of each warp
    count: int  # ranges that issue products

    def busy_share(self, launch: Prepared) -> float:
        """Return the share of the time that SMs held a block, in which one was under way."""
        step = _step(launch)
        base = self.sm * step
        held = Coverage.of_intervals(
            base + np.clip(launch.start, 0, step - 1), base + np.clip(launch.end, 0, step - 1), step
        )
        return self.covered.total() / max(held.total(), 1)


@once
def products(launch: Prepared) -> Products | None:
    """Return the times with a product under way; None where no range is known to make any.

    None also where an SM held blocks that left no records beside those that recorded.
    """
    if not launch.sees_neighbours:
        return None
    multiply, wait = launch.regions([Activity.MMA]), launch.regions([Activity.WAIT_MMA])
    issues, waits = launch.of_region(multiply), launch.of_region(wait)
    if not len(issues) and not len(waits):
        return None
    sm = np.unique(launch.sm, return_inverse=True)[1].astype(np.int64)
    did, multiplies = launch.by_warp, np.zeros(len(launch.start), bool)
    multiplies[did.slot[np.isin(did.region, [*multiply, *wait])]] = True
    ranges, until = issues, None
    if len(waits):
        until, others = _waited(launch, issues, waits)
        ranges = np.concatenate([issues, others])
        until = np.concatenate([until, launch.closes[others]])
    covered = Coverage.of(launch, sm, ranges, until)
    return Products(covered, sm, multiplies, len(issues) or len(waits))


def _waited(
    launch: Prepared, issues: NDArray[np.intp], waits: NDArray[np.intp]
) -> tuple[Ints, NDArray[np.intp]]:
    """Return when each product is over, and the waits that are no product's.

    It is over with the first wait of its warp that begins after it, or else with its own range.
    """
    waits = launch.in_order(waits)
    key = launch.on_one_axis(launch.slot[waits], launch.opens[waits])
    result, alone = np.empty(len(issues), np.int64), np.ones(len(waits), bool)
    for some in at_once(len(issues)):
        rows = issues[some]
        slot, closes = launch.slot[rows], launch.closes[rows]
        at = np.searchsorted(key, launch.on_one_axis(slot, launch.opens[rows]))
        found = waits[np.minimum(at, len(waits) - 1)]
        hit = (at < len(waits)) & (launch.slot[found] == slot)
        result[some] = np.where(hit, np.maximum(launch.closes[found], closes), closes)
        alone[at[hit]] = False
    return result, waits[alone]
