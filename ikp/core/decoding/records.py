"""The records of slots: how many there are, in their order, without what can't be true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import ClockKind, Kind, OverflowMode, SlotState
from ikp.core.decoding.launch_header import Layout, Source
from ikp.core.decoding.slots import MAX_CLOCK
from ikp.core.totals import find_sound

_SCAN_RECORDS = 1 << 20
"""Records looked at together where counts must be read from the records."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What the slots of a launch hold, slot by slot, within each in the order of recording."""

    records: Any  # none that can't be true
    row: NDArray[np.int64]  # the slot of each
    kept: NDArray[np.int64]  # by slot: how many these are
    attempted: NDArray[np.int64]  # by slot: how many there were, as far as known
    reached: NDArray[np.int64]  # the same, with given indices: one more than the largest
    placed: NDArray[np.bool_]  # by slot: whether the kernel gave indices

    @property
    def kinds(self) -> NDArray[np.uint32]:
        """The kind of each record, as it is where no index was given."""
        kind: NDArray[np.uint32] = self.records["tag"] >> abi.KIND_SHIFT
        return _plain_kinds(kind) if self.placed.any() else kind


def kept_records(
    source: Source, layout: Layout, heads: Any, ids: NDArray[np.int64], notes: list[str]
) -> Kept:
    """Read what is sound in the slots with headers ``heads`` and indices ``ids``."""
    finished = heads["state"] == SlotState.FINISHED
    base = heads["init_ns" if layout.clock.unit is ClockKind.GLOBALTIMER else "init_clock"]
    base = base.astype(f"<u{layout.clock.bits // 8}")
    counts = Counts(source.data, layout, ids, heads["attempted"], base)
    attempted = reached = counts.attempted(finished, notes)
    kept = np.minimum(reached, layout.capacity)
    records, row = counts.records(reached, kept)
    placed = _placed_rows(records, row, len(kept))
    if placed.any():
        attempted = attempted - _holes(records, row, placed)
    good = _sound(records, row, kept, placed, reached > layout.capacity, layout.summed, notes)
    if not good.all():
        records, row = records[good], row[good]
        kept = np.bincount(row, minlength=len(kept))
    if placed.any():
        records = _by_time(records, row, placed, base)
    return Kept(records, row, kept, attempted, reached, placed)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many records each used slot holds, and which."""

    data: NDArray[np.uint8]
    layout: Layout
    ids: NDArray[np.int64]
    reported: NDArray[np.uint32]  # counts written by finish
    base: NDArray[np.unsignedinteger[Any]]  # clock word at init

    @property
    def capacity(self) -> int:
        """How many records a slot can get."""
        return self.layout.capacity

    def attempted(self, finished: NDArray[np.bool_], notes: list[str]) -> NDArray[np.int64]:
        """Return records attempted per slot; counted from the records where finish never ran.

        Memory that no earlier launch used is zero behind a slot's records: tell where it isn't.
        """
        attempted, reused = self.reported.astype(np.int64), not self.layout.fresh
        if self.layout.summed:  # finish alone writes totals: others are those of an earlier launch
            attempted = np.where(finished, attempted, 0)
        more = 0 if reused else self._with_more(np.flatnonzero(finished), attempted)
        unknown = np.flatnonzero(~finished & (not self.layout.summed))
        step = max(1, _SCAN_RECORDS // max(1, self.capacity))
        for i in range(0, len(unknown), step):
            chosen = unknown[i : i + step]
            records = self._read(chosen[:, None], np.arange(self.capacity))
            attempted[chosen] = self._count(records, chosen)
            more += 0 if reused else _gaps(records)
        if more:
            notes.append(
                f"{more} warps hold records behind where their count ends, which are left out: "
                "something else wrote to the segment, or they recorded after ikp.finish"
            )
        return attempted

    def _with_more(self, chosen: NDArray[np.int64], attempted: NDArray[np.int64]) -> int:
        """Count slots in which there is a record just behind those that finish counted."""
        chosen = chosen[attempted[chosen] < self.capacity]
        return int(np.count_nonzero(~_is_empty(self._read(chosen, attempted[chosen]))))

    def _count(self, records: Any, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count the leading records of slots; a full ring counts past its seam, to be put in order.

        Within a launch records end in order. So where the clock steps back is a ring's seam, or
        where the records of an earlier launch begin.
        """
        if not self.capacity:
            return np.zeros(len(chosen), np.int64)
        empty = records["tag"] == 0
        count = np.where(empty.any(1), empty.argmax(1), self.capacity)
        placed = _is_placed(records["tag"]).any(1)
        if placed.any():  # up to the last that is there, with holes
            last = self.capacity - (~empty[:, ::-1]).argmax(1)
            return np.asarray(np.where(placed, last, count))
        ring, reused = self.layout.overflow is OverflowMode.WRAP, not self.layout.fresh
        if not (ring or reused):
            return np.asarray(count)
        base = self.base[chosen][:, None]
        step = np.diff(records["end"], axis=1, prepend=base)
        back = (step >= 1 << (self.layout.clock.bits - 1)) & (
            np.arange(self.capacity) < count[:, None]
        )
        elapsed = records["end"] - base
        fall = np.zeros_like(back)
        fall[:, 1:] = elapsed[:, 1:] < elapsed[:, :-1]
        if reused:
            seam = np.where(back.any(1), back.argmax(1), count)
            # Records behind the seam are a ring's older ones if they lie after init.
            older = (count == self.capacity) & np.take_along_axis(
                fall, np.minimum(seam, self.capacity - 1)[:, None], 1
            )[:, 0]
            return np.asarray(np.where(ring & older, seam + count, seam))
        back[:, 0] = False  # late, but not a seam
        back = np.where(back.any(1)[:, None], back, fall)  # a long ring spans half a turn
        return np.asarray(count + np.where(count == self.capacity, back.argmax(1), 0))

    def _read(self, row: NDArray[np.int64], position: NDArray[np.int64]) -> Any:
        """Return records of used slots, by their positions in them."""
        dtype, unit = self.layout.clock.record, abi.ALIGNMENT
        first = abi.LAUNCH_HEADER_BYTES + self.ids * self.layout.slot_bytes + abi.SLOT_HEADER_BYTES
        index = (first // unit)[row] + position * (dtype.itemsize // unit)
        # A record may begin at any unit, also one of several units.
        starts = (len(self.data) - dtype.itemsize) // unit + 1
        records = np.ndarray((starts,), dtype, np.ascontiguousarray(self.data), strides=(unit,))
        return records[index]

    def records(
        self, attempted: NDArray[np.int64], kept: NDArray[np.int64]
    ) -> tuple[Any, NDArray[np.int64]]:
        """Return all kept records in order, and the row (used slot) of each."""
        row = np.repeat(np.arange(len(kept)), kept)
        position = np.arange(len(row)) - (np.cumsum(kept) - kept)[row]
        if self.layout.overflow is OverflowMode.WRAP and self.capacity:
            oldest = np.where(attempted > self.capacity, attempted % self.capacity, 0)
            position = (position + oldest[row]) % self.capacity
        return self._read(row, position), row


def _sound(
    records: Any,
    row: NDArray[np.int64],
    kept: NDArray[np.int64],
    placed: NDArray[np.bool_],
    full: NDArray[np.bool_],
    summed: bool,
    notes: list[str],
) -> NDArray[np.bool_]:
    """Tell which records a kernel can have written: of known kinds, and no instants that last.

    Of 64-bit clocks, also at times that a device shows, and no ranges that end before they start.
    """
    kind = records["tag"] >> abi.KIND_SHIFT
    if placed.any():
        kind = _plain_kinds(kind)
    good = (kind == abi.Kind.RANGE) | (
        (kind == abi.Kind.INSTANT) & (records["start"] == records["end"])
    )
    if summed:
        good = find_sound(records)
    elif records.dtype == abi.WIDE_RECORD:
        good &= (records["start"] <= records["end"]) & (records["end"] < MAX_CLOCK)
    hole = placed[row] & _is_empty(records)
    last = np.cumsum(kept)[(kept > 0) & ~full] - 1
    hole[last] = False  # the count ends with the record of the largest index
    if bad := int(np.count_nonzero(~good & ~hole)):
        notes.append(f"{bad} corrupt records skipped: something else wrote to the segment")
    return np.asarray(good)


def _gaps(records: Any) -> int:
    """Count slots in which something stands behind no record, though no index was given."""
    tag = records["tag"]
    ended = np.logical_or.accumulate(tag == 0, axis=1)
    behind = (ended & ~_is_empty(records)).any(1)
    return int(np.count_nonzero(behind & ~_is_placed(tag).any(1)))


def _is_empty(records: Any) -> NDArray[np.bool_]:
    """Tell where nothing was ever written."""
    words = np.ascontiguousarray(records).view("<u8")
    return np.asarray(~words.reshape(*records.shape, records.dtype.itemsize // 8).any(-1))


def _placed_rows(records: Any, row: NDArray[np.int64], slots: int) -> NDArray[np.bool_]:
    """Tell which slots hold records at indices that the kernel gave."""
    placed = np.zeros(slots, bool)
    placed[row[_is_placed(records["tag"])]] = True
    return placed


def _is_placed(tag: NDArray[np.uint32]) -> NDArray[np.bool_]:
    kind = tag >> abi.KIND_SHIFT
    return np.asarray((kind == Kind.PLACED_RANGE) | (kind == Kind.PLACED_INSTANT))


def _plain_kinds(kind: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return kinds as they are where no index was given."""
    for plain, placed in abi.PLACED.items():
        kind = np.where(kind == placed, np.uint32(plain), kind)
    return kind


def _holes(records: Any, row: NDArray[np.int64], placed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Count, per slot, the indices below the largest that the kernel gave nothing."""
    empty = placed[row] & _is_empty(records)
    return np.bincount(row[empty], minlength=len(placed))


def _by_time(
    records: Any,
    row: NDArray[np.int64],
    placed: NDArray[np.bool_],
    base: NDArray[np.unsignedinteger[Any]],
) -> Any:
    """Put the records of slots with given indices in the order of their ends."""
    elapsed = np.where(placed[row], records["end"] - base[row], 0)
    return records[np.lexsort((elapsed, row))]
