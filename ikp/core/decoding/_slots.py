"""Which warps of some launches came, as the headers of their slots say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import ClockKind, OverflowMode, Rows, SlotState
from ikp.core.decoding.excerpt import Ints, Memory, has_tail, is_used, slot_heads
from ikp.core.decoding.launch_header import Layout, Source, grid_id


@dataclass(frozen=True, slots=True)
class Used:
    """The slots that some launches of one clock and one mode initialised, launch by launch."""

    sources: Sequence[Source]
    layouts: Sequence[Layout]
    memories: Sequence[Memory]
    heads: Rows
    launch: Ints  # by slot, index into the three above
    ids: Ints  # by slot, its number in its segment
    bounds: Ints  # by launch, its first slot; one more at the end
    finished: NDArray[np.bool_]
    capacity: Ints  # by slot: records that it can get
    fresh: NDArray[np.bool_]  # by slot: all is zero where the launch didn't write
    # By launch: what its notes tell.
    tail: NDArray[np.bool_]  # there is something behind the last slot
    corrupt: Ints  # slots with headers that can't be this launch's
    absent: Ints  # slots whose warp never came

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def ring(self) -> bool:
        """Whether a full slot keeps its latest records."""
        return self.layouts[0].overflow is OverflowMode.WRAP

    @property
    def summed(self) -> bool:
        """Whether the records are totals."""
        return self.layouts[0].summed

    @property
    def clock(self) -> ClockKind:
        """What the records' times count."""
        return self.layouts[0].clock

    @property
    def base(self) -> NDArray[np.uint32] | NDArray[np.uint64]:
        """The clock word at init, by slot."""
        name = "init_ns" if self.clock.unit is ClockKind.GLOBALTIMER else "init_clock"
        word: NDArray[np.uint32] | NDArray[np.uint64]
        word = self.heads[name].astype(f"<u{self.clock.bits // 8}")
        return word

    def count(self, chosen: NDArray[np.bool_]) -> Ints:
        """Return how many of the chosen slots each launch has."""
        return np.bincount(self.launch[chosen], minlength=len(self.layouts))

    def total(self, values: Ints) -> Ints:
        """Return the sum of a value per slot of each launch."""
        ends = np.append([0], np.cumsum(values))[self.bounds]
        return np.diff(ends)

    def parts(self, slots: Ints) -> Iterator[tuple[int, slice]]:
        """Yield the launches that have any of some slots, which ascend, and where these stand."""
        if len(self.layouts) == 1:
            yield 0, slice(0, len(slots))
            return
        launch = self.launch[slots]
        edge = np.flatnonzero(np.diff(launch)) + 1
        starts = np.append([0], edge)[: len(slots)]
        ends = np.append(edge, len(slots))[: len(starts)]
        for number, start, end in zip(
            launch[starts].tolist(), starts.tolist(), ends.tolist(), strict=True
        ):
            yield number, slice(start, end)

    def read(self, slots: Ints, position: Ints) -> Rows:
        """Return records by their slots, which ascend, and their positions there."""
        parts = [
            self.memories[launch].read(self.ids[slots[part]], position[part])
            for launch, part in self.parts(slots)
        ]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.zeros(0, self.clock.record)


def used_slots(sources: Sequence[Source], layouts: Sequence[Layout]) -> Used:
    """Return the slots that launches initialised, and what can't be theirs."""
    counts = np.array([each.slots for each in layouts])
    every = [
        slot_heads(each.data, lay, grid_id(each.head))
        for each, lay in zip(sources, layouts, strict=True)
    ]
    raw = np.ascontiguousarray(every[0] if len(every) == 1 else np.concatenate(every))
    heads: Rows = raw.view(abi.SLOT_HEADER).reshape(-1)
    launch = np.repeat(np.arange(len(layouts)), counts)
    fresh = np.array([each.fresh for each in layouts], bool)
    grids = np.array([grid_id(each.head) for each in sources], np.uint32)
    ours = is_used(heads, grids[launch])
    empty = heads["state"] == SlotState.UNUSED
    blank = np.flatnonzero(empty & fresh[launch])  # then a slot whose warp never came is all zero
    empty[blank[raw[blank].any(1)]] = False
    capacity = np.array([each.capacity for each in layouts])
    chosen = np.flatnonzero(ours)
    used, found = launch[chosen], heads[chosen]
    first = np.cumsum(counts) - counts
    bad = np.bincount(launch[~empty & ~ours], minlength=len(layouts))
    return Used(
        sources=sources,
        layouts=layouts,
        memories=[Memory(each.data, lay) for each, lay in zip(sources, layouts, strict=True)],
        heads=found,
        launch=used,
        ids=chosen - first[used],
        bounds=np.searchsorted(used, np.arange(len(layouts) + 1)),
        finished=np.asarray(found["state"] == SlotState.FINISHED),
        capacity=capacity[used],
        fresh=fresh[used],
        tail=np.array(
            [
                lay.slots > 0 and lay.fresh and has_tail(each.data, lay)
                for each, lay in zip(sources, layouts, strict=True)
            ],
            bool,
        ),
        corrupt=bad,
        absent=np.bincount(launch[empty], minlength=len(layouts)),
    )
