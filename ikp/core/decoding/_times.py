"""The timeline of some launches: clock words to nanoseconds; doubtful ones are counted."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ikp.core import abi
from ikp.core.abi import ClockKind
from ikp.core.decoding._bends import Sms
from ikp.core.decoding._ragged import Floats
from ikp.core.decoding._records import RecordChunk
from ikp.core.decoding.clock import Anchors, Axes, fit_axes
from ikp.core.decoding.launch_header import Ints
from ikp.core.decoding.slots import Bools, Used
from ikp.core.trace import ClockFit, Column

WRAP = 1 << 32
SLACK = 1 << 16
"""Ticks by which a record may lie outside its warp's init to finish before a note says so."""
NOMINAL_HZ = 1.5e9
"""Clock rate assumed where neither anchors nor the device give one; the fit says so."""


class Faults(NamedTuple):
    """Counts, by launch, of warps or anchors with doubtful times: an array per fault."""

    backwards: Ints
    outside: Ints
    torn: Ints
    long: Ints  # warps that ran longer than a wrap of the clock
    lost: Ints  # warps that did, and whose short headers lack it: the timer shows it
    guessed: Ints  # 1 where the clock's rate is not fitted but taken as given

    def any(self) -> Bools:
        """Return which launches have any."""
        return np.asarray(np.any([*self], axis=0))

    def of(self, launch: int) -> tuple[int, ...]:
        """Return one launch's counts, in the order of the fields."""
        return tuple(int(each[launch]) for each in self)


