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

    That is of all its warps, whether or not they recorded. Of a launch of which no warp is known,
    the end is before the start: ``end >= start`` tells which launches have any.
    """
    count = len(trace.launches)
    start = np.full(count, np.iinfo(np.int64).max)
    end = np.full(count, np.iinfo(np.int64).min)
    for warps in (trace.slots, trace.others):
        np.minimum.at(start, warps.launch, warps.start_ns)
        np.maximum.at(end, warps.launch, np.maximum(warps.start_ns, warps.end_ns))
    return start, end
