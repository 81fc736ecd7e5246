"""``HostClock``: a GPU's timer placed on the host's Unix time, by handshakes, with a bound.

A handshake reads the GPU's timer between two reads of the host's clock, so it bounds the offset of
the two from both sides. A wide one has waited in one direction, and its middle is off to one side:
the line of offsets goes through the narrow ones alone. Its bound comes from all that say anything,
widened between handshakes by what the rate of an oscillator can wander meanwhile, and beyond the
first and the last by the uncertainty of the rate as well. ``CLOCK_REALTIME`` may be stepped,
``CLOCK_MONOTONIC`` may not: a change of their difference is a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

BOOT: Final = "boot"
"""The provenance of a trace that says of which boot of which host its Unix times are."""
_STEADY: Final = 2e-8
"""How far from constant a rate commonly is, relative: where the line, not its bound, is at stake.

Within 35 s the rates of two H200s changed by 1e-7.
"""
_WANDER: Final = 1e-6
"""How far from constant the bound expects a rate where no change is seen, relative."""
RATE: Final = 200e-6
"""The largest difference in rate of two clocks that the bound expects where it is not measured."""
STEP_NS: Final = 1000
"""The least change of ``CLOCK_REALTIME`` against ``CLOCK_MONOTONIC`` that counts as a step."""
_FAR_NS: Final = 1e15
"""Further away from all handshakes than any launch: 11 days."""
_ROUNDING_NS: Final = 0.5
_UNKNOWN_TICK_NS: Final = 1000
"""The coarsest step of a timer that the bound expects where none was seen."""
_ALIKE_NS: Final = 32
"""Handshakes whose half widths differ by less say equally much: the step of a timer."""
_PARTS: Final = (0.25, 0.5, 0.75)
"""Where within a gap the bound is looked for."""
_NARROWEST: Final = 16
"""Handshakes of which two say how well the rate is known."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """A reading of a GPU's timer, and two times of the host's clock between which it was made."""

    gpu_ns: int  # %globaltimer
    before_ns: int  # CLOCK_REALTIME
    after_ns: int  # CLOCK_REALTIME
    monotonic_ns: int  # CLOCK_MONOTONIC at ``before_ns``
    tick_ns: int  # a multiple of the step of the GPU's timer; 0 where no step was seen

    @property
    def ahead_ns(self) -> int:
        """``CLOCK_REALTIME`` less ``CLOCK_MONOTONIC``."""
        return self.before_ns - self.monotonic_ns


@dataclass(frozen=True, slots=True)
class ClockStep:
    """A step of ``CLOCK_REALTIME`` between two handshakes."""

    after_ns: int  # Unix time of the handshake before it
    by_ns: int


@dataclass(frozen=True, slots=True)
class _Chain:
    """Least and greatest offsets at some times, in order, and between these."""

    at: Floats
    low: Floats
    high: Floats
    ahead: Floats
    """``CLOCK_REALTIME`` less ``CLOCK_MONOTONIC``, in ns, less what it was at first."""
    moved: Floats
    """The sum of all changes of that, each counted as positive."""
    moves: float
    """That sum at the end, which may be later."""

    @property
    def middles(self) -> Floats:
        return (self.low + self.high) / 2

    @property
    def jumps(self) -> Floats:
        """By how much the host's clock was set from one time to the next, in ns."""
        change = np.diff(self.ahead)
        return np.where(np.abs(change) >= STEP_NS, change, 0.0)

    def only(self, rows: Bools) -> _Chain:
        """Return some of the times alone."""
        at, low, high = self.at[rows], self.low[rows], self.high[rows]
        return _Chain(at, low, high, self.ahead[rows], self.moved[rows], self.moves)

    @property
    def half(self) -> Floats:
        """Half widths."""
        return (self.high - self.low) / 2

    def telling(self, wander: float, half: Floats, moved: Floats) -> Bools:
        """Return which handshakes say more about their time than the others do.

        Others say their own width, what the rate can wander until there, what is not known of the
        rate, and what the host's clock was set meanwhile.

        Args:
            wander: how far from constant a rate is, relative.
            half: how far from its middle each handshake leaves the offset.
            moved: how far the host's clock was set until each, in all.
        """
        far = (wander + self._rate_known_within(half)) * self.at + moved
        before = np.minimum.accumulate(half - far) + far
        behind = np.minimum.accumulate((half + far)[::-1])[::-1] - far
        chosen: Bools = half <= np.minimum(before, behind) + _ALIKE_NS
        return chosen

    def _rate_known_within(self, half: Floats) -> float:
        """Return how well the mean rate is known by the best two of the narrowest."""
        rows = np.argsort(half, kind="stable")[:_NARROWEST]
        span = self.at[rows] - self.at[rows][:, None]
        wide = half[rows] + half[rows][:, None]
        return float(np.min(wide / np.maximum(span, 1.0), where=span > 0, initial=RATE))

    def bounds(
        self, at: Floats, wander: Floats, rates: tuple[float, float]
    ) -> tuple[Floats, Floats]:
        """Return the least and the greatest offset at some times.

        Args:
            at: the times.
            wander: for each of them, how far from constant the rate may be.
            rates: the least and the greatest mean rate.
        """
        last = len(self.at) - 1
        left = np.clip(np.searchsorted(self.at, at, "right") - 1, 0, max(0, last - 1))
        right = np.minimum(left + 1, last)
        span = np.maximum(self.at[right] - self.at[left], 1.0)
        part = np.clip((at - self.at[left]) / span, 0.0, 1.0)
        inside = (part > 0) & (part < 1)
        jumps = np.append(self.jumps, 0.0)
        unsteady = np.append(np.diff(self.moved), 0.0) * (jumps == 0)
        moved = np.where(at < self.at[0], self.moved[0], unsteady[left] * inside)
        moved = np.where(at > self.at[last], self.moves - self.moved[last], moved)
        bend = 2 * wander * span * part * (1 - part) + moved
        low = self.low[left] + part * (self.low[right] - self.low[left]) - bend
        high = self.high[left] + part * (self.high[right] - self.high[left]) + bend
        if jumps.any():
            stepped, drift = (jumps[left] != 0) & inside, RATE * span
            low = np.where(stepped, np.minimum(self.low[left], self.low[right]) - drift, low)
            high = np.where(stepped, np.maximum(self.high[left], self.high[right]) + drift, high)
        slowest, fastest = rates[0] - wander, rates[1] + wander
        behind, ahead = np.minimum(at - self.at[0], 0.0), np.maximum(at - self.at[last], 0.0)
        return low + ahead * slowest + behind * fastest, high + ahead * fastest + behind * slowest


