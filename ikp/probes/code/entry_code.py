"""What a patched kernel runs where it begins: ``header_code`` has what it runs where it ends.

The *cell* says where to record: 16 bytes of constants, the last argument of a launch, or memory of
the module's, which the host writes before it. All zero, they say that nothing is recorded::

    | address of the segment u64 | bytes of a slot u32 | slots u32 |

Where a session chooses warps or blocks, ``selecting`` says what stands behind it.

What a warp keeps is in uniform registers alone: where its header and its records are, how many of
these it has made, both clocks at the entry, and who it is. Whichever of its threads come to a
record elect one of them to store it. Until a warp leaves, only its records are stored: its header
is, at the exit.

What warps write lies close together: that is what recording costs. All headers stand side by side,
and the records of a few neighbouring warps in rows, the first of each, the second of each, ...

Where a warp's slot is takes some steps to find. Nothing needs it before the first record, so that
is done where the kernel waits anyway: for what it loaded first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ikp.core import abi
from ikp.probes.code.launch_header import Told, launch_header
from ikp.probes.code.record_stores import RECORD_BITS, elected, put_header
from ikp.probes.code.reserved_registers import PLACES, Frame, Ground
from ikp.probes.code.selection_code import linear_of, number_block, read_block, selected
from ikp.sass.assembly import forms
from ikp.sass.assembly.assembler import NOP, Step
from ikp.sass.assembly.forms import RZ, URZ
from ikp.sass.assembly.scheduling import reordered

CELL: Final = "ikp_buffer"
"""The symbol of the cell."""
CELL_BYTES: Final = 16
FEW: Final = 7
MANY: Final = 12
"""How many single registers ``locate`` takes, where a block's threads are known or not."""


def entry(frame: Frame, quad: int) -> list[Step]:
    """Return what stands before a kernel's first instruction: both clocks are kept.

    Args:
        frame: what the kernel keeps.
        quad: four free registers.
    """
    f, held = forms, PLACES.descriptor
    named = frame.lends or frame.near
    return [
        *read_clocks(quad),
        *([] if named else [f.constant(frame.descriptor, 0, held, pair=True)]),
        *keep_clocks(frame, quad),
    ]


def read_clocks(quad: int) -> list[Step]:
    """Return what reads both clocks into four registers."""
    return [forms.wide(quad, forms.GLOBAL_TIMER), forms.wide(quad + 2, forms.CLOCK)]


def keep_clocks(frame: Frame, quad: int) -> list[Step]:
    """Return what keeps both clocks, once they are in four registers."""
    return [forms.to_uniform(each, quad + 2 * n) for n, each in enumerate(frame.entered[:2])]


def locate(
    frame: Frame,
    ground: Ground,
    told: Told,
    clocks: int | None = None,
) -> list[Step]:
    """Return what finds a warp's slot. It stands where every warp comes once, all threads together.

    Args:
        frame: what the kernel keeps.
        ground: what is free there.
        told: what the launch's header says of the kernel.
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
        *(_in_slot(frame, ground, told.margin) if frame.behind is None else _behind(frame, ground)),
        f.special(columns, f.SM),
        f.load_constant(rows, 0, p.grid_id),
        f.immediate(y, 1 << 16),
        f.multiply(columns, rows, y, columns),
        *[f.to_uniform(each, columns) for each in frame.entered[2:]],
    ]
    other = []
    if frame.behind is None:
        header = launch_header(frame, ground, warps, told)
        linear = slot if frame.selection is None else linear_of(ground)
        other = [f.differs(ok, linear, 0), f.skip(len(header)).when(ok), *header]
    if clocks is not None:
        other += [f.copy(cell, z), *elected(frame, ok)]
        other += [f.copy(clocks + 1, clocks + 2), f.immediate(clocks + 2, 0)]
        other += [f.copy(clocks + 3, columns), put_header(frame, cell, 0, clocks).when(ok)]
        other += [NOP.after(1 << ground.scoreboard)]
    return [*reordered(steps), *other]


def _in_slot(frame: Frame, ground: Ground, margin: int) -> list[Step]:
    """Make of a slot's number where its header and its records are, and for how many is room.

    Args:
        frame: what the kernel keeps.
        ground: what is free there, and what ``locate`` has in it.
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


def _behind(frame: Frame, ground: Ground) -> list[Step]:
    """Make of a warp's number where its header is, which stands behind all slots."""
    f, sizes = forms, ground.sizes
    warp, _, x, y, z, _, rows = ground.single[:FEW]
    return [
        f.multiply(x, sizes, sizes + 1, rows),
        f.multiply(z, warp, y, x),
        f.to_uniform(frame.header, z),
        f.to_uniform(frame.high, ground.cell + 1),
        f.to_uniform(frame.room, sizes),  # it has none for records, but that tells that it is on
    ]


def _block(
    frame: Frame, axes: tuple[int, int, int], sizes: tuple[int, int]
) -> tuple[list[Step], list[Step]]:
    """Return what reads where a block is, and what makes its number of that, in the first axis."""
    if frame.blocks is not None:  # it is known
        return [forms.from_uniform(axes[0], frame.records)], []
    return read_block(axes, sizes), number_block(axes, sizes)


def _slot(
    frame: Frame, ground: Ground, warp: int, place: tuple[int, int], free: tuple[int, int]
) -> list[Step]:
    """Make the number of a warp's slot of that of the warp in its block."""
    if frame.selection is not None:
        return selected(ground, frame.selection, warp, place, free)
    warps, block = place
    return [forms.multiply(warp, block, warps, warp)]


def _first_record(
    frame: Frame, ground: Ground, slot: int, begin: int, free: tuple[int, int]
) -> list[Step]:
    """Add to where all records begin what lies before a warp's first one."""
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
    """Get a thread's number in its block, and how many warps that has."""
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
