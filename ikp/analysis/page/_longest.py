"""Kernels and regions of a trace by their time, and a kernel's launch of median duration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.kernel_times import kernel_times
from ikp.core.warps import launch_bounds

if TYPE_CHECKING:
    from ikp.analysis.stats import Stats
    from ikp.core.trace import Trace

Floats = NDArray[np.float64]


def labels_by_time(trace: Trace) -> list[str]:
    """Return the labels of launches that have warps, those that took longest in all first."""
    warps = np.bincount(trace.slots.launch, minlength=len(trace.launches))
    there = {trace.launches[launch].label for launch in np.flatnonzero(warps).tolist()}
    return [one.label for one in kernel_times(trace) if one.label in there]


def regions_by_time(table: Stats, label: str) -> list[str]:
    """Return the regions of a kernel that have time of their own, those with the most first."""
    rows = [row for row in table if row.launch == label and row.kind == "range" and row.self_ns]
    return [row.region for row in sorted(rows, key=lambda row: -(row.self_ns or 0))]


def median_launch(trace: Trace, label: str) -> tuple[int, Floats]:
    """Return the launch of median duration, and the durations of all launches that have warps."""
    first, last = launch_bounds(trace)
    mine = np.flatnonzero([one.label == label for one in trace.launches] & (last >= first))
    took = (last - first)[mine].astype(np.float64)
    return int(mine[np.argsort(took, kind="stable")[(len(took) - 1) // 2]]), took
