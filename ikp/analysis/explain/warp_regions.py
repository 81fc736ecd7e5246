"""``WarpRegions``: the count, time and self time of each warp's ranges in each region, which
findings sum up.

Ranges are read once, so many at a time that what is made of them stays in the cache; a warp has few
regions, so these sums are a small part of the ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.sorting import sum_by

Ints = NDArray[np.int64]

ROWS_AT_ONCE: Final = 1 << 16
"""Ranges that are read together: columns of so many fit into a cache."""
_TIMES: Final = 4
"""Numbers for each range among which they are counted; of more, those that occur are sorted."""


@dataclass(frozen=True, slots=True)
class WarpRegions:
    """One row for each warp and region of which it has a range, by warp, then by region."""

    slot: Ints
    region: Ints
    count: Ints
    took: Ints
    own: Ints  # self time

    @classmethod
    def of(
        cls,
        slot: NDArray[np.integer[Any]],
        region: NDArray[np.integer[Any]],
        opens: Ints,
        closes: Ints,
        own: Ints,
        regions: int,
    ) -> WarpRegions:
        """Sum up ranges.

        Args:
            slot: of each range.
            region: of each range.
            opens: when each begins.
            closes: when it ends.
            own: its self time.
            regions: how many there are.
        """
        parts = []
        for rows in at_once(len(slot)):
            key = slot[rows].astype(np.int64)
            key *= regions
            key += region[rows]
            took = closes[rows] - opens[rows]
            parts.append(_summed(key, np.ones(len(key), np.int64), took, own[rows]))
        nothing = np.zeros(0, np.int64)
        key, *sums = (
            (np.concatenate(each) for each in zip(*parts, strict=True)) if parts else (nothing,) * 4
        )
        if np.any(key[1:] <= key[:-1]):  # a warp's ranges lie in two parts
            key, *sums = _summed(key, *sums)
        return cls(key // max(regions, 1), key % max(regions, 1), *sums)


def at_once(count: int) -> Iterator[slice]:
    """Yield slices of so many rows."""
    for low in range(0, count, ROWS_AT_ONCE):
        yield slice(low, min(low + ROWS_AT_ONCE, count))


def _summed(key: Ints, *columns: Ints) -> tuple[Ints, ...]:
    """Return the keys that occur, ascending, and the sums of each."""
    low = int(key.min())
    size = int(key.max()) - low + 1
    if size <= _TIMES * len(key):
        place = key - low
        there = np.flatnonzero(np.bincount(place, minlength=size))
        return there + low, *(sum_by(place, each, size)[there] for each in columns)
    kinds, place = np.unique(key, return_inverse=True)
    return kinds, *(sum_by(place, each, len(kinds)) for each in columns)
