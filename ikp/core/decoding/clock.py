"""Clock ticks to nanoseconds, on one axis for every SM, with the evidence of how well that went.

``%clock`` counts SM cycles from an origin that differs per SM; ``%globaltimer`` is one axis, but
moves in steps (32 ns on an H200). Each slot has one or two anchors: both clocks read back to back.

Two steps. A straight line first: all SMs share one rate, and each has an offset; fitting one rate
over all anchors keeps a step's error small even where a kernel lives for microseconds. But the rate
is not constant: a GPU that wakes up, or meets its power limit, changes its clock within a launch
(1.5 to 1.3 GHz within 225 us was seen on an H200). So each SM's line is then bent through its
anchors, averaged over windows long enough that a step's error stays below a tenth of a percent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ikp.core.trace import ClockFit

_MAX_NS = 2.0**62
_STEP_NS = 32.0
"""Step of the timer of an H200, taken where there are too few anchors to see it."""
_WINDOW_NS = 20_000.0
"""Anchors of an SM closer together than this are one knot: 32 ns of 20 us is 0.16 %."""
_MAX_KNOTS = 256
"""Knots per SM at most; a longer launch has longer windows."""
_REACH = 0.4
"""Of the stride between SMs on the axis of knots, what each has on either side: less than half."""
_OUTLIER_MADS = 6.0
"""An anchor further than this many median deviations from the line does not shape the rate."""
_TORN_SPANS = 2.0
"""An anchor further from the line than this many spans of all anchors is left out: no change of the
clock explains it, but a warp that was put aside between its two reads does, or overwritten memory.
"""
_MAX_RATE_ERROR = 0.1
"""A rate that the timer's steps leave less certain than this is not fitted but taken as given."""
_PLAUSIBLE_HZ = (1e7, 2e10)


