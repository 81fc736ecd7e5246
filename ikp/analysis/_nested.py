"""Self times and depths of ranges that nest, in one pass per level, without a sort.

Ranges are in the order of their ends, as they are recorded. So the ranges inside a range come right
before it, from the first one on that closes after the range has opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]

MOST_LEVELS: Final = 32
"""How deep ranges may nest: each level is a pass over all that hold others."""


_MOST_BITS: Final = 62


def moments(slot: NDArray[np.integer], start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return numbers that order starts and ends by slot, then time; slots are in order."""
    least = int(start.min())
    low, high = start - least, end - least
    bits = int(high.max()).bit_length()
    place = (slot - slot[0]).astype(np.int64)
    if bits + int(place[-1]).bit_length() > _MOST_BITS:  # ranks of times are in the same order
        _, rank = np.unique(np.concatenate([start, end]), return_inverse=True)
        low, high = rank[: len(start)].astype(np.int64), rank[len(start) :].astype(np.int64)
        bits = len(rank).bit_length()
    place <<= bits
    low |= place
    high |= place
    return low, high


@dataclass(frozen=True, slots=True)
class _Level:
    """The ranges left after the innermost ones were removed, once for each level before this.

    ``holds`` says which of them hold others, ``holders`` are the rows of these, and ``first`` is
    the first range in each.
    """

    holds: NDArray[np.bool_]
    holders: Rows
    first: Rows


def _levels(opens: Ints, closes: Ints) -> list[_Level] | None:
    """Return the levels, from the inside out; None if some ranges overlap, or are out of order."""
    if np.any(closes[1:] < closes[:-1]):
        return None
    found: list[_Level] = []
    while len(found) < MOST_LEVELS:
        holds = np.zeros(len(opens), np.bool_)
        np.greater(closes[:-1], opens[1:], out=holds[1:])
        holders = np.flatnonzero(holds)
        if not len(holders):
            return found
        first = np.searchsorted(closes, opens[holders], "right")
        if np.any(opens[first] < opens[holders]):
            return None
        found.append(_Level(holds, holders, first))
        opens, closes = opens[holders], closes[holders]
    return None


def nested_times(opens: Ints, closes: Ints, took: Ints) -> Ints | None:
    """Return the self time of each range; None if some overlap, or are in another order.

    ``opens`` and ``closes`` are :func:`moments`.

    A range that holds no other keeps its time. That time is subtracted from the ranges that hold
    it, and the next level has only these.
    """
    levels = _levels(opens, closes)
    if levels is None:
        return None
    own, rows = took.copy(), np.arange(len(took))
    left = own
    for level in levels:
        alone = np.where(level.holds, 0, left)
        until = np.cumsum(alone)
        inside = until[level.holders] - until[level.first] + alone[level.first]
        left = left[level.holders] - inside
        rows = rows[level.holders]
        own[rows] = left
    return own


def nested_depths(opens: Ints, closes: Ints) -> Ints | None:
    """Return how many others each range lies in; None as for :func:`nested_times`."""
    levels = _levels(opens, closes)
    if levels is None:
        return None
    change = np.zeros(len(opens), np.int64)
    if levels:
        np.add.at(change, levels[0].first, 1)
        change[levels[0].holders] -= 1
    return np.cumsum(change)
