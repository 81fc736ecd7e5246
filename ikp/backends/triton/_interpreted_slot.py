"""The slot of a program that Triton's interpreter runs, written with numpy where a kernel stores.

A program is one slot: the interpreter has no warps. The counts are exact after each record, since a
program may end anywhere.
"""

from __future__ import annotations

import ctypes
import time

import numpy as np

from ikp.backends.triton import foreign
from ikp.core import abi
from ikp.core.abi import ClockKind, Language, Option, OverflowMode, SlotState
from ikp.core.segment import EVERYTHING, Selection, Spec
from ikp.verbs.dsl import DslValue, not_a_buffer

_interpreter = foreign.running()


class Program:
    """The slot of one program."""

    def __init__(self, prof: DslValue) -> None:
        self.identity = _interpreter.grid_idx  # a fresh tuple for every program
        self.capacity = 0
        self.attempted = 0
        self.totals: dict[int, tuple[int, int, int]] = {}  # by tag: index, count, ticks
        if prof is not None:
            self._open(prof)

    def _open(self, prof: DslValue) -> None:
        try:
            address, size = int(prof[0].handle.data[0]), int(prof[1].handle.data[0])
            spec = Spec.parse(prof[2].value)
        except (TypeError, IndexError, AttributeError, ValueError) as error:
            raise not_a_buffer(type(prof).__name__) from error
        if not size:
            return
        grid, index = _interpreter.grid_dim, _interpreter.grid_idx
        raw = (ctypes.c_uint8 * (abi.LAUNCH_HEADER_BYTES + size)).from_address(address)
        self.memory = np.ctypeslib.as_array(raw)
        chosen = Selection.of(self._launch()[0]) if spec.select else EVERYTHING
        block = index[0] + grid[0] * (index[1] + grid[1] * index[2])
        blocks, rank = chosen.count_blocks(grid[0] * grid[1] * grid[2]), chosen.rank(block)
        if not len(chosen.chosen_warps(1)):
            rank = None
        slot_bytes = size // max(1, blocks) & -abi.ALIGNMENT
        # The host's clock, as wide as the one that was asked for.
        clock = ClockKind.HOST64 if spec.clock.bits > abi.WORD_BITS else ClockKind.HOST
        enough = slot_bytes >= abi.min_slot_bytes(spec.overflow, clock)
        capacity = abi.slot_capacity(slot_bytes, spec.overflow, clock)
        if block == 0:
            self._write_launch(spec, clock, grid, slot_bytes)
        if rank is None or not enough:
            return
        self.spec, self.clock, self.capacity = spec, clock, capacity
        self.offset = abi.LAUNCH_HEADER_BYTES + rank * slot_bytes
        header = self._header()
        header[:] = 0
        header["state"] = SlotState.RUNNING
        header["init_ns"], header["init_clock"] = _anchor()
        self.finish()

    def _write_launch(
        self, spec: Spec, clock: ClockKind, grid: tuple[int, int, int], slot_bytes: int
    ) -> None:
        header = self._launch()
        header["magic"], header["abi"] = abi.MAGIC, abi.ABI_VERSION
        header["grid"], header["block"] = grid, (1, 1, 1)
        header["warps_per_block"], header["slot_bytes"] = 1, slot_bytes
        header["clock"], header["overflow"] = clock, spec.overflow
        header["language"] = Language.TRITON
        header["options"] = Option.SELECTED * spec.select + Option.TOTALS * spec.totals
        header["launches"] += 1

    def _launch(self) -> DslValue:
        return self.memory[: abi.LAUNCH_HEADER_BYTES].view(abi.LAUNCH_HEADER)

    def set_role(self, number: int) -> None:
        """Write the role's region id."""
        self._header()["role"] = number

    def _header(self) -> DslValue:
        return self.memory[self.offset : self.offset + abi.SLOT_HEADER_BYTES].view(abi.SLOT_HEADER)

    def store(self, tag: int, times: tuple[int, int], payload: int, given: int | None) -> None:
        """Store one record if there is room, at the next index or a given one, and count it."""
        index = self.attempted if given is None else given
        self.attempted = max(self.attempted, index + 1)
        if self.spec.overflow is OverflowMode.WRAP:
            index %= self.capacity
        self._put(index, tag, times, payload)

    def add(self, tag: int, ticks: int) -> None:
        """Add one range or instant to a total, whose record is written anew each time."""
        index, count, before = self.totals.get(tag, (len(self.totals), 0, 0))
        self.totals[tag] = index, count + 1, before + ticks
        self.attempted = len(self.totals)
        high, low = divmod(before + ticks, 1 << 32)
        self._put(index, tag, (low, high), count + 1)  # a total's words are those of a record

    def _put(self, index: int, tag: int, times: tuple[int, int], payload: int) -> None:
        if index < self.capacity:
            dtype = self.clock.record
            at = self.offset + abi.SLOT_HEADER_BYTES + index * dtype.itemsize
            record = self.memory[at : at + dtype.itemsize].view(dtype)
            record["tag"], record["payload"] = tag, payload
            record["start"], record["end"] = (one & ((1 << self.clock.bits) - 1) for one in times)
        self.finish()  # the program may end anywhere: keep its counts exact

    def finish(self) -> None:
        """Write the counts and the second anchor."""
        if self.capacity:
            header = self._header()
            header["finish_ns"], header["finish_clock"] = _anchor()
            header["attempted"], header["state"] = self.attempted, SlotState.FINISHED


def _anchor() -> tuple[int, int]:
    return time.time_ns(), time.perf_counter_ns()
