"""What of a segment the decoder looks at: its headers, and the records that warps kept.

Buffers are made for the busiest warp there may be, so most of a segment is usually empty. Where it
lies in a device's memory, only an excerpt of it is copied to the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import Rows, SlotState
from ikp.core.decoding.dense import expanded

if TYPE_CHECKING:
    from ikp.core.decoding.launch_header import Layout

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

_MAX_SMS = 1 << 16
MAX_CLOCK = 1 << 62
"""A century of nanoseconds or cycles: sums of a few such clocks still fit into 64 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class Excerpt:
    """A segment of which some records of each slot are here, and the others count as empty."""

    nbytes: int  # of the whole segment
    head: Bytes  # the launch header
    heads: Bytes  # of the slots, each in a row
    counts: Ints  # by slot: how many of its first records are here
    records: Bytes  # these, slot by slot
    tail: bool  # whether there is anything behind the last slot


def look_at(layout: Layout, heads: Rows, grid_id: int) -> Ints:
    """Return how many records of each slot tell something of a launch.

    Of a warp that finished, it is one more than it counted, where there should be nothing; of one
    that did not, all that there is room for.
    """
    finished = heads["state"] == SlotState.FINISHED
    counted = np.minimum(heads["attempted"].astype(np.int64) + 1, layout.capacity)
    counts = np.where(finished, counted, 0 if layout.summed else layout.capacity)
    return np.where(is_used(heads, grid_id), counts, 0)


def is_used(heads: Rows, grid_id: NDArray[np.uint32] | int) -> NDArray[np.bool_]:
    """Tell which slots a launch initialised, with numbers that columns can hold."""
    state = heads["state"]
    good = (state == SlotState.RUNNING) | (state == SlotState.FINISHED)
    good &= heads["grid_id"] == grid_id
    good &= (heads["sm"] < _MAX_SMS) & (heads["role"] <= abi.REGION_MASK)
    for name in ("init_ns", "init_clock", "finish_ns", "finish_clock"):
        good &= heads[name] < MAX_CLOCK
    return np.asarray(good)


class Memory:
    """The records of one segment, wherever they are."""

    def __init__(self, data: Bytes | Excerpt, layout: Layout) -> None:
        record, unit = layout.clock.record, abi.ALIGNMENT
        if isinstance(data, Excerpt):
            self._step = record.itemsize // unit
            self._counts: Ints | None = data.counts
            self._first = (np.cumsum(data.counts) - data.counts) * self._step
            # Behind all others, an empty one stands for those that are not here.
            raw = np.append(data.records, np.zeros(record.itemsize, np.uint8))
        else:
            self._counts = None
            self._step = layout.stride // unit
            self._first = layout.first_records(np.arange(layout.slots)) // unit
            raw = np.ascontiguousarray(data)
        # A record may begin at any unit, also one of several units.
        self._units: Rows = np.ndarray(
            (max(0, (len(raw) - record.itemsize) // unit + 1),), record, raw, strides=(unit,)
        )

    def read(self, slot: Ints, position: Ints) -> Rows:
        """Return records by their slots and their positions there."""
        index = self._first[slot] + position * self._step
        if self._counts is not None:
            index = np.where(position < self._counts[slot], index, len(self._units) - 1)
        found: Rows = self._units[index]
        return found


def slot_heads(data: Bytes | Excerpt, layout: Layout, grid_id: int) -> Bytes:
    """Return the headers of a segment's slots, a row each."""
    if isinstance(data, Excerpt):
        return data.heads
    if not layout.slots:  # they may be shorter than a header
        return np.zeros((0, abi.SLOT_HEADER_BYTES), np.uint8)
    if layout.together:
        return header_rows(data[abi.LAUNCH_HEADER_BYTES :], layout, grid_id)
    rows = data[abi.LAUNCH_HEADER_BYTES :][: layout.slots * layout.slot_bytes]
    return rows.reshape(layout.slots, layout.slot_bytes)[:, : abi.SLOT_HEADER_BYTES]


def header_rows(heads: Bytes, layout: Layout, grid_id: int) -> Bytes:
    """Return headers that stand side by side as rows of those that all other kernels write."""
    if not layout.together:
        return heads.reshape(-1, abi.SLOT_HEADER_BYTES)
    made = expanded(heads, layout.slots, grid_id)
    return made.view(np.uint8).reshape(layout.slots, abi.SLOT_HEADER_BYTES)


def has_tail(data: Bytes | Excerpt, layout: Layout) -> bool:
    """Return whether there is anything behind a segment's last slot."""
    if isinstance(data, Excerpt):
        return data.tail
    behind = data[abi.LAUNCH_HEADER_BYTES + layout.slots * layout.slot_bytes :]
    return bool(len(behind) and behind.any())
