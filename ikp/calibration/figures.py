"""From what the kernels recorded to what a record costs: plain arithmetic, no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.core.overhead import Figure, Overhead
from ikp.core.trace import Trace
from ikp.errors import UsageError

KINDS = ("side by side", "nested", "instants")
FEW, MANY = 4, 12
"""Records in a range. What one adds is the difference by their number: what stands at the range's
ends, such as stores that the pass over the PTX moved out of it, is the same in both."""
WARM = 4
"""Of the first ranges of a warp, one in so many is left out: caches are cold."""


def counts(kind: str) -> tuple[int, ...]:
    """Return how many records of a kind stand in the ranges that are measured."""
    return (0, FEW, MANY) if kind == KINDS[0] else (FEW, MANY)


def label(kind: str, count: int) -> str:
    """Return what the launch of one kernel is called."""
    return f"{count} {kind}"


def programs() -> Iterator[tuple[str, int]]:
    """Yield the kind and the number of records in a range, of each kernel to run."""
    for kind in KINDS:
        yield from ((kind, count) for count in counts(kind))


def figures(trace: Trace, **facts: Any) -> Overhead:
    """Return what a trace of :func:`programs` says; of several launches of one, the last counts.

    Raises:
        UsageError: a launch is missing, or dropped records.
    """
    around = {label(*each): _around(trace, label(*each)) for each in programs()}
    inside = {
        kind: (around[label(kind, MANY)] - around[label(kind, FEW)]) / (MANY - FEW)
        for kind in KINDS
    }
    return Overhead(
        device=trace.launches[0].device,
        empty_range=_figure(around[label(KINDS[0], 0)]),
        range_inside=_figure(inside["side by side"]),
        nested_inside=_figure(inside["nested"]),
        instant_inside=_figure(inside["instants"]),
        **facts,
    )


def _around(trace: Trace, name: str) -> NDArray[np.float64]:
    """Return the ticks of the ranges "around" of a launch, warp by warp, without the first."""
    found = [i for i, launch in enumerate(trace.launches) if launch.label == name]
    if not found or trace.launches[found[-1]].dropped:
        raise UsageError(
            f"nothing can be calibrated from this trace: the launch {name!r} is missing, or "
            "records of it were dropped."
        )
    names = [region.name for region in trace.regions]
    events = trace.events
    mine = trace.slots.launch[events.slot] == found[-1]
    mine &= events.region == names.index("around")
    warps = len(np.unique(events.slot[mine]))
    ticks = events.ticks[mine].reshape(warps, -1)
    return np.asarray(ticks[:, ticks.shape[1] // WARM :].reshape(-1), np.float64)


def _figure(ticks: NDArray[np.float64]) -> Figure:
    low, middle, high = np.percentile(ticks, [10, 50, 90])
    return Figure(float(middle), float(low), float(high))
