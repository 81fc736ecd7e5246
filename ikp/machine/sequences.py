"""What a patched kernel runs where it begins and ends; ``range_code`` has what stands between.

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
from ikp.core.abi import ClockKind, Language, OverflowMode
from ikp.machine import forms
from ikp.machine.assembler import NOP, Step
from ikp.machine.forms import RZ, URZ
from ikp.machine.keeping import Frame, Ground
from ikp.machine.ordering import reordered
from ikp.machine.selecting import linear_of, selected

CELL: Final = "ikp_buffer"
"""The symbol of the cell."""
CELL_BYTES: Final = 16
FEW: Final = 7
MANY: Final = 12
"""How many single registers ``locate`` takes, where a block's threads are known or not."""

_HEADER = abi.field_offsets(abi.DENSE_HEADER)
RECORD_BITS: Final = abi.RECORD_BYTES.bit_length() - 1
QUAD: Final = 16
"""Bytes of four registers, the most that one store takes."""


def entry(frame: Frame, quad: int) -> list[Step]:
    """Return what stands before a kernel's first instruction: both clocks are kept.

    Args:
        frame: what the kernel keeps.
        quad: four free registers.
    """
    f, held = forms, frame.places.descriptor
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
    whole: int,
    language: Language = Language.OTHER,
    clocks: int | None = None,
    margin: int = 0,
) -> list[Step]:
    """Return what finds a warp's slot. It stands where every warp comes once, all threads together.

    Args:
        frame: what the kernel keeps.
        ground: what is free there.
        whole: the id of the range from each warp's entry to its exit.
        language: what the kernel was written in.
        clocks: the registers with both clocks at the entry, where they are to be stored.
        margin: how many records a warp may write behind the last that it keeps.
    """
    f, p, cell, sizes, ok = forms, frame.places, ground.cell, ground.sizes, ground.predicate
    slot, warps, x, y, z, columns, rows = ground.single[:FEW]
    steps = [
        *[f.special(into, f.CTAID_X + axis) for axis, into in enumerate((x, y, z))],
        f.load_constant(columns, 0, p.grid),
        f.load_constant(rows, 0, p.grid + 4),
        f.load_constant(cell, *frame.cell, pair=True),
        f.load_constant(sizes, *frame.cell.beyond(8), pair=True),
        f.copy_uniform(frame.count, URZ),
        *_warp(frame, slot, warps, ground.single[FEW:]),
        f.multiply(y, z, rows, y),
        f.multiply(x, y, columns, x),
        f.shift_right(slot, slot, 5),
        *_slot(frame, ground, slot, (warps, x), (y, columns)),
        f.add(rows, cell, abi.LAUNCH_HEADER_BYTES),
        f.immediate(y, abi.DENSE_HEADER_BYTES),
        f.multiply(z, slot, y, rows),
        f.multiply(x, sizes + 1, y, rows),
        *_first_record(frame, ground, slot, x, (y, columns)),
        f.below_other(ok, slot, sizes + 1),
        f.add(y, sizes, -abi.DENSE_HEADER_BYTES - abi.RECORD_BYTES * margin),
        f.shift_right(y, y, RECORD_BITS),
        f.choose(y, y, 0, ok),
        f.to_uniform(frame.header, z),
        f.to_uniform(frame.records, x),
        f.to_uniform(frame.high, cell + 1),
        f.to_uniform(frame.room, y),
        f.special(columns, f.SM),
        f.load_constant(rows, 0, p.grid_id),
        f.immediate(y, 1 << 16),
        f.multiply(columns, rows, y, columns),
        *[f.to_uniform(each, columns) for each in frame.entered[2:]],
    ]
    header = _launch_header(frame, ground, warps, (whole, margin), language)
    linear = slot if frame.selection is None else linear_of(ground)
    other = [f.differs(ok, linear, 0), f.skip(len(header)).when(ok), *header]
    if clocks is not None:
        other += [f.copy(cell, z), *elected(frame, ok)]
        other += [f.copy(clocks + 1, clocks + 2), f.immediate(clocks + 2, 0)]
        other += [f.copy(clocks + 3, columns), _put(frame, cell, 0, clocks).when(ok)]
        other += [NOP.after(1 << ground.scoreboard)]
    return [*reordered(steps), *other]


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


def leave(frame: Frame, quads: Sequence[int], address: int, predicate: int) -> list[Step]:
    """Return what stands before an EXIT: one thread stores the slot's header.

    Where a warp's threads leave apart, the last of them have the last word.

    Args:
        frame: what the kernel keeps.
        quads: rows of four free registers, one at least; with four, no store waits for another.
        address: two free registers, the first even.
        predicate: a free one.
    """
    f = forms
    now, before = quads[0], quads[-1]
    kept = (*frame.entered[:2], frame.count, *frame.entered[2:])
    done = [*_copies(before, kept if frame.entered else (frame.count,))]
    first = 0 if frame.entered else _HEADER["attempted"]
    steps = [
        *elected(frame, predicate),
        *_copies(address, (frame.header, frame.high)),
        _put(frame, address, QUAD, now).when(predicate),
        *done,
        _put(frame, address, first, before, len(done)).when(predicate),
    ]
    return [f.wide(now, f.GLOBAL_TIMER), f.wide(now + 2, f.CLOCK), *reordered(steps)]


