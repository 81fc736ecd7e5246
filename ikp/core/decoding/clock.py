"""The fit of SM clock ticks to nanoseconds, by clock anchors, with the residuals of the fit.

``%clock`` counts SM cycles from an origin that differs per SM; ``%globaltimer`` is one axis, but
moves in steps (32 ns on an H200). Each slot has one or two anchors: both clocks read back to back.

Two steps. A straight line first: all SMs share one rate, and each has an offset. One rate over all
anchors keeps the error of a step small even where a kernel runs for microseconds. But the rate is
not constant: a GPU that wakes up, or meets its power limit, changes its clock within a launch
(1.5 to 1.3 GHz within 225 us was seen on an H200). So each SM's line is then bent through its
anchors, averaged over windows long enough that a step's error stays below a tenth of a percent.

Many launches are fitted at once, each by itself: thousands of small ones would cost far more in
calls than in arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ikp.core.decoding._bends import Bends, Sms, bend
from ikp.core.decoding._ragged import Floats, Ints, Sorted, extremes, medians, shared
from ikp.core.sorting import order_by
from ikp.core.trace import ClockFit

_MAX_NS = 2.0**62
_STEP_NS = 32.0
"""Step of the timer of an H200, taken where there are too few anchors to see it."""
_OUTLIER_MADS = 6.0
"""An anchor further than this many median deviations from the line does not shape the rate."""
_TORN_SPANS = 2.0
"""An anchor further from the line than this many spans of all anchors is left out: no change of the
clock explains it, but a warp that was put aside between its two reads does, or overwritten memory.
"""
_MAX_RATE_ERROR = 0.1
"""Largest relative error of a fitted rate; above it, the device's advertised rate is taken."""
_PLAUSIBLE_HZ = (1e7, 2e10)


@dataclass(frozen=True, slots=True)
class Anchors:
    """Pairs of (ns, ticks) read together on an SM; three arrays of equal length."""

    row: Ints  # in Sms
    ns: Ints
    ticks: Ints


@dataclass(frozen=True, slots=True)
class Axes:
    """Fitted axes: ``ns_zero + offset[sm] + ns_per_tick * elapsed + bend``.

    ``elapsed`` counts ticks since ``tick_zero[sm]``.
    """

    sms: Sms
    fits: list[ClockFit]  # by launch
    ns_zero: Ints  # by launch
    rate: Floats  # by launch
    tick_zero: Ints  # by row of sms
    offset: Floats  # by row of sms, ns
    bends: Bends
    torn: Ints  # by launch: anchors left out

    def lines(self, row: Ints) -> ClockLines:
        """Return the lines of the SMs in some rows."""
        one = len(self.rate) == 1
        launch = None if one else self.sms.launch[row]
        return ClockLines(
            self.ns_zero[0] if launch is None else self.ns_zero[launch],
            self.rate[0] if launch is None else self.rate[launch],
            self.offset[row],
            self.bends.side[row],
            launch,
            self.bends,
        )


@dataclass(frozen=True, slots=True)
class ClockLines:
    """The bent lines on which some ticks lie, one for each of them."""

    ns_zero: Ints | np.int64
    rate: Floats | np.float64
    offset: Floats
    side: Floats
    launch: Ints | None
    bends: Bends

    def to_ns(self, elapsed: Ints) -> Ints:
        """Place ticks since ``tick_zero``, rounded to ns; keeps the order within an SM."""
        return self.rounded(self.place(elapsed.astype(np.float64)))

    def rounded(self, placed: Floats) -> Ints:
        """Return the Unix times of the result of :meth:`place`, which is overwritten."""
        np.rint(np.clip(placed, -_MAX_NS, _MAX_NS, out=placed), out=placed)
        out = placed.astype(np.int64)
        out += self.ns_zero
        return out

    def place(self, elapsed: Floats) -> Floats:
        """Return ns since ``ns_zero`` of ticks since ``tick_zero``."""
        placed = elapsed * self.rate
        placed += self.offset
        self.bends.add(placed, elapsed, self.side, self.launch)
        return placed


@dataclass(frozen=True, slots=True)
class _Straight:
    """A straight line per SM; all SMs of a launch have one rate."""

    rate: Floats  # by launch
    fitted: NDArray[np.bool_]  # by launch
    offset: Floats  # by row of sms


