"""Bytes as bad memory, a torn copy, or somebody with intent would leave them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

WORDS = (0, 1, 2, 31, 0x7F, 0x80, 1 << 15, 1 << 16, 1 << 27, (1 << 31) - 1, 1 << 31, (1 << 32) - 16)
WORDS += ((1 << 32) - 1,)
"""Where sizes, counts and signs turn."""

Mutation = Callable[[bytearray, Random, int], None]
"""Changes bytes in place, at or after the given place."""


def flip(data: bytearray, random: Random, at: int) -> None:
    """Flip one bit."""
    data[at] ^= 1 << random.randrange(8)


def write_byte(data: bytearray, random: Random, at: int) -> None:
    """Write a byte at which numbers turn, or any."""
    data[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))


def write_word(data: bytearray, random: Random, at: int) -> None:
    """Write a whole word: one at which something turns, a near one, or any."""
    at = min(at & -4, len(data) - 4)
    (was,) = struct.unpack_from("<I", data, at)
    near = was + random.choice((-16, -2, -1, 1, 2, 16))
    word = random.choice((random.choice(WORDS), near, random.randrange(1 << 32)))
    struct.pack_into("<I", data, at, word % (1 << 32))


def zero(data: bytearray, random: Random, at: int) -> None:
    """Zero a few words."""
    end = min(len(data), at + 4 * random.randrange(1, 32))
    data[at:end] = bytes(end - at)


def copy_within(data: bytearray, random: Random, at: int) -> None:
    """Put in place what stands elsewhere."""
    size = min(random.choice((4, 16, 32, 64, 128)), len(data) - at)
    other = random.randrange(len(data) - size + 1)
    data[at : at + size] = data[other : other + size]


def cut(data: bytearray, random: Random, at: int) -> None:
    """Leave out what is behind."""
    del data[at:]


def drop(data: bytearray, random: Random, at: int) -> None:
    """Leave out some bytes in the middle."""
    del data[at : at + random.choice((1, 2, 4, 16, 128))]


def repeat(data: bytearray, random: Random, at: int) -> None:
    """Put some bytes there twice."""
    data[at:at] = data[at : at + random.choice((1, 2, 4, 16, 128))]


IN_PLACE: tuple[Mutation, ...] = (flip, flip, write_byte, write_word, write_word, zero, copy_within)
RESIZING: tuple[Mutation, ...] = (cut, drop, repeat)


def how_many(random: Random) -> int:
    """Return how many changes to make: mostly one, which is the hardest to notice."""
    return random.choice((1, 1, 1, 1, 2, 3, 8))