def leave_together(
    frame: Frame, quad: int, address: int, predicates: tuple[int, int]
) -> list[Step]:
    """Return what stands before the only EXIT, where all threads leave: two store the header.

    Each has half of it, so it goes to memory at once.

    Args:
        frame: what the kernel keeps, the clocks at the entry too.
        quad: four free registers in a row.
        address: two free registers, the first even.
        predicates: free ones.
    """
    f, (stores, second) = forms, predicates
    init_ns, init_clock, who = frame.entered
    steps = [
        f.special(address, f.LANE),
        f.below_constant(stores, address, abi.DENSE_HEADER_BYTES // QUAD),
        f.below(stores, RZ, frame.room, where=stores),
        f.differs(second, address, 0),
        *[
            each.when(second, holds=False)
            for each in _copies(quad, (init_ns, init_clock, frame.count, who))
        ],
        f.scaled(address, address, frame.header, RECORD_BITS),
        f.from_uniform(address + 1, frame.high),
        _put(frame, address, 0, quad).when(stores),
    ]
    return [f.wide(quad, f.GLOBAL_TIMER), f.wide(quad + 2, f.CLOCK), *reordered(steps)]


def _warp(frame: Frame, thread: int, warps: int, more: Sequence[int]) -> list[Step]:
    """Get a thread's number in its block, and how many warps that has."""
    f = forms
    if frame.warps is not None:
        return [f.special(thread, f.TID_X), f.immediate(warps, frame.warps)]
    y, z, *size = more
    return [
        *[f.special(into, f.TID_X + axis) for axis, into in enumerate((thread, y, z))],
        *[f.load_constant(each, 0, frame.places.block + 4 * n) for n, each in enumerate(size)],
        f.multiply(y, z, size[1], y),
        f.multiply(thread, y, size[0], thread),
        f.multiply(warps, size[0], size[1], RZ),
        f.multiply(warps, warps, size[2], RZ),
        f.add(warps, warps, 31),
        f.shift_right(warps, warps, 5),
    ]


def _launch_header(
    frame: Frame, ground: Ground, warps: int, told: tuple[int, int], language: Language
) -> list[Step]:
    """Let one thread of the launch's first warp write what the launch is."""
    f, p, ok = forms, frame.places, ground.predicate
    here, busy = abi.field_offsets(abi.LAUNCH_HEADER), 1 << ground.scoreboard
    rows = [ground.quads[row % len(ground.quads)] for row in range(5)]

    def constants(into: int, offset: int, count: int) -> list[Step]:
        return [f.load_constant(into + n, 0, offset + 4 * n) for n in range(count)]

    def put(name: str, value: int, words: int = 4) -> Step:
        return _put(frame, ground.cell, here[name], value, words).when(ok)

    # Where some are chosen, the launch's first warp need not be one of them.
    some = frame.selection is not None
    first = [f.elect(ok), f.below_other(ok, RZ, ground.sizes, where=ok)]
    options = abi.Option.DENSE | abi.Option.SELECTED * some
    which, size, how, once, last = rows
    whole, margin = told
    body = [
        *(first if some else elected(frame, ok)),
        *[f.immediate(which, abi.MAGIC), f.immediate(which + 1, abi.ABI_VERSION)],
        *constants(which + 2, p.grid, 2),
        put("magic", which),
        *[*constants(size, p.grid + 8, 1), *constants(size + 1, p.block, 3)],
        put("grid_z", size),
        *[f.copy(how, warps), f.copy(how + 1, ground.sizes)],
        *[f.immediate(how + 2, ClockKind.CYCLES), f.immediate(how + 3, OverflowMode.STOP)],
        put("warps_per_block", how),
        *[*constants(once, p.grid_id, 1), f.immediate(once + 1, 1)],
        *[f.immediate(once + 2, language), f.immediate(once + 3, options)],
        put("grid_id", once, 1),
        f.count_up(ground.cell, here["launches"], once + 1, frame.descriptor).when(ok),
        put("language", once + 2, 2),
        *[f.immediate(last, whole), f.immediate(last + 1, 1 << frame.row_bits)],
        put("whole", last, 2),
        *([f.immediate(last + 2, margin), put("margin", last + 2, 1)] if margin else []),
    ]
    return [*reordered(body), NOP.after(busy)]  # the kernel may use these registers at once


def elected(frame: Frame, predicate: int) -> list[Step]:
    """Set a predicate for one thread of a warp that records."""
    f = forms
    return [f.elect(predicate), f.below(predicate, RZ, frame.room, where=predicate)]


def _copies(into: int, uniform: Sequence[int]) -> list[Step]:
    return [forms.from_uniform(into + word, each) for word, each in enumerate(uniform)]


def _put(frame: Frame, address: int, offset: int, value: int, words: int = 4) -> Step:
    return forms.store(address, offset, value, words, frame.descriptor)
