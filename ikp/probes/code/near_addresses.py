"""Probe code that finds a warp's slot, where stores take their address from uniform registers.

A store of sm_90 can take its address from two uniform registers, and add a thread's own to it. A
warp whose header and records are addressed so copies no address and keeps no descriptor of global
memory. It computes its slot on the uniform datapath: once, in the registers where it is kept. The
effect is that of ``entry_code.locate``, in fewer instructions.

The cell is the same, but holds how many records a slot has room for instead of its bytes. Every
address that is kept is too low by the size of a launch's header.
"""

from __future__ import annotations

from typing import Final

from ikp.core import abi
from ikp.probes.code.entry_code import keep_clocks
from ikp.probes.code.header_code import RECORD_BITS, HeaderValues, launch_header_near
from ikp.probes.code.reserved_registers import PLACES, Frame, NearGround
from ikp.sass.assembly import forms, lane_forms
from ikp.sass.assembly.assembler import Step, reordered
from ikp.sass.assembly.forms import RZ, URZ

_HEADER_BITS: Final = abi.DENSE_HEADER_BYTES.bit_length() - 1
_TO_MULTIPLY: Final = 14
"""Cycles from R2UR to a multiplication: compilers leave one more than before other readers."""
_CONSTANT_TIME = 6
"""Cycles until a uniform constant may be read: on these chips, compilers let 2 cycles pass."""


def locate(
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
        *_block(frame),
        f.uniform_special(who, f.SM),
        _constant(header, *frame.cell, pair=True),
        _constant(room, *frame.cell.beyond(8), pair=True),
        f.shift_right(thread, thread, 5),
        f.to_uniform(frame.count, thread)._replace(time=_TO_MULTIPLY),
        *([] if clocks is None else keep_clocks(frame, clocks)),
        _constant(records + 1, 0, PLACES.grid_id),
        f.scaled_uniform(who, records + 1, who, 16),
        f.multiply_uniform_by(slot, block, frame.warps or 1, frame.count),
        *(_slot(frame, ground, values.margin) if frame.behind is None else _behind(frame, slot)),
        f.copy_uniform(frame.count, URZ),
        *_threads(frame, ground.quads[0]),
    ]
    if frame.behind is not None:
        return reordered(steps)
    written = launch_header_near(frame, ground, values)
    return [*reordered(steps), f.skip(len(written)).when(first), *written]


def _slot(frame: Frame, ground: NearGround, margin: int) -> list[Step]:
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


def _behind(frame: Frame, warp: int) -> list[Step]:
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


def _block(frame: Frame) -> list[Step]:
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
