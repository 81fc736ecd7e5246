"""Medians, percentiles, extremes and interpolation for many groups of numbers at once.

A group's result depends on its own numbers alone, to the last bit: a launch is placed on its axis
in the same way with any others beside it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ikp.core.sorting import order_by
from ikp.core.trace import Column

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


_MANY = 32
"""Mean group size from which on sorting each group by itself takes less time."""


class Sorted:
    """Numbers in order within their groups, which are numbered from 0."""

    def __init__(self, values: Column, count: Ints) -> None:
        self.values, self.count = values, count
        self.first = np.cumsum(self.count) - self.count
        self._there = self.count > 0

    @classmethod
    def of(cls, group: Ints, values: Column, groups: int, grouped: Ints | None = None) -> Sorted:
        """Sort numbers; ``grouped``, if known, is an order in which groups are contiguous."""
        if groups == 1:
            return cls(np.sort(values), np.array([len(values)]))
        found = cls(values, np.bincount(group, minlength=groups))
        even = int(found.count.max(initial=0)) * groups <= 2 * len(values)
        if len(values) < _MANY * groups and not even:
            found.values = values[np.lexsort((values, group))]
            return found
        if grouped is None and (group[1:] < group[:-1]).any():
            grouped = order_by(group)
        found.values = values.copy() if grouped is None else values[grouped]
        if even:
            found.values = _sorted_rows(found.values, found.count)
            return found
        for low, size in zip(found.first.tolist(), found.count.tolist(), strict=True):
            found.values[low : low + size].sort()
        return found

    def pick(self, rank: Ints) -> Column:
        """Return the number of that rank in each group; 0 of those that are empty."""
        out: Column = np.zeros(len(self.count), self.values.dtype)
        out[self._there] = self.values[(self.first + rank)[self._there]]
        return out

    def medians(self) -> Floats:
        """Return the median of each group: a torn anchor errs in one direction only."""
        low, high = self.pick((self.count - 1) // 2), self.pick(self.count // 2)
        return np.asarray((low + high) / 2, np.float64)

    def percentiles(self, part: float) -> Floats:
        """Return the ``part`` quantile of each group, interpolated linearly between two numbers."""
        at = part * np.maximum(self.count - 1, 0)
        below = np.floor(at).astype(np.int64)
        low = self.pick(below)
        high = self.pick(np.minimum(below + 1, np.maximum(self.count - 1, 0)))
        return np.asarray(low + (high - low) * (at - below), np.float64)


def _sorted_rows(values: Column, count: Ints) -> Column:
    """Sort each of some groups of numbers, which are of about one size: as rows of a table."""
    there = np.arange(count.max(initial=0)) < count[:, None]
    most = np.inf if values.dtype.kind == "f" else np.iinfo(values.dtype).max
    rows = np.full(there.shape, most, values.dtype)
    rows[there] = values
    rows.sort(1)
    out: Column = rows[there]
    return out


def medians(group: Ints, values: Floats, groups: int, grouped: Ints | None = None) -> Floats:
    """Return the median of ``values`` per group; 0 of an empty one. See :meth:`Sorted.of`."""
    if groups == 1 and len(values):
        middle = [(len(values) - 1) // 2, len(values) // 2]
        low, high = np.partition(values, middle)[middle]
        return np.asarray([(low + high) / 2], np.float64)
    return Sorted.of(group, values, groups, grouped).medians()


def shared(values: Column, group: Ints) -> Column:
    """Return each member's value of its group; where there is one group, that group's value."""
    out: Column = values if len(values) == 1 else values[group]
    return out


def extremes(group: Ints, values: Floats, groups: int) -> tuple[Floats, Floats]:
    """Return the least and the largest of ``values`` per group; 0 of an empty one."""
    least, most = np.full(groups, np.inf), np.full(groups, -np.inf)
    if groups == 1:
        least[0], most[0] = values.min(initial=np.inf), values.max(initial=-np.inf)
    else:
        np.minimum.at(least, group, values)
        np.maximum.at(most, group, values)
    there = least <= most
    return np.where(there, least, 0.0), np.where(there, most, 0.0)


def interpolate(x: Floats, first: Ints, past: Ints, knot: Floats, value: Floats) -> Floats:
    """Interpolate as ``np.interp`` does, each ``x`` among its own knots ``first`` to ``past``.

    Each has at least two knots, ascending.
    """
    low, high = first, past - 1
    for _ in range(int((past - first).max(initial=0)).bit_length()):
        middle = (low + high + 1) >> 1
        reached = knot[middle] <= x
        low, high = np.where(reached, middle, low), np.where(reached, high, middle - 1)
        high = np.maximum(high, low)
    at = np.minimum(low, past - 2)
    slope = (value[at + 1] - value[at]) / (knot[at + 1] - knot[at])
    found = slope * (x - knot[at]) + value[at]
    found = np.where(x <= knot[first], value[first], found)
    return np.where(x >= knot[past - 1], value[past - 1], found)
