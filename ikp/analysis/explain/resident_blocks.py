"""``Blocks``: start, end and SM of each block of a launch, from its warps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Blocks:
    """One row per block, by its linear id."""

    ids: Ints
    of_warp: Ints  # the row of each warp's block
    start: Ints  # of its first warp
    end: Ints  # of its last one
    sm: Ints  # of its last row

    @classmethod
    def of(cls, block: Ints, start: Ints, end: Ints, sm: Ints) -> Blocks:
        """Return the blocks of some warps."""
        ids, row = np.unique(block, return_inverse=True)
        first = np.full(len(ids), np.iinfo(np.int64).max)
        last, place = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
        np.minimum.at(first, row, start)
        np.maximum.at(last, row, end)
        place[row] = sm
        return cls(ids.astype(np.int64), row.astype(np.int64), first, last, place)
