"""Encodings of the instructions that ikp inserts, for sm_90: one function for each form.

The words are those of ``ptxas``: the tests compile each form, and compare. Their latencies are the
longest that ``ptxas`` was seen to wait, rounded up.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from ikp.sass.assembly.assembler import GUARD_LATER, NEVER, PT, Resource, Step

RZ: Final = 255
URZ: Final = 63

# Special registers.
CLOCK: Final = 0x50
GLOBAL_TIMER: Final = 0x52
LANE: Final = 0x00
TID_X: Final = 0x21
CTAID_X: Final = 0x25
SM: Final = 0x43

CLOCK_TIME = 8
_PREDICATE_TIME = 6
UNIFORM_TIME = 13
_COUNT_TIME = 8
_SUM_TIME = 9
"""Latency of the uniform datapath, until a thread's instruction or an address reads the result."""
SAVING_STALL: Final = 4
"""Cycles until a saved predicate has been read; ptxas lets 2 pass before it writes it again."""


def clock(into: int) -> Step:
    """Read the low word of the SM's clock."""
    return Step(0x7805 | into << 16, CLOCK << 8, writes=_r(into), time=CLOCK_TIME)


def wide(into: int, special: int) -> Step:
    """Read a special register of 64 bits."""
    return Step(0x7805 | into << 16, 0x10000 | special << 8, writes=_r(into, 2), time=CLOCK_TIME)


def special(into: int, register: int) -> Step:
    """Read a special register of 32 bits."""
    return Step(0x7919 | into << 16, register << 8, writes=_r(into), time=NEVER)


def constant(into: int, bank: int, offset: int, *, pair: bool = False) -> Step:
    """Read 4 or 8 bytes of a constant bank into uniform registers."""
    low = 0x7AB9 | into << 16 | _constant(bank, offset)
    high = 0xA00 if pair else 0x800
    return Step(low, high, writes=_u(into, 1 + pair), time=UNIFORM_TIME)


def load_constant(into: int, bank: int, offset: int, *, pair: bool = False) -> Step:
    """Read 4 or 8 bytes of a constant bank into a thread's registers."""
    low = 0x7B82 | into << 16 | RZ << 24 | _constant(bank, offset)
    return Step(low, 0xA00 if pair else 0x800, writes=_r(into, 1 + pair), time=NEVER)


def load_byte(into: int, bank: int, offset: int, index: int) -> Step:
    """Read a byte of a constant bank, at an offset plus a register."""
    low = 0x7B82 | into << 16 | index << 24 | _constant(bank, offset)
    return Step(low, 0, reads=_r(index), writes=_r(into), time=NEVER)


def immediate(into: int, value: int) -> Step:
    """Set a register."""
    return Step(0x7424 | into << 16 | RZ << 24 | (value & _WORD) << 32, 0x078E00FF, writes=_r(into))


def copy(into: int, source: int) -> Step:
    """Copy a register."""
    low = 0x7224 | into << 16 | RZ << 24 | RZ << 32
    return Step(low, 0x078E0000 | source, reads=_r(source), writes=_r(into))


def from_uniform(into: int, source: int) -> Step:
    """Copy a uniform register to a thread's own."""
    low = 0x7E24 | into << 16 | RZ << 24 | source << 32
    return Step(low, 0x0F8E00FF, reads=_u(source), writes=_r(into))


def from_uniform_pair(into: int, source: int) -> Step:
    """Copy two uniform registers to two of a thread's own; the first of either is even."""
    low = 0x7E25 | into << 16 | RZ << 24 | source << 32
    return Step(low, 0x0F8E00FF, reads=_u(source, 2), writes=_r(into, 2))


def to_uniform(into: int, source: int) -> Step:
    """Copy a register, which all threads of the warp have equal, to a uniform one."""
    low = 0x72CA | into << 16 | source << 24
    return Step(low, 0x000E0000, reads=_r(source), writes=_u(into), time=UNIFORM_TIME)


def copy_uniform(into: int, source: int) -> Step:
    """Copy a uniform register to another."""
    low = 0x7C82 | into << 16 | source << 32
    return Step(low, 0x08000000, reads=_u(source), writes=_u(into), time=_SUM_TIME)


def add(into: int, source: int, value: int) -> Step:
    """Add a constant."""
    low = 0x7836 | into << 16 | source << 24 | (value & _WORD) << 32
    return Step(low, 0, reads=_r(source), writes=_r(into))


def uniform_special(into: int, register: int) -> Step:
    """Read a special register, which all threads of the warp have equal, into a uniform one."""
    return Step(0x79C3 | into << 16, register << 8, writes=_u(into), time=NEVER)


