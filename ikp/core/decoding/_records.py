"""What the slots of a launch hold: which warps came, and their records in order, none untrue."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import ClockKind, Kind, OverflowMode, Rows, SlotState
from ikp.core.decoding.dense import expanded
from ikp.core.decoding.launch_header import Layout, Source
from ikp.core.totals import find_sound
from ikp.core.trace import Column

_SCAN_RECORDS = 1 << 20
"""Records looked at together where counts must be read from the records."""


_MAX_SMS = 1 << 16
_MAX_CLOCK = 1 << 62
"""A century of nanoseconds or cycles: sums of a few such clocks still fit into 64 bits."""


def used_slots(source: Source, layout: Layout, notes: list[str]) -> tuple[Rows, NDArray[np.int64]]:
    """Return the headers of the slots that this launch initialised, and their indices."""
    heads = _slot_headers(source.data, layout, notes)
    state = heads["state"]
    ours = (
        ((state == SlotState.RUNNING) | (state == SlotState.FINISHED))
        & (heads["grid_id"] == layout.grid_id)
        & _plausible(heads)
    )
    empty = state == SlotState.UNUSED
    if layout.fresh:  # then a slot whose warp never came is all zero
        empty &= ~heads.view(np.uint8).reshape(-1, abi.SLOT_HEADER_BYTES).any(1)
    corrupt = int(np.count_nonzero(~empty & ~ours))
    if corrupt:
        notes.append(f"{corrupt} slots skipped: their headers are corrupt or of an earlier launch")
    unused = int(np.count_nonzero(empty))
    if unused:
        notes.append(
            f"{unused} warps never reached init (the kernel hung, failed, or exited early)"
        )
    ids = np.flatnonzero(ours)
    return heads[ids], ids


def _slot_headers(data: NDArray[np.uint8], layout: Layout, notes: list[str]) -> Rows:
    slots, slot_bytes = layout.slots, layout.slot_bytes
    if not slots:
        return np.zeros(0, abi.SLOT_HEADER)
    if layout.fresh and data[abi.LAUNCH_HEADER_BYTES + slots * slot_bytes :].any():
        notes.append(
            "there is something behind the last slot: the grid in the launch header is not the "
            "kernel's, or something else wrote to the segment"
        )
    if layout.together:
        return expanded(data[abi.LAUNCH_HEADER_BYTES :], slots, layout.grid_id)
    rows = data[abi.LAUNCH_HEADER_BYTES :][: slots * slot_bytes].reshape(slots, slot_bytes)
    heads = np.ascontiguousarray(rows[:, : abi.SLOT_HEADER_BYTES])
    return heads.view(abi.SLOT_HEADER).reshape(-1)


def _plausible(heads: Rows) -> NDArray[np.bool_]:
    """Tell which headers hold numbers that a device can have written, and columns can hold."""
    good = (heads["sm"] < _MAX_SMS) & (heads["role"] <= abi.REGION_MASK)
    for name in ("init_ns", "init_clock", "finish_ns", "finish_clock"):
        good &= heads[name] < _MAX_CLOCK
    return np.asarray(good)


@dataclass(frozen=True, slots=True)
class Kept:
    """What the slots of a launch hold, slot by slot, within each in the order of recording."""

    records: Rows  # none that can't be true
    row: NDArray[np.int64]  # the slot of each
    kept: NDArray[np.int64]  # by slot: how many these are
    attempted: NDArray[np.int64]  # by slot: how many there were, as far as known
    reached: NDArray[np.int64]  # the same, with given indices: one more than the largest
    kinds: NDArray[np.uint32]  # of each record, as it is where no index was given


def kept_records(
    source: Source, layout: Layout, heads: Rows, ids: NDArray[np.int64], notes: list[str]
) -> Kept:
    """Read what is sound in the slots with headers ``heads`` and indices ``ids``."""
    finished = heads["state"] == SlotState.FINISHED
    base = heads["init_ns" if layout.unit is ClockKind.GLOBALTIMER else "init_clock"]
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
    kinds: Column = records["tag"] >> abi.KIND_SHIFT
    if placed.any():
        kinds = _plain_kinds(kinds)
    found = Kept(records, row, kept, attempted, reached, kinds)
    return _with_whole(found, layout, heads, finished) if layout.whole else found


def _with_whole(found: Kept, layout: Layout, heads: Rows, finished: NDArray[np.bool_]) -> Kept:
    """Add the range from each warp's init to its finish, which ends last."""
    unit = "ns" if layout.unit is ClockKind.GLOBALTIMER else "clock"
    start, end = heads[f"init_{unit}"], heads[f"finish_{unit}"]
    rows = np.flatnonzero(finished & (start <= end))
    made = np.zeros(len(rows), layout.clock.record)
    made["tag"] = abi.tag(Kind.RANGE, abi.PayloadType.NONE, layout.whole)
    mask = (1 << layout.clock.bits) - 1
    made["start"], made["end"] = start[rows] & mask, end[rows] & mask
    at = np.cumsum(found.kept)[rows]
    more = np.bincount(rows, minlength=len(found.kept))
    return Kept(
        records=np.insert(found.records, at, made),
        row=np.insert(found.row, at, rows),
        kept=found.kept + more,
        attempted=found.attempted + more,
        reached=found.reached,
        kinds=np.insert(found.kinds, at, np.uint32(Kind.RANGE)),
    )


