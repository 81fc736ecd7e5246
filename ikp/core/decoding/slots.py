"""Slot headers: which warps took part in the launch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import SlotState
from ikp.core.decoding.launch_header import Layout, Source

MAX_SMS = 1 << 16
MAX_CLOCK = 1 << 62
"""A century of nanoseconds or cycles: sums of a few such clocks still fit into 64 bits."""


def used_slots(
    source: Source, layout: Layout, grid_id: int, notes: list[str]
) -> tuple[Any, NDArray[np.int64]]:
    """Return the headers of the slots that this launch initialised, and their indices."""
    heads = _slot_headers(source.data, layout, notes)
    state = heads["state"]
    ours = (
        ((state == SlotState.RUNNING) | (state == SlotState.FINISHED))
        & (heads["grid_id"] == grid_id)
        & _plausible(heads)
    )
    empty = state == SlotState.UNUSED
    if layout.fresh:  # then a slot whose warp never came is all zero
        empty &= ~heads.view(np.uint8).reshape(-1, abi.SLOT_HEADER_BYTES).any(1)
    corrupt = int(np.count_nonzero(~empty & ~ours))
    if corrupt:
        notes.append(f"{corrupt} slots skipped: their headers are corrupt or of an earlier launch")
    unused = int(np.count_nonzero(empty))
    if unused:
        notes.append(
            f"{unused} warps never reached init (the kernel hung, failed, or exited early)"
        )
    ids = np.flatnonzero(ours)
    return heads[ids], ids


def _slot_headers(data: NDArray[np.uint8], layout: Layout, notes: list[str]) -> Any:
    slots, slot_bytes = layout.slots, layout.slot_bytes
    if not slots:
        return np.zeros(0, abi.SLOT_HEADER)
    if layout.fresh and data[abi.LAUNCH_HEADER_BYTES + slots * slot_bytes :].any():
        notes.append(
            "there is something behind the last slot: the grid in the launch header is not the "
            "kernel's, or something else wrote to the segment"
        )
    rows = data[abi.LAUNCH_HEADER_BYTES :][: slots * slot_bytes].reshape(slots, slot_bytes)
    heads = np.ascontiguousarray(rows[:, : abi.SLOT_HEADER_BYTES])
    return heads.view(abi.SLOT_HEADER).reshape(-1)


def _plausible(heads: Any) -> NDArray[np.bool_]:
    """Tell which headers hold numbers that a device can have written, and columns can hold."""
    good = (heads["sm"] < MAX_SMS) & (heads["role"] <= abi.REGION_MASK)
    for name in ("init_ns", "init_clock", "finish_ns", "finish_clock"):
        good &= heads[name] < MAX_CLOCK
    return np.asarray(good)
