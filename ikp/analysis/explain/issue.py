"""A region's median self time in cycles, and the share of that time that one warp needs to issue
the region's instructions.

The machine code says the latter: a range that takes no longer than its instructions waits for
nothing, and other warps can't make it faster. Neither counts ranges inside of it.
"""

from __future__ import annotations

import numpy as np

from ikp.analysis.explain.prepared import Prepared


def cycles_of(launch: Prepared, region: int) -> float | None:
    """Return the median self time of a region's ranges in cycles; None if unknown."""
    clock = launch.launch.clock
    if clock.kind != "cycles" or not clock.ns_per_tick:
        return None
    return float(np.median(launch.own[launch.of_region([region])])) / clock.ns_per_tick


def issue_share(launch: Prepared, region: int) -> float | None:
    """Return the share of a range's time that issuing its instructions takes; None if unknown."""
    known = launch.facts.ranges.get(launch.names[region]) if launch.facts else None
    took = cycles_of(launch, region)
    if known is None or known.issue is None or not took:
        return None
    return min(known.issue / took, 1.0)
