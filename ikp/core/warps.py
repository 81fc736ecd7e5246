"""All warps of a trace: those that may have left records, and those that by choice did not.

What is said of lanes, waves and the time that a launch took concerns all of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ikp.core.trace import Slots, Trace

Places = NDArray[np.intp]


def take_warps(table: Slots, rows: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Slots:
    """Return some rows of a table of warps."""
    return Slots(*(getattr(table, name)[rows] for name in Slots.__slots__))


def joined_warps(tables: list[Slots]) -> Slots:
    """Return the rows of some tables, one after another."""
    return Slots(*(np.concatenate([getattr(one, n) for one in tables]) for n in Slots.__slots__))


def all_warps(trace: Trace) -> tuple[Slots, Places]:
    """Return all warps, and where among them each of the trace's slots stands."""
    every, place = ordered_warps(trace.slots, trace.others)
    return every, place[: len(trace.slots)]


def ordered_warps(slots: Slots, others: Slots) -> tuple[Slots, Places]:
    """Return all warps, and where among them each slot stands, and then each of the others.

    Where every warp has a slot, these are the slots as they stand; else they are in the order of
    launches, blocks and warps, which is that of slots where every warp has one.
    """
    if not len(others):
        return slots, np.arange(len(slots))
    every = joined_warps([slots, others])
    order = np.lexsort((every.warp, every.block, every.launch))
    place = np.empty(len(order), np.intp)
    place[order] = np.arange(len(order))
    return take_warps(every, order), place


def first_start(trace: Trace) -> int:
    """Return when the first warp started, from when viewers count; 0 where none ran."""
    return min((int(t.start_ns.min()) for t in (trace.slots, trace.others) if len(t)), default=0)
