"""What a viewer must know of a trace before it shows it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ikp.core.trace import Launch, Slots
from ikp.exporters.timeline.blocks import find_blocks

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Head:
    """The launches, and of each warp of each block when it ran and where. Times are Unix ns."""

    launches: tuple[Launch, ...]
    launch: Ints
    lane: Ints  # of a launch and an SM, on which blocks follow each other: any numbers
    block: Ints
    sm: Ints
    start_ns: Ints
    end_ns: Ints

    @classmethod
    def of(cls, launches: tuple[Launch, ...], slots: Slots) -> Head:
        """Return that of a trace's slots."""
        _, lane = find_blocks(slots, slots.start_ns, np.maximum(slots.start_ns, slots.end_ns))
        columns = (slots.launch, lane, slots.block, slots.sm, slots.start_ns, slots.end_ns)
        return cls(launches, *(column.astype(np.int64) for column in columns))
