"""Records of some slots, read chunk by chunk: corrupt ones left out, in the order of recording."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import ClockKind, Kind, Rows
from ikp.core.decoding._counting import init_word
from ikp.core.decoding.excerpt import Ints
from ikp.core.decoding.slots import MAX_CLOCK, Bools, Used, is_empty, is_placed
from ikp.core.totals import find_sound
from ikp.core.trace import Column

CHUNK_RECORDS = 1 << 13
"""Records decoded together: so few that temporary arrays stay in a core's cache."""


@dataclass(frozen=True, slots=True)
class Chunk:
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


def read_chunk(used: Used, slots: slice, reached: Ints) -> Chunk:
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
        chunk = Chunk(slots, records, row, kept, nothing, nothing, kinds)
    else:
        chunk = _sifted(used, Chunk(slots, records, row, kept, nothing, nothing, kinds), reached)
    if any(layout.whole for layout in used.layouts):
        chunk = _with_whole(chunk, used)
    return chunk


def _sifted(used: Used, chunk: Chunk, reached: Ints) -> Chunk:
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
    return Chunk(slots, records, row, kept, -holes, corrupt, kinds)


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


def _with_whole(chunk: Chunk, used: Used) -> Chunk:
    """Add each warp's whole-warp range, from its init to its finish, behind its records."""
    slots, kept = chunk.slots, chunk.kept
    rows, made = whole_lives(used, slots)
    at, more = np.cumsum(kept)[rows], np.bincount(rows, minlength=len(kept))
    return Chunk(
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
