"""What recording did to launches: how much longer they took, and how much waiting it may hide.

Where a program launched a kernel with the same grid again, plain, both were timed by events
(``ikp run``): the difference is what recording took. Else, where a sample of blocks had ranges,
their warps are compared with those of the other blocks of the same launch. Elsewhere what records
take is estimated from how many a warp made. What headers take at each warp's entry and exit is
estimated in both. How far that was off in calls of libraries: docs/benchmarks.md.

The share of the warps' time that writing records took is an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.run_figures import TimedLaunches, read_timed
from ikp.core.trace import Launch
from ikp.core.warps import launch_bounds

if TYPE_CHECKING:
    from ikp.core.trace import Trace


RECORD_CYCLES: Final = {32: 94, 64: 109}
"""The most cycles that a record cost on an H200, by its clock's bits: in a loop of which each
instruction waits for the one before. In a full GPU's own code 53 and 68 (docs/benchmarks.md)."""


def recording_share(launch: Launch, attempted: int, resident_ns: float) -> float | None:
    """Return the share, at most; None where it is not known.

    Args:
        launch: the launch, whose clock counts.
        attempted: records, dropped ones included.
        resident_ns: the sum of the time that its warps ran.
    """
    if launch.clock.kind != "cycles" or not resident_ns:
        return None
    spent = attempted * RECORD_CYCLES[launch.clock.bits] * launch.clock.ns_per_tick
    return min(1.0, spent / resident_ns)


_Floats = NDArray[np.float64]

DELAY_CYCLES: Final = 24.0
"""Cycles by which a record delays its warp: 7 to 45 on an H200 (docs/benchmarks.md)."""
HEADER_CYCLES: Final = 8.0
"""Cycles of an SM that the header of one warp takes, of both its clocks and its store."""
_MEASURED: Final = "measured"
_COMPARED: Final = "compared"
_ESTIMATED: Final = "estimated"
_ERROR: Final = 0.24
"""How far what is not measured was off in 47 of 49 calls of libraries (docs/benchmarks.md)."""
_MOST_OF_IT: Final = 0.9
"""The part of a launch that recording can have taken: more is an error of the times."""
_LEAST: Final = 8
"""Warps of each kind without which the two kinds are not compared."""


@dataclass(frozen=True, slots=True)
class Perturbation:
    """How much longer recording made the launches of one label, as far as the trace says.

    ``ratio`` is their time over what it would be without records, and ``error`` how far that is
    off in 95 of 100 calls at most. ``warp_ratio`` is the mean time of warps with ranges over
    that of the other warps, in the same launches; None where all had ranges. ``hidden`` is what
    records took of the time of the warps that made them, about: a warp that waits comes later by
    that, so waits without records may take up to this share of the warps' time more than shown.
    """

    ratio: float
    error: float
    way: str  # "measured" against plain launches, "compared" within launches, or "estimated"
    warp_ratio: float | None
    hidden: float

    def sentence(self) -> str:
        """Return it in one sentence, without the launch's name."""
        way = _WAYS[self.way]
        text = f"recording made it about {self.ratio:.2f} times as long ({way}, +-{self.error:.2f})"
        if self.warp_ratio is not None:
            text += f", and warps with ranges {self.warp_ratio:.2f} times as long as others"
        if self.hidden >= _SHOWN:
            text += (
                f"; records may hide waits of up to {100 * self.hidden:.0f} % of the warps' time"
            )
        return text


_SHOWN: Final = 0.01
_WAYS: Final = {
    _MEASURED: "measured against plain launches",
    _COMPARED: "by comparing its blocks",
    _ESTIMATED: "by an estimate",
}
_STEP_US: Final = 0.5
"""The resolution of events, of one launch: the launches of a median differ by parts of it."""
_EVENTS_US: Final = 5.0
_EVENTS_ERROR_US: Final = 0.7
"""What the time between two events holds beside the warps' own: 4.5 to 5.7 us on an H200."""


def worse(one: Perturbation, other: Perturbation) -> Perturbation:
    """Return the one of two that is larger: of one label in several traces."""
    return one if one.ratio >= other.ratio else other


def perturbations(trace: Trace) -> dict[str, Perturbation]:
    """Return what recording did to the launches of each label; nothing of those without a GPU.

    Of a label's launches it is the median. Launches of unknown clock rate are left out.
    """
    loads = _Loads.of(trace)
    ratio, of_warps, hidden = loads.ratios(), loads.warp_ratios(), loads.hidden()
    found: dict[str, list[int]] = {}
    for index in np.flatnonzero(loads.known).tolist():
        found.setdefault(trace.launches[index].label, []).append(index)
    return {
        label: _measured(
            _of_label(ratio[members], of_warps[members], hidden[members]),
            read_timed(trace.provenance, label),
            _spans(trace, loads, members),
        )
        for label, members in found.items()
    }


def _spans(
    trace: Trace, loads: _Loads, members: list[int]
) -> dict[tuple[int, int, int], tuple[float, float]]:
    """Return of each grid the median time of its launches, and how far they differ, in us.

    The first launch may load code, so its time counts where there are others only if it is shorter.
    """
    found: dict[tuple[int, int, int], list[float]] = {}
    for each in members:
        found.setdefault(trace.launches[each].grid, []).append(float(loads.span_ns[each]) / 1000)
    later = {grid: spans[1:] or spans for grid, spans in found.items()}
    return {
        grid: (float(np.median(spans)), max(spans) - min(found[grid]))
        for grid, spans in later.items()
    }


