"""Start and end of each launch: its first warp's start and its last warp's end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ikp.core.trace import Trace

Ints = NDArray[np.int64]


def launch_bounds(trace: Trace) -> tuple[Ints, Ints]:
    """Return when the first warp of each launch began, and when the last one ended, in ns.

    All warps of known times count, whether or not they recorded. A launch without such warps ends
    before it starts: ``end >= start`` holds for the launches that have any.
    """
    count = len(trace.launches)
    start = np.full(count, np.iinfo(np.int64).max)
    end = np.full(count, np.iinfo(np.int64).min)
    for warps in (trace.slots, trace.others):
        np.minimum.at(start, warps.launch, warps.start_ns)
        np.maximum.at(end, warps.launch, np.maximum(warps.start_ns, warps.end_ns))
    return start, end
