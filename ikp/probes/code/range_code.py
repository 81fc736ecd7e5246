"""Probe code of ranges: clock reads at starts and ends, and stores of records, single or gathered.

All threads of a warp read the clock, and one of them stores a single record. What the record costs
is mostly the cycles for which the warp is held back until its store may issue. Whether it may, and
by which thread, must be known 13 cycles before, and takes 8 to compute. A warp that waits for a
load has these cycles to spare *before* the data are there.

A store also has its time in the queue to memory, so one store can take up to eight gathered
records. Each of these has a thread of its own, which keeps its words when those of the next records
are made. Only the store needs a predicate: each thread has a byte, of eight, whose highest bit is
set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ikp.core import abi
from ikp.core.abi import Kind, PayloadType
from ikp.probes.code.header_code import RECORD_BITS, put_record
from ikp.probes.code.reserved_registers import Frame, Gathered, Scratch
from ikp.sass.assembly import forms, lane_forms
from ikp.sass.assembly.assembler import Step
from ikp.sass.assembly.forms import URZ


class BatchPart(NamedTuple):
    """The position of one record in its batch."""

    number: int = 0
    records: int = 1  # of the batch
    led: bool = False  # address and predicate are computed before the first range begins

    @property
    def last(self) -> bool:
        """Whether it is the last of them."""
        return self.number == self.records - 1


ALONE: Final = BatchPart()


_NEEDED: Final = 1
"""The number of the first record that a mask selects a thread for: all threads make record 0."""


def gathered_end(
    frame: Frame, scratch: Scratch, tag: int, kept: tuple[int, bool] | None, part: BatchPart
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


def gathered_wait(
    frame: Frame, scratch: Scratch, tag: int, scoreboards: int, part: BatchPart
) -> list[Step]:
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


def _ended(scratch: Scratch, part: BatchPart) -> int:
    """Return the register that a record's end is read into: every thread has the first record's."""
    return scratch.last if part.number else _shared(scratch).words + 2


def _made(
    frame: Frame, scratch: Scratch, tag: int, kept: tuple[int, bool] | None, part: BatchPart
) -> list[Step]:
    """Return the code that makes a record but for its end: thread numbers, tag, start, guard."""
    shared = _shared(scratch)
    words, mask = shared.words, scratch.first
    steps: list[Step] = []
    if shared.board is None:
        steps += _counted(frame, shared.number, part.records) if part.last else []
    elif part.number == (0 if shared.early else _NEEDED):
        steps.append(forms.special(shared.number, forms.LANE)._replace(left=True))
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


def _done(frame: Frame, scratch: Scratch, part: BatchPart) -> list[Step]:
    """Return the code behind the end's clock read: select it; with the last record, store all."""
    shared, room, saved = _shared(scratch), scratch.predicate, scratch.saved
    mask, last = scratch.first, shared.words + 2
    steps = [lane_forms.select(last, mask, scratch.last, last)] if part.number else []
    if part.last:
        steps.append(put_record(frame, shared.number, 0, shared.words, 4).when(room))
        steps += [] if saved is None else [forms.restore(room, saved)]
    return steps


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
    part: BatchPart = ALONE,
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
        return gathered_end(frame, scratch, tag, kept, part)
    ready = _ready(frame, scratch, tag, part)
    return [forms.clock(scratch.last), *ready, *_stored(frame, scratch, tag, kept, part)]


def wait(
    frame: Frame, scratch: Scratch, tag: int, scoreboards: int, part: BatchPart = ALONE
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
        return gathered_wait(frame, scratch, tag, scoreboards, part)
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
        first = [f.save(saved, room)._replace(stall=short), *between, *elected]
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
        step._replace(time=1) if all(last[each] == at for each in step.writes) else step
        for at, step in enumerate(steps)
    ]


def _ready(frame: Frame, scratch: Scratch, tag: int, part: BatchPart) -> list[Step]:
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
    frame: Frame, scratch: Scratch, tag: int, kept: tuple[int, bool] | None, part: BatchPart
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
