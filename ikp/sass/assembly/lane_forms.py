"""Encodings of further inserted instructions: shifts, masks, votes and counts, one value per lane.

``forms`` says where such words come from, and what latencies they have.
"""

from __future__ import annotations

from typing import Final

from ikp.sass.assembly.assembler import NEVER, PT, Resource, Step
from ikp.sass.assembly.forms import RZ, immediate

_SELECT: Final = 0x078ECA00
"""LOP3's function of three bits: the second where the first is set, else the third."""
_WORD: Final = 0xFFFFFFFF
_OFFSET: Final = 0xFFFFFF
_BYTE: Final = 8
_HIGHEST: Final = 0x80


def multiply_by(into: int, factor: int, value: int) -> Step:
    """Multiply a register by a constant."""
    low = 0x7824 | into << 16 | factor << 24 | (value & _WORD) << 32
    return Step(low, 0x078E0000 | RZ, reads=_r(factor), writes=_r(into))


def multiply_add(into: int, factor: int, value: int, addend: int) -> Step:
    """Multiply a register by a constant, and add another register."""
    low = 0x7824 | into << 16 | factor << 24 | (value & _WORD) << 32
    return Step(low, 0x078E0200 | addend, reads=_r(factor) | _r(addend), writes=_r(into))


def holds(into: int, predicate: int, *, negated: bool = False) -> Step:
    """Set a predicate: whether another one holds, or does not."""
    low = 0x780C | RZ << 24 | 1 << 32
    high = 0x00701070 | predicate << 23 | negated << 26 | into << 17
    return Step(low, high, reads=_p(predicate), writes=_p(into))


def below_constant(into: int, source: int, value: int, where: int) -> Step:
    """Set a predicate: whether a register is below a constant, and a predicate holds, too."""
    low = 0x780C | source << 24 | (value & _WORD) << 32
    high = 0x00701070 | where << 23 | into << 17
    return Step(low, high, reads=_r(source) | _p(where), writes=_p(into))


def ballot(into: int, predicate: int) -> Step:
    """Set a bit for each active lane whose predicate holds."""
    high = 0x000E0100 | predicate << 23
    return Step(0x7806 | into << 16, high, reads=_p(predicate), writes=_r(into))


def count(into: int, address: int, offset: int, value: int, descriptor: int) -> Step:
    """Add a register to a word of global memory, atomically, and return the value before."""
    low = 0x79A8 | into << 16 | address << 24 | value << 32 | (offset & _OFFSET) << 40
    reads = _r(address) | _r(address + 1) | _r(value) | {("U", descriptor), ("U", descriptor + 1)}
    return Step(low, 0x081EE1C0 | descriptor, reads=reads, writes=_r(into), time=NEVER, keeps=True)


def add_uniform(into: int, source: int, uniform: int) -> Step:
    """Add a uniform register to a thread's own."""
    low = 0x7C36 | into << 16 | source << 24 | uniform << 32
    return Step(low, 0x08000000, reads=_r(source) | {("U", uniform)}, writes=_r(into))


def shift_left(into: int, source: int, bits: int, *, high: bool = False) -> Step:
    """Shift to the left, by the number of bits in a register; a shift by 32 or more gives zero.

    Where ``high``, ``source`` is the lower half of 64 bits that are shifted, and the upper half is
    the result.
    """
    low = 0x7219 | into << 16 | source << 24 | bits << 32
    how = 0x10200 if high else 0x600
    return Step(low, how | RZ, reads=_r(source) | _r(bits), writes=_r(into))


def spread_sign(into: int, low: int, high: int, byte: int) -> Step:
    """Set all bits if the highest one of a byte is set, else none.

    Args:
        into: the register that is set.
        low: the register with bytes 0 to 3.
        high: the register with bytes 4 to 7.
        byte: the number of the byte.
    """
    word = 0x7816 | into << 16 | low << 24 | (8 | byte) * 0x1111 << 32
    return Step(word, high, reads=_r(low) | _r(high), writes=_r(into))


def select(into: int, mask: int, source: int, other: int) -> Step:
    """Take a register's bits where a mask has ones, and another register's where it has zeros."""
    low = 0x7212 | into << 16 | mask << 24 | source << 32
    reads = _r(mask) | _r(source) | _r(other)
    return Step(low, _SELECT | other, reads=reads, writes=_r(into))


def select_uniform(into: int, mask: int, uniform: int, other: int) -> Step:
    """Take a uniform register's bits where a mask has ones, and a register's where it has zeros."""
    low = 0x7C12 | into << 16 | mask << 24 | uniform << 32
    reads = _r(mask) | {("U", uniform)} | _r(other)
    return Step(low, 1 << 27 | _SELECT | other, reads=reads, writes=_r(into))


def select_constant(into: int, mask: int, value: int, other: int) -> Step:
    """Take a constant's bits where a mask has ones, and a register's where it has zeros."""
    low = 0x7812 | into << 16 | mask << 24 | (value & _WORD) << 32
    return Step(low, _SELECT | other, reads=_r(mask) | _r(other), writes=_r(into))


def own_byte(lane: int, place: int, masks: tuple[int, int]) -> list[Step]:
    """Return steps that set the highest bit of a thread's own byte.

    Args:
        lane: the register with the lane's number.
        place: a free register.
        masks: the two registers with the bytes; the second may be RZ.
    """
    low, high = masks
    return [
        multiply_by(place, lane, _BYTE),
        immediate(low, _HIGHEST),
        *([] if high == RZ else [shift_left(high, low, place, high=True)]),
        shift_left(low, low, place),
    ]


def _r(number: int) -> frozenset[Resource]:
    return frozenset({("R", number)} if number != RZ else ())


def _p(number: int) -> frozenset[Resource]:
    return frozenset({("P", number)} if number != PT else ())