def multiply_uniform(into: int, factor: int, other: int, addend: int) -> Step:
    """Multiply two uniform registers, and add a third."""
    low = 0x72A4 | into << 16 | factor << 24 | other << 32
    reads = _u(factor) | _u(other) | _u(addend)
    return Step(
        low, 0x0F8E0200 | addend, reads=reads, writes=_u(into), time=_SUM_TIME, uniform=True
    )


def multiply_uniform_by(into: int, factor: int, value: int, addend: int) -> Step:
    """Multiply a uniform register by a constant, and add another."""
    low = 0x78A4 | into << 16 | factor << 24 | (value & _WORD) << 32
    reads = _u(factor) | _u(addend)
    return Step(
        low, 0x0F8E0200 | addend, reads=reads, writes=_u(into), time=_SUM_TIME, uniform=True
    )


def scaled_uniform(into: int, source: int, addend: int, bits: int) -> Step:
    """Shift a uniform register to the left, and add another."""
    low = 0x7291 | into << 16 | source << 24 | addend << 32
    reads = _u(source) | _u(addend)
    high = 0x0F8E0000 | URZ | bits << 11
    return Step(low, high, reads=reads, writes=_u(into), time=_SUM_TIME, uniform=True)


def masked_uniform(into: int, source: int, mask: int) -> Step:
    """Keep some bits of a uniform register."""
    low = 0x7892 | into << 16 | source << 24 | (mask & _WORD) << 32
    return Step(
        low, 0x0F8EC000 | URZ, reads=_u(source), writes=_u(into), time=_SUM_TIME, uniform=True
    )


def below_uniform(into: int, source: int, other: int) -> Step:
    """Set a uniform predicate: whether a uniform register is below another."""
    low, high = 0x728C | source << 24 | other << 32, 0x0BF01070 | into << 17
    reads = _u(source) | _u(other)
    return Step(low, high, reads=reads, writes=_up(into), time=_SUM_TIME, uniform=True)


def choose_uniform(into: int, source: int, predicate: int) -> Step:
    """Copy a uniform register where a uniform predicate holds; set it to zero where it does not."""
    low = 0x7287 | into << 16 | source << 24 | URZ << 32
    reads = _u(source) | _up(predicate)
    high = 0x08000000 | predicate << 23
    return Step(low, high, reads=reads, writes=_u(into), time=_SUM_TIME, uniform=True)


def add_uniform(into: int, source: int, value: int) -> Step:
    """Add a constant to a uniform register."""
    low = 0x7890 | into << 16 | source << 24 | (value & _WORD) << 32
    return Step(low, 0x0FFFE03F, reads=_u(source), writes=_u(into), time=_COUNT_TIME)


def scaled(into: int, source: int, uniform: int, bits: int) -> Step:
    """Shift a register to the left, and add a uniform one."""
    low = 0x7C11 | into << 16 | source << 24 | uniform << 32
    return Step(low, 0x0F8E00FF | bits << 11, reads=_r(source) | _u(uniform), writes=_r(into))


def multiply(into: int, factor: int, other: int, addend: int) -> Step:
    """Multiply two registers, and add a third."""
    low = 0x7224 | into << 16 | factor << 24 | other << 32
    reads = _r(factor) | _r(other) | _r(addend)
    return Step(low, 0x078E0200 | addend, reads=reads, writes=_r(into))


def shift_right(into: int, source: int, bits: int) -> Step:
    """Shift to the right, with zeros from the left."""
    low = 0x7819 | into << 16 | RZ << 24 | bits << 32
    return Step(low, 0x00011600 | source, reads=_r(source), writes=_r(into))


def rotate_right(into: int, source: int, bits: int) -> Step:
    """Rotate to the right, by the number of bits in a register."""
    low = 0x7219 | into << 16 | source << 24 | bits << 32
    return Step(low, 0x1E00 | source, reads=_r(source) | _r(bits), writes=_r(into))


def elect(into: int) -> Step:
    """Set a predicate in one of the active threads, and clear it in the others."""
    return Step(0x782F | URZ << 16, 0x03800000 | into << 17, writes=_p(into))


def below(into: int, source: int, uniform: int, *, where: int = PT) -> Step:
    """Set a predicate: whether a register is below a uniform one, and a predicate holds, too."""
    low, high = 0x7C0C | source << 24 | uniform << 32, 0x08701070 | where << 23 | into << 17
    reads = _r(source) | _u(uniform) | _p(where)
    return Step(low, high, reads=reads, writes=_p(into), time=_PREDICATE_TIME)


