"""What a patched kernel runs where it begins and ends, if uniform registers name its addresses.

A store of sm_90 can take its address from two uniform registers, and add a thread's own to it. A
warp whose header and records are named so copies no address, keeps nothing that says what global
memory is, and works out where its slot is on the uniform datapath: once, and where it is kept. What
that does to a warp is what ``sequences`` says, in fewer instructions.

It is told by the same cell, which has how many records a slot has room for in the place of its
bytes. Every address it keeps is that much too low that a launch's header fits in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ikp.core import abi
from ikp.core.abi import ClockKind, Language, OverflowMode
from ikp.machine import forms, lane_forms
from ikp.machine.assembler import NOP, Step
from ikp.machine.forms import RZ, URZ
from ikp.machine.keeping import Frame, NearGround
from ikp.machine.ordering import reordered
from ikp.machine.sequences import QUAD, RECORD_BITS, elected, keep_clocks

_BEYOND: Final = abi.LAUNCH_HEADER_BYTES
_HEADER_BITS: Final = abi.DENSE_HEADER_BYTES.bit_length() - 1
_TO_MULTIPLY: Final = 14
"""One more than others, compilers let pass until a copied number is multiplied or added to that."""
_CONSTANT_TIME = 6
"""On these chips, compilers let 2 cycles pass until whoever reads a constant so loaded."""


def locate(
    frame: Frame,
    ground: NearGround,
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
        clocks: four registers with both clocks at the entry, where they are to be kept yet.
        margin: how many records a warp may write behind the last that it keeps.
    """
    f, thread, first, block = forms, ground.thread, ground.predicate, frame.records
    room, slots, slot = frame.room, frame.room + 1, ground.pair
    header, records, who = frame.header, frame.records, frame.entered[2]
    steps = [
        f.special(thread, f.TID_X),
        *_block(frame),
        f.uniform_special(who, f.SM),
        _constant(header, *frame.cell, pair=True),
        _constant(room, *frame.cell.beyond(8), pair=True),
        f.shift_right(thread, thread, 5),
        replace(f.to_uniform(frame.count, thread), time=_TO_MULTIPLY),
        *([] if clocks is None else keep_clocks(frame, clocks)),
        _constant(records + 1, 0, frame.places.grid_id),
        f.scaled_uniform(who, records + 1, who, 16),
        f.multiply_uniform_by(slot, block, frame.warps or 1, frame.count),
        f.below(first, RZ, slot),
        *_records_before(frame, block, slot, slot + 1, margin),
        f.scaled_uniform(records, slots, header, _HEADER_BITS),
        f.scaled_uniform(header, slot, header, _HEADER_BITS),
        f.scaled_uniform(records, frame.count, records, RECORD_BITS),
        *([] if frame.sure else [f.below_uniform(ground.flag, slot, slots)]),
        *([] if frame.sure else [f.choose_uniform(room, room, ground.flag)]),
        f.copy_uniform(records + 1, header + 1),
        f.copy_uniform(frame.count, URZ),
        *_threads(frame, ground.quads[0]),
    ]
    told = _launch_header(frame, ground, (whole, margin), language)
    return [*reordered(steps), f.skip(len(told)).when(first), *told]


def _threads(frame: Frame, free: int) -> list[Step]:
    """Get what each thread keeps to gather records, if it does."""
    if not frame.threads:
        return []
    lane, low, high = frame.threads
    return [forms.special(lane, forms.LANE), *lane_forms.own_byte(lane, free, (low, high))]


def _constant(into: int, bank: int, offset: int, *, pair: bool = False) -> Step:
    return replace(forms.constant(into, bank, offset, pair=pair), time=_CONSTANT_TIME)


