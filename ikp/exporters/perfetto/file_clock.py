"""The clock of a trace file: it counts ns from just before the first event, so times stay short."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.exporters.protobuf.varints import Words, as_words, same_size

MAX_TIME: Final = (1 << 63) - 1
"""Perfetto's trace processor keeps times in signed 64-bit numbers."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Where the file's clock stands at one moment: at ``ticks``, at ``unix_ns``."""

    unix_ns: int
    ticks: int

    @classmethod
    def over(cls, start: NDArray[np.int64], end: NDArray[np.int64]) -> Clock:
        """Return a clock for the given intervals, on which all times take equally many bytes."""
        if not len(start):
            return cls(0, 0)
        first = int(start.min())
        span = int(end.max()) - first + 1
        ticks = same_size(span)
        return cls(first, ticks if ticks + span <= MAX_TIME else 0)

    def time(self, unix_ns: int) -> int:
        """Return what the clock shows at the given moment."""
        return unix_ns - self.unix_ns + self.ticks

    def times(self, unix_ns: NDArray[Any]) -> Words:
        """Return what the clock shows at the given moments, none of them before the first."""
        return as_words(unix_ns - (self.unix_ns - self.ticks))
