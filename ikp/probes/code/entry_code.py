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

A store of sm_90 can take its address from two uniform registers, and add a thread's own to it. A
warp whose header and records are addressed so copies no address and keeps no descriptor of global
memory. It computes its slot on the uniform datapath: once, in the registers where it is kept
(``locate_near``). The effect is that of ``locate``, in fewer instructions. The cell is the same,
but holds how many records a slot has room for instead of its bytes. Every address that is kept is
too low by the size of a launch's header.
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
    launch_header_near,
    put_header,
    read_clocks,
)
from ikp.probes.code.reserved_registers import PLACES, EntryRegisters, Frame, NearGround
from ikp.probes.code.selection_code import linear_of, number_block, read_block, selected
from ikp.sass.assembly import forms, lane_forms
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


_HEADER_BITS: Final = abi.DENSE_HEADER_BYTES.bit_length() - 1
_TO_MULTIPLY: Final = 14
"""Cycles from R2UR to a multiplication: compilers leave one more than before other readers."""
_CONSTANT_TIME = 6
"""Cycles until a uniform constant may be read: on these chips, compilers let 2 cycles pass."""


def locate_near(
    frame: Frame,
    ground: NearGround,
    values: HeaderValues,
    clocks: int | None = None,
) -> list[Step]:
    """Return the code that finds a warp's slot, for a point that each warp passes once, converged.

    Args:
        frame: the kernel's reserved registers.
        ground: the registers that are free there.
        values: what the launch's header says of the kernel.
        clocks: four registers with both clocks at the entry, where they are to be kept yet.
    """
    f, thread, first, block = forms, ground.thread, ground.predicate, frame.records
    room, slot, who = frame.room, ground.pair, frame.entered[2]
    header, records = frame.header, frame.records
    steps = [
        f.special(thread, f.TID_X),
        *_block_near(frame),
        f.uniform_special(who, f.SM),
        _constant(header, *frame.cell, pair=True),
        _constant(room, *frame.cell.beyond(8), pair=True),
        f.shift_right(thread, thread, 5),
        f.to_uniform(frame.count, thread)._replace(time=_TO_MULTIPLY),
        *([] if clocks is None else keep_clocks(frame, clocks)),
        _constant(records + 1, 0, PLACES.grid_id),
        f.scaled_uniform(who, records + 1, who, 16),
        f.multiply_uniform_by(slot, block, frame.warps or 1, frame.count),
        *(
            _slot_near(frame, ground, values.margin)
            if frame.behind is None
            else _behind_near(frame, slot)
        ),
        f.copy_uniform(frame.count, URZ),
        *_threads(frame, ground.quads[0]),
    ]
    if frame.behind is not None:
        return reordered(steps)
    written = launch_header_near(frame, ground, values)
    return [*reordered(steps), f.skip(len(written)).when(first), *written]


def _slot_near(frame: Frame, ground: NearGround, margin: int) -> list[Step]:
    """Compute the addresses of a warp's header and records, and whether the warp is the first.

    Args:
        frame: the kernel's reserved registers.
        ground: the free registers; the warp's number is in the first of the uniform ones.
        margin: how many records a warp may write behind the last that it keeps.
    """
    f, room, slots, slot = forms, frame.room, frame.room + 1, ground.pair
    header, records = frame.header, frame.records
    return [
        f.below(ground.predicate, RZ, slot),
        *_records_before(frame, records, slot, slot + 1, margin),
        f.scaled_uniform(records, slots, header, _HEADER_BITS),
        f.scaled_uniform(header, slot, header, _HEADER_BITS),
        f.scaled_uniform(records, frame.count, records, RECORD_BITS),
        *([] if frame.sure else [f.below_uniform(ground.flag, slot, slots)]),
        *([] if frame.sure else [f.choose_uniform(room, room, ground.flag)]),
        f.copy_uniform(records + 1, header + 1),
    ]


def _behind_near(frame: Frame, warp: int) -> list[Step]:
    """Compute the address of the header of a warp without a slot, from the warp's number.

    It lies behind all slots: they are so many headers, and records for each. The uniform register
    behind that of the number is free.
    """
    f, room, slots, header, free = forms, frame.room, frame.room + 1, frame.header, warp + 1
    return [
        f.multiply_uniform(free, room, slots, URZ),
        f.scaled_uniform(header, free, header, RECORD_BITS),
        f.multiply_uniform_by(header, slots, frame.behind or 0, header),
        f.scaled_uniform(header, warp, header, _HEADER_BITS),
    ]


def _threads(frame: Frame, free: int) -> list[Step]:
    """Return the code for the registers that each thread keeps to gather records, if any."""
    if not frame.threads:
        return []
    lane, low, high = frame.threads
    return [forms.special(lane, forms.LANE), *lane_forms.own_byte(lane, free, (low, high))]


def _constant(into: int, bank: int, offset: int, *, pair: bool = False) -> Step:
    return forms.constant(into, bank, offset, pair=pair)._replace(time=_CONSTANT_TIME)


def _block_near(frame: Frame) -> list[Step]:
    """Compute a block's number among those that record, in the register of the records' address."""
    if frame.blocks is not None:
        return []
    f, grid = forms, PLACES.grid
    x, y, z = frame.records, frame.records + 1, frame.header
    if frame.flat:
        return [f.uniform_special(x, f.CTAID_X)]
    columns, rows = frame.room, frame.room + 1
    return [
        *[f.uniform_special(into, f.CTAID_X + axis) for axis, into in enumerate((x, y, z))],
        _constant(columns, 0, grid),
        _constant(rows, 0, grid + 4),
        f.multiply_uniform(y, z, rows, y),
        f.multiply_uniform(x, y, columns, x),
    ]


def _records_before(frame: Frame, block: int, slot: int, other: int, margin: int) -> list[Step]:
    """Compute how many records lie before a warp's first one, in the register of the warp's number.

    Where all warps of a block are one row, the warp's number in its block is that in its row, too.
    """
    f, warp, room, before = forms, frame.count, frame.room, (1 << frame.row_bits) - 1
    if not before:
        more = [f.multiply_uniform_by(warp, slot, margin, warp)] if margin else []
        return [f.multiply_uniform(warp, slot, room, URZ), *more]
    if frame.warps == before + 1:
        rows = [f.multiply_uniform_by(other, block, frame.warps, URZ)]
    else:
        rows = [f.masked_uniform(other, slot, ~before), f.masked_uniform(warp, slot, before)]
    more = [f.multiply_uniform_by(warp, other, margin, warp)] if margin else []
    return [*rows, *more, f.multiply_uniform(warp, other, room, warp)]
