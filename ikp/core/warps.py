"""All warps of a trace in one table, and by them each launch's start and end, or a launch alone.

CTA slots, waves and the duration of a launch concern all warps, not only those with records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from ikp.core.rows import take_events
from ikp.core.sorting import distinct
from ikp.core.trace import Launch, Slots, Trace

Ints = NDArray[np.int64]


def launch_bounds(trace: Trace) -> tuple[Ints, Ints]:
    """Return when the first warp of each launch began, and when the last one ended, in ns.

    All warps of known times count, whether or not they recorded. A launch without such warps ends
    before it starts: ``end >= start`` holds for the launches that have any.
    """
    count = len(trace.launches)
    start = np.full(count, np.iinfo(np.int64).max)
    end = np.full(count, np.iinfo(np.int64).min)
    for warps in (trace.slots, trace.others):
        np.minimum.at(start, warps.launch, warps.start_ns)
        np.maximum.at(end, warps.launch, np.maximum(warps.start_ns, warps.end_ns))
    return start, end


Places = NDArray[np.intp]


def take_warps(table: Slots, rows: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Slots:
    """Return some rows of a table of warps."""
    return Slots(*(getattr(table, name)[rows] for name in Slots.__slots__))


def joined_warps(tables: list[Slots]) -> Slots:
    """Return the rows of some tables, one after another."""
    return Slots(*(np.concatenate([getattr(one, n) for one in tables]) for n in Slots.__slots__))


def all_warps(trace: Trace) -> tuple[Slots, Places]:
    """Return all warps, and the row of each of the trace's slots among them."""
    every, place = ordered_warps(trace.slots, trace.others)
    return every, place[: len(trace.slots)]


def ordered_warps(slots: Slots, others: Slots) -> tuple[Slots, Places]:
    """Return all warps, and the row among them of each slot, and then of each of the others.

    Where every warp has a slot, the result is ``slots`` itself; else it is in the order of
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
    """Return the start of the first warp, the zero of viewers' axes; 0 where none ran."""
    return min((int(t.start_ns.min()) for t in (trace.slots, trace.others) if len(t)), default=0)


@dataclass(frozen=True, slots=True)
class Seen:
    """Counts of a launch's blocks and warps: those with known times, and all of them.

    A kernel may start further warps than it is launched with; they are not counted.
    """

    blocks: int
    of_blocks: int
    warps: int
    of_warps: int

    @property
    def every_block(self) -> bool:
        """Whether the times of all blocks are known."""
        return self.blocks >= self.of_blocks

    @property
    def every_warp(self) -> bool:
        """Whether the times of all warps are known."""
        return self.every_block and self.warps >= self.of_warps


def seen_warps(launches: tuple[Launch, ...], every: Slots) -> list[Seen]:
    """Return of each launch how many of its blocks and warps are among ``every``."""
    if not len(every):
        blocks = warps = np.zeros(len(launches), np.int64)
    else:
        _, one = distinct(every.launch, every.block)
        per_block = np.array([launch.warps_per_block for launch in launches])
        counted = every.launch[every.warp < per_block[every.launch]]
        blocks = np.bincount(every.launch[one], minlength=len(launches))
        warps = np.bincount(counted, minlength=len(launches))
    return [
        Seen(there, prod(launch.grid), ran, prod(launch.grid) * launch.warps_per_block)
        for launch, there, ran in zip(launches, blocks.tolist(), warps.tolist(), strict=True)
    ]


def launch_alone(trace: Trace, index: int) -> Trace:
    """Return a trace of one launch, its slots numbered anew."""
    chosen = trace.slots.launch == index
    launches, others = (trace.launches[index],), _alone(trace.others, index)
    slots = _alone(trace.slots, index)
    if chosen.all():
        return replace(trace, launches=launches, slots=slots, others=others)
    number = (np.cumsum(chosen) - 1).astype(np.int32)
    left = take_events(trace, np.flatnonzero(chosen[trace.events.slot]))
    events = replace(left.events, slot=number[left.events.slot])
    return replace(left, launches=launches, slots=slots, others=others, events=events)


def _alone(warps: Slots, index: int) -> Slots:
    """Return the warps of one launch, with the launch number 0."""
    mine = take_warps(warps, np.flatnonzero(warps.launch == index))
    return replace(mine, launch=np.zeros(len(mine), np.int32))
