"""Probe code before an EXIT: it reads both clocks and stores a warp's header.

Where a warp's threads leave apart, the header that the last of them store remains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ikp.core import abi
from ikp.probes.code.entry_code import read_clocks
from ikp.probes.code.launch_header import QUAD, elected, put_header
from ikp.probes.code.reserved_registers import Frame
from ikp.sass.assembly import forms
from ikp.sass.assembly.assembler import Step, reordered
from ikp.sass.assembly.forms import RZ, URZ

_HEADER: Final = abi.field_offsets(abi.DENSE_HEADER)


def leave(frame: Frame, quads: Sequence[int], address: int, predicate: int) -> list[Step]:
    """Return the code by which one thread stores the header.

    Args:
        frame: the kernel's reserved registers.
        quads: rows of four free registers, one at least; with four, no store waits for another.
        address: two free registers, the first even; not needed where uniform ones name addresses.
        predicate: a free one.
    """
    now, before = quads[0], quads[-1]
    kept = _kept(frame)
    steps = [
        *elected(frame, predicate),
        *_addressed(frame, address),
        put_header(frame, _own(frame, address), QUAD, now).when(predicate),
        *_copied(frame, before),
        put_header(frame, _own(frame, address), _first(frame), before, len(kept)).when(predicate),
    ]
    return [*read_clocks(now), *reordered(steps)]


def leave_together(
    frame: Frame, quad: int, address: int, predicates: tuple[int, int]
) -> list[Step]:
    """Return the code before the only EXIT, where all threads leave: two store the header.

    Each has half of it, so it goes to memory at once.

    Args:
        frame: the kernel's reserved registers, those of the clocks at the entry too.
        quad: four free registers in a row.
        address: two free registers, the first even; one, where uniform ones name addresses.
        predicates: free ones.
    """
    f, (stores, second) = forms, predicates
    steps = [
        f.special(address, f.LANE),
        f.below_constant(stores, address, abi.DENSE_HEADER_BYTES // QUAD),
        f.below(stores, RZ, frame.room, where=stores),
        f.differs(second, address, 0),
        *[each.when(second, holds=False) for each in _copied(frame, quad)],
        f.scaled(address, address, URZ if frame.near else frame.header, QUAD.bit_length() - 1),
        *([] if frame.near else [f.from_uniform(address + 1, frame.high)]),
        put_header(frame, address, 0, quad).when(stores),
    ]
    return [*read_clocks(quad), *reordered(steps)]


def leave_by_words(frame: Frame, words: Sequence[int], address: int, predicate: int) -> list[Step]:
    """Return the code that stores the header word by word, where no four free registers adjoin.

    That is so where the last stores may still read nearly all registers: no scoreboard says when
    they have. This takes six registers still, but only two in a row.

    Args:
        frame: the kernel's reserved registers.
        words: four free registers.
        address: two others, the first even: the clocks are read into these.
        predicate: a free one.
    """
    f, low, high, kept = forms, address, address + 1, _kept(frame)

    def put(first: int, some: Sequence[int]) -> list[Step]:
        own = _own(frame, address)
        stores = [put_header(frame, own, first + 4 * n, each, 1) for n, each in enumerate(some)]
        return [each.when(predicate) for each in stores]

    times = [
        *[f.wide(low, f.GLOBAL_TIMER), f.copy(words[0], low), f.copy(words[1], high)],
        *[f.wide(low, f.CLOCK), f.copy(words[2], low), f.copy(words[3], high)],
    ]
    steps = [
        *elected(frame, predicate),
        *_addressed(frame, address),
        *put(_HEADER["finish_ns"], words),
        *[f.from_uniform(into, each) for into, each in zip(words, kept, strict=False)],
        *put(_first(frame), words[: len(kept)]),
    ]
    return [*times, *reordered(steps)]


def _own(frame: Frame, address: int) -> int:
    """Return the thread's own register of a header's address: RZ where uniform ones hold it all."""
    return RZ if frame.near else address


def _addressed(frame: Frame, address: int) -> list[Step]:
    """Copy the header's address to two registers, where no uniform ones name it."""
    if frame.near:
        return []
    return [forms.from_uniform(address, frame.header), forms.from_uniform(address + 1, frame.high)]


def _kept(frame: Frame) -> tuple[int, ...]:
    """Return the uniform registers to store; the entry's clocks only if not stored yet."""
    return (*frame.entered[:2], frame.count, *frame.entered[2:])


def _first(frame: Frame) -> int:
    """Return the offset in the header of the first word in ``_kept``."""
    return 0 if frame.entered else _HEADER["attempted"]


def _copied(frame: Frame, into: int) -> list[Step]:
    """Copy the registers of ``_kept`` to a row of each thread's own."""
    if frame.near:
        pairs = (frame.entered[0], frame.count)
        return [forms.from_uniform_pair(into + 2 * n, each) for n, each in enumerate(pairs)]
    return [forms.from_uniform(into + n, each) for n, each in enumerate(_kept(frame))]