def of_several_hosts(provenance: Mapping[str, str]) -> bool:
    """Whether a trace has times of several hosts, or boots, of which each has its own clock."""
    return " | " in provenance.get(BOOT, "")


class HostClock:
    """The offset of Unix time from one GPU's timer, a line from handshake to handshake.

    Args:
        handshakes: at least one, in any order.

    Attributes:
        count: handshakes that the line goes through.
        last_ns: the GPU's time of the last handshake.
        drift_ppm: mean change of the offset; None with fewer than two handshakes.
        steps: of ``CLOCK_REALTIME`` while the handshakes lasted.
    """

    def __init__(self, handshakes: Sequence[Handshake]) -> None:
        ordered = _in_order(handshakes)
        self._zero, self._base = ordered[0].gpu_ns, ordered[0].before_ns - ordered[0].gpu_ns
        self.last_ns = ordered[-1].gpu_ns
        every = self._chain(ordered)
        telling = every.telling(_WANDER, every.half, every.moved)
        fine = every.only(telling)
        waited = every.half - every.half.min()  # each way takes what it takes at best, or longer
        stepped = np.append(0.0, np.cumsum(np.abs(every.jumps)))
        through = every.telling(_STEADY, waited + _ALIKE_NS, stepped)[telling]
        self._fit(fine.only(through))
        while (missed := self._misses(fine) & ~through).any():  # the rate changed meanwhile
            through |= missed
            self._fit(fine.only(through))
        self._fine, jumps = fine, fine.jumps
        before = [each.before_ns for each, kept in zip(ordered, telling, strict=True) if kept]
        self.steps = tuple(
            ClockStep(before[i], round(float(jumps[i]))) for i in np.flatnonzero(jumps)
        )

    def _chain(self, ordered: Sequence[Handshake]) -> _Chain:
        tick = math.gcd(*(each.tick_ns for each in ordered)) or _UNKNOWN_TICK_NS
        columns = [
            (
                each.gpu_ns - self._zero,
                each.before_ns - each.gpu_ns - self._base - tick,
                each.after_ns - each.gpu_ns - self._base + tick,
                each.ahead_ns - ordered[0].ahead_ns,
            )
            for each in ordered
        ]
        at, low, high, ahead = np.array(columns, np.float64).T
        moved = np.append(0.0, np.cumsum(np.abs(np.diff(ahead))))
        return _Chain(at, low, high, ahead, moved, float(moved[-1]))

    def _fit(self, knots: _Chain) -> None:
        """Lay the line through the middles of handshakes."""
        self._knots, self.count = knots, len(knots.at)
        self._wander, self._rates = _wandering(knots), _mean_rates(knots)
        self.drift_ppm = None if self._rates is None else sum(self._rates) / 2 * 1e6
        rate, middles = (self.drift_ppm or 0.0) * 1e-6, knots.middles
        self._line_at = np.concatenate(([-_FAR_NS], knots.at, [_FAR_NS]))
        first, last = (
            middles[end] + rate * (far - knots.at[end])
            for end, far in ((0, -_FAR_NS), (-1, _FAR_NS))
        )
        self._line_of = np.concatenate(([first], middles, [last]))

    def _misses(self, chain: _Chain) -> Bools:
        """Return where the line is outside of what handshakes allow."""
        line = self._line(chain.at)
        missed: Bools = (line < chain.low) | (line > chain.high)
        return missed

    def offset(self, gpu_ns: Ints) -> Ints:
        """Return what to add to times of the GPU's timer, in ns, to make Unix times of them."""
        return self._base + np.rint(self._line(self._since(gpu_ns))).astype(np.int64)

    def bound(self, gpu_ns: Ints) -> Floats:
        """Return the greatest errors of ``offset`` at some times, in ns."""
        at = self._since(gpu_ns)
        wander, rates = self._rate(at)
        coarse, fine = (each.bounds(at, wander, rates) for each in (self._knots, self._fine))
        low, high = np.maximum(coarse[0], fine[0]), np.minimum(coarse[1], fine[1])
        line = self._line(at)
        found: Floats = np.maximum(high - line, line - low) + _ROUNDING_NS
        return found

    def bound_within(self, first_ns: Ints, last_ns: Ints) -> Floats:
        """Return the greatest error of ``offset`` between some times and others, in ns."""
        most = np.maximum(self.bound(first_ns), self.bound(last_ns))
        at = self._fine.at  # the bound is greatest at these, or amid two
        points = np.sort(np.concatenate((at, *(at[:-1] + part * np.diff(at) for part in _PARTS))))
        begin = np.searchsorted(points, self._since(first_ns))
        end = np.searchsorted(points, self._since(last_ns), "right")
        for row in np.flatnonzero(end > begin):
            inside = self._zero + points[begin[row] : end[row]].astype(np.int64)
            most[row] = max(most[row], float(self.bound(inside).max()))
        return most

    def _since(self, gpu_ns: Ints) -> Floats:
        return (gpu_ns - self._zero).astype(np.float64)

    def _line(self, at: Floats) -> Floats:
        """Return the offsets at some times, less ``_base``."""
        line: Floats = np.interp(at, self._line_at, self._line_of)
        return line

    def _rate(self, at: Floats) -> tuple[Floats, tuple[float, float]]:
        """Return how far from constant the rate may be at some times, and the mean rates."""
        gap = np.searchsorted(self._knots.at, at, "right") - 1
        wander: Floats = self._wander[np.clip(gap, 0, len(self._wander) - 1)]
        return wander, self._rates or (-RATE, RATE)


