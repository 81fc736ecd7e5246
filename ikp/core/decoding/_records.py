"""Records of some slots: how many each warp attempted, and the sound ones, chunk by chunk.

A slot header has the number of attempted records. Where a warp never finished, its records are
counted. Region and role ids in records get small numbers (``Codes``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import REGION_MASK, ClockKind, Kind, Rows
from ikp.core.decoding.launch_header import Ints
from ikp.core.decoding.slots import MAX_CLOCK, Bools, Used, is_empty, is_placed
from ikp.core.rows import find_sound
from ikp.core.trace import Column

ID_BITS = REGION_MASK.bit_length()
_HASH_BITS = 14
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Codes:
    """Codes of region or role ids, one for each distinct key, in the order in which keys come.

    A key is an id together with the name table that it belongs to. Keys are few: a hash table finds
    them several times faster than a search does.
    """

    def __init__(self) -> None:
        self.seen = np.zeros(0, np.uint64)  # by code
        self._slots = np.zeros(1 << _HASH_BITS, np.int32)

    def parts(self) -> NDArray[np.uint64]:
        """Return the hash table as ``plain.c`` takes it; valid as long as no new key comes."""
        places = [self._slots.ctypes.data, self.seen.ctypes.data, len(self.seen)]
        return np.array([*places, _FACTOR, 64 - _HASH_BITS], np.uint64)

    def of(self, tables: Ints | int, numbers: NDArray[np.uint32]) -> NDArray[np.int32]:
        """Return the code of each number in its table, new ones for those not seen before."""
        key = numbers.astype(np.uint64)
        if isinstance(tables, int):
            key |= np.uint64(tables << ID_BITS)
        else:
            key |= tables.astype(np.uint64) << np.uint64(ID_BITS)
        if not len(key):
            return np.zeros(0, np.int32)
        if len(key) > 1 and (key == key[0]).all():
            return np.repeat(self._of(key[:1]), len(key))
        return self._of(key)

    def _of(self, key: NDArray[np.uint64]) -> NDArray[np.int32]:
        code: NDArray[np.int32] = self._slots[self._hash(key)]
        if len(self.seen) and (self.seen[code] == key).all():
            return code
        distinct, which = np.unique(key, return_inverse=True)
        new = distinct[~np.isin(distinct, self.seen)]
        self._slots[self._hash(new)] = len(self.seen) + np.arange(len(new), dtype=np.int32)
        self.seen = np.append(self.seen, new)
        order = np.argsort(self.seen).astype(np.int32)
        place = order[np.searchsorted(self.seen[order], distinct)]
        found: NDArray[np.int32] = place[which.reshape(-1)]
        return found

    @staticmethod
    def _hash(key: NDArray[np.uint64]) -> NDArray[np.intp]:
        found: NDArray[np.intp] = ((key * _FACTOR) >> np.uint64(64 - _HASH_BITS)).astype(np.intp)
        return found


_SCAN_RECORDS = 1 << 20
"""Records examined together where they must be counted."""


def count_attempted(used: Used) -> tuple[Ints, Ints]:
    """Return records attempted per slot; counted from the records where finish never ran.

    Memory that no earlier launch used is zero behind a slot's records. Also return, by launch,
    the number of warps for which it is not.
    """
    attempted = used.heads["attempted"].astype(np.int64)
    if used.summed:  # finish alone writes totals: others are those of an earlier launch
        attempted[~used.finished] = 0
    whole = np.flatnonzero(used.finished & used.fresh & (attempted < used.capacity))
    more = whole[~is_empty(used.read(whole, attempted[whole]))]
    behind = np.bincount(used.launch[more], minlength=len(used.layouts))
    counted = used.summed or used.stream
    unknown = more[:0] if counted else np.flatnonzero(~used.finished)
    for launch, part in used.parts(unknown):
        layout = used.layouts[launch]
        step = max(1, _SCAN_RECORDS // max(1, layout.capacity))
        mine = unknown[part]
        for i in range(0, len(mine), step):
            chosen = mine[i : i + step]
            records = _whole(used, chosen, layout.capacity)
            attempted[chosen] = _count(used, records, chosen, layout.fresh)
            behind[launch] += _gaps(records) if layout.fresh else 0
    return attempted, behind


def _whole(used: Used, slots: Ints, capacity: int) -> Rows:
    """Return the whole capacity of some slots of one launch, records or not, a row per slot."""
    position = np.tile(np.arange(capacity), len(slots))
    return used.read(np.repeat(slots, capacity), position).reshape(len(slots), capacity)


def _count(used: Used, records: Rows, chosen: Ints, fresh: bool) -> Ints:
    """Count the leading records of slots; a full ring counts past its seam, to be put in order.

    Within a launch records end in order. So a step back of the clock is a ring's seam, or the
    first record of an earlier launch.
    """
    capacity = records.shape[1]
    if not capacity:
        return np.zeros(len(chosen), np.int64)
    empty = records["tag"] == 0
    count = np.where(empty.any(1), empty.argmax(1), capacity)
    placed = is_placed(records["tag"]).any(1)
    if placed.any():  # up to the last that is there, with holes
        last = capacity - (~empty[:, ::-1]).argmax(1)
        return np.asarray(np.where(placed, last, count))
    if not used.ring and fresh:
        return np.asarray(count)
    base = init_word(used)[chosen][:, None]
    step = np.diff(records["end"], axis=1, prepend=base)
    back: Bools = step >= 1 << (used.clock.bits - 1)
    back &= np.arange(capacity) < count[:, None]
    elapsed = records["end"] - base
    fall = np.zeros(records.shape, bool)
    fall[:, 1:] = elapsed[:, 1:] < elapsed[:, :-1]
    if not fresh:
        seam = np.where(back.any(1), back.argmax(1), count)
        # Records behind the seam are a ring's older ones if they lie after init.
        at_seam = fall[np.arange(len(seam)), np.minimum(seam, capacity - 1)]
        older = (count == capacity) & at_seam
        return np.asarray(np.where(used.ring & older, seam + count, seam))
    back[:, 0] = False  # late, but not a seam
    back = np.where(back.any(1, keepdims=True), back, fall)  # a long ring spans half a clock wrap
    return np.asarray(count + np.where(count == capacity, back.argmax(1), 0))


def init_word(used: Used) -> NDArray[np.uint32] | NDArray[np.uint64]:
    """Return the clock word at init, by slot."""
    name = "init_ns" if used.unit is ClockKind.GLOBALTIMER else "init_clock"
    word: NDArray[np.uint32] | NDArray[np.uint64]
    word = used.heads[name].astype(f"<u{used.clock.bits // 8}")
    return word


def _gaps(records: Rows) -> int:
    """Count slots with data behind an empty record, though no record's index was given."""
    tag = records["tag"]
    ended = np.logical_or.accumulate(tag == 0, axis=1)
    behind = (ended & ~is_empty(records)).any(1)
    return int(np.count_nonzero(behind & ~is_placed(tag).any(1)))