def below_constant(into: int, source: int, value: int) -> Step:
    """Set a predicate: whether a register is below a constant."""
    low = 0x780C | source << 24 | (value & _WORD) << 32
    return Step(
        low, 0x03F01070 | into << 17, reads=_r(source), writes=_p(into), time=_PREDICATE_TIME
    )


def below_other(into: int, source: int, other: int, *, where: int = PT) -> Step:
    """Set a predicate: whether a register is below another, and a predicate holds, too."""
    low, high = 0x720C | source << 24 | other << 32, 0x00701070 | where << 23 | into << 17
    reads = _r(source) | _r(other) | _p(where)
    return Step(low, high, reads=reads, writes=_p(into), time=_PREDICATE_TIME)


def differs(into: int, source: int, value: int) -> Step:
    """Set a predicate: whether a register is not a constant."""
    low = 0x780C | source << 24 | (value & _WORD) << 32
    return Step(
        low, 0x03F05070 | into << 17, reads=_r(source), writes=_p(into), time=_PREDICATE_TIME
    )


def save(into: int, predicate: int) -> Step:
    """Copy a predicate to its bit of a register."""
    low = 0x7803 | into << 16 | RZ << 24 | 1 << predicate << 32
    return Step(low, 0, reads=_p(predicate), writes=_r(into), stall=SAVING_STALL)


def restore(predicate: int, saved: int) -> Step:
    """Set a predicate from the register that it was saved in; its latency covers use as a guard."""
    return differs(predicate, saved, 0)._replace(time=_PREDICATE_TIME + GUARD_LATER)


def choose(into: int, source: int, value: int, predicate: int) -> Step:
    """Copy a register where a predicate holds; set a constant where it does not."""
    low = 0x7807 | into << 16 | source << 24 | (value & _WORD) << 32
    return Step(low, predicate << 23, reads=_r(source) | _p(predicate), writes=_r(into))


def store(address: int, offset: int, value: int, words: int, descriptor: int) -> Step:
    """Store 1, 2 or 4 registers to global memory. The address is a pair of registers."""
    size = {1: 0x1900, 2: 0x1B00, 4: 0x1D00}[words]
    low = 0x7986 | address << 24 | value << 32 | (offset & _OFFSET) << 40
    reads = _r(address, 2) | _r(value, words) | _u(descriptor, 2)
    return Step(low, 0x0C100000 | size | descriptor, reads=reads, keeps=True)


def store_near(offset: int, pair: int, beyond: int, value: int, words: int) -> Step:
    """Store 1, 2 or 4 registers to global memory, at a pair of uniform registers and an offset.

    Args:
        offset: a register with an unsigned number, or RZ.
        pair: two uniform registers, the first even, with an address.
        beyond: bytes that are added to both.
        value: the first register that is stored.
        words: how many registers.
    """
    size = {1: 0x900, 2: 0xB00, 4: 0xD00}[words]
    low = 0x7986 | offset << 24 | value << 32 | (beyond & _OFFSET) << 40
    reads = _r(offset) | _r(value, words) | _u(pair, 2)
    return Step(low, 0x08100000 | size | pair, reads=reads, keeps=True)


def count_up(address: int, offset: int, value: int, descriptor: int) -> Step:
    """Add a register to a word of global memory, atomically."""
    low = 0x798E | address << 24 | value << 32 | (offset & _OFFSET) << 40
    reads = _r(address, 2) | _r(value) | _u(descriptor, 2)
    return Step(low, 0x0C10E100 | descriptor | 0x80, reads=reads, keeps=True)


def branch() -> Step:
    """Branch; the distance is put in later."""
    return Step(0x7947, 0x03800000, stall=5)


def skip(steps: int) -> Step:
    """Branch over the next steps."""
    return branch()._replace(skips=steps)


_WORD = 0xFFFFFFFF
_OFFSET = 0xFFFFFF


def _constant(bank: int, offset: int) -> int:
    return (bank << 14 | offset >> 2) << 40


@cache
def _r(first: int, count: int = 1) -> frozenset[Resource]:
    return frozenset(("R", number) for number in range(first, first + count) if number != RZ)


@cache
def _u(first: int, count: int = 1) -> frozenset[Resource]:
    return frozenset(("U", number) for number in range(first, first + count) if number != URZ)


@cache
def _up(number: int) -> frozenset[Resource]:
    return frozenset({("UP", number)})


@cache
def _p(number: int) -> frozenset[Resource]:
    return frozenset({("P", number)} if number != PT else ())