@dataclass(frozen=True, slots=True)
class _Points:
    """Anchors near zero, where float64 is exact to far below a nanosecond."""

    row: Ints
    launch: Ints
    ns: Floats
    ticks: Floats
    sms: Sms

    def only(self, chosen: NDArray[np.bool_]) -> _Points:
        """Return the chosen anchors."""
        if chosen.all():
            return self
        return _Points(
            self.row[chosen], self.launch[chosen], self.ns[chosen], self.ticks[chosen], self.sms
        )


def fit_axes(anchors: Anchors, sms: Sms, nominal_hz: Floats) -> tuple[Axes, Ints]:
    """Fit the axis of each launch; also return the time of each anchor's ticks on it.

    Args:
        anchors: of all launches.
        sms: the SMs that they ran on.
        nominal_hz: the advertised clock of each launch's device, used only where no SM has two
            anchors far enough apart.
    """
    launch = sms.launch[anchors.row]
    in_time = Sorted.of(launch, anchors.ns, sms.launches)
    order = _in_order(anchors, len(sms))
    by_sm = Sorted(anchors.ticks[order], np.bincount(anchors.row, minlength=len(sms)))
    # Medians, which a wild anchor can't move. Near them, float64 is exact to far below 1 ns.
    ns_zero = in_time.pick(in_time.count // 2).astype(np.int64)
    tick_zero = by_sm.pick((by_sm.count - 1) // 2).astype(np.int64)
    points = every = _Points(
        anchors.row,
        launch,
        (anchors.ns - shared(ns_zero, launch)).astype(np.float64),
        (anchors.ticks - tick_zero[anchors.row]).astype(np.float64),
        sms,
    )
    lines = _fit_lines(points, by_sm, order, _timer_steps(in_time), nominal_hz)
    residual = points.ns - shared(lines.rate, launch) * points.ticks - lines.offset[anchors.row]
    sound = _sound(points, residual)
    if not sound.all():
        points, residual = points.only(sound), residual[sound]
        order = (np.cumsum(sound) - 1)[order[sound[order]]]
    bends, spread, windows = bend(sms, points.row, points.ticks, residual, lines.rate, order)
    torn = np.bincount(launch[~sound], minlength=sms.launches)
    axes = Axes(sms, [], ns_zero, lines.rate, tick_zero, lines.offset, bends, torn)
    on_axis = axes.lines(every.row)
    placed = on_axis.place(every.ticks)
    error = points.ns - (placed if points is every else placed[sound])
    axes.fits.extend(_fits(lines, points.launch, error, windows, spread))
    return axes, on_axis.rounded(placed)


def _in_order(anchors: Anchors, rows: int) -> Ints:
    """Return the order of anchors by SM, then by ticks since the SM's first: small numbers."""
    first = np.full(rows, _FAR)
    np.minimum.at(first, anchors.row, anchors.ticks)
    return order_by(anchors.row, anchors.ticks - first[anchors.row])


_FAR = np.iinfo(np.int64).max


def _fits(
    lines: _Straight, launch: Ints, error: Floats, windows: Ints, spread: Floats
) -> list[ClockFit]:
    """Return the fit of each launch with its residuals at the anchors."""
    launches = len(lines.rate)
    count = np.bincount(launch, minlength=launches)
    some = np.maximum(count, 1)
    mean = np.bincount(launch, error, launches) / some
    apart = error - shared(mean, launch)
    deviation = np.sqrt(np.bincount(launch, apart**2, launches) / some)
    least, most = extremes(launch, error, launches)
    # Fitted unknowns: the offset of each window of anchors, and the rate. With no more anchors than
    # unknowns, each anchor lies on the fit, however wrong it is.
    spare = count - windows - lines.fitted
    columns = (
        *(lines.rate.tolist(), lines.fitted.tolist(), count.tolist(), deviation.tolist()),
        *(np.maximum(-least, most).tolist(), spread.tolist(), (spare > 0).tolist()),
    )
    return [
        ClockFit(
            kind="cycles",
            ns_per_tick=rate,
            rate="fitted" if fitted else "nominal",
            anchors=anchors,
            residual_sd_ns=sd if known else None,
            residual_max_ns=far if known else None,
            rate_spread=change,
        )
        for rate, fitted, anchors, sd, far, change, known in zip(*columns, strict=True)
    ]


def _timer_steps(in_time: Sorted) -> Floats:
    """Return the step of each launch's global timer, as far as its values show it."""
    there = in_time.count > 0
    steps, seen = np.zeros(len(there), np.int64), there.astype(np.int64)
    if there.any():
        gaps = np.diff(in_time.values, prepend=in_time.values[:1]).astype(np.int64)
        gaps[in_time.first[there]] = 0
        moved = np.flatnonzero(gaps)
        launch = np.searchsorted(in_time.first + in_time.count, moved, "right")
        np.gcd.at(steps, launch, gaps[moved])
        seen += np.bincount(launch, minlength=len(seen))
    step = np.where(seen < 2, _STEP_NS, steps)
    return np.where(seen > 3, step, np.minimum(step, _STEP_NS))


def _sound(points: _Points, residual: Floats) -> NDArray[np.bool_]:
    """Return which anchors are sound: no further off the line than a clock's change of rate."""
    most = Sorted.of(points.launch, np.abs(points.ns), points.sms.launches).percentiles(0.95)
    span = 1000.0 + most
    return np.asarray(np.abs(residual) <= _TORN_SPANS * shared(span, points.launch))


def _fit_lines(
    points: _Points, by_sm: Sorted, order: Ints, step: Floats, nominal_hz: Floats
) -> _Straight:
    """Return one rate per launch, whether it is fitted, and each SM's offset."""
    slope = _median_slopes(points, by_sm, order)
    with np.errstate(divide="ignore"):
        nominal = 1e9 / nominal_hz
    rate = np.where(slope > 0, slope, nominal)
    distance = points.ns - shared(rate, points.launch) * points.ticks
    distance -= medians(points.row, distance, len(points.sms), order)[points.row]
    np.abs(distance, out=distance)
    far = _OUTLIER_MADS * medians(points.launch, distance, points.sms.launches)
    near = points.only(distance <= shared(np.maximum(far, 1.0), points.launch))
    rate, fitted = _rates(near, step, nominal)
    distance = points.ns - shared(rate, points.launch) * points.ticks
    return _Straight(rate, fitted, medians(points.row, distance, len(points.sms), order))


def _median_slopes(points: _Points, by_sm: Sorted, order: Ints) -> Floats:
    """Return each launch's median slope between anchors half of an SM's anchors apart, or 0.

    Least squares would follow a single wild anchor.
    """
    half = by_sm.count // 2
    left = np.arange(int(half.sum())) + np.repeat(by_sm.first - (np.cumsum(half) - half), half)
    right = left + np.repeat(by_sm.count - half, half)
    left, right = order[left], order[right]
    run = points.ticks[right] - points.ticks[left]
    rise = points.ns[right] - points.ns[left]
    launch, apart = points.launch[left], run > 0
    if not apart.all():
        run, rise, launch = run[apart], rise[apart], launch[apart]
    slopes = rise / run
    return np.maximum(0.0, medians(launch, slopes, points.sms.launches))


def _rates(points: _Points, step: Floats, nominal: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return rates by least squares over all SMs of each launch, each SM about its own mean.

    ``step`` is the timer's: it must be small beside the time between anchors. Otherwise, and where
    a rate is implausible, the result is the nominal one, and not fitted.
    """
    row, sms = points.row, len(points.sms)
    count = np.maximum(np.bincount(row, minlength=sms), 1)
    x = points.ticks - (np.bincount(row, points.ticks, sms) / count)[row]
    y = points.ns - (np.bincount(row, points.ns, sms) / count)[row]
    launches = points.sms.launches
    spread = np.bincount(points.launch, x * x, launches)
    common = np.bincount(points.launch, x * y, launches)
    some = (spread > 0) & (common > 0)
    rate = np.divide(common, spread, where=some, out=np.ones(launches))
    sure = np.where(some, rate * np.sqrt(spread), 1.0)
    error = step / 12**0.5 / sure  # as of steps evenly distributed
    hz = 1e9 / rate
    fitted = some & (error < _MAX_RATE_ERROR) & (_PLAUSIBLE_HZ[0] < hz) & (hz < _PLAUSIBLE_HZ[1])
    return np.where(fitted, rate, nominal), fitted