CHUNK_RECORDS = 1 << 13
"""Records decoded together: so few that temporary arrays stay in a core's cache."""


@dataclass(frozen=True, slots=True)
class RecordChunk:
    """The records of consecutive slots, slot by slot, within each in the order of recording."""

    slots: slice  # in Used
    records: Rows  # without corrupt ones
    row: Ints  # the slot of each, counted from the chunk's first
    kept: Ints  # by slot: the number of records
    beside: Ints  # by slot: ranges of whole warps, less indices that the kernel gave nothing
    corrupt: Ints  # by slot: how many records were left out
    kinds: NDArray[np.uint32]  # of each record: RANGE for PLACED_RANGE, and so on


def in_chunks(used: Used, reached: Ints) -> Iterator[slice]:
    """Yield a few consecutive slots at a time; or one that holds more than a chunk.

    Args:
        used: the slots of some launches.
        reached: by slot: records attempted; with given indices, one more than the largest.
    """
    kept = np.minimum(reached, used.capacity)
    cost = kept + 1  # a slot without records takes time, too, and may have a whole-warp range
    number = (np.cumsum(cost) - cost) // CHUNK_RECORDS
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(kept)]
    for start, end in pairwise(edges):
        if start < end:
            yield slice(start, end)


def read_chunk(used: Used, slots: slice, reached: Ints) -> RecordChunk:
    """Return the sound records of some slots."""
    capacity, reached = used.capacity[slots], reached[slots]
    kept = np.minimum(reached, capacity)
    row = np.repeat(np.arange(len(kept)), kept)
    position = np.arange(len(row))
    position -= (np.cumsum(kept) - kept)[row]
    if used.ring:
        oldest = np.where(reached > capacity, reached % np.maximum(capacity, 1), 0)
        position = (position + oldest[row]) % capacity[row]
    records = used.read(row + slots.start, position)
    nothing = np.zeros(len(kept), np.int64)
    kinds: Column = records["tag"] >> abi.KIND_SHIFT
    if not used.summed and used.clock.bits == abi.WORD_BITS and (kinds == Kind.RANGE).all():
        chunk = RecordChunk(slots, records, row, kept, nothing, nothing, kinds)
    else:
        chunk = _sifted(
            used, RecordChunk(slots, records, row, kept, nothing, nothing, kinds), reached
        )
    if any(layout.whole for layout in used.layouts):
        chunk = _with_whole(chunk, used)
    return chunk


