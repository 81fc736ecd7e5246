"""Small kernels in PTX, and what runs them with records in them, thread by thread."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Any

from ikp.core import abi
from ikp.core.abi import Language
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.segment import EVERYTHING, Selection
from ikp.core.trace import Trace
from ikp.probes.code.entry_code import CELL as CONSTANTS
from ikp.probes.code.selection_code import selection_words
from ikp.probes.points.probe_points import Level
from ikp.ptx.body import Body
from ikp.ptx.record_insertion import PtxInsertion
from ikp.ptx.record_text import BlockShape, declaration
from ikp.ptx.spots import Spots
from tests.machines.ptx_machine import WARP, Dim, Machine

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
SEGMENT, CELL, DATA = 0x7F12_3456_7000, 0x7E00_0000_0000, 0x7D00_0000_0000
TURNS = """\
ld.param.b64 %rd1, [p];
ld.param.b32 %r1, [turns];
mov.b32 %r2, 0;
$TOP:
ld.global.b32 %r3, [%rd1];
add.u32 %r2, %r2, 1;
setp.lt.u32 %p1, %r2, %r1;
@%p1 bra $TOP;
"""
"""A loop with a load in each turn."""


def kernel(body: str, threads: Dim | None = (WARP, 1, 1), name: str = "k") -> str:
    """Return a module with one kernel, which is given a pointer and how many turns a loop takes."""
    directive = f".reqntid {', '.join(map(str, threads))}\n" if threads else ""
    return (
        f"{HEAD}.visible .entry {name}(\n.param .u64 p,\n.param .u32 turns\n)\n{directive}{{\n"
        f".reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;\n{body}ret;\n}}\n"
    )


def marked(
    text: str, level: Level = Level.OPS, threads: Dim | None = None, *, select: bool = False
) -> str:
    """Return a module with records at every place of a level."""
    body = Body.read(text, "k")
    shape = BlockShape(body.block or threads, select)
    return PtxInsertion(body, shape, Language.TRITON).text(Spots(body).at(level))


@dataclass
class Ran:
    """What a launch left."""

    data: Any
    trace: Trace

    @property
    def header(self) -> Any:
        """The launch header."""
        return self.data[: abi.LAUNCH_HEADER_BYTES].view(abi.LAUNCH_HEADER)[0]


def run(
    text: str,
    turns: int,
    grid: Dim,
    block: Dim,
    records: int,
    *,
    slots: int | None = None,
    chosen: Selection | None = None,
) -> Ran:
    """Run a marked kernel where each warp has room for so many records.

    Args:
        text: the marked module.
        turns: of its loop.
        grid: blocks.
        block: threads of one.
        records: of a slot.
        slots: what the cell says there are; None for what the launch needs.
        chosen: which warps and blocks record, where the kernel heeds that.
    """
    warps, selection = -(-prod(block) // WARP), chosen or EVERYTHING
    needed = selection.count_slots(prod(grid), warps, 1)
    size = abi.segment_bytes(needed, records, header_bytes=abi.DENSE_HEADER_BYTES)
    machine = Machine()
    data = machine.memory.map(SEGMENT, size)
    machine.memory.map(DATA, 64)
    slots = selection.count_slots(prod(grid), warps) if slots is None else slots
    words = [SEGMENT, records | slots << 32, *(selection_words(chosen, warps) if chosen else ())]
    cell = machine.memory.map(CELL, 8 * len(words))
    for at, word in enumerate(words):
        cell[8 * at : 8 * at + 8] = list(word.to_bytes(8, "little"))
    machine.launch(_runnable(text), [DATA, turns], grid, block)
    source = SegmentSource("k", data, selected=chosen is not None, selection=chosen)
    return Ran(data, decode([source]))


def _runnable(text: str) -> str:
    """Return a module as the machine knows it: it has no constant memory, and faults where a
    register is read that nobody wrote, as a record's payload is on purpose.
    """
    made = re.sub(r"%ikp_start(\d+)", r"%r9\1", text)  # a name that the compiler's registers have
    for select in (False, True):
        made = made.replace(declaration(BlockShape(None, select)), "")
    made = made.replace("ld.const", "ld.global").replace(f", {CONSTANTS};", ", %rd99;")
    made = made.replace("now, nothing}", "now, 0}").replace(f"[{CONSTANTS}", "[%rd99")
    return made.replace(".reg .b32 ikp_cur", f"mov.b64 %rd99, {CELL:#x};\n.reg .b32 ikp_cur")