@dataclass(frozen=True, slots=True)
class Counts:
    """How many records each used slot holds, and which."""

    data: NDArray[np.uint8]
    layout: Layout
    ids: NDArray[np.int64]
    reported: NDArray[np.uint32]  # counts written by finish
    base: Column  # clock word at init

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

    def _count(self, records: Rows, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
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
        step: Column = np.diff(records["end"], axis=1, prepend=base)
        back: NDArray[np.bool_] = step >= 1 << (self.layout.clock.bits - 1)
        back &= np.arange(self.capacity) < count[:, None]
        elapsed: Column = records["end"] - base
        fall = np.zeros(records.shape, bool)
        fall[:, 1:] = elapsed[:, 1:] < elapsed[:, :-1]
        if reused:
            seam = np.where(back.any(1), back.argmax(1), count)
            # Records behind the seam are a ring's older ones if they lie after init.
            at_seam = fall[np.arange(len(seam)), np.minimum(seam, self.capacity - 1)]
            older = (count == self.capacity) & at_seam
            return np.asarray(np.where(ring & older, seam + count, seam))
        back[:, 0] = False  # late, but not a seam
        back = np.where(back.any(1, keepdims=True), back, fall)  # a long ring spans half a turn
        return np.asarray(count + np.where(count == self.capacity, back.argmax(1), 0))

    def _read(self, row: NDArray[np.int64], position: NDArray[np.int64]) -> Rows:
        """Return records of used slots, by their positions in them."""
        dtype, unit = self.layout.clock.record, abi.ALIGNMENT
        first = self.layout.first_records(self.ids)
        index = (first // unit)[row] + position * (self.layout.stride // unit)
        # A record may begin at any unit, also one of several units.
        starts = (len(self.data) - dtype.itemsize) // unit + 1
        data = np.ascontiguousarray(self.data)
        records: Rows = np.ndarray((starts,), dtype, data, strides=(unit,))
        found: Rows = records[index]
        return found

    def records(
        self, attempted: NDArray[np.int64], kept: NDArray[np.int64]
    ) -> tuple[Rows, NDArray[np.int64]]:
        """Return all kept records in order, and the row (used slot) of each."""
        row = np.repeat(np.arange(len(kept)), kept)
        position = np.arange(len(row)) - (np.cumsum(kept) - kept)[row]
        if self.layout.overflow is OverflowMode.WRAP and self.capacity:
            oldest = np.where(attempted > self.capacity, attempted % self.capacity, 0)
            position = (position + oldest[row]) % self.capacity
        return self._read(row, position), row


def _sound(
    records: Rows,
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
    kind: Column = records["tag"] >> abi.KIND_SHIFT
    if placed.any():
        kind = _plain_kinds(kind)
    good = (kind == abi.Kind.RANGE) | (
        (kind == abi.Kind.INSTANT) & (records["start"] == records["end"])
    )
    if summed:
        good = find_sound(records)
    elif records.dtype == abi.WIDE_RECORD:
        good &= (records["start"] <= records["end"]) & (records["end"] < _MAX_CLOCK)
    hole = placed[row] & _is_empty(records)
    last = np.cumsum(kept)[(kept > 0) & ~full] - 1
    hole[last] = False  # the count ends with the record of the largest index
    if bad := int(np.count_nonzero(~good & ~hole)):
        notes.append(f"{bad} corrupt records skipped: something else wrote to the segment")
    return np.asarray(good)


def _gaps(records: Rows) -> int:
    """Count slots in which something stands behind no record, though no index was given."""
    tag = records["tag"]
    ended = np.logical_or.accumulate(tag == 0, axis=1)
    behind = (ended & ~_is_empty(records)).any(1)
    return int(np.count_nonzero(behind & ~_is_placed(tag).any(1)))


def _is_empty(records: Rows) -> NDArray[np.bool_]:
    """Tell where nothing was ever written."""
    words = np.ascontiguousarray(records).view("<u8")
    return np.asarray(~words.reshape(*records.shape, records.dtype.itemsize // 8).any(-1))


def _placed_rows(records: Rows, row: NDArray[np.int64], slots: int) -> NDArray[np.bool_]:
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


def _holes(records: Rows, row: NDArray[np.int64], placed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Count, per slot, the indices below the largest that the kernel gave nothing."""
    empty = placed[row] & _is_empty(records)
    return np.bincount(row[empty], minlength=len(placed))


def _by_time(
    records: Rows,
    row: NDArray[np.int64],
    placed: NDArray[np.bool_],
    base: Column,
) -> Rows:
    """Put the records of slots with given indices in the order of their ends."""
    elapsed = np.where(placed[row], records["end"] - base[row], 0)
    return records[np.lexsort((elapsed, row))]
