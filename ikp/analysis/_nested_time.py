"""Self times where ranges nest, as they most often do: in a few passes, without a sort.

Ranges stand in the order of their ends, as they are recorded. So what lies in a range stands right
before it, from the first one on that closes after the range has opened.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

MOST_LEVELS: Final = 32
"""How deep ranges may nest: each level is a pass over all that hold others."""


def nested_times(opens: Ints, closes: Ints, took: Ints) -> Ints | None:
    """Return the self time of each range; None if some overlap, or stand in another order.

    ``opens`` and ``closes`` number the moments at which ranges open and close, by slot, then time.

    From the inside out: a range that holds no other keeps its time. The others lose that time, and
    are looked at again without those.
    """
    if np.any(closes[1:] < closes[:-1]):
        return None
    own = took.copy()
    rows, left = np.arange(len(own)), own
    for _ in range(MOST_LEVELS):
        holds = np.zeros(len(rows), np.bool_)
        np.greater(closes[:-1], opens[1:], out=holds[1:])
        holders = np.flatnonzero(holds)
        if not len(holders):
            return own
        first = np.searchsorted(closes, opens[holders], "right")
        if np.any(opens[first] < opens[holders]):
            return None
        held = np.cumsum(np.where(holds, 0, left))
        left = left[holders] - held[holders] + held[first] - np.where(holds[first], 0, left[first])
        rows, opens, closes = rows[holders], opens[holders], closes[holders]
        own[rows] = left
    return None
