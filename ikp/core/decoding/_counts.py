"""How many records each warp made, as it says itself or as they show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import Kind, Rows
from ikp.core.decoding._slots import Used
from ikp.core.decoding.excerpt import Ints

_SCAN_RECORDS = 1 << 20
"""Records looked at together where counts must be read from the records."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many records the slots of some launches hold."""

    used: Used

    def attempted(self) -> tuple[Ints, Ints]:
        """Return records attempted per slot; counted from the records where finish never ran.

        Memory that no earlier launch used is zero behind a slot's records: also returns, by launch,
        the number of warps where it isn't.
        """
        used = self.used
        attempted = used.heads["attempted"].astype(np.int64)
        if used.summed:  # finish alone writes totals: others are those of an earlier launch
            attempted[~used.finished] = 0
        whole = np.flatnonzero(used.finished & used.fresh & (attempted < used.capacity))
        more = whole[self._has_more(whole, attempted[whole])]
        behind = np.bincount(used.launch[more], minlength=len(used.layouts))
        unknown = np.flatnonzero(~used.finished) if not used.summed else more[:0]
        for launch, part in used.parts(unknown):
            layout = used.layouts[launch]
            step = max(1, _SCAN_RECORDS // max(1, layout.capacity))
            mine = unknown[part]
            for i in range(0, len(mine), step):
                chosen = mine[i : i + step]
                records = self._whole(chosen, layout.capacity)
                attempted[chosen] = self._count(records, chosen, layout.capacity, layout.fresh)
                behind[launch] += _gaps(records) if layout.fresh else 0
        return attempted, behind

    def _has_more(self, slots: Ints, attempted: Ints) -> NDArray[np.bool_]:
        """Tell in which slots there is a record just behind those that finish counted."""
        return ~is_empty(self.used.read(slots, attempted))

    def _whole(self, slots: Ints, capacity: int) -> Rows:
        """Return all records of some slots of one launch, and what is behind them, a row each."""
        position = np.tile(np.arange(capacity), len(slots))
        return self.used.read(np.repeat(slots, capacity), position).reshape(len(slots), capacity)

    def _count(self, records: Rows, chosen: Ints, capacity: int, fresh: bool) -> Ints:
        """Count the leading records of slots; a full ring counts past its seam, to be put in order.

        Within a launch records end in order. So where the clock steps back is a ring's seam, or
        where the records of an earlier launch begin.
        """
        if not capacity:
            return np.zeros(len(chosen), np.int64)
        empty = records["tag"] == 0
        count = np.where(empty.any(1), empty.argmax(1), capacity)
        placed = is_placed(records["tag"]).any(1)
        if placed.any():  # up to the last that is there, with holes
            last = capacity - (~empty[:, ::-1]).argmax(1)
            return np.asarray(np.where(placed, last, count))
        if not self.used.ring and fresh:
            return np.asarray(count)
        base = self.used.base[chosen][:, None]
        step = np.diff(records["end"], axis=1, prepend=base)
        back: NDArray[np.bool_] = step >= 1 << (self.used.clock.bits - 1)
        back &= np.arange(capacity) < count[:, None]
        elapsed = records["end"] - base
        fall = np.zeros(records.shape, bool)
        fall[:, 1:] = elapsed[:, 1:] < elapsed[:, :-1]
        if not fresh:
            seam = np.where(back.any(1), back.argmax(1), count)
            # Records behind the seam are a ring's older ones if they lie after init.
            at_seam = fall[np.arange(len(seam)), np.minimum(seam, capacity - 1)]
            older = (count == capacity) & at_seam
            return np.asarray(np.where(self.used.ring & older, seam + count, seam))
        back[:, 0] = False  # late, but not a seam
        back = np.where(back.any(1, keepdims=True), back, fall)  # a long ring spans half a turn
        return np.asarray(count + np.where(count == capacity, back.argmax(1), 0))


def _gaps(records: Rows) -> int:
    """Count slots in which something stands behind no record, though no index was given."""
    tag = records["tag"]
    ended = np.logical_or.accumulate(tag == 0, axis=1)
    behind = (ended & ~is_empty(records)).any(1)
    return int(np.count_nonzero(behind & ~is_placed(tag).any(1)))


def is_empty(records: Rows) -> NDArray[np.bool_]:
    """Tell where nothing was ever written."""
    words = np.ascontiguousarray(records).view("<u8")
    return np.asarray(~words.reshape(*records.shape, records.dtype.itemsize // 8).any(-1))


def is_placed(tag: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Tell which records stand at an index that the kernel gave."""
    kind = tag >> abi.KIND_SHIFT
    return np.asarray((kind == Kind.PLACED_RANGE) | (kind == Kind.PLACED_INSTANT))
