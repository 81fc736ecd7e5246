"""Prologue, steady state and epilogue: medians of blocks' times before, in and after iterations.

The region that repeats is the one that warps record most often: of the regions named "iteration",
as automatic marks are, else of those that multiply, else of all.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.verdict import Phases
from ikp.analysis.explain.warp_regions import at_once

_REPEATS: Final = 4
"""Times that a warp records a region at least, if it repeats."""


def phases(launch: Prepared) -> Phases | None:
    """Return the median of each phase over the blocks; None where nothing repeats."""
    region = _repeating(launch)
    if region is None:
        return None
    rows = launch.of_region([region])
    first = np.full(len(launch.block_ids), np.iinfo(np.int64).max)
    last = np.full(len(launch.block_ids), -1)
    for some in at_once(len(rows)):
        mine = rows[some]
        block = launch.block_of[launch.slot[mine]]
        np.minimum.at(first, block, launch.opens[mine])
        np.maximum.at(last, block, launch.closes[mine])
    there = last >= 0
    warps = int(launch.warps_by_region[region])
    return Phases(
        iteration=launch.names[region],
        iterations=len(rows) / max(warps, 1),
        prologue_ns=float(np.median((first - launch.block_start)[there])),
        steady_ns=float(np.median((last - first)[there])),
        epilogue_ns=float(np.median((launch.block_end - last)[there])),
    )


def _repeating(launch: Prepared) -> int | None:
    often = launch.counts >= np.maximum(_REPEATS * launch.warps_by_region, 1)
    candidates = (
        [i for i, name in enumerate(launch.names) if "iteration" in name.lower()],
        launch.regions([Activity.MMA]).tolist(),
        range(len(launch.names)),
    )
    for some in candidates:
        if found := [i for i in some if often[i]]:
            return max(found, key=lambda i: (int(launch.counts[i]), -i))
    return None