@dataclass(frozen=True, slots=True)
class Anchors:
    """Pairs of (ns, ticks) read together on an SM; three arrays of equal length."""

    sm: NDArray[np.int64]
    ns: NDArray[np.int64]
    ticks: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Axis:
    """``ns_zero + offset[sm] + ns_per_tick * elapsed + bend``, elapsed since ``tick_zero[sm]``.

    The bend is interpolated between knots. ``stride`` keeps the SMs' knots apart on one axis.
    """

    fit: ClockFit
    ns_zero: int
    tick_zero: NDArray[np.int64]  # by SM
    offset: NDArray[np.float64]  # by SM, ns
    knot: NDArray[np.float64]  # elapsed ticks + stride * sm, ascending
    bend: NDArray[np.float64]  # ns, by knot
    stride: float
    torn: int = 0  # anchors left out

    def to_ns(self, sm: NDArray[np.int64], ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Place ticks of an SM on the axis, rounded to ns; keeps the order within an SM."""
        elapsed = (ticks - self.tick_zero[sm]).astype(np.float64)
        placed = self.place(sm, elapsed)
        np.rint(np.clip(placed, -_MAX_NS, _MAX_NS, out=placed), out=placed)
        return placed.astype(np.int64) + self.ns_zero

    def place(self, sm: NDArray[np.int64], elapsed: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ns since ``ns_zero`` of ticks since ``tick_zero``."""
        placed = elapsed * self.fit.ns_per_tick
        placed += self.offset[sm]
        if self.bend.any():
            reach = _REACH * self.stride
            at = np.clip(elapsed, -reach, reach) + self.stride * sm
            placed += np.interp(at, self.knot, self.bend)
        return placed


@dataclass(frozen=True, slots=True)
class _Points:
    """Anchors near zero, where float64 is exact to far below a nanosecond."""

    sm: NDArray[np.int64]
    ns: NDArray[np.float64]
    ticks: NDArray[np.float64]
    sms: int  # that there may be

    def only(self, chosen: NDArray[np.bool_]) -> _Points:
        """Return some of them."""
        return _Points(self.sm[chosen], self.ns[chosen], self.ticks[chosen], self.sms)


def fit_axis(anchors: Anchors, nominal_hz: float) -> Axis:
    """Fit the axis of one launch.

    ``nominal_hz`` is the advertised clock, used only where no SM has two anchors far enough apart.
    """
    ns_zero, tick_zero = _zeros(anchors)
    points = _Points(
        anchors.sm,
        (anchors.ns - ns_zero).astype(np.float64),
        (anchors.ticks - tick_zero[anchors.sm]).astype(np.float64),
        len(tick_zero),
    )
    rate, source, offset = _line(points, _timer_step(anchors.ns), nominal_hz)
    residual = points.ns - rate * points.ticks - offset[points.sm]
    sound = _sound(points.ns, residual)
    points = points.only(sound)
    stride = 4.0 * (np.abs(points.ticks).max(initial=0.0) + 1.0)
    knot, bend, spread, windows = _bends(points, residual[sound], rate, stride)
    axis = Axis(ClockFit("cycles", rate, source), ns_zero, tick_zero, offset, knot, bend, stride)

    error = points.ns - axis.place(points.sm, points.ticks)
    # What is fitted: where each window of anchors lies, and the rate within windows. Of as many
    # anchors, each lies on the fit, however wrong it is.
    spare = len(error) - windows - (source == "fitted")
    fit = ClockFit(
        kind="cycles",
        ns_per_tick=rate,
        rate=source,
        anchors=len(error),
        residual_sd_ns=float(error.std()) if spare > 0 else None,
        residual_max_ns=float(np.abs(error).max()) if spare > 0 else None,
        rate_spread=spread,
    )
    return replace(axis, fit=fit, torn=int(np.count_nonzero(~sound)))


def _zeros(anchors: Anchors) -> tuple[int, NDArray[np.int64]]:
    """Return where to count ns and each SM's ticks from: medians, which a wild anchor can't move.

    Near them, float64 is exact to far below a nanosecond.
    """
    if not len(anchors.ns):
        return 0, np.zeros(0, np.int64)
    order = np.lexsort((anchors.ticks, anchors.sm))
    count = np.bincount(anchors.sm)
    middle = np.cumsum(count) - count + (count - 1) // 2
    tick_zero = anchors.ticks[order][np.maximum(middle, 0)]
    return int(np.partition(anchors.ns, len(anchors.ns) // 2)[len(anchors.ns) // 2]), tick_zero


def _timer_step(ns: NDArray[np.int64]) -> float:
    """Return the step in which the timer moves, as far as its values show it."""
    seen = np.unique(ns)
    step = float(np.gcd.reduce(np.diff(seen))) if len(seen) > 1 else _STEP_NS
    return step if len(seen) > 3 else min(step, _STEP_NS)


def _sound(ns: NDArray[np.float64], residual: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell which anchors lie where a clock that changes its rate can have put them."""
    if not len(ns):
        return np.zeros(0, bool)
    span = 1000.0 + float(np.percentile(np.abs(ns), 95))
    return np.asarray(np.abs(residual) <= _TORN_SPANS * span)


def _line(
    points: _Points, step: float, nominal_hz: float
) -> tuple[float, str, NDArray[np.float64]]:
    """Return one rate for all SMs, where it comes from, and each SM's offset."""
    rate = _median_slope(points) or 1e9 / nominal_hz
    distance = points.ns - rate * points.ticks
    distance = np.abs(distance - _medians(points.sm, distance, points.sms)[points.sm])
    far = _OUTLIER_MADS * float(np.median(distance)) if len(distance) else 0.0
    rate, source = _rate(points.only(distance <= max(far, 1.0)), step, nominal_hz)
    return rate, source, _medians(points.sm, points.ns - rate * points.ticks, points.sms)


def _median_slope(points: _Points) -> float:
    """Return the median slope between anchors half an SM's lot apart; 0 where there is none.

    Least squares would follow a single wild anchor anywhere.
    """
    order = np.lexsort((points.ticks, points.sm))
    sm, ns, ticks = points.sm[order], points.ns[order], points.ticks[order]
    count = np.bincount(sm)
    left = np.flatnonzero(np.arange(len(sm)) - (np.cumsum(count) - count)[sm] < (count // 2)[sm])
    right = left + ((count + 1) // 2)[sm[left]]
    apart = ticks[right] - ticks[left]
    slopes = (ns[right] - ns[left])[apart > 0] / apart[apart > 0]
    return max(0.0, float(np.median(slopes))) if len(slopes) else 0.0


def _rate(points: _Points, step: float, nominal_hz: float) -> tuple[float, str]:
    """Least squares over all SMs, each about its own mean.

    ``step`` is that of the timer: it must be small beside the time between anchors.
    """
    sm, sms = points.sm, points.sms
    count = np.maximum(np.bincount(sm, minlength=sms), 1)
    x = points.ticks - (np.bincount(sm, points.ticks, sms) / count)[sm]
    y = points.ns - (np.bincount(sm, points.ns, sms) / count)[sm]
    spread, common = float(x @ x), float(x @ y)
    if spread > 0 and common > 0:
        rate = common / spread
        error = step / 12**0.5 / (rate * spread**0.5)  # as of steps evenly distributed
        if error < _MAX_RATE_ERROR and _PLAUSIBLE_HZ[0] < 1e9 / rate < _PLAUSIBLE_HZ[1]:
            return rate, "fitted"
    return 1e9 / nominal_hz, "nominal"


def _medians(
    group: NDArray[np.int64], values: NDArray[np.float64], groups: int
) -> NDArray[np.float64]:
    """Return the median of ``values`` per group: a torn anchor errs in one direction only."""
    ordered = values[np.lexsort((values, group))]
    count = np.bincount(group, minlength=groups)
    first = np.cumsum(count) - count
    present = count > 0
    low, high = first + (count - 1) // 2, first + count // 2
    out = np.zeros(groups)
    out[present] = (ordered[low[present]] + ordered[high[present]]) / 2
    return out


def _bends(
    points: _Points, residual: NDArray[np.float64], rate: float, stride: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], float, int]:
    """Return knots, the bend at each, the relative spread of the rate, and how many windows."""
    sm, ticks = points.sm, points.ticks
    if not len(sm):
        return np.zeros(1), np.zeros(1), 0.0, 0
    window = max(_WINDOW_NS / rate, float(np.ptp(ticks)) / _MAX_KNOTS)
    at = ticks + stride * sm
    order = np.argsort(at, kind="stable")
    at, residual = at[order], residual[order]
    group = _windows(at, window)
    count = np.bincount(group)
    knot = np.bincount(group, at) / count
    placed = rate * knot + _medians(group, residual, len(count))
    gaps = np.diff(knot)
    within = gaps < stride / 2  # not from one SM to the next
    for part in np.split(placed, np.flatnonzero(~within) + 1):
        np.maximum.accumulate(part, out=part)  # torn anchors must not make time run backwards
    bend = placed - rate * knot
    steps = np.diff(placed)
    rates = steps[within] / gaps[within]
    spread = float(np.ptp(rates)) / rate if len(rates) else 0.0
    # An SM's first and last slope hold to its outermost anchors; beyond, it keeps its bend.
    last = np.flatnonzero(np.append(~within, [True]))
    first = np.append([0], last[:-1] + 1)
    slope = np.where(within, np.diff(bend) / gaps, 0.0)
    low = at[np.searchsorted(group, first)]
    high = at[np.searchsorted(group, last, "right") - 1]
    low_bend = bend[first] - np.append(slope, 0.0)[first] * (knot[first] - low)
    high_bend = bend[last] + np.append([0.0], slope)[last] * (high - knot[last])
    edge = np.rint(knot[first] / stride) * stride
    reach = (_REACH + 0.05) * stride
    knots = np.concatenate([edge - reach, low, knot, high, edge + reach])
    bends = np.concatenate([low_bend, low_bend, bend, high_bend, high_bend])
    sort = np.argsort(knots, kind="stable")
    of_sm = sm[order]  # a window of so few ticks may hold several SMs: each has its own offset
    windows = 1 + int(np.count_nonzero((np.diff(group) > 0) | (np.diff(of_sm) > 0)))
    return knots[sort], bends[sort], spread, windows


def _windows(at: NDArray[np.float64], window: float) -> NDArray[np.int64]:
    """Number ascending positions by window; clusters that a border cut are joined again."""
    bins = np.floor(at / window)
    new = np.append([False], bins[1:] != bins[:-1])
    close = np.append([False], np.diff(at) < window / 4)
    joined = new & close
    # Joining two windows in a row would chain a dense series into one: join every other border.
    border = np.cumsum(new)
    return np.cumsum(new & ~(joined & (border % 2 == 1)))
