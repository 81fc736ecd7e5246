"""Takes protobuf messages apart, many at a time: all their first fields, all their second fields...

Knows nothing of traces, and nothing of who wrote the bytes: any valid encoding is read.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.exporters.protobuf.damage import DamagedError
from ikp.exporters.protobuf.varints import BYTES, FIXED32, FIXED64, LOW_BITS, WORD, Words

Ints = NDArray[np.int64]
Data = NDArray[np.uint8]

_PADDING: Final = 2 * WORD
"""Bytes that must follow the last message, so that a word can be read from anywhere."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of many messages, one row each; the fields of one message stay in their order."""

    message: Ints  # index of the message that the field is of
    number: Ints
    value: Words  # a varint's value, or the bits of a fixed number
    start: Ints  # of a string, bytes, or a submessage: where it begins,
    size: Ints  # and how long it is

    def numbered(self, number: int) -> Fields:
        """Return the fields of one number."""
        return self.only(self.number == number)

    def only(self, rows: NDArray[np.bool_ | np.intp]) -> Fields:
        """Return the chosen rows."""
        return Fields(
            self.message[rows],
            self.number[rows],
            self.value[rows],
            self.start[rows],
            self.size[rows],
        )

    def column(self, number: int, messages: int, default: int = 0) -> Words:
        """Return a varint or fixed field of each message; ``default`` where it is missing."""
        found = self.numbered(number)
        column = np.full(messages, default, np.uint64)
        column[found.message] = found.value
        return column


def padded(content: bytes) -> Data:
    """Return bytes as an array that :func:`split` can read."""
    return np.frombuffer(content + bytes(_PADDING), np.uint8)


def split(data: Data, starts: Ints, sizes: Ints) -> Fields:
    """Return all fields of the messages that begin at ``starts`` and are ``sizes`` bytes long.

    Raises:
        DamagedError: they are not messages.
    """
    words = np.ndarray((len(data) - WORD + 1,), "<u8", data, strides=(1,))
    ends = starts + sizes
    if len(ends) and int(ends.max()) > len(data) - _PADDING:
        raise DamagedError("a message is cut off")
    message = np.flatnonzero(sizes > 0)
    at = starts[message]
    rounds = []
    while len(message):
        end = ends[message]
        key, at = _varint(words, at)
        found, at = _value(words, message, key, at)
        if np.any(at > end):
            raise DamagedError("a field is longer than its message")
        rounds.append(found)
        more = at < end
        message, at = message[more], at[more]
    return _in_order(rounds)


def whole(data: Data, start: int, stop: int, number: int) -> tuple[Ints, Ints]:
    """Return where the submessages are of which ``data[start:stop]`` consists: starts and sizes.

    Raises:
        DamagedError: there is something else, or the last one is cut off.
    """
    starts, sizes, end = fitting(data, start, stop, number)
    if end != stop:
        raise DamagedError("the last packet is cut off")
    return starts, sizes


def fitting(data: Data, start: int, stop: int, number: int) -> tuple[Ints, Ints, int]:
    """Return where the submessages are that ``data[start:stop]`` holds whole, and where they end.

    Each must be a field of the given number. One can't be found before the one in front of it is
    read: this is a plain loop.

    Raises:
        DamagedError: there is something else.
    """
    content = data.data
    tag = number << 3 | BYTES
    starts, sizes = array("q"), array("q")
    end = start
    while start < stop:
        if content[start] != tag:
            raise DamagedError("it does not consist of packets")
        size = content[start + 1]
        start += 2
        shift = 7
        while size >> shift:  # the last byte read had its top bit set
            if shift > 28:
                raise DamagedError("a packet is too long")
            size += (content[start] - 1) << shift
            start += 1
            shift += 7
        if start + size > stop:
            break
        starts.append(start)
        sizes.append(size)
        end = start = start + size
    return np.frombuffer(starts, np.int64), np.frombuffer(sizes, np.int64), end


def _in_order(rounds: list[Fields]) -> Fields:
    nothing = np.empty(0, np.int64)
    rounds = [Fields(nothing, nothing, np.empty(0, np.uint64), nothing, nothing), *rounds]
    return Fields(
        np.concatenate([one.message for one in rounds]),
        np.concatenate([one.number for one in rounds]),
        np.concatenate([one.value for one in rounds]),
        np.concatenate([one.start for one in rounds]),
        np.concatenate([one.size for one in rounds]),
    )


def _value(words: Words, message: Ints, key: Words, at: Ints) -> tuple[Fields, Ints]:
    """Read what stands behind a field's key, by the wire type that the key tells."""
    wire = key & np.uint64(7)
    value, behind = _varint(words, at)
    size = np.where(wire == BYTES, value, np.uint64(0)).view(np.int64)
    start = behind
    after = behind + size
    for fixed, width, mask in ((FIXED64, 8, (1 << 64) - 1), (FIXED32, 4, (1 << 32) - 1)):
        rows = wire == fixed
        if rows.any():
            value[rows] = words[at[rows]] & np.uint64(mask)
            start[rows] = at[rows]
            after[rows] = at[rows] + width
    if np.any((wire == 3) | (wire == 4) | (wire > FIXED32)) or np.any(size < 0):
        raise DamagedError("a field has an unknown wire type")
    number = (key >> np.uint64(3)).view(np.int64)
    return Fields(message, number, value, start, size), after


def _varint(words: Words, at: Ints) -> tuple[Words, Ints]:
    """Read a varint at each place; return the values, and where each one ends."""
    word = words[at]
    stop = ~word & np.uint64(0x8080808080808080)
    stop &= ~stop + np.uint64(1)  # the lowest set bit: the top bit of the varint's last byte
    value = _gather(word & (stop << np.uint64(1)) - np.uint64(1))
    size = np.ones(len(at), np.int64)
    for byte in range(1, -(-int(stop.max(initial=0)).bit_length() // 8)):
        size += stop >= np.uint64(1 << 8 * byte)
    long = np.flatnonzero(stop == 0)
    if len(long):
        high = words[at[long] + WORD]
        more = (high >> np.uint64(7)) & np.uint64(1)
        if np.any(more & (high >> np.uint64(15))):
            raise DamagedError("a number is too long")
        value[long] |= (high & np.uint64(0x7F)) << np.uint64(LOW_BITS)
        value[long] |= (more & (high >> np.uint64(8))) << np.uint64(63)
        size[long] = WORD + 1 + more.view(np.int64)
    return value, at + size


def _gather(word: Words) -> Words:
    """Return the low 7 bits of the 8 bytes of each word as one number."""
    for shift, low, high in _GATHER:
        word = (word & low) | (word & high) >> shift
    return word


_GATHER: Final = tuple(
    (np.uint64(shift), np.uint64(low), np.uint64(high))
    for shift, low, high in (
        (1, 0x007F007F007F007F, 0x7F007F007F007F00),
        (2, 0x00003FFF00003FFF, 0x3FFF00003FFF0000),
        (4, 0x000000000FFFFFFF, 0x0FFFFFFF00000000),
    )
)