def _sifted(used: Used, chunk: RecordChunk, reached: Ints) -> RecordChunk:
    """Return a chunk without corrupt records, and with placed records in the order of time."""
    slots, records, row, kept = chunk.slots, chunk.records, chunk.row, chunk.kept
    placed, holes = np.zeros(len(kept), bool), np.zeros(len(kept), np.int64)
    placed[row[is_placed(records["tag"])]] = True
    kinds = chunk.kinds
    if placed.any():
        empty = placed[row] & is_empty(records)
        holes = np.bincount(row[empty], minlength=len(kept))
        kinds = _plain_kinds(kinds)
    good = _sound(records, kinds, used.summed)
    hole = placed[row] & is_empty(records)
    last = np.cumsum(kept)[(kept > 0) & (reached <= used.capacity[slots])] - 1
    hole[last] = False  # the count ends with the record of the largest index
    corrupt = np.bincount(row[~good & ~hole], minlength=len(kept))
    if not good.all():
        records, row, kinds = records[good], row[good], kinds[good]
        kept = np.bincount(row, minlength=len(kept))
    if placed.any():
        elapsed = np.where(placed[row], records["end"] - init_word(used)[slots][row], 0)
        order = np.lexsort((elapsed, row))
        records, kinds = records[order], kinds[order]
    return RecordChunk(slots, records, row, kept, -holes, corrupt, kinds)


def _sound(records: Rows, kinds: NDArray[np.uint32], summed: bool) -> Bools:
    """Return which records a kernel can have written: of known kinds, and no instants that last.

    Records of a 64-bit clock must also have a plausible time, and not end before they start.
    """
    if summed:
        return find_sound(records)
    good = (kinds == Kind.RANGE) | ((kinds == Kind.INSTANT) & (records["start"] == records["end"]))
    if records.dtype == abi.WIDE_RECORD:
        good &= (records["start"] <= records["end"]) & (records["end"] < MAX_CLOCK)
    return np.asarray(good)


def _with_whole(chunk: RecordChunk, used: Used) -> RecordChunk:
    """Add each warp's whole-warp range, from its init to its finish, behind its records."""
    slots, kept = chunk.slots, chunk.kept
    rows, made = whole_lives(used, slots)
    at, more = np.cumsum(kept)[rows], np.bincount(rows, minlength=len(kept))
    return RecordChunk(
        slots=slots,
        records=np.insert(chunk.records, at, made),
        row=np.insert(chunk.row, at, rows),
        kept=kept + more,
        beside=chunk.beside + more,
        corrupt=chunk.corrupt,
        kinds=np.insert(chunk.kinds, at, np.uint32(Kind.RANGE)),
    )


def whole_lives(used: Used, slots: slice) -> tuple[Ints, Rows]:
    """Return which of some slots have a whole-warp range, and these ranges as records."""
    unit = "ns" if used.unit is ClockKind.GLOBALTIMER else "clock"
    start, end = used.heads[f"init_{unit}"][slots], used.heads[f"finish_{unit}"][slots]
    region = np.array([layout.whole for layout in used.layouts], np.uint32)[used.launch[slots]]
    rows = np.flatnonzero(used.finished[slots] & (start <= end) & (region > 0))
    made = np.zeros(len(rows), used.clock.record)
    made["tag"] = abi.tag(Kind.RANGE, abi.PayloadType.NONE, 0) | region[rows]
    mask = (1 << used.clock.bits) - 1
    made["start"], made["end"] = start[rows] & mask, end[rows] & mask
    return rows, made


def _plain_kinds(kind: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return kinds with those of placed records replaced: PLACED_RANGE by RANGE."""
    for plain, placed in abi.PLACED.items():
        kind = np.where(kind == placed, np.uint32(plain), kind)
    return kind
