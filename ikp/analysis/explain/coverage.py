"""``Coverage``: the union of intervals on each SM, and how much of other intervals it covers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.explain.warp_regions import at_once

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
        low.sort()
        high.sort()
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
