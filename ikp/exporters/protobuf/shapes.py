"""Shapes of protobuf messages, and their encoder in numpy, for many messages at a time.

A shape says what each of many messages consists of: constant bytes, columns of numbers or texts,
submessages. How long the numbers are differs from message to message, but only few combinations of
sizes occur. The messages of one combination have every byte but the numbers in common, and every
number in the same place: they are put together as 64-bit words, by shifts that are the same for
all of them. The bytes are those that the protobuf library writes for the same messages (if fields
are given in the order of their numbers), which the tests check.

Writers call :func:`ikp.exporters.protobuf.joining.join`, which is faster where it can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.exporters.protobuf.varints import (
    WORD,
    MessagePart,
    Numbers,
    Sizes,
    Words,
    as_words,
    encoded_varint,
    varints,
)

Ints = NDArray[np.int64]
Rows = NDArray[np.intp] | slice


@dataclass(frozen=True, slots=True)
class Times:
    """The time of each message, encoded as the step from the message in front of it."""

    values: Ints

    def take(self, rows: NDArray[np.intp]) -> Times:
        """Return the given rows, in the given order."""
        return Times(self.values[rows])


@dataclass(frozen=True, slots=True)
class SubmessageGroup:
    """Several submessages of one shape in each message; group i begins at number ``first[i]``."""

    shape: Message
    first: Ints
    count: int  # of all of them; no group is empty

    def take(self, rows: NDArray[np.intp]) -> SubmessageGroup:
        """Return the given groups, in the given order."""
        bounds = np.append(self.first, self.count)
        sizes = np.diff(bounds)[rows]
        first = np.cumsum(sizes) - sizes
        inner = np.arange(int(sizes.sum())) + np.repeat(bounds[rows] - first, sizes)
        return SubmessageGroup(self.shape.take(inner), first, len(inner))


@dataclass(frozen=True, slots=True)
class Message:
    """A submessage: its tag and its parts. It is left out where all its columns are empty."""

    tag: bytes
    parts: tuple[bytes | MessagePart | Numbers | Times | SubmessageGroup | Message, ...]

    def take(self, rows: NDArray[np.intp]) -> Message:
        """Return the given rows of all columns, in the given order."""
        return Message(
            self.tag,
            tuple(part if isinstance(part, bytes) else part.take(rows) for part in self.parts),
        )

    def times(self) -> Ints | None:
        """Return the times of its messages, if they have any."""
        return next((part.values for part in self.parts if isinstance(part, Times)), None)


Stream = tuple[Message, Ints]
"""Messages of one shape, and their places in a whole sequence."""


def join(streams: Sequence[Stream], before: int) -> NDArray[np.uint8]:
    """Encode messages of several shapes, and lay them end to end.

    Their places are ``0 .. n - 1`` in all. ``before`` is the time of the message in front of them.
    """
    later = iter(_steps(streams, before))
    laid = [(list(layouts(_plain(shape, later))), places) for shape, places in streams]
    sizes = np.empty(sum(len(places) for _, places in laid), np.int64)
    for found, places in laid:
        for layout in found:
            sizes[places[layout.rows]] = layout.size
    ends = np.cumsum(sizes)
    starts = ends - sizes
    total = int(ends[-1]) if len(ends) else 0
    out = np.empty(total // WORD + 1, np.uint64)
    for found, places in laid:
        at = starts[places]
        for layout in found:
            layout.write(out, at[layout.rows])
    return out.view(np.uint8)[:total]


def _steps(streams: Sequence[Stream], before: int) -> Iterator[Words]:
    """Yield, for each stream with times, each message's step from the message in front of it."""
    found = [(one, places) for shape, places in streams if (one := shape.times()) is not None]
    times = np.empty(sum(len(places) for _, places in found), np.int64)
    for one, places in found:
        times[places] = one
    later = np.diff(times, prepend=before)
    return (as_words(later[places]) for _, places in found)


def _plain(shape: Message, later: Iterator[Words]) -> Message:
    """Return a shape all of whose columns are bytes."""
    parts = list[bytes | MessagePart | Message]()
    for part in shape.parts:
        if isinstance(part, Message):
            parts.append(_plain(part, later))
        elif isinstance(part, Numbers):
            parts.append(part.column())
        elif isinstance(part, Times):
            parts.append(varints(next(later)))
        elif isinstance(part, SubmessageGroup):
            parts.append(_joined_groups(part))
        else:
            parts.append(part)
    return Message(shape.tag, tuple(parts))


