"""Whole patched kernels, run in the emulator: their own instructions, too, and what they leave."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from ikp.core import abi
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.regions import region_id
from ikp.core.segment import EVERYTHING, Selection
from ikp.core.trace import Trace
from ikp.probes.code.reserved_registers import ConstantOffsets
from ikp.probes.code.selection_code import selection_words
from ikp.probes.made_patch import Patch
from ikp.sass.assembly.chips import HOPPER
from ikp.sass.cubins.cubin import Cubin
from ikp.sass.cubins.instruction import BYTES
from tests.sass.emulate import LANES, Machine, Warp

BASE = 0x7F42_1000_0000
RESULTS = 1 << 16
"""Where a kernel's own results begin, behind its records."""
_STACK = 0x28
_RECORDS = 64


def words_of(made: Patch, name: str) -> list[int]:
    """Return a patched kernel's words.

    A load of the stack that the kernel never waits for becomes a NOP: nobody reads it.
    """
    text = Cubin.read(made.cubin).kernel(name).text.data
    words = [int.from_bytes(text[at : at + 16], "little") for at in range(0, len(text), 16)]
    return [word & ~0xFFF | 0x918 if word & 0xFF0FFF == 0x10B82 else word for word in words]


def run(
    made: Patch,
    name: str,
    warps: int,
    parameters: Sequence[int],
    chosen: Selection = EVERYTHING,
    records: int | None = None,
    dropped: list[int] | None = None,
    traces: list[Trace] | None = None,
    blocks: int = 1,
) -> tuple[list[list[str]], bytes]:
    """Run blocks, one after another; return each recorded warp's ranges by name, innermost ends
    first, and what results the last one left.

    Args:
        made: the patched kernel, whose first parameter is where its results go.
        name: the kernel's.
        warps: of the block.
        parameters: the others, 32 bits each.
        chosen: which warps and blocks record, where the kernel heeds that.
        records: for how many a slot has room; by default, for more than there are.
        dropped: is told how many found none.
        traces: is given what was recorded.
        blocks: how many, in x.
    """
    beside = (records or _RECORDS) * abi.RECORD_BYTES
    slots = chosen.count_slots(blocks, warps, 1)
    headers = abi.DENSE_HEADER_BYTES * chosen.count_headers(blocks, warps)
    size = abi.LAUNCH_HEADER_BYTES + max(slots, warps) * (abi.DENSE_HEADER_BYTES + beside) + headers
    assert size <= RESULTS
    places, chip = ConstantOffsets(), HOPPER
    into = BASE + RESULTS
    constants = {(0, places.block + 4 * i): each for i, each in enumerate((warps * LANES, 1, 1))}
    constants |= {(0, places.grid + 4 * i): each for i, each in enumerate((blocks, 1, 1))}
    constants |= {(0, places.grid_id): 5, (0, _STACK): 0}
    constants |= {(0, places.descriptor): 0x1234, (0, places.descriptor + 4): 0}
    given = (into & 0xFFFFFFFF, into >> 32, *parameters)
    constants |= {(0, chip.parameters + 4 * i): each for i, each in enumerate(given)}
    slot = (size - abi.LAUNCH_HEADER_BYTES - headers) // slots & -abi.ALIGNMENT
    told = made.size_for_cell(slot), chosen.count_slots(blocks, warps)
    cell = [BASE & 0xFFFFFFFF, BASE >> 32, *told]
    behind = selection_words(chosen, warps) if made.select else ()
    cell += [each >> half & 0xFFFFFFFF for each in behind for half in (0, 32)]
    argument = made.argument
    bank, begin = (0, chip.parameters + argument.offset) if argument else (3, 0)
    constants |= {(bank, begin + 4 * i): each for i, each in enumerate(cell)}
    machine = Machine(constants, bytearray(RESULTS + 256), BASE, chip=chip)
    words = words_of(made, name)
    ours = {at // BYTES for first, end in made.ours for at in range(first, end, BYTES)}
    again = range(*(at // BYTES for at in made.plain or (0, 0)))
    own = frozenset(range(len(words))) - ours | frozenset(again)
    for block, warp in product(range(blocks), range(warps)):
        special = {number: np.zeros(LANES, np.uint64) for number in range(256)}
        special[0x21] = np.arange(warp * LANES, (warp + 1) * LANES).astype(np.uint64)
        special[0x25] = np.full(LANES, block, np.uint64)
        special[0] = np.arange(LANES).astype(np.uint64)
        Warp(machine, special, elected=warp, own=own).run(words)
    assert not any(machine.memory[size:RESULTS]), "something is written behind all slots"
    data = np.frombuffer(bytes(machine.memory[:size]), np.uint8)
    regions = {region_id(each): each for each in made.names}
    source = SegmentSource("k", data, clock_rate_hz=5e8, regions=regions, selection=chosen)
    trace = decode([source])
    assert trace.slots.finished.all()
    (traces if traces is not None else []).append(trace)
    (dropped if dropped is not None else []).append(lost := trace.launches[0].dropped)
    assert dropped is not None or lost == 0
    return _by_warp(trace), bytes(machine.memory[RESULTS:])


def _by_warp(trace) -> list[list[str]]:
    events = trace.events
    order = sorted(range(len(events)), key=lambda at: (events.end_ns[at], -events.start_ns[at]))
    return [
        [trace.regions[events.region[at]].name for at in order if events.slot[at] == slot]
        for slot in range(len(trace.slots))
    ]
