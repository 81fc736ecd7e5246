"""Varints, tags and texts of protobuf fields, encoded for many messages at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray


class DamagedError(Exception):
    """The bytes are not protobuf messages, or not those that they should be."""


Words = NDArray[np.uint64]
Integers = NDArray[np.integer[Any]]
Sizes = Integers

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types: how a field's value is written."""
WORD: Final = 8
VARINT_BITS: Final = 7
LOW_BITS: Final = 56
"""A varint of this many bits fills one word; the rest of a 64-bit value goes to a second one."""
_TOP_BITS: Final = 0x8080808080808080
_ONES: Final = 0x0101010101010101


@dataclass(frozen=True, slots=True)
class MessagePart:
    """One part of each of ``n`` messages, as bytes.

    ``words`` (``n`` x width, little endian) holds the bytes of row i in order, then zeros;
    ``sizes`` (``n``) says how many bytes of each row count.
    """

    words: Words
    sizes: Sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, rows: NDArray[np.intp]) -> MessagePart:
        """Return the given rows, in the given order."""
        words = self.words[:, 0][rows][:, None] if self.words.shape[1] == 1 else self.words[rows]
        if len(self) and self.sizes.min() == self.sizes.max():  # names and tracks mostly are so
            return MessagePart(words, np.broadcast_to(self.sizes[0], len(rows)))
        return MessagePart(words, self.sizes[rows])

    def where(self, mask: NDArray[np.bool_]) -> MessagePart:
        """Return this column with the rows outside ``mask`` empty."""
        return MessagePart(self.words, self.sizes * mask.view(np.uint8))


@dataclass(frozen=True, slots=True)
class Numbers:
    """Integers, one for each message, as varints; negative ones as protobuf's int64."""

    values: Words
    given: NDArray[np.bool_] | None = None  # the others are left out

    @classmethod
    def of(cls, values: Integers, given: NDArray[np.bool_] | None = None) -> Numbers:
        """Return integers of any type, all of them or those that are ``given``."""
        return cls(as_words(values), given)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: NDArray[np.intp]) -> Numbers:
        """Return the given rows, in the given order."""
        return Numbers(self.values[rows], None if self.given is None else self.given[rows])

    def column(self) -> MessagePart:
        """Return the numbers as bytes."""
        column = varints(self.values)
        return column if self.given is None else column.where(self.given)


def texts(values: Sequence[bytes]) -> MessagePart:
    """Return byte strings as they are."""
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    width = max(1, -(-int(sizes.max(initial=0)) // WORD))
    padded = np.array(values, f"S{WORD * width}")
    return MessagePart(padded.view(np.uint64).reshape(-1, width), sizes)


def varint_size(value: int) -> int:
    """Return how many bytes ``value`` (not negative) takes as a varint."""
    return max(1, -(-value.bit_length() // VARINT_BITS))


@lru_cache(1024)
def encoded_varint(value: int) -> bytes:
    """Return one number (not negative) as a varint."""
    size = varint_size(value)
    low = (value >> VARINT_BITS * i & 0x7F | 0x80 for i in range(size - 1))
    return bytes([*low, value >> VARINT_BITS * (size - 1)])


def tag(field: int, wire_type: int) -> bytes:
    """Return the bytes that announce a field: its number and how its value is written."""
    return encoded_varint(field << 3 | wire_type)


def in_field(announced: bytes, content: bytes) -> bytes:
    """Return a length-delimited field: its tag, the number of bytes, and the bytes."""
    return announced + encoded_varint(len(content)) + content


def as_words(values: Integers) -> Words:
    """Return integers as 64-bit words, negative ones in two's complement, as protobuf does."""
    if values.dtype == np.uint64:
        return values.view(np.uint64)
    return values.astype(np.int64, copy=False).view(np.uint64)


def varints(values: Integers) -> MessagePart:
    """Return integers as varints of 1 to 10 bytes; negative ones as protobuf's int64."""
    unsigned = as_words(values)
    if not len(unsigned):
        return MessagePart(np.empty((0, 1), np.uint64), np.empty(0, np.uint8))
    least, most = varint_size(int(unsigned.min())), varint_size(int(unsigned.max()))
    if most > _SHORT:
        long = np.flatnonzero(unsigned >> np.uint64(VARINT_BITS * _SHORT))
        if _FEW * len(long) < len(unsigned):
            return _with_long(unsigned, long)
    return _varints(unsigned, least, most)


def _with_long(values: Words, long: NDArray[np.intp]) -> MessagePart:
    """Return varints of numbers of which few are long: these are slow, and encoded apart."""
    short = values.copy()
    short[long] = 0
    column, rest = varints(short), varints(values[long])
    words = np.zeros((len(values), rest.words.shape[1]), np.uint64)
    words[:, 0] = column.words[:, 0]
    words[long] = rest.words
    sizes = np.array(column.sizes)
    sizes[long] = rest.sizes
    return MessagePart(words, sizes)


_SHORT: Final = 4
_FEW: Final = 8
"""Numbers of more than ``_SHORT`` bytes are few if they are less than one in so many."""


def _varints(unsigned: Words, least: int, most: int) -> MessagePart:
    """Return varints of numbers, the shortest and the longest of so many bytes."""
    low = _spread(unsigned, most)
    if least == most:
        sizes: Sizes = np.broadcast_to(np.uint8(least), len(unsigned))
        if least > 1:
            low |= np.uint64(_TOP_BITS & ((1 << 8 * (least - 1)) - 1))
    else:
        sizes = _sizes(unsigned, least, most)
        low |= _more_follows(low, most)
    if most <= WORD:
        return MessagePart(low[:, None], sizes)
    low[sizes > WORD] |= np.uint64(_TOP_BITS)
    # What is left are 8 bits. The eighth is the tenth byte, and says of the ninth that one follows.
    high = unsigned >> np.uint64(LOW_BITS)
    high |= (high & np.uint64(0x80)) << np.uint64(1)
    return MessagePart(np.stack([low, high], axis=1), sizes)


def _sizes(values: Words, least: int, most: int) -> Sizes:
    sizes = np.full(len(values), least, np.uint8)
    for size in range(least, most):
        sizes += (values >= np.uint64(1 << VARINT_BITS * size)).view(np.uint8)
    return sizes


def _more_follows(low: Words, size: int) -> Words:
    """Return the top bit of each byte that is not its number's last.

    ``low`` holds the numbers, 7 bits to a byte; none has more than ``size`` bytes.
    """
    rest = low >> np.uint64(8)
    for shift in (8, 16, 32):  # then each byte is 0 unless something follows within that many bits
        if 8 * (size - 1) > shift:
            rest |= rest >> np.uint64(shift)
    rest += np.uint64(_TOP_BITS - _ONES)  # 0x7f to each byte: all but 0 reach the top bit
    rest &= np.uint64(_TOP_BITS)
    return rest


def _spread(values: Words, size: int) -> Words:
    """Return the low 56 bits of each value, 7 to a byte; none needs more than ``size`` bytes."""
    for fits, shift, low, high in _SPREAD:
        if size > fits:
            rest = values & high
            rest <<= shift  # in place: new arrays would take longer than the arithmetic
            values = values & low
            values |= rest
    return values


_SPREAD: Final = tuple(
    (fits, np.uint64(shift), np.uint64(low), np.uint64(high))
    for fits, shift, low, high in (
        (4, 4, 0x000000000FFFFFFF, 0x00FFFFFFF0000000),
        (2, 2, 0x00003FFF00003FFF, 0x0FFFC0000FFFC000),
        (1, 1, 0x007F007F007F007F, 0x3F803F803F803F80),
    )
)