def _joined_groups(group: SubmessageGroup) -> MessagePart:
    """Return the messages of each group, end to end."""
    first = group.first
    found = list(layouts(_plain(group.shape, iter(()))))
    sizes = np.empty(group.count, np.int64)
    for layout in found:
        sizes[layout.rows] = layout.size
    lengths = np.add.reduceat(sizes, first)
    width = -(-int(lengths.max()) // WORD)
    out = np.zeros((len(first), width), np.uint64)
    starts = np.cumsum(sizes) - sizes
    move = np.arange(len(first)) * (WORD * width) - starts[first]
    starts += np.repeat(move, np.diff(first, append=len(sizes)))
    for layout in found:
        layout.write(out, starts[layout.rows])
    return MessagePart(out, lengths)


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """A column in a layout, where all its numbers have the same size."""

    column: MessagePart
    size: int


@dataclass(frozen=True, slots=True)
class MessageLayout:
    """The messages of one shape whose numbers have the same sizes; each is ``size`` bytes long."""

    rows: Rows
    count: int
    parts: list[bytes | NumberColumn]
    size: int

    def write(self, out: Words, starts: Ints) -> None:
        """Write the messages to ``out``, each to the byte where it starts."""
        words = self._words()
        source = np.ndarray((self.count,), f"V{self.size}", words, strides=words.strides[:1])
        # A view of ``out`` with an element of so many bytes at each offset: numpy copies each once.
        places = (out.nbytes - self.size + 1,)
        np.ndarray(places, f"V{self.size}", out, strides=(1,))[starts] = source

    def _words(self) -> Words:
        constant = np.frombuffer(self._constant(), np.uint64)
        numbers: list[Words | None] = [None] * len(constant)
        at = 0
        for part in self.parts:
            if isinstance(part, NumberColumn):
                for low in range(0, part.size, WORD):
                    number = part.column.words[:, low // WORD][self.rows]
                    _put(numbers, at + low, number, min(WORD, part.size - low))
                at += part.size
            else:
                at += len(part)
        messages = np.empty((self.count, len(constant)), np.uint64)
        for index, (word, number_in_it) in enumerate(zip(constant, numbers, strict=True)):
            if number_in_it is None:
                messages[:, index] = word
            else:
                np.bitwise_or(number_in_it, word, out=messages[:, index])
        return messages

    def _constant(self) -> bytes:
        """Return one message with all numbers 0, padded to whole words."""
        parts = [
            bytes(part.size) if isinstance(part, NumberColumn) else part for part in self.parts
        ]
        return b"".join(parts) + bytes(-self.size % WORD)


def _put(words: list[Words | None], at: int, number: Words, size: int) -> None:
    """Put a number of ``size`` bytes at byte ``at`` of each message: into one word, or two."""
    index, offset = divmod(at, WORD)
    _merge(words, index, number << _SHIFTS[offset] if offset else number)
    if offset + size > WORD:
        _merge(words, index + 1, number >> _SHIFTS[WORD - offset])


def _merge(words: list[Words | None], index: int, bits: Words) -> None:
    before = words[index]
    words[index] = bits if before is None else before | bits


_SHIFTS = [np.uint64(8 * size) for size in range(WORD)]


def layouts(shape: Message) -> Iterator[MessageLayout]:
    """Sort the messages of a shape by the sizes of their numbers."""
    for rows, count, sizes in _by_sizes([column.sizes for column in _columns(shape)]):
        parts, _ = _flat(shape, iter(sizes))
        yield MessageLayout(rows, count, parts, _size(parts))


def _columns(shape: Message) -> Iterator[MessagePart]:
    for part in shape.parts:
        if isinstance(part, Message):
            yield from _columns(part)
        elif isinstance(part, MessagePart):
            yield part


def _flat(shape: Message, sizes: Iterator[int]) -> tuple[list[bytes | NumberColumn], list[int]]:
    """Return a message as constant bytes and numbers, and the sizes that it took."""
    body, taken = list[bytes | NumberColumn](), list[int]()
    for part in shape.parts:
        if isinstance(part, Message):
            inner, more = _flat(part, sizes)
            body += inner
            taken += more
        elif isinstance(part, MessagePart):
            taken.append(next(sizes))
            body.append(NumberColumn(part, taken[-1]))
        elif isinstance(part, bytes):
            body.append(part)
    if taken and not any(taken):
        return [], taken
    return [shape.tag + encoded_varint(_size(body)), *body], taken


def _size(parts: Sequence[bytes | NumberColumn]) -> int:
    return sum(part.size if isinstance(part, NumberColumn) else len(part) for part in parts)


def _by_sizes(columns: Sequence[Sizes]) -> Iterator[tuple[Rows, int, list[int]]]:
    """Yield each combination of sizes that occurs: its rows, how many they are, and the sizes."""
    count = len(columns[0])
    if not count:
        return
    key: NDArray[Any] = np.zeros(1, np.uint8)
    combinations = 1
    for column in columns:
        least, most = int(column.min()), int(column.max())
        if least < most:
            combinations *= most - least + 1
            dtype = np.min_scalar_type(combinations - 1)  # small numbers are sorted much faster
            key = key.astype(dtype) * dtype.type(most - least + 1)
            key = key + (column - column.dtype.type(least)).astype(dtype)
    if combinations == 1:
        yield slice(None), count, [int(column[0]) for column in columns]
        return
    order = np.argsort(key, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        yield rows, len(rows), [int(column[rows[0]]) for column in columns]
