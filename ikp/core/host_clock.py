"""``HostClock``: a GPU's timer placed on the host's Unix time, by handshakes, with a bound.

A handshake reads the GPU's timer between two reads of the host's clock, so it bounds the offset of
the two from both sides. Between handshakes the offset is interpolated, and the bound widened by
what the rate of an oscillator can wander meanwhile; beyond the first and the last, by the
uncertainty of the rate as well. ``CLOCK_REALTIME`` may be stepped, ``CLOCK_MONOTONIC`` may not: a
change of their difference is a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_WANDER: Final = 1e-6
"""How far from constant the bound expects a rate where no change is seen, relative."""
_RATE: Final = 200e-6
"""The largest difference in rate of two clocks that the bound expects where it is not measured."""
STEP_NS: Final = 1000
"""The least change of ``CLOCK_REALTIME`` against ``CLOCK_MONOTONIC`` that counts as a step."""
_FAR_NS: Final = 1e15
"""Further away from all handshakes than any launch: 11 days."""
_ROUNDING_NS: Final = 0.5
_UNKNOWN_TICK_NS: Final = 1000
"""The coarsest step of a timer that the bound expects where none was seen."""
_WIDE: Final = 2.0
"""A handshake so many times as wide as the median one is left out, unless it tightens a gap."""
_TIGHTENS: Final = 0.5
"""A wide handshake is used where it is within so much of the bound that others have there."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """A reading of a GPU's timer between two readings of the host's clock."""

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


class HostClock:
    """The offset of Unix time from one GPU's timer, a line from handshake to handshake.

    Args:
        handshakes: at least one, in any order.

    Attributes:
        count: handshakes that the line goes through.
        drift_ppm: mean change of the offset; None with fewer than two handshakes.
        steps: of ``CLOCK_REALTIME`` while the handshakes lasted.
    """

    def __init__(self, handshakes: Sequence[Handshake]) -> None:
        ordered = sorted(handshakes, key=lambda each: each.gpu_ns)
        used = _narrow(ordered)
        self._fit(used)
        while more := self._tightening(_beside(ordered, used)):
            used = sorted([*used, *more], key=lambda each: each.gpu_ns)
            self._fit(used)

    def _fit(self, used: list[Handshake]) -> None:
        """Lay the line through handshakes, which are in order."""
        tick = math.gcd(*(each.tick_ns for each in used)) or _UNKNOWN_TICK_NS
        self.count, self._tick = len(used), tick
        self._zero = used[0].gpu_ns
        self._base = used[0].before_ns - used[0].gpu_ns
        columns = [
            (
                each.gpu_ns - self._zero,
                each.before_ns - each.gpu_ns - self._base - tick,
                each.after_ns - each.gpu_ns - self._base + tick,
            )
            for each in used
        ]
        self._at, self._low, self._high = np.array(columns, np.float64).T
        jumps = np.diff(np.array([each.ahead_ns - used[0].ahead_ns for each in used], np.int64))
        self._jumps = np.where(np.abs(jumps) >= STEP_NS, jumps, 0)
        self._unsteady = np.append(np.where(self._jumps == 0, np.abs(jumps), 0), 0)
        self.steps = tuple(
            ClockStep(used[i].before_ns, int(self._jumps[i])) for i in np.flatnonzero(self._jumps)
        )
        self._wander = self._wandering()
        self._rate = self._rates()
        self.drift_ppm = None if self._rate is None else sum(self._rate) / 2 * 1e6
        beyond = np.array([-_FAR_NS, _FAR_NS])
        self._knots = np.concatenate((beyond[:1], self._at, beyond[1:]))
        middles, rate = (self._low + self._high) / 2, (self.drift_ppm or 0.0) * 1e-6
        first, last = (
            middles[0] + rate * (beyond[0] - self._at[0]),
            middles[-1] + rate * (beyond[1] - self._at[-1]),
        )
        self._middles = np.concatenate(([first], middles, [last]))

    def offset(self, gpu_ns: Ints) -> Ints:
        """Return what to add to times of the GPU's timer, in ns, to make Unix times of them."""
        return self._base + np.rint(self._line(self._since(gpu_ns))).astype(np.int64)

    def bound(self, gpu_ns: Ints) -> Floats:
        """Return the greatest errors of ``offset`` at some times, in ns."""
        at = self._since(gpu_ns)
        low, high = self._bounds(at)
        line = self._line(at)
        found: Floats = np.maximum(high - line, line - low) + _ROUNDING_NS
        return found

    def bound_within(self, first_ns: Ints, last_ns: Ints) -> Floats:
        """Return the greatest error of ``offset`` between some times and others, in ns."""
        most = np.maximum(self.bound(first_ns), self.bound(last_ns))
        middles = (self._at[1:] + self._at[:-1]) / 2  # where the bound is greatest
        begin = np.searchsorted(middles, self._since(first_ns))
        end = np.searchsorted(middles, self._since(last_ns), "right")
        for row in np.flatnonzero(end > begin):
            inside = self._zero + middles[begin[row] : end[row]].astype(np.int64)
            most[row] = max(most[row], float(self.bound(inside).max()))
        return most

    def _tightening(self, others: Sequence[Handshake]) -> list[Handshake]:
        """Return those of other handshakes that tighten a gap, one for each: the narrowest.

        A host that is busy for a while makes wide ones, and a gap without any is wider yet.
        """
        if not others:
            return []
        at = np.array([each.gpu_ns for each in others], np.int64)
        wide = np.array([each.after_ns - each.before_ns for each in others]) / 2 + self._tick
        useful = np.flatnonzero(wide < _TIGHTENS * self.bound(at))
        gap = np.searchsorted(self._at, self._since(at[useful]))
        order = np.lexsort((wide[useful], gap))
        _, first = np.unique(gap[order], return_index=True)
        return [others[row] for row in useful[order[first]].tolist()]

    def _since(self, gpu_ns: Ints) -> Floats:
        return (gpu_ns - self._zero).astype(np.float64)

    def _line(self, at: Floats) -> Floats:
        """Return the offsets at some times, less ``_base``."""
        line: Floats = np.interp(at, self._knots, self._middles)
        return line

    def _bounds(self, at: Floats) -> tuple[Floats, Floats]:
        """Return the least and the greatest offset at some times."""
        last = len(self._at) - 1
        left = np.clip(np.searchsorted(self._at, at, "right") - 1, 0, max(0, last - 1))
        right = np.minimum(left + 1, last)
        span = np.maximum(self._at[right] - self._at[left], 1.0)
        part = np.clip((at - self._at[left]) / span, 0.0, 1.0)
        wander: Floats = np.full(len(at), _WANDER)
        if last:
            wander = self._wander[np.minimum(left, last - 1)]
        inside = (part > 0) & (part < 1)
        bend = 2 * wander * span * part * (1 - part) + self._unsteady[left] * inside
        low = self._low[left] + part * (self._low[right] - self._low[left]) - bend
        high = self._high[left] + part * (self._high[right] - self._high[left]) + bend
        if self._jumps.any():
            stepped = (np.append(self._jumps, 0)[left] != 0) & inside
            drift = _RATE * span
            low = np.where(stepped, np.minimum(self._low[left], self._low[right]) - drift, low)
            high = np.where(stepped, np.maximum(self._high[left], self._high[right]) + drift, high)
        rates = self._rate or (-_RATE, _RATE)
        slowest, fastest = rates[0] - wander, rates[1] + wander
        behind, ahead = np.minimum(at - self._at[0], 0.0), np.maximum(at - self._at[last], 0.0)
        return low + ahead * slowest + behind * fastest, high + ahead * fastest + behind * slowest

    def _wandering(self) -> Floats:
        """Return how far from constant the rate may be, for each gap between two handshakes.

        The rate of a gap is compared with those before and behind it, over at least half its span:
        shorter ones are known less well.
        """
        at, span = self._at, np.diff(self._at)
        line = (self._low + self._high) / 2 - np.append(0.0, np.cumsum(self._jumps))
        before = np.searchsorted(at, at[:-1] - span / 2, "right") - 1
        behind = np.searchsorted(at, at[1:] + span / 2)
        found = np.full(len(span), _WANDER)
        for begin, end, known in (
            (before, np.arange(len(span)), before >= 0),
            (np.arange(1, len(at)), behind, behind < len(at)),
        ):
            first, last = begin[known], end[known]
            rate = (line[last] - line[first]) / (at[last] - at[first])
            found[known] += np.abs(rate - (np.diff(line) / span)[known]) / 2
        return found

    def _rates(self) -> tuple[float, float] | None:
        """Return the least and the greatest mean rate of change, steps left out."""
        span = self._at[-1] - self._at[0]
        if span <= 0:
            return None
        stepped = float(self._jumps.sum())
        low = float(self._low[-1] - stepped - self._high[0]) / float(span)
        high = float(self._high[-1] - stepped - self._low[0]) / float(span)
        if low <= _RATE and high >= -_RATE:  # a clock's rate is not measured within milliseconds
            return max(low, -_RATE), min(high, _RATE)
        return low, high


def _narrow(handshakes: Sequence[Handshake]) -> list[Handshake]:
    """Return the handshakes without those that are much wider than most."""
    wide = np.array([each.after_ns - each.before_ns for each in handshakes])
    most = max(_WIDE * float(np.median(wide)), float(wide.min()))
    used = [each for each in handshakes if each.after_ns - each.before_ns <= most]
    return [each for i, each in enumerate(used) if not i or each.gpu_ns > used[i - 1].gpu_ns]


def _beside(ordered: Sequence[Handshake], used: Sequence[Handshake]) -> list[Handshake]:
    """Return the handshakes that are not used, and at no time at which one is."""
    taken = {each.gpu_ns for each in used}
    return [each for each in ordered if each.gpu_ns not in taken]
