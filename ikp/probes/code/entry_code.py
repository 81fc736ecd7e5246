"""Probe code at a kernel's entry: it reads both clocks, and later finds the warp's slot.

The code at the exits is in ``header_code``. The *cell* says where to record: 16 bytes of constants,
the last argument of a launch, or memory of the module's, which the host writes before it. All zero,
they say that nothing is recorded::

    | address of the segment u64 | bytes of a slot u32 | slots u32 |

Where a session chooses warps or blocks, a selection lies behind it (``selection_code``).

A warp keeps in uniform registers, as far as these suffice: the addresses of its header and its
records, how many of these it has made, both clocks at the entry, its SM and the grid's id. The rest
is in registers of each thread (``reserved_registers``). The threads that come to a record elect one
of them to store it. Until a warp leaves, only its records are stored: its header is, at the exit.

The stores of warps lie close together: recording costs what memory costs. All headers lie side by
side, and the records of a few neighbouring warps in rows: the first of each, the second of each.

Finding a warp's slot takes some steps. The first record is the first to need it, so the kernel
finds it where it waits anyway: for the data that it loaded first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ikp.core import abi
from ikp.probes.code.header_code import (
    RECORD_BITS,
    HeaderValues,
    elected,
    launch_header,
    put_header,
    read_clocks,
)
from ikp.probes.code.reserved_registers import PLACES, EntryRegisters, Frame
from ikp.probes.code.selection_code import linear_of, number_block, read_block, selected
from ikp.sass.assembly import forms
from ikp.sass.assembly.assembler import NOP, Step, reordered
from ikp.sass.assembly.forms import RZ, URZ

CELL: Final = "ikp_buffer"
"""The name of the cell's symbol."""
CELL_BYTES: Final = 16
FEW: Final = 7
MANY: Final = 12
"""How many single registers ``locate`` takes: where a block's size is known, and where not."""


def entry(frame: Frame, quad: int) -> list[Step]:
    """Return the code before a kernel's first instruction: it reads and keeps both clocks.

    Args:
        frame: the kernel's reserved registers.
        quad: four free registers.
    """
    f, held = forms, PLACES.descriptor
    named = frame.lends or frame.near
    return [
        *read_clocks(quad),
        *([] if named else [f.constant(frame.descriptor, 0, held, pair=True)]),
        *keep_clocks(frame, quad),
    ]


def keep_clocks(frame: Frame, quad: int) -> list[Step]:
    """Return the code that copies both clocks from four registers to uniform ones."""
    return [forms.to_uniform(each, quad + 2 * n) for n, each in enumerate(frame.entered[:2])]


def locate(
    frame: Frame,
    ground: EntryRegisters,
    values: HeaderValues,
    clocks: int | None = None,
) -> list[Step]:
    """Return the code that finds a warp's slot, for a point that each warp passes once, converged.

    Args:
        frame: the kernel's reserved registers.
        ground: the registers that are free there.
        values: what the launch's header says of the kernel.
        clocks: the registers with both clocks at the entry, where they are to be stored.
    """
    f, p, cell, sizes, ok = forms, PLACES, ground.cell, ground.sizes, ground.predicate
    slot, warps, x, y, z, columns, rows = ground.single[:FEW]
    read, numbered = _block(frame, (x, y, z), (columns, rows))
    steps = [
        *read,
        f.load_constant(cell, *frame.cell, pair=True),
        f.load_constant(sizes, *frame.cell.beyond(8), pair=True),
        f.copy_uniform(frame.count, URZ),
        *_warp(frame, slot, warps, ground.single[FEW:]),
        *numbered,
        f.shift_right(slot, slot, 5),
        *_slot(frame, ground, slot, (warps, x), (y, columns)),
        f.add(rows, cell, abi.LAUNCH_HEADER_BYTES),
        f.immediate(y, abi.DENSE_HEADER_BYTES),
        *(
            _in_slot(frame, ground, values.margin)
            if frame.behind is None
            else _behind(frame, ground)
        ),
        f.special(columns, f.SM),
        f.load_constant(rows, 0, p.grid_id),
        f.immediate(y, 1 << 16),
        f.multiply(columns, rows, y, columns),
        *[f.to_uniform(each, columns) for each in frame.entered[2:]],
    ]
    other = []
    if frame.behind is None:
        header = launch_header(frame, ground, warps, values)
        linear = slot if frame.selection is None else linear_of(ground)
        other = [f.differs(ok, linear, 0), f.skip(len(header)).when(ok), *header]
    if clocks is not None:
        other += [f.copy(cell, z), *elected(frame, ok)]
        other += [f.copy(clocks + 1, clocks + 2), f.immediate(clocks + 2, 0)]
        other += [f.copy(clocks + 3, columns), put_header(frame, cell, 0, clocks).when(ok)]
        other += [NOP.after(1 << ground.scoreboard)]
    return [*reordered(steps), *other]


