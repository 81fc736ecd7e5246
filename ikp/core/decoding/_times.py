"""Clock words to nanoseconds, for the slots of one launch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import ClockKind, Rows
from ikp.core.decoding.clock import Anchors, Axis, fit_axis
from ikp.core.trace import ClockFit, Column

WRAP = 1 << 32


SLACK = 1 << 16
"""Ticks by which a record may lie outside its warp's life before that is worth a word."""


NOMINAL_HZ = 1.5e9
"""Clock rate assumed where neither anchors nor the device tell one; the fit says so."""


class Timeline:
    """Places a launch's clock words on the nanosecond axis."""

    def __init__(
        self, clock: ClockKind, heads: Rows, finished: NDArray[np.bool_], nominal_hz: float
    ) -> None:
        self.clock = clock
        self.sm = heads["sm"].astype(np.int64)
        self.init_ns, self.finish_ns = (heads[k].astype(np.int64) for k in ("init_ns", "finish_ns"))
        init, finish = (heads[k].astype(np.int64) for k in ("init_clock", "finish_clock"))
        if clock.unit is ClockKind.GLOBALTIMER:
            init, finish = self.init_ns, self.finish_ns
        self.init_ticks, self.finish_ticks = init, finish
        self.turned = np.zeros(len(self.sm), bool)
        self.outside = np.zeros(len(self.sm), bool)
        self.backwards = finished & (finish < init)
        if clock.unit is ClockKind.CYCLES:
            self.backwards |= finished & (self.finish_ns < self.init_ns)
        self.finished = finished = finished & ~self.backwards
        if clock.unit is ClockKind.CYCLES:
            anchors = Anchors(
                np.concatenate([self.sm, self.sm[finished]]),
                np.concatenate([self.init_ns, self.finish_ns[finished]]),
                np.concatenate([init, finish[finished]]),
            )
            self.axis: Axis | None = fit_axis(anchors, nominal_hz)
            self.fit = replace(self.axis.fit, bits=clock.bits)
        else:
            self.axis = None
            kind = clock.unit.name.lower()
            self.fit = ClockFit(kind, 1.0, "exact", anchors=len(init), bits=clock.bits)

    def place(
        self, records: Rows, row: NDArray[np.int64], lost_oldest: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return start and end in ns, and the duration in ticks."""
        ticks = (records["end"] - records["start"]).astype(np.int64)  # modulo 2**32, or exact
        end = self._unwrap(records["end"], row, lost_oldest)
        self._look_outside(end, row)
        end_ns, start_ns = self._to_ns(end, row), self._to_ns(end - ticks, row)
        return np.minimum(start_ns, end_ns, out=start_ns), end_ns, ticks

    def _unwrap(
        self,
        words: Column,
        row: NDArray[np.int64],
        lost_oldest: NDArray[np.bool_],
    ) -> NDArray[np.int64]:
        """Extend 32-bit words to 64: within a slot records end in order, after init."""
        if self.clock.bits > abi.WORD_BITS:
            return words.astype(np.int64)
        since_init = words - self.init_ticks.astype(np.uint32)[row]
        elapsed: NDArray[np.int64] = since_init.astype(np.int64)
        wrapped = np.zeros(len(row), np.int64)
        if len(row) > 1:
            wrapped[1:] = (elapsed[1:] < elapsed[:-1]) & (row[1:] == row[:-1])
        if wrapped.any():
            self.turned[row[wrapped > 0]] = True
            total = np.cumsum(wrapped)
            before = np.zeros(len(self.sm), np.int64)
            first = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
            before[row[first]] = total[first]
            elapsed += (total - before[row]) * WRAP
        shift = np.zeros(len(self.sm), np.int64)
        late = lost_oldest & self.finished
        if late.any():  # a ring lost its oldest records: place its last one just before finish
            last = np.zeros(len(self.sm), np.int64)
            np.maximum.at(last, row, elapsed)
            shift[late] = (self.finish_ticks - self.init_ticks - last)[late] // WRAP * WRAP
        elapsed += (self.init_ticks + shift)[row]
        return elapsed

    def _look_outside(self, end: NDArray[np.int64], row: NDArray[np.int64]) -> None:
        """See which slots' last records ended before init or after finish, which none can."""
        last = np.flatnonzero(np.r_[row[1:] != row[:-1], np.ones(min(1, len(row)), bool)])
        slot, end = row[last], end[last]
        outside = end < self.init_ticks[slot] - SLACK
        outside |= self.finished[slot] & (end > self.finish_ticks[slot] + SLACK)
        self.outside[slot[outside]] = True

    def _to_ns(self, ticks: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.axis is not None:
            placed = self.axis.to_ns(self.sm[row], ticks)
        else:
            placed = ticks + (self.init_ns - self.init_ticks)[row]
        return np.maximum(placed, 0, out=placed)

    def slot_start(self) -> NDArray[np.int64]:
        """Return when each slot's init ran."""
        return self._to_ns(self.init_ticks, np.arange(len(self.sm)))

    def slot_end(self) -> NDArray[np.int64]:
        """Return when each slot's finish ran; its init where it never did."""
        ticks = np.where(self.finished, self.finish_ticks, self.init_ticks)
        return self._to_ns(ticks, np.arange(len(self.sm)))

    def rates(
        self, slot_start: NDArray[np.int64], slot_end: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return ns per tick of each slot, from its init to its finish."""
        ticks = np.where(self.finished, self.finish_ticks - self.init_ticks, 0)
        known = ticks > 0
        spans = (slot_end - slot_start)[known] / ticks[known]
        rates = np.full(len(ticks), self.fit.ns_per_tick)
        rates[known] = spans
        return rates

    def notes(self, advertised: bool) -> list[str]:
        """Tell what the clock can't; ``advertised`` is whether the device names a rate."""
        notes = []
        if self.backwards.any():
            notes.append(
                f"the clocks of {np.count_nonzero(self.backwards)} warps ran backwards from init "
                "to finish: when these finished is not known"
            )
        if self.outside.any():
            notes.append(
                f"the last records of {np.count_nonzero(self.outside)} warps ended before init or "
                "after finish: something else wrote to the segment, or they recorded after "
                "ikp.finish"
            )
        if self.axis is not None and self.axis.torn:
            notes.append(
                f"{self.axis.torn} clock anchors left out: no clock can go so far from the others "
                "(a warp was put aside between its two clock reads, or they were overwritten)"
            )
        late = self.finished & (self.finish_ticks - self.init_ticks >= WRAP)
        late &= self.clock.bits == abi.WORD_BITS
        long = int(np.count_nonzero(late | self.turned))
        if long:
            wide = "globaltimer64" if self.clock is ClockKind.GLOBALTIMER else "cycles64"
            seconds = WRAP * self.fit.ns_per_tick / 1e9
            notes.append(
                f"{long} warps ran longer than the 32-bit clock's {seconds:.2f} s: a single "
                "range or a gap between records longer than that is shown short by a multiple of "
                f"it; ikp.profile(clock={wide!r}) records all 64 bits"
            )
        if self.fit.rate == "nominal" and len(self.sm):
            notes.append(
                "too few clock anchors, or too close together, to fit the clock's rate: "
                f"{1 / self.fit.ns_per_tick:.2f} GHz is taken, "
                + ("as the device advertises" if advertised else "which is a guess")
            )
        return notes