def _block(frame: Frame) -> list[Step]:
    """Get a block's number among all, where the address of records will be."""
    f, grid = forms, frame.places.grid
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
    """Make a warp's number in its block that of the records before its first one.

    Where all warps of a block are one row, that number is the warp's in its row, too.
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


def leave(frame: Frame, quads: Sequence[int], predicate: int) -> list[Step]:
    """Return what stands before an EXIT: one thread stores the slot's header.

    Args:
        frame: what the kernel keeps.
        quads: as for ``sequences.leave``.
        predicate: a free one.
    """
    f = forms
    now, before = quads[0], quads[-1]
    steps = [
        *elected(frame, predicate),
        put_header(frame, RZ, QUAD, now).when(predicate),
        *_kept(frame, before),
        put_header(frame, RZ, 0, before).when(predicate),
    ]
    return [f.wide(now, f.GLOBAL_TIMER), f.wide(now + 2, f.CLOCK), *reordered(steps)]


def leave_together(frame: Frame, quad: int, lane: int, predicates: tuple[int, int]) -> list[Step]:
    """Return what stands before the only EXIT, where all threads leave: two store the header.

    Args:
        frame: what the kernel keeps.
        quad: four free registers in a row.
        lane: a free register.
        predicates: free ones.
    """
    f, (stores, second) = forms, predicates
    steps = [
        f.special(lane, f.LANE),
        f.below_constant(stores, lane, abi.DENSE_HEADER_BYTES // QUAD),
        f.below(stores, RZ, frame.room, where=stores),
        f.differs(second, lane, 0),
        *[each.when(second, holds=False) for each in _kept(frame, quad)],
        f.scaled(lane, lane, URZ, QUAD.bit_length() - 1),
        put_header(frame, lane, 0, quad).when(stores),
    ]
    return [f.wide(quad, f.GLOBAL_TIMER), f.wide(quad + 2, f.CLOCK), *reordered(steps)]


def put_header(frame: Frame, offset: int, beyond: int, value: int, words: int = 4) -> Step:
    """Return a store into a warp's header, so many bytes behind what a register says."""
    return forms.store_near(offset, frame.header, _BEYOND + beyond, value, words)


def put_record(frame: Frame, offset: int, beyond: int, value: int, words: int) -> Step:
    """Return the same for a warp's records."""
    return forms.store_near(offset, frame.records, _BEYOND + beyond, value, words)


def _kept(frame: Frame, into: int) -> list[Step]:
    """Copy what a header begins with to four registers."""
    return [
        forms.from_uniform_pair(into, frame.entered[0]),
        forms.from_uniform_pair(into + 2, frame.count),
    ]


def _launch_header(
    frame: Frame, ground: NearGround, told: tuple[int, int], language: Language
) -> list[Step]:
    """Let one thread of the launch's first warp write what the launch is.

    Its slot is the first: what it keeps of its header is where the launch's header is.
    """
    f, p, ok, busy = forms, frame.places, ground.predicate, 1 << ground.scoreboard
    here, (whole, margin) = abi.field_offsets(abi.LAUNCH_HEADER), told
    which, size, how, once, last = (ground.quads[n % len(ground.quads)] for n in range(5))

    def constants(into: int, offset: int, count: int) -> list[Step]:
        return [f.load_constant(into + n, 0, offset + 4 * n) for n in range(count)]

    def put(name: str, value: int, words: int = 4) -> Step:
        return f.store_near(RZ, frame.header, here[name], value, words).when(ok)

    body = [
        *elected(frame, ok),
        f.constant(ground.pair, 0, p.descriptor, pair=True),
        *[f.immediate(which, abi.MAGIC), f.immediate(which + 1, abi.ABI_VERSION)],
        *constants(which + 2, p.grid, 2),
        put("magic", which),
        *[*constants(size, p.grid + 8, 1), *constants(size + 1, p.block, 3)],
        put("grid_z", size),
        *[f.from_uniform(how, frame.room), f.immediate(how + 2, abi.RECORD_BYTES)],
        f.immediate(how + 3, abi.DENSE_HEADER_BYTES + abi.RECORD_BYTES * margin),
        f.multiply(how + 1, how, how + 2, how + 3),
        *[f.immediate(how, frame.warps or 1), f.immediate(how + 2, ClockKind.CYCLES)],
        *[f.immediate(how + 3, OverflowMode.STOP), put("warps_per_block", how)],
        *[*constants(once, p.grid_id, 1), put("grid_id", once, 1)],
        *[f.immediate(once, language), f.immediate(once + 1, abi.Option.DENSE)],
        put("language", once, 2),
        *[f.immediate(last, whole), f.immediate(last + 1, 1 << frame.row_bits)],
        put("whole", last, 2),
        *([f.immediate(last + 2, margin), put("margin", last + 2, 1)] if margin else []),
        *[f.from_uniform(which, frame.header), f.from_uniform(which + 1, frame.header + 1)],
        f.immediate(which + 2, 1),
        f.count_up(which, here["launches"], which + 2, ground.pair).when(ok),
    ]
    return [*reordered(body), NOP.after(busy)]  # the kernel may use these registers at once
