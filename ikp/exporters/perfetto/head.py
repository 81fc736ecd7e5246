"""``Head``: the launches of a trace, and when and where each warp ran, without its events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ikp.core.trace import Launch, Slots, no_slots
from ikp.core.warps import ordered_warps
from ikp.exporters.timeline.blocks import find_blocks

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Head:
    """The launches, and when and where each warp of each block ran. Times are Unix ns.

    Warps are in the order of slots, and behind them those that left no records.
    """

    launches: tuple[Launch, ...]
    slots: int  # so many of the warps may have left records
    launch: Ints
    lane: Ints  # the CTA slot of a launch and an SM, where blocks follow each other: any numbers
    block: Ints
    sm: Ints
    start_ns: Ints
    end_ns: Ints

    @classmethod
    def of(cls, launches: tuple[Launch, ...], slots: Slots, others: Slots | None = None) -> Head:
        """Return the head of a trace's slots, and of the warps that left no records."""
        every, place = ordered_warps(slots, others or no_slots())
        _, lane = find_blocks(every, every.start_ns, np.maximum(every.start_ns, every.end_ns))
        columns = (every.launch, lane, every.block, every.sm, every.start_ns, every.end_ns)
        return cls(launches, len(slots), *(column[place].astype(np.int64) for column in columns))
