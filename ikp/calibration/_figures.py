"""The calibration's programs, and the cost of a record from their trace: arithmetic, no GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.core.overhead import Figure, Overhead
from ikp.core.trace import Trace
from ikp.errors import UsageError

SIDE_BY_SIDE, NESTED, INSTANTS, ALONE = "side by side", "nested", "instants", "alone"
FEW, MANY = 4, 12
"""Records in a range. The cost of one is the difference of ticks by that of counts. Instructions at
the range's ends are the same in both, such as stores that the pass over the PTX moved out of it."""
ROOTS = 4
"""Dependent square roots in a piece of work: about 90 cycles, longer than a record takes."""
_WARM = 4
"""A fourth of a warp's ranges, the first ones, is left out: caches are cold."""


@dataclass(frozen=True, slots=True)
class Program:
    """One kernel to run: ``count`` records of a kind in each range, among equal work or none."""

    kind: str
    count: int

    @property
    def label(self) -> str:
        """The label of its launch."""
        return f"{self.count} {self.kind}"

    @property
    def constants(self) -> dict[str, Any]:
        """The compile-time arguments of ``ikp.calibration._kernels.records``."""
        works = self.kind != ALONE
        pieces = MANY if works else self.count
        return {
            "KIND": self.kind,
            "COUNT": self.count,
            "PIECES": pieces,
            "ROOTS": ROOTS if works else 0,
        }


_EMPTY = Program(ALONE, 0)
PROGRAMS = (
    _EMPTY,
    *(Program(kind, n) for kind in (SIDE_BY_SIDE, NESTED, INSTANTS, ALONE) for n in (FEW, MANY)),
)


def figures(trace: Trace, **facts: Any) -> Overhead:
    """Return the cost of a record by a trace of :data:`PROGRAMS`; of each, the last launch counts.

    Raises:
        UsageError: a launch is missing, or dropped records.
    """
    around = {each: _around(trace, each.label) for each in PROGRAMS}

    def inside(kind: str) -> Figure:
        return _figure((around[Program(kind, MANY)] - around[Program(kind, FEW)]) / (MANY - FEW))

    return Overhead(
        device=trace.launches[0].device,
        empty_range=_figure(around[_EMPTY]),
        range_inside=inside(SIDE_BY_SIDE),
        nested_inside=inside(NESTED),
        instant_inside=inside(INSTANTS),
        range_alone=inside(ALONE),
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
    return np.asarray(ticks[:, ticks.shape[1] // _WARM :].reshape(-1), np.float64)


def _figure(ticks: NDArray[np.float64]) -> Figure:
    """Return the mean of the middle half: outliers don't count, and a timer's steps average out."""
    low, high = np.percentile(ticks, [10, 90])
    quarter = len(ticks) // 4
    middle = np.sort(ticks)[quarter : len(ticks) - quarter].mean()
    return Figure(float(middle), float(low), float(high))
