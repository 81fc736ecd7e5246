"""What a patched kernel runs where ranges begin and end: clocks are read, records stored.

What a record costs is mostly the cycles for which a warp is held back until its store may issue:
whether it may, and by which thread, must be known 13 cycles before, and that takes 8 to find out.
A warp that waits for a load has these cycles to spare *before* what it waits for is there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ikp.core import abi
from ikp.core.abi import Kind, PayloadType
from ikp.machine import forms, near
from ikp.machine.assembler import Step
from ikp.machine.forms import URZ
from ikp.machine.keeping import Frame, Scratch

_RECORD_BITS: Final = abi.RECORD_BYTES.bit_length() - 1


def range_tag(region: int) -> int:
    """Return the tag of a range."""
    return abi.tag(Kind.RANGE, PayloadType.NONE, region)


def start(register: int) -> list[Step]:
    """Return what begins a range: the clock is read into a register, to be kept or stored."""
    return [forms.clock(register)]


def keep(uniform: int, register: int) -> list[Step]:
    """Return what keeps a start in a uniform register."""
    return [forms.to_uniform(uniform, register)]


def end(
    frame: Frame, scratch: Scratch, tag: int, kept: int | None = None, *, own: bool = False
) -> list[Step]:
    """Return what ends a range, and stores its record if there is room.

    What is kept is read last: a range may be so short that its start is only just on its way.

    Args:
        frame: what the kernel keeps.
        scratch: what is free here.
        tag: the record's.
        kept: the uniform register with the range's start; None where it is in place.
        own: whether it is none, but one of each thread's own.
    """
    prepared = _prepared(frame, scratch, tag)
    begin = forms.copy if own else forms.from_uniform
    begun = [] if kept is None else [begin(_start_word(scratch), kept)]
    return [forms.clock(scratch.last), *prepared, *_stored(frame, scratch, tag, begun)]


def wait(frame: Frame, scratch: Scratch, tag: int, scoreboards: int) -> list[Step]:
    """Return a whole range that holds nothing but a wait: its record is made ready meanwhile.

    Args:
        frame: what the kernel keeps.
        scratch: what is free here, for a record that is not piecemeal.
        tag: the record's.
        scoreboards: what is waited for, as a mask.
    """
    return [
        forms.clock(_start_word(scratch)),
        *_prepared(frame, scratch, tag),
        forms.clock(scratch.last).after(scoreboards),
        *_stored(frame, scratch, tag, []),
    ]


def _start_word(scratch: Scratch) -> int:
    """Return the register in which a range's start is stored."""
    return scratch.first if scratch.last == scratch.first else scratch.first + 1


def _prepared(frame: Frame, scratch: Scratch, tag: int) -> list[Step]:
    """Return all that is known of a record before its end is: where it goes, and who stores it."""
    f, here, room, saved = forms, scratch.address, scratch.predicate, scratch.saved
    elected = [f.elect(room)]
    begun = [f.from_uniform(here, frame.count)]
    if not scratch.piecemeal:
        begun.append(f.immediate(scratch.first, tag))
    high = [] if frame.near else [f.from_uniform(here + 1, frame.high)]
    base = URZ if frame.near else frame.records
    first = [*elected, *begun]
    if saved is not None:  # what stands between is as long as the predicate is read
        between = [*begun, *high]
        short = max(f.SAVING_STALL - len(between), 1)
        first = [replace(f.save(saved, room), stall=short), *between, *elected]
    return [
        *first,
        f.below(room, here, frame.room, where=room),
        f.scaled(here, here, base, _RECORD_BITS + frame.row_bits),
        *([] if saved is not None else high),
        f.add_uniform(frame.count, frame.count, 1),
    ]


def _stored(frame: Frame, scratch: Scratch, tag: int, begun: list[Step]) -> list[Step]:
    """Return what stores a record's words, by the thread that is to, and gives back what it took.

    Args:
        frame: what the kernel keeps.
        scratch: what is free here.
        tag: the record's.
        begun: what sets the start's word.
    """
    room, saved = scratch.predicate, scratch.saved
    steps = [each.when(room) if each.keeps else each for each in _words(frame, scratch, tag, begun)]
    return steps if saved is None else [*steps, forms.restore(room, saved)]


def _words(frame: Frame, scratch: Scratch, tag: int, begun: list[Step]) -> list[Step]:
    first, last, here = scratch.first, scratch.last, scratch.address

    def put(offset: int, value: int, words: int) -> Step:
        if frame.near:
            return near.put_record(frame, here, offset, value, words)
        return forms.store(here, offset, value, words, frame.descriptor)

    if scratch.in_a_row:  # nobody reads what is stored as the payload
        return [*begun, put(0, first, 4)]
    if not scratch.piecemeal:
        return [*begun, put(0, first, 2), put(8, last, 1)]
    tagged = forms.immediate(first, tag)
    if last != first:
        return [put(8, last, 1), tagged, *begun, put(0, first, 2)]
    return [put(8, last, 1), tagged, put(0, first, 1), *begun, put(4, first, 1)]
