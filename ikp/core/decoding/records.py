"""The records of slots: how many there are, in their order, without what can't be true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import ClockKind, Kind, OverflowMode
from ikp.core.decoding.slots import MAX_CLOCK
from ikp.core.totals import find_sound

SCAN_RECORDS = 1 << 20
"""Records looked at together where counts must be read from the records."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many records each used slot holds, and which."""

    data: NDArray[np.uint8]
    ids: NDArray[np.int64]
    reported: NDArray[np.uint32]  # counts written by finish
    base: NDArray[np.unsignedinteger[Any]]  # clock word at init
    slot_bytes: int
    capacity: int
    overflow: OverflowMode
    summed: bool
    clock: ClockKind

    def attempted(
        self, finished: NDArray[np.bool_], reused: bool, notes: list[str]
    ) -> NDArray[np.int64]:
        """Return records attempted per slot; counted from the records where finish never ran.

        Memory that no earlier launch used is zero behind a slot's records: tell where it isn't.
        """
        attempted = self.reported.astype(np.int64)
        if self.summed:  # finish alone writes totals: others are those of an earlier launch
            attempted = np.where(finished, attempted, 0)
        more = 0 if reused else self._with_more(np.flatnonzero(finished), attempted)
        unknown = np.flatnonzero(~finished & (not self.summed))
        step = max(1, SCAN_RECORDS // max(1, self.capacity))
        for i in range(0, len(unknown), step):
            chosen = unknown[i : i + step]
            records = self._read(chosen[:, None], np.arange(self.capacity))
            attempted[chosen] = self._count(records, chosen, reused)
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

    def _count(self, records: Any, chosen: NDArray[np.int64], reused: bool) -> NDArray[np.int64]:
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
        ring = self.overflow is OverflowMode.WRAP
        if not (ring or reused):
            return np.asarray(count)
        base = self.base[chosen][:, None]
        step = np.diff(records["end"], axis=1, prepend=base)
        back = (step >= 1 << (self.clock.bits - 1)) & (np.arange(self.capacity) < count[:, None])
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
        dtype, unit = self.clock.record, abi.ALIGNMENT
        first = abi.LAUNCH_HEADER_BYTES + self.ids * self.slot_bytes + abi.SLOT_HEADER_BYTES
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
        if self.overflow is OverflowMode.WRAP and self.capacity:
            oldest = np.where(attempted > self.capacity, attempted % self.capacity, 0)
            position = (position + oldest[row]) % self.capacity
        return self._read(row, position), row


def sound_only(
    records: Any,
    row: NDArray[np.int64],
    kept: NDArray[np.int64],
    placed: NDArray[np.bool_],
    full: NDArray[np.bool_],
    summed: bool,
    notes: list[str],
) -> tuple[Any, NDArray[np.int64], NDArray[np.int64]]:
    """Drop records that no kernel can have written: unknown kinds, instants that last.

    Of 64-bit clocks, also times that no device shows, and ranges that end before they start.
    """
    kind = records["tag"] >> abi.KIND_SHIFT
    if placed.any():
        kind = plain_kinds(kind)
    good = (kind == abi.Kind.RANGE) | (
        (kind == abi.Kind.INSTANT) & (records["start"] == records["end"])
    )
    if summed:
        good = find_sound(records)
    elif records.dtype == abi.WIDE_RECORD:
        good &= (records["start"] <= records["end"]) & (records["end"] < MAX_CLOCK)
    if good.all():
        return records, row, kept
    hole = placed[row] & _is_empty(records)
    last = np.cumsum(kept)[(kept > 0) & ~full] - 1
    hole[last] = False  # the count ends with the record of the largest index
    if bad := int(np.count_nonzero(~good & ~hole)):
        notes.append(f"{bad} corrupt records skipped: something else wrote to the segment")
    return records[good], row[good], np.bincount(row[good], minlength=len(kept))


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


def placed_rows(records: Any, row: NDArray[np.int64], slots: int) -> NDArray[np.bool_]:
    """Tell which slots hold records at indices that the kernel gave."""
    placed = np.zeros(slots, bool)
    placed[row[_is_placed(records["tag"])]] = True
    return placed


def _is_placed(tag: NDArray[np.uint32]) -> NDArray[np.bool_]:
    kind = tag >> abi.KIND_SHIFT
    return np.asarray((kind == Kind.PLACED_RANGE) | (kind == Kind.PLACED_INSTANT))


def plain_kinds(kind: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return kinds as they are where no index was given."""
    for plain, placed in abi.PLACED.items():
        kind = np.where(kind == placed, np.uint32(plain), kind)
    return kind


def holes(records: Any, row: NDArray[np.int64], placed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Count, per slot, the indices below the largest that the kernel gave nothing."""
    empty = placed[row] & _is_empty(records)
    return np.bincount(row[empty], minlength=len(placed))


def by_time(
    records: Any,
    row: NDArray[np.int64],
    placed: NDArray[np.bool_],
    base: NDArray[np.unsignedinteger[Any]],
) -> Any:
    """Put the records of slots with given indices in the order of their ends."""
    elapsed = np.where(placed[row], records["end"] - base[row], 0)
    return records[np.lexsort((elapsed, row))]