class Timeline:
    """Launches' clock words on the nanosecond axis.

    ``start`` is the time of each warp's init; ``end``, that of its finish, or of init where finish
    never ran. Warps are in the order of :meth:`Used.everyone`: those that have slots first.
    """

    def __init__(self, used: Used) -> None:
        self.used, self.clock = used, used.clock
        self.came = came = used.everyone()
        heads, unit, warps = came.heads, used.unit, len(came.ids)
        init_ns, finish_ns = (heads[k].astype(np.int64) for k in ("init_ns", "finish_ns"))
        init, finish = (heads[k].astype(np.int64) for k in ("init_clock", "finish_clock"))
        if unit is ClockKind.GLOBALTIMER:
            init, finish = init_ns, finish_ns
        self.init_ticks, self.finish_ticks = init, finish
        self._life_ns = finish_ns - init_ns
        self._dense = np.array([each.together > 0 for each in used.layouts], bool)
        self.turned, self.outside = np.zeros(warps, bool), np.zeros(warps, bool)
        self.backwards = came.finished & (finish < init)
        if unit is ClockKind.CYCLES:
            self.backwards |= came.finished & (finish_ns < init_ns)
        self.finished = came.finished & ~self.backwards
        self.axes: Axes | None = None
        self.row = np.zeros(0, np.int64)  # of each slot's SM, among those of the axes
        if unit is ClockKind.CYCLES:
            self.axes, placed = self._fit_axes(init_ns, finish_ns)
            self.fits = self.axes.fits
            if used.clock.bits > abi.WORD_BITS:
                self.fits = [replace(fit, bits=used.clock.bits) for fit in self.fits]
        else:
            self._zero = init_ns - init
            anchors = np.bincount(came.launch, minlength=len(used.layouts)).tolist()
            kind, bits = unit.name.lower(), used.clock.bits
            self.fits = [ClockFit(kind, 1.0, "exact", anchors=n, bits=bits) for n in anchors]
            placed = np.concatenate([init_ns, (finish + self._zero)[self.finished]])
        np.maximum(placed, 0, out=placed)
        self.start, self.end = placed[:warps], placed[:warps].copy()
        ended = np.maximum(placed[warps:], self.start[self.finished])
        self.end[self.finished] = ended

    def _fit_axes(self, init_ns: Ints, finish_ns: Ints) -> tuple[Axes, Ints]:
        used, came, done = self.used, self.came, np.flatnonzero(self.finished)
        sms, self.row = Sms.of(came.launch, came.heads["sm"].astype(np.int64), len(used.layouts))
        anchors = Anchors(
            np.concatenate([self.row, self.row[done]]),
            np.concatenate([init_ns, finish_ns[done]]),
            np.concatenate([self.init_ticks, self.finish_ticks[done]]),
        )
        nominal_hz = np.array([each.clock_rate_hz or NOMINAL_HZ for each in used.sources])
        return fit_axes(anchors, sms, nominal_hz)

    def place(self, chunk: RecordChunk, lost_oldest: Bools) -> tuple[Ints, Ints, Ints]:
        """Return start and end in ns of a chunk's records, and the duration in ticks."""
        records, row, slots = chunk.records, chunk.row, chunk.slots
        words = np.ascontiguousarray(records["end"])
        ticks = (words - records["start"]).astype(np.int64)  # modulo 2**32, or exact
        if self.clock.bits > abi.WORD_BITS:
            end, since = words.astype(np.int64), np.zeros(len(chunk.kept), np.int64)
        else:
            end, since = self._unwrap(words, row, slots, lost_oldest[slots])
        self._look_outside(end, since, chunk)
        if self.axes is None:
            zero = (self._zero[slots] + since)[row]
            end += zero
            return np.maximum(end - ticks, 0), np.maximum(end, 0), ticks
        sm = self.row[slots]
        end += (since - self.axes.tick_zero[sm])[row]
        lines = self.axes.lines(sm[row])
        end_ns, start_ns = lines.to_ns(end), lines.to_ns(end - ticks)
        np.maximum(end_ns, 0, out=end_ns)
        np.maximum(start_ns, 0, out=start_ns)
        return np.minimum(start_ns, end_ns, out=start_ns), end_ns, ticks

    def _unwrap(
        self, words: Column, row: Ints, slots: slice, lost_oldest: Bools
    ) -> tuple[Ints, Ints]:
        """Extend 32-bit words to 64: within a slot records end in order, after init.

        Returns ticks, and by slot the tick from which they count.
        """
        init = self.init_ticks[slots]
        since_init = words - init.astype(np.uint32)[row]
        elapsed = since_init.astype(np.int64)
        fell = np.zeros(len(row), bool)
        if len(row) > 1:
            np.less(since_init[1:], since_init[:-1], out=fell[1:])
            fell[1:] &= row[1:] == row[:-1]
        if fell.any():
            self.turned[slots][row[fell]] = True
            total = np.cumsum(fell)
            before = np.zeros(len(init), np.int64)
            first = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
            before[row[first]] = total[first]
            elapsed += (total - before[row]) * WRAP
        late = lost_oldest & self.finished[slots]
        if late.any():  # a ring lost its oldest records: place its last one just before finish
            last, shift = np.zeros(len(init), np.int64), np.zeros(len(init), np.int64)
            np.maximum.at(last, row, elapsed)
            life = self.finish_ticks[slots] - init
            shift[late] = (life - last)[late] // WRAP * WRAP
            init = init + shift
        return elapsed, init

    def _look_outside(self, end: Ints, since: Ints, chunk: RecordChunk) -> None:
        """Flag slots whose last record ended before init or after finish, which none can."""
        slots, some = chunk.slots, np.flatnonzero(chunk.kept)
        end = end[np.cumsum(chunk.kept)[some] - 1] + since[some]
        outside = end < self.init_ticks[slots][some] - SLACK
        late = end > self.finish_ticks[slots][some] + SLACK
        outside |= self.finished[slots][some] & late
        self.outside[slots][some[outside]] = True

    def rates(self) -> Floats:
        """Return ns per tick of each slot, from its init to its finish."""
        ticks = np.where(self.finished, self.finish_ticks - self.init_ticks, 0)
        known = ticks > 0
        rates = np.array([fit.ns_per_tick for fit in self.fits])[self.came.launch]
        rates[known] = (self.end - self.start)[known] / ticks[known]
        return rates

    def turn_s(self) -> Floats:
        """Return the time in which a 32-bit clock wraps, in seconds, by launch.

        Where all anchors lack a wrap, they show less than half the rate that a device advertises.
        """
        rates = np.array([fit.ns_per_tick for fit in self.fits])
        nominal = np.array([1e9 / (each.clock_rate_hz or 1.0) for each in self.used.sources])
        return WRAP * np.where(self._dense & (rates > 2 * nominal), nominal, rates) / 1e9

    def faults(self) -> Faults:
        """Count, by launch, the warps and anchors whose times are doubtful."""
        launch, life = self.came.launch, self.finish_ticks - self.init_ticks
        late = self.finished & (life >= WRAP)
        late &= self.clock.bits == abi.WORD_BITS
        lost = np.zeros(len(life), bool)
        if self.axes is not None and self._dense.any():
            ticks = self._life_ns / 1e9 / self.turn_s()[launch] * WRAP
            lost = self.finished & self._dense[launch] & (np.abs(ticks - life) >= WRAP / 2)

        def count(chosen: Bools) -> Ints:
            return np.bincount(launch[chosen], minlength=len(self.fits))

        return Faults(
            backwards=count(self.backwards),
            outside=count(self.outside & ~lost),
            torn=np.zeros(len(self.fits), np.int64) if self.axes is None else self.axes.torn,
            long=count((late | self.turned) & ~lost),
            lost=count(lost),
            guessed=np.array([fit.rate == "nominal" for fit in self.fits], np.int64),
        )
