"""Probe code of gathered records: up to eight threads of a warp hold one each, for one store.

All threads of a warp read the clock, and one of them stores it: so what a record costs is mostly
its time in the queue to memory. Here each of up to eight records has a thread of its own. That
thread keeps its words when those of the next records are made, and one store takes all of them.
Only the store needs a predicate: each thread has a byte, of eight, whose highest bit is set.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ikp.probes.code.record_part import Part
from ikp.probes.code.record_stores import RECORD_BITS, put_record
from ikp.probes.code.reserved_registers import Frame, Gathered, Scratch
from ikp.sass.assembly import forms, lane_forms
from ikp.sass.assembly.assembler import Step
from ikp.sass.assembly.forms import URZ

_NEEDED: Final = 1
"""The number of the first record that a mask selects a thread for: all threads make record 0."""


def end(
    frame: Frame, scratch: Scratch, tag: int, kept: tuple[int, bool] | None, part: Part
) -> list[Step]:
    """Return the code that ends a range; the last one stores all records for which there is room.

    Args:
        frame: the kernel's reserved registers.
        scratch: the registers that are free here.
        tag: the record's tag.
        kept: as for ``range_code.end``.
        part: which record it is.
    """
    read = [forms.clock(_ended(scratch, part))]
    return [*read, *_made(frame, scratch, tag, kept, part), *_done(frame, scratch, part)]


def wait(frame: Frame, scratch: Scratch, tag: int, scoreboards: int, part: Part) -> list[Step]:
    """Return the code of a range that holds only a wait, and no other probe code.

    Args:
        frame: the kernel's reserved registers.
        scratch: the registers that are free here.
        tag: the record's tag.
        scoreboards: the scoreboards that are waited for, as a mask.
        part: which record it is.
    """
    begun = scratch.start if part.number else _shared(scratch).words + 1
    waited = forms.clock(_ended(scratch, part)).after(scoreboards)
    made = _made(frame, scratch, tag, (begun, True), part)
    return [forms.clock(begun), waited, *made, *_done(frame, scratch, part)]


def _shared(scratch: Scratch) -> Gathered:
    if scratch.gathered is None:
        raise ValueError("a record is stored by itself")
    return scratch.gathered


def _ended(scratch: Scratch, part: Part) -> int:
    """Return the register that a record's end is read into: every thread has the first record's."""
    return scratch.last if part.number else _shared(scratch).words + 2


def _made(
    frame: Frame, scratch: Scratch, tag: int, kept: tuple[int, bool] | None, part: Part
) -> list[Step]:
    """Return the code that makes a record but for its end: thread numbers, tag, start, guard."""
    shared = _shared(scratch)
    words, mask = shared.words, scratch.first
    steps: list[Step] = []
    if shared.board is None:
        steps += _counted(frame, shared.number, part.records) if part.last else []
    elif part.number == (0 if shared.early else _NEEDED):
        steps.append(replace(forms.special(shared.number, forms.LANE), left=True))
    if shared.board is not None and part.number == _NEEDED:
        steps += _numbered(frame, scratch, 1 << shared.board, part.records)
    if part.number:
        steps.append(lane_forms.spread_sign(mask, *shared.masks, part.number))
        steps.append(lane_forms.select_constant(words, mask, tag, words))
        steps += _begun(words + 1, kept, mask)
    else:
        steps.append(forms.immediate(words, tag))
        steps += _begun(words + 1, kept)
    return [*steps, *(_guard(frame, scratch, part.records) if part.last else [])]


def _begun(into: int, kept: tuple[int, bool] | None, mask: int | None = None) -> list[Step]:
    """Return the code that copies a start to its word, in the threads of a mask if there is one."""
    if kept is None or kept == (into, True):
        return []
    register, own = kept
    if mask is None:
        return [(forms.copy if own else forms.from_uniform)(into, register)]
    chosen = lane_forms.select if own else lane_forms.select_uniform
    return [chosen(into, mask, register, into)]


def _counted(frame: Frame, number: int, records: int) -> list[Step]:
    """Return the code for the number of each thread's record in the warp, and for its cursor."""
    lane = frame.threads[0] if frame.threads else number
    return [
        lane_forms.add_uniform(number, lane, frame.count),
        forms.add_uniform(frame.count, frame.count, records),
    ]


def _numbered(frame: Frame, scratch: Scratch, board: int, records: int) -> list[Step]:
    """Return the code of ``_counted`` and of each thread's byte, once lane ids have been read."""
    shared = _shared(scratch)
    made = lane_forms.own_byte(shared.number, scratch.first, shared.masks)
    first, *rest = [*made, *_counted(frame, shared.number, records)]
    return [first.after(board), *rest]


def _guard(frame: Frame, scratch: Scratch, records: int) -> list[Step]:
    """Return the code for the store's predicate (a record, and room for it) and its address."""
    f, number, room, saved = forms, _shared(scratch).number, scratch.predicate, scratch.saved
    first = f.below(room, number, frame.count)
    if frame.threads:
        first = f.below_constant(room, frame.threads[0], records)
    return [
        *([] if saved is None else [f.save(saved, room)]),
        first,
        f.below(room, number, frame.room, where=room),
        f.scaled(number, number, URZ, RECORD_BITS + frame.row_bits),
    ]


def _done(frame: Frame, scratch: Scratch, part: Part) -> list[Step]:
    """Return the code behind the end's clock read: select it; with the last record, store all."""
    shared, room, saved = _shared(scratch), scratch.predicate, scratch.saved
    mask, last = scratch.first, shared.words + 2
    steps = [lane_forms.select(last, mask, scratch.last, last)] if part.number else []
    if part.last:
        steps.append(put_record(frame, shared.number, 0, shared.words, 4).when(room))
        steps += [] if saved is None else [forms.restore(room, saved)]
    return steps
