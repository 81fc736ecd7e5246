"""``Moments``: when ranges begin, or end, from the launch's first start on, computed where they are
read.

A launch of ten million ranges would hold two columns of 80 MB, of which findings read parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments of ranges, in nanoseconds; indexed like an array, with ``[:]`` for all of them."""

    unix_ns: Ints  # of each event
    row: NDArray[np.intp] | None  # of each range: its event; None where all events are ranges
    begin_ns: int  # Unix time of the launch's first start

    @overload
    def __getitem__(self, ranges: slice | NDArray[np.integer[Any] | np.bool_]) -> Ints: ...
    @overload
    def __getitem__(self, ranges: int | np.integer[Any]) -> np.int64: ...
    def __getitem__(self, ranges: Any) -> Any:
        """Return the moments of some ranges, or that of one."""
        rows = ranges if self.row is None else self.row[ranges]
        return self.unix_ns[rows] - self.begin_ns