def _in_slot(frame: Frame, ground: EntryRegisters, margin: int) -> list[Step]:
    """Return the code for the addresses of a slot's header and records, and its room for records.

    Args:
        frame: the kernel's reserved registers.
        ground: the registers of ``locate``, with the values that it has in them.
        margin: how many records a warp may write behind the last that it keeps.
    """
    f, sizes, ok = forms, ground.sizes, ground.predicate
    slot, _, x, y, z, columns, rows = ground.single[:FEW]
    return [
        f.multiply(z, slot, y, rows),
        f.multiply(x, sizes + 1, y, rows),
        *_first_record(frame, ground, slot, x, (y, columns)),
        f.below_other(ok, slot, sizes + 1),
        f.add(y, sizes, -abi.DENSE_HEADER_BYTES - abi.RECORD_BYTES * margin),
        f.shift_right(y, y, RECORD_BITS),
        f.choose(y, y, 0, ok),
        f.to_uniform(frame.header, z),
        f.to_uniform(frame.records, x),
        f.to_uniform(frame.high, ground.cell + 1),
        f.to_uniform(frame.room, y),
    ]


def _behind(frame: Frame, ground: EntryRegisters) -> list[Step]:
    """Return the code for the address of the header of a warp without a slot, behind all slots."""
    f, sizes = forms, ground.sizes
    warp, _, x, y, z, _, rows = ground.single[:FEW]
    return [
        f.multiply(x, sizes, sizes + 1, rows),
        f.multiply(z, warp, y, x),
        f.to_uniform(frame.header, z),
        f.to_uniform(frame.high, ground.cell + 1),
        f.to_uniform(frame.room, sizes),  # no room for records: it only says that recording is on
    ]


def _block(
    frame: Frame, axes: tuple[int, int, int], sizes: tuple[int, int]
) -> tuple[list[Step], list[Step]]:
    """Return the code that reads a block's indices, and that for its number, in the first axis."""
    if frame.blocks is not None:  # it is known
        return [forms.from_uniform(axes[0], frame.records)], []
    return read_block(axes, sizes), number_block(axes, sizes)


def _slot(
    frame: Frame, ground: EntryRegisters, warp: int, place: tuple[int, int], free: tuple[int, int]
) -> list[Step]:
    """Return the code that makes a slot's number of the warp's number in its block."""
    if frame.selection is not None:
        return selected(ground, frame.selection, warp, place, free)
    warps, block = place
    return [forms.multiply(warp, block, warps, warp)]


def _first_record(
    frame: Frame, ground: EntryRegisters, slot: int, begin: int, free: tuple[int, int]
) -> list[Step]:
    """Return the code that adds the bytes before a warp's first record to the records' address."""
    f, (factor, before) = forms, free
    return [
        f.shift_right(before, slot, frame.row_bits),
        f.immediate(factor, 1 << frame.row_bits),
        f.multiply(before, before, factor, RZ),
        f.immediate(factor, abi.RECORD_BYTES),
        f.multiply(begin, slot, factor, begin),
        f.add(factor, ground.sizes, -abi.DENSE_HEADER_BYTES - abi.RECORD_BYTES),
        f.multiply(begin, before, factor, begin),
    ]


def _warp(frame: Frame, thread: int, warps: int, more: Sequence[int]) -> list[Step]:
    """Return the code for a thread's number in its block, and the number of the block's warps."""
    f = forms
    if frame.warps is not None:
        return [f.special(thread, f.TID_X), f.immediate(warps, frame.warps)]
    y, z, *size = more
    return [
        *[f.special(into, f.TID_X + axis) for axis, into in enumerate((thread, y, z))],
        *[f.load_constant(each, 0, PLACES.block + 4 * n) for n, each in enumerate(size)],
        f.multiply(y, z, size[1], y),
        f.multiply(thread, y, size[0], thread),
        f.multiply(warps, size[0], size[1], RZ),
        f.multiply(warps, warps, size[2], RZ),
        f.add(warps, warps, 31),
        f.shift_right(warps, warps, 5),
    ]
