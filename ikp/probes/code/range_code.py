"""Probe code of ranges: it reads the clock at their starts and ends, and stores their records.

What a record costs is mostly the cycles for which a warp is held back until its store may issue.
Whether it may, and by which thread, must be known 13 cycles before, and takes 8 to compute. A warp
that waits for a load has these cycles to spare *before* the data are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ikp.core import abi
from ikp.core.abi import Kind, PayloadType
from ikp.probes.code import gathered_code
from ikp.probes.code.record_part import ALONE, Part
from ikp.probes.code.record_stores import RECORD_BITS, put_record
from ikp.probes.code.reserved_registers import Frame, Scratch
from ikp.sass.assembly import forms
from ikp.sass.assembly.assembler import Step
from ikp.sass.assembly.forms import URZ


def range_tag(region: int) -> int:
    """Return the tag of a range."""
    return abi.tag(Kind.RANGE, PayloadType.NONE, region)


def start(register: int) -> list[Step]:
    """Return the code that begins a range: it reads the clock into a register."""
    return [forms.clock(register)]


def keep(uniform: int, register: int) -> list[Step]:
    """Return the code that copies a start to a uniform register."""
    return [forms.to_uniform(uniform, register)]


def end(
    frame: Frame,
    scratch: Scratch,
    tag: int,
    kept: tuple[int, bool] | None = None,
    part: Part = ALONE,
) -> list[Step]:
    """Return the code that ends a range, and stores its record if there is room.

    The start slot is read last: a range may be so short that its start is only just on its way.

    Args:
        frame: the kernel's reserved registers.
        scratch: the registers that are free here.
        tag: the record's tag.
        kept: the range's start slot, and whether it is a register of each thread's own, not a
            uniform one; None where the start is already in the record's words.
        part: which record of a batch it is.
    """
    if scratch.gathered is not None:
        return gathered_code.end(frame, scratch, tag, kept, part)
    ready = _ready(frame, scratch, tag, part)
    return [forms.clock(scratch.last), *ready, *_stored(frame, scratch, tag, kept, part)]


def wait(
    frame: Frame, scratch: Scratch, tag: int, scoreboards: int, part: Part = ALONE
) -> list[Step]:
    """Return the code of a range that holds only a wait: its record is made ready meanwhile.

    Args:
        frame: the kernel's reserved registers.
        scratch: the registers that are free here, for a record that is not piecemeal.
        tag: the record's tag.
        scoreboards: the scoreboards that are waited for, as a mask.
        part: which record of a batch it is.
    """
    if scratch.gathered is not None:
        return gathered_code.wait(frame, scratch, tag, scoreboards, part)
    return [
        forms.clock(scratch.start),
        *_ready(frame, scratch, tag, part),
        forms.clock(scratch.last).after(scoreboards),
        *_stored(frame, scratch, tag, None, part),
    ]


def prepared(
    frame: Frame, scratch: Scratch, records: int = 1, meanwhile: Sequence[Step] = ()
) -> list[Step]:
    """Return the code for address and predicate of a batch's stores, which needs no end of a range.

    Args:
        frame: the kernel's reserved registers.
        scratch: the registers that are free from here to the batch's last record.
        records: how many records the batch has.
        meanwhile: other instructions to run while results are on their way.
    """
    f, here, room, saved = forms, scratch.address, scratch.predicate, scratch.saved
    elected = [f.elect(room)]
    begun = [f.from_uniform(here, frame.count), *meanwhile]
    high = [] if frame.near else [f.from_uniform(here + 1, frame.high)]
    base = URZ if frame.near else frame.records
    first = [*elected, *begun]
    if saved is not None:  # the instructions between take as long as the predicate is read
        between = [*begun, *high]
        short = max(f.SAVING_STALL - len(between), 1)
        first = [replace(f.save(saved, room), stall=short), *between, *elected]
    return [
        *first,
        f.below(room, here, frame.room, where=room),
        f.scaled(here, here, base, RECORD_BITS + frame.row_bits),
        *([] if saved is not None else high),
        f.add_uniform(frame.count, frame.count, records),
    ]


def led(frame: Frame, scratch: Scratch, records: int) -> list[Step]:
    """Return the code of ``prepared`` for a batch so much later that all its results are there."""
    steps = prepared(frame, scratch, records)
    last = {each: at for at, step in enumerate(steps) for each in step.writes}
    return [
        replace(step, time=1) if all(last[each] == at for each in step.writes) else step
        for at, step in enumerate(steps)
    ]


def _ready(frame: Frame, scratch: Scratch, tag: int, part: Part) -> list[Step]:
    """Return the code for a record's tag; with the first of a batch, that of ``prepared``, too."""
    named = [] if scratch.piecemeal else [forms.immediate(scratch.first, tag)]
    if part.number or part.led:
        return named
    return prepared(frame, scratch, part.records, named)


def stores_home(scratch: Scratch, kept: tuple[int, bool] | None) -> bool:
    """Whether a record's start is stored right from its start slot."""
    apart = scratch.apart is not None and scratch.gathered is None
    return apart and kept is not None and kept[1]


def _stored(
    frame: Frame, scratch: Scratch, tag: int, kept: tuple[int, bool] | None, part: Part
) -> list[Step]:
    """Return the code by which one thread stores a record, and a saved predicate is restored.

    Args:
        frame: the kernel's reserved registers.
        scratch: the registers that are free here.
        tag: the record's tag.
        kept: the start slot; None where the start is already in the record's words.
        part: which record of a batch it is.
    """
    room, saved = scratch.predicate, scratch.saved
    words = _words(frame, scratch, tag, kept, part.number)
    steps = [each.when(room) if each.keeps else each for each in words]
    return steps if saved is None or not part.last else [*steps, forms.restore(room, saved)]


def _words(
    frame: Frame, scratch: Scratch, tag: int, kept: tuple[int, bool] | None, number: int
) -> list[Step]:
    first, last, here, begin = scratch.first, scratch.last, scratch.address, scratch.start
    behind = number * abi.RECORD_BYTES << frame.row_bits  # the first of the batch
    begun: list[Step] = []
    if stores_home(scratch, kept) and kept:
        begin = kept[0]
    elif kept and kept != (begin, True):
        begun = [(forms.copy if kept[1] else forms.from_uniform)(begin, kept[0])]

    def put(offset: int, value: int, words: int = 1) -> Step:
        return put_record(frame, here, behind + offset, value, words)

    if scratch.in_a_row:  # the fourth word is the payload, which no reader of this tag looks at
        return [*begun, put(0, first, 4)]
    tagged = [forms.immediate(first, tag)] if scratch.piecemeal else []
    if scratch.apart is not None:
        return [put(8, last), *tagged, put(0, first), *begun, put(4, begin)]
    if not scratch.piecemeal:
        return [*begun, put(0, first, 2), put(8, last)]
    return [put(8, last), *tagged, *begun, put(0, first, 2)]
