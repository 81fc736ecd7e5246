"""Histograms of durations by group: counts in 16 bins of equal ratio, from least to most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator

Ints = NDArray[np.int64]

BINS: Final = 16


def spreads(group: Ints, values: Ints) -> Iterator[tuple[int, list[float], list[int]]]:
    """Yield each group's number, the edges of its bins in ns, and how many values lie in each.

    Values below 1 ns count as 1 ns, which has a logarithm.
    """
    ids, member = np.unique(group, return_inverse=True)
    known = np.maximum(values, 1).astype(np.float64)
    least, most = np.full(len(ids), np.inf), np.zeros(len(ids))
    np.minimum.at(least, member, known)
    np.maximum.at(most, member, known)
    ratio = np.log(np.maximum(most / least, 1 + 1e-9))
    place = np.log(known / least[member]) / ratio[member] * BINS
    bins = np.clip(place.astype(np.int64), 0, BINS - 1)
    counts = np.bincount(member * BINS + bins, minlength=len(ids) * BINS).reshape(-1, BINS)
    for i, number in enumerate(ids.tolist()):
        edges = least[i] * np.exp(ratio[i] * np.arange(BINS + 1) / BINS)
        yield number, edges.tolist(), counts[i].tolist()