def _measured(
    found: Perturbation,
    times: Iterable[TimedLaunches],
    spans_us: dict[tuple[int, int, int], tuple[float, float]],
) -> Perturbation:
    """Return what was measured, if its error is less than that of what was found otherwise.

    Where the plain launches are later ones, how far the recorded ones differ is part of the error:
    a program's launches change. Where both kinds came in turn, that is in both.

    Args:
        found: by comparison, or by an estimate.
        times: of plain and recorded launches, by grid.
        spans_us: how long recorded launches of each grid took, and how far they differ.
    """
    whole = plain = 0.0
    errors: list[float] = []  # in us, independent of each other
    for each in times:
        span, differ = spans_us.get(each.grid, (0.0, 0.0))
        between = span + _EVENTS_US if each.recorded_us is None else each.recorded_us
        longer = between - each.plain_us
        if span > 0 and longer < _MOST_OF_IT * span:
            whole, plain = whole + span, plain + span - longer
            errors += [each.error_us, 0.0 if each.in_turn else differ]
            step = _STEP_US / math.sqrt(max(min(each.launches), 1))
            errors += [_EVENTS_ERROR_US if each.recorded_us is None else step]
    error = math.hypot(*errors)
    if not whole or error / plain >= found.error:
        return found
    return replace(found, ratio=whole / plain, error=error / plain, way=_MEASURED)


def _of_label(ratio: _Floats, of_warps: _Floats, hidden: _Floats) -> Perturbation:
    compared = ~np.isnan(of_warps)
    way = _COMPARED if compared.all() else _ESTIMATED
    return Perturbation(
        ratio=float(np.median(ratio)),
        error=_ERROR,
        way=way,
        warp_ratio=float(np.median(of_warps[compared])) if compared.any() else None,
        hidden=float(np.median(hidden)),
    )


@dataclass(frozen=True, slots=True)
class _Loads:
    """Columns by launch: warps with ranges and the others, their mean times, and records."""

    known: NDArray[np.bool_]
    span_ns: _Floats
    span: _Floats  # cycles, from the first warp's start to the last one's end
    warps: _Floats  # that recorded ranges
    mean: _Floats  # cycles of such a warp
    others: _Floats
    others_mean: _Floats
    records: _Floats
    sms: int

    @classmethod
    def of(cls, trace: Trace) -> _Loads:
        launches = len(trace.launches)
        first, last = launch_bounds(trace)
        rate = [
            one.clock.ns_per_tick if one.clock.kind == "cycles" else 0.0 for one in trace.launches
        ]
        per_tick = np.array(rate, np.float64)
        warps, mean = _warps(trace.slots, launches)
        others, others_mean = _warps(trace.others, launches)
        known = (per_tick > 0.01) & (per_tick < 100) & (warps > 0) & (last > first)
        ticks = np.where(known, per_tick, 1.0)
        sms = len(np.unique(np.concatenate([trace.slots.sm, trace.others.sm])))
        span = np.where(known, last, 0) - np.where(known, first, 0)
        return cls(
            known,
            span.astype(np.float64),
            np.where(known, span / ticks, 1.0),
            warps,
            np.maximum(mean / ticks, 1.0),
            others,
            others_mean / ticks,
            np.array([one.attempted for one in trace.launches], np.float64),
            max(sms, 1),
        )

    def warp_ratios(self) -> _Floats:
        """Return the mean time of warps with ranges over that of others; NaN where unknown."""
        there = (self.warps >= _LEAST) & (self.others >= _LEAST) & (self.others_mean > 0)
        return np.where(there, self.mean / np.where(there, self.others_mean, 1.0), np.nan)

    def hidden(self) -> _Floats:
        """Return the share of their time that warps' records took, about."""
        each = self.records / np.maximum(self.warps, 1.0)
        return np.minimum(each * DELAY_CYCLES / self.mean, 1.0)

    def ratios(self) -> _Floats:
        """Return the launches' time over what it would be without records."""
        compared = self.warp_ratios()
        hidden = self.hidden()
        longer = np.where(np.isnan(compared), hidden, 1 - 1 / np.maximum(compared, 1.0))
        every = self.warps + self.others
        spent = np.maximum(self.mean * self.warps + self.others_mean * self.others, 1.0)
        turns = np.maximum(self.span / self.mean, 1.0)
        part = np.maximum(self.mean * self.warps / spent, 1 / turns)
        headers = every / self.sms * HEADER_CYCLES / self.span
        return 1 / (1 - np.minimum(longer * part + headers, 0.9))


def _warps(table: Any, launches: int) -> tuple[_Floats, _Floats]:
    """Return of each launch how many warps of a table there are, and their mean time in ns."""
    count = np.bincount(table.launch, minlength=launches).astype(np.float64)
    spent = np.bincount(table.launch, table.end_ns - table.start_ns, minlength=launches)
    return count, spent / np.maximum(count, 1.0)
