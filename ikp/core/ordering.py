"""Rows in order of several columns, as fast as numpy sorts plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_FEW = 1 << 10
"""Rows that ``lexsort`` puts in order before columns are put together."""
_BITS = 63


def order_by(*columns: NDArray[np.integer[Any]]) -> Ints:
    """Return the order by the first column, then by the next; what is alike keeps its order.

    As ``np.lexsort`` does with the columns turned round. Where a row's numbers and its own fit into
    one word, these words are sorted: numpy does that twenty times as fast.
    """
    rows = len(columns[0])
    if rows < _FEW:
        return np.lexsort(columns[::-1])
    lows = [int(column.min()) for column in columns]
    sizes = [
        (int(column.max()) - low).bit_length() for column, low in zip(columns, lows, strict=True)
    ]
    own = (rows - 1).bit_length()
    if sum(sizes) + own > _BITS:
        return np.lexsort(columns[::-1])
    word = np.zeros(rows, np.int64)
    for column, low, size in zip(columns, lows, sizes, strict=True):
        word <<= size
        word += column.astype(np.int64, copy=False)  # what overflows comes back
        word -= low
    word <<= own
    word |= np.arange(rows)
    word.sort()
    word &= (1 << own) - 1
    return word
