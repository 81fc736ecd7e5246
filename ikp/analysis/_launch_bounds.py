"""When launches began and ended, from their warps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ikp.core.trace import Trace

Ints = NDArray[np.int64]


def launch_bounds(trace: Trace) -> tuple[Ints, Ints]:
    """Return when the first warp of each launch began, and when the last one ended, in Unix ns.

    Of a launch of which no warp recorded, the end is before the start: ``end >= start`` tells which
    launches have any.
    """
    slots, count = trace.slots, len(trace.launches)
    start = np.full(count, np.iinfo(np.int64).max)
    end = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(start, slots.launch, slots.start_ns)
    np.maximum.at(end, slots.launch, np.maximum(slots.start_ns, slots.end_ns))
    return start, end
