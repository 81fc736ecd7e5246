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
    closes: Ints
    before: Ints  # how much is covered before each piece

    @classmethod
    def of(cls, sm: Ints, opens: Ints, closes: Ints, span: int) -> Coverage:
        """Return the union of intervals.

        Args:
            sm: of each interval, small numbers.
            opens: when each begins, from 0 on.
            closes: when it ends.
            span: no interval ends later.
        """
        step = span + 1
        low, high = _on_axis(sm, opens, step), _on_axis(sm, closes, step)
        np.maximum(low, high, out=high)
        low.sort(kind="stable")  # each warp's intervals ascend: such runs are merged, not sorted
        high.sort(kind="stable")
        # Whatever is over before a moment has begun before it: as many as have begun are over.
        new = np.ones(len(low), bool)
        new[1:] = low[1:] > high[:-1]
        first = np.flatnonzero(new)
        last = np.append(first[1:], len(low)) - 1 if len(first) else first
        opened, closed = low[first], high[last]
        before = np.concatenate([[0], np.cumsum(closed - opened)])
        return cls(step, opened, closed, before)

    def total(self) -> int:
        """Return how much is covered, over all SMs."""
        return int(self.before[-1])

    def inside(self, sm: Ints, opens: Ints, closes: Ints) -> Ints:
        """Return how much of each of some intervals is covered."""
        top = self.span - 1
        low = np.clip(opens, 0, top) + sm * self.span
        high = np.clip(np.maximum(closes, opens), 0, top) + sm * self.span
        return self._until(high) - self._until(low)

    def _until(self, time: Ints) -> Ints:
        """Return how much is covered before each moment."""
        piece = np.searchsorted(self.opens, time, "right")
        if not len(self.opens):
            return np.zeros(len(time), np.int64)
        at = np.maximum(piece - 1, 0)
        within = np.clip(time - self.opens[at], 0, self.closes[at] - self.opens[at])
        found: Ints = np.where(piece > 0, self.before[at] + within, 0)
        return found


def _on_axis(sm: Ints, time: Ints, step: int) -> Ints:
    """Return moments of SMs, one SM behind the other."""
    found = np.clip(time, 0, step - 1)
    for rows in at_once(len(found)):
        found[rows] += sm[rows] * step
    return found


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
    multiplies = np.zeros(len(launch.start), bool)
    multiplies[slot] = True
    multiplies[launch.slot[waits]] = True
    if len(waits):
        waited, others = _waited(launch, slot, opens, closes, waits)
        np.maximum(closes, waited, out=closes)
        if len(others):
            opens, closes, slot = (
                np.concatenate([column, more[others]])
                for column, more in (
                    (opens, launch.opens),
                    (closes, launch.closes),
                    (slot, launch.slot),
                )
            )
    covered = Coverage.of(sm[slot], opens, closes, max(launch.duration, 1))
    return Products(covered, sm, multiplies, len(issues) or len(waits))


def _waited(
    launch: Prepared, slot: Ints, opens: Ints, closes: Ints, waits: Ints
) -> tuple[Ints, Ints]:
    """Return when each product's wait is over, and the waits that are no product's.

    It is the first one of its warp that begins after it, so the product lasts all of that wait.
    """
    waits = launch.in_order(waits)
    key = launch.on_one_axis(launch.slot[waits], launch.opens[waits])
    result, alone = np.empty(len(slot), np.int64), np.ones(len(waits), bool)
    for rows in at_once(len(slot)):
        at = np.searchsorted(key, launch.on_one_axis(slot[rows], opens[rows]))
        found = waits[np.minimum(at, len(waits) - 1)]
        hit = (at < len(waits)) & (launch.slot[found] == slot[rows])
        result[rows] = np.where(hit, launch.closes[found], closes[rows])
        alone[at[hit]] = False
    return result, waits[alone]
