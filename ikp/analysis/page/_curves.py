"""SVG paths of lines, bands and steps; histograms; a region's durations, also by iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.render import duration
from ikp.core.abi import Kind, PayloadType

if TYPE_CHECKING:
    from ikp.core.trace import Trace


Floats = NDArray[np.float64]


def area(values: Floats, width: float, height: float, most: float) -> str:
    """Return steps over the whole width, filled down to the base."""
    if not len(values) or most <= 0:
        return ""
    step = width / len(values)
    tops = height * (1 - values / most)
    parts = [f"M0 {height:g}"]
    for i, top in enumerate(tops.tolist()):
        parts.append(f"V{top:.1f}H{(i + 1) * step:.1f}")
    return "".join([*parts, f"V{height:g}Z"])


def line(x: Floats, y: Floats) -> str:
    """Return a line through points, in pixels."""
    return _joined("M", x, y)


def band(x: Floats, low: Floats, high: Floats) -> str:
    """Return the area between two lines."""
    if not len(x):
        return ""
    return f"{_joined('M', x, high)}{_joined('L', x[::-1], low[::-1])}Z"


def _joined(first: str, x: Floats, y: Floats) -> str:
    points = [f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    return first + "L".join(points) if points else ""


def scaled(values: Floats, low: float, high: float, size: float) -> Floats:
    """Return values as distances from 0 to ``size``, ``low`` at 0."""
    return np.asarray((values - low) / (high - low or 1) * size)


def round_ticks(most: float, count: int = 5) -> list[float]:
    """Return round numbers from 0 to at most ``most``."""
    if most <= 0:
        return [0.0]
    raw = most / count
    power = 10.0 ** np.floor(np.log10(raw))
    step = float(power * next(one for one in (1, 2, 5, 10) if one * power >= raw))
    return [i * step for i in range(int(most / step) + 1)]


def histogram(values: Sequence[float] | Floats, bins: int) -> tuple[Floats, Floats]:
    """Return counts and edges of bins of equal ratio: times spread over orders of magnitude."""
    known = np.maximum(np.asarray(values, np.float64), 1)
    low, high = float(known.min()), float(known.max())
    edges = np.geomspace(low, max(high, low * 1.01) * (1 + 1e-12), bins + 1)
    return np.histogram(known, edges)[0].astype(np.float64), edges


Ints = NDArray[np.int64]

WIDE: Final = 340
HIGH: Final = 80
_FEWEST: Final = 3
_MOST: Final = 170
"""Points of a line; iterations of a longer loop are taken together with their neighbours."""


@dataclass(frozen=True, slots=True)
class IterationCurve:
    """A region's p50 by iteration, as a line, and its p5 to p95, as a band."""

    region: str
    by: str  # "payload" | "order in the warp"
    line: str
    band: str
    most: str
    last: str


def _ranges_of(trace: Trace, label: str, region: str) -> Ints:
    """Return the rows of a region's ranges in all launches of a kernel."""
    events = trace.events
    numbers = [i for i, one in enumerate(trace.regions) if one.name == region]
    launches = np.array([one.label == label for one in trace.launches], bool)
    chosen = np.isin(events.region, numbers) & (events.kind == Kind.RANGE)
    return np.flatnonzero(chosen & launches[trace.slots.launch][events.slot])


def durations_of(trace: Trace, label: str, region: str) -> Floats:
    """Return how long each range of a region took, in all launches of a kernel, in ns."""
    rows, events = _ranges_of(trace, label, region), trace.events
    return np.asarray(events.end_ns[rows] - events.start_ns[rows], np.float64)


def iteration_curve(trace: Trace, label: str, region: str) -> IterationCurve | None:
    """Return a region's curves over its iterations; None where it has too few of them."""
    chosen = _ranges_of(trace, label, region)
    if not len(chosen):
        return None
    iteration, by = iterations(trace, chosen)
    if int(iteration.max()) - int(iteration.min()) + 1 < _FEWEST:
        return None
    events = trace.events
    took = np.asarray(events.end_ns[chosen] - events.start_ns[chosen], np.float64)
    at, low, middle, high = by_iteration(iteration, took)
    x = scaled(at, at[0], at[-1], WIDE)
    most = float(high.max()) or 1.0

    def y(values: Floats) -> Floats:
        return np.asarray(HIGH - scaled(values, 0, most, HIGH))

    return IterationCurve(
        region,
        by,
        line(x, y(middle)),
        band(x, y(low), y(high)),
        duration(most),
        f"{int(iteration.max()):,}",
    )


def iterations(trace: Trace, rows: Ints) -> tuple[Ints, str]:
    """Return the iteration of each range: its payload, or else its number in its warp."""
    types = trace.events.payload_type[rows]
    if np.isin(types, (PayloadType.U32, PayloadType.I32)).all():
        return trace.payload[rows].astype(np.int64), "payload"
    slot, start = trace.events.slot[rows], trace.events.start_ns[rows]
    order = np.lexsort((start, slot))
    ordered = slot[order]
    first = np.searchsorted(ordered, ordered)
    place = np.empty(len(rows), np.int64)
    place[order] = np.arange(len(rows)) - first
    return place, "order in the warp"


def by_iteration(iteration: Ints, took: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return iterations, and the p5, p50 and p95 of their times."""
    least, span = int(iteration.min()), int(iteration.max()) - int(iteration.min()) + 1
    wide = -(-span // _MOST)
    group = (iteration - least) // wide
    order = np.lexsort((took, group))
    ids, first, counts = np.unique(group[order], return_index=True, return_counts=True)
    ordered = took[order]
    found = [ordered[first + np.rint(q * (counts - 1)).astype(np.int64)] for q in (0.05, 0.5, 0.95)]
    at = least + ids * wide + (wide - 1) / 2
    return (at, *found)
