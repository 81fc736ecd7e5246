"""Encodings of further inserted instructions: shifts, byte masks and selects, one value per lane.

``forms`` says where such words come from, and what latencies they have.
"""

from __future__ import annotations

from typing import Final

from ikp.sass.assembly.assembler import Resource, Step
from ikp.sass.assembly.forms import RZ, immediate

_SELECT: Final = 0x078ECA00
"""LOP3's function of three bits: the second where the first is set, else the third."""
_WORD: Final = 0xFFFFFFFF
_BYTE: Final = 8
_HIGHEST: Final = 0x80


def multiply_by(into: int, factor: int, value: int) -> Step:
    """Multiply a register by a constant."""
    low = 0x7824 | into << 16 | factor << 24 | (value & _WORD) << 32
    return Step(low, 0x078E0000 | RZ, reads=_r(factor), writes=_r(into))


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
