"""Records attempted by each warp: from its slot header, or counted where it never finished."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import ClockKind, Rows
from ikp.core.decoding.excerpt import Ints
from ikp.core.decoding.slots import Bools, Used, is_empty, is_placed

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
    unknown = np.flatnonzero(~used.finished) if not used.summed else more[:0]
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