def _in_order(handshakes: Sequence[Handshake]) -> list[Handshake]:
    """Return the handshakes in order of the GPU's times, the narrowest of each time."""
    narrowest = {
        each.gpu_ns: each
        for each in sorted(handshakes, key=lambda each: each.before_ns - each.after_ns)
    }
    return [narrowest[at] for at in sorted(narrowest)]


def _wandering(knots: _Chain) -> Floats:
    """Return how far from constant the rate may be, for each gap between two handshakes.

    The rate of a gap is compared with those before and behind it, over at least half its span:
    shorter ones are known less well.
    """
    at, span = knots.at, np.diff(knots.at)
    line = knots.middles - np.append(0.0, np.cumsum(knots.jumps))
    before = np.searchsorted(at, at[:-1] - span / 2, "right") - 1
    behind = np.searchsorted(at, at[1:] + span / 2)
    found = np.full(max(1, len(span)), _WANDER)
    for begin, end, known in (
        (before, np.arange(len(span)), before >= 0),
        (np.arange(1, len(at)), behind, behind < len(at)),
    ):
        first, last = begin[known], end[known]
        rate = (line[last] - line[first]) / (at[last] - at[first])
        found[: len(span)][known] += np.abs(rate - (np.diff(line) / span)[known]) / 2
    return found


def _mean_rates(knots: _Chain) -> tuple[float, float] | None:
    """Return the least and the greatest mean rate of change, steps left out."""
    span = knots.at[-1] - knots.at[0]
    if span <= 0:
        return None
    stepped = float(knots.jumps.sum())
    low = float(knots.low[-1] - stepped - knots.high[0]) / float(span)
    high = float(knots.high[-1] - stepped - knots.low[0]) / float(span)
    if low <= RATE and high >= -RATE:  # a clock's rate is not measured within milliseconds
        return max(low, -RATE), min(high, RATE)
    return low, high
