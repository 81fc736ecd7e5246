"""The bytes that a warp writes: docs/abi.md, by the names that ``abi`` gives them."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import numpy as np
from loom import Warp

from ikp.plugins import Segment, Selection, Spec, abi, launch_fields


class Slot:
    """Where one warp records. Its ``capacity`` is 0 where it does not."""

    capacity = 0
    spec: Spec
    header: Any

    def __init__(self, segment: Segment | None, warp: Warp) -> None:
        if segment is None or not segment.enabled:
            return
        self.spec = segment.spec
        wide = self.spec.clock.bits > abi.WORD_BITS
        self.clock = abi.ClockKind.HOST64 if wide else abi.ClockKind.HOST
        raw = (ctypes.c_uint8 * segment.nbytes).from_address(segment.data.data_ptr())
        memory = np.ctypeslib.as_array(raw)
        chosen = segment.selection if self.spec.select else Selection()
        warps = chosen.chosen_warps(warp.warps).tolist()
        slots = max(1, chosen.count_blocks(warp.blocks)) * max(1, len(warps))
        nbytes = (segment.nbytes - abi.LAUNCH_HEADER_BYTES) // slots & -abi.ALIGNMENT
        if warp.block == warp.warp == 0:
            self._begin_launch(
                memory[: abi.LAUNCH_HEADER_BYTES].view(abi.LAUNCH_HEADER), warp, nbytes
            )
        rank = chosen.rank(warp.block)
        if rank is None or warp.warp not in warps:
            return
        if nbytes >= abi.min_slot_bytes(self.spec.overflow, self.clock):
            at = abi.LAUNCH_HEADER_BYTES + nbytes * (rank * len(warps) + warps.index(warp.warp))
            self._begin(memory[at : at + nbytes])

    def _begin_launch(self, header: Any, warp: Warp, nbytes: int) -> None:
        given = {
            **launch_fields.sizes((warp.blocks, 1, 1), (32 * warp.warps, 1, 1)),
            launch_fields.Origin.WARPS: warp.warps,
            launch_fields.Origin.SLOT_BYTES: nbytes,
            "clock": self.clock,
            "overflow": self.spec.overflow,
            "language": abi.Language.OTHER,
            "options": abi.Option.SELECTED * self.spec.select,
        }
        launch_fields.write(header, given)

    def _begin(self, memory: Any) -> None:
        self.capacity = abi.slot_capacity(len(memory), self.spec.overflow, self.clock)
        self.header = memory[: abi.SLOT_HEADER_BYTES].view(abi.SLOT_HEADER)
        size = self.clock.record.itemsize * self.capacity
        rest = memory[abi.SLOT_HEADER_BYTES : abi.SLOT_HEADER_BYTES + size]
        self.records = rest.view(self.clock.record)
        self.header[:] = 0
        self.header["init_ns"], self.header["init_clock"] = time.time_ns(), time.perf_counter_ns()
        self.finish()

    def store(self, tag: int, times: tuple[int, int], payload: int, given: int | None) -> None:
        """Store one record if there is room, at the next index or a given one, and count it."""
        index = int(self.header["attempted"][0]) if given is None else given
        self.header["attempted"] = max(int(self.header["attempted"][0]), index + 1)
        if self.spec.overflow is abi.OverflowMode.WRAP:
            index %= self.capacity
        if index < self.capacity:
            record = self.records[index : index + 1]
            record["tag"], record["payload"] = tag, payload
            record["start"], record["end"] = (t & (1 << self.clock.bits) - 1 for t in times)
        self.finish()  # a warp may end anywhere, and Loom tells nobody: the counts stay exact

    def finish(self) -> None:
        """Write the second anchor of the clock."""
        if self.capacity:
            header = self.header
            header["finish_ns"], header["finish_clock"] = time.time_ns(), time.perf_counter_ns()
            header["state"] = abi.SlotState.FINISHED
