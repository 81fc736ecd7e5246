"""``Chunk``: a chunk of packed columns, whose head is read at first, and each column on demand.

``packing.py`` describes the layout.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ikp.exporters.columns.packing import (
    JSON,
    MAGIC,
    NUMBERS,
    PREFIX,
    RAW,
    ColumnEntry,
    Integers,
    checksum,
    width_of,
)
from ikp.exporters.protobuf.varints import DamagedError


def unpack(piece: ColumnEntry, content: bytes) -> Integers:
    """Return the numbers of a column, in a type that holds them.

    Raises:
        DamagedError: the content is not what the piece says.
    """
    if not piece.type:
        return np.broadcast_to(np.int64(_checked(piece.value)), piece.rows)
    if piece.type == JSON:
        raise DamagedError(f"the column {piece.name!r} holds no numbers")
    width = width_of(piece.type)
    inflated = _inflated(piece, content, piece.rows * width)
    unsigned = np.dtype(f"u{width}")
    planes = np.frombuffer(inflated, np.uint8).reshape(width, piece.rows)
    words = planes[0].astype(unsigned)
    for number in range(1, width):
        words |= planes[number].astype(unsigned) << unsigned.type(8 * number)
    values: Integers = words.view(f"{piece.type[0]}{width}")
    if not piece.steps:
        return values
    values = values.astype(np.int64)
    values[:1] += np.int64(_checked(piece.value))
    return np.cumsum(values, out=values)


def _checked(value: int) -> int:
    if not -1 << 63 <= value < 1 << 63:
        raise DamagedError("a number has more than 64 bits")
    return value


def unpack_json(piece: ColumnEntry, content: bytes, take: Take | None = None) -> Any:
    """Return plain values; ``take`` is given the bytes of memory that they take besides their text.

    Raises:
        DamagedError: the content is not what the piece says.
        Exception: what ``take`` raises.
    """
    if piece.type != JSON:
        raise DamagedError(f"the column {piece.name!r} holds no texts")
    text = _inflated(piece, content, piece.rows)
    if take is not None:  # two bytes of an empty list become 64
        nested = text.count(b"[") + text.count(b"{")
        take(_NESTED_BYTES * nested + _VALUE_BYTES * text.count(b","))
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"the column {piece.name!r} holds no texts") from error


def _inflated(piece: ColumnEntry, content: bytes, size: int) -> bytes:
    from isal import isal_zlib

    if checksum(content) != piece.crc:
        raise DamagedError(f"the checksum of the column {piece.name!r} fails")
    inflater = isal_zlib.decompressobj(RAW)
    try:
        inflated = bytes(inflater.decompress(content, max(size, 1)))
    except isal_zlib.error as error:
        raise DamagedError(f"the column {piece.name!r} is damaged") from error
    if len(inflated) != size or not inflater.eof:
        raise DamagedError(f"the column {piece.name!r} has not as many rows as it says")
    return inflated


_NESTED_BYTES: Final = 64
"""Bytes of memory that an empty list or object of JSON takes."""
_VALUE_BYTES: Final = 40
"""Bytes of memory that a value takes, with its place in a list."""
_MOST_HEAD: Final = 1 << 24
"""Bytes of a head. It grows with a trace's arguments, not with its rows."""

Read = Callable[[int, int], bytes]
"""Returns so many bytes from an offset on; fewer where the file ends."""
Take = Callable[[int], None]
"""Counts bytes as used, and raises an error if those are too many."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk whose head was read. Columns are read when they are asked for."""

    kind: str
    about: dict[str, Any]
    pieces: dict[str, ColumnEntry]
    places: dict[str, int]
    read: Read
    take: Take | None = None

    @classmethod
    def at(cls, read: Read, start: int, end: int | None = None, take: Take | None = None) -> Chunk:
        """Read the head of the chunk that begins at ``start``, and is over at ``end``, if known.

        ``take`` is given the bytes of memory that plain values take when they are read.

        Raises:
            DamagedError: there is no chunk, or it is damaged.
        """
        prefix = read(start, PREFIX.size)
        if len(prefix) < PREFIX.size or not prefix.startswith(MAGIC):
            raise DamagedError("a chunk of columns is none")
        _, length, crc = PREFIX.unpack(prefix)
        head = read(start + PREFIX.size, min(length, _MOST_HEAD))
        if checksum(head) != crc:
            raise DamagedError("the checksum of a chunk's head fails")
        about = _parsed(head)
        pieces = [_piece(one) for one in about.pop("columns")]
        at, places = start + PREFIX.size + length, {}
        for piece in pieces:
            places[piece.name] = at
            at += piece.size
        if end not in (at, None):
            raise DamagedError("a chunk of columns is cut short, or goes on behind its end")
        by_name = {one.name: one for one in pieces}
        return cls(about.pop("kind"), about, by_name, places, read, take)

    @property
    def room(self) -> int:
        """Bytes that all columns take while they are unpacked."""
        rows = ((piece.rows, 1 if piece.type == JSON else 8) for piece in self.pieces.values())
        return sum(count * size for count, size in rows)

    def size(self, name: str) -> int:
        """Return a count that the head holds.

        Raises:
            DamagedError: it doesn't.
        """
        value = self.about.get(name)
        if type(value) is not int or not 0 <= value < 1 << 63:
            raise DamagedError(f"a chunk doesn't say its {name}")
        return value

    def pair(self, name: str) -> tuple[int, int]:
        """Return the first and last value of something, as the head says.

        Raises:
            DamagedError: it doesn't.
        """
        value = self.about.get(name)
        if not isinstance(value, list) or [type(one) for one in value] != [int, int]:
            raise DamagedError(f"a chunk doesn't say its {name}")
        return value[0], value[1]

    def numbers(self, name: str, rows: int | None = None) -> Integers:
        """Return a column of numbers, of ``rows`` rows if that is given.

        Raises:
            DamagedError: it is damaged, or has another number of rows.
        """
        piece, content = self._content(name)
        if rows is not None and piece.rows != rows:
            raise DamagedError(f"the column {name!r} has {piece.rows} rows of {rows}")
        return unpack(piece, content)

    def json(self, name: str) -> Any:
        """Return a column of plain values.

        Raises:
            DamagedError: they are damaged.
        """
        return unpack_json(*self._content(name), self.take)

    def _content(self, name: str) -> tuple[ColumnEntry, bytes]:
        if name not in self.pieces:
            raise DamagedError(f"the column {name!r} is missing")
        piece = self.pieces[name]
        content = self.read(self.places[name], piece.size) if piece.size else b""
        if len(content) != piece.size:
            raise DamagedError("a chunk of columns is cut short")
        return piece, content


def _parsed(head: bytes) -> dict[str, Any]:
    try:
        about = json.loads(head)
    except (ValueError, RecursionError) as error:
        raise DamagedError("a chunk's head is damaged") from error
    if (
        not isinstance(about, dict)
        or not isinstance(about.get("kind"), str)
        or not isinstance(about.get("columns"), list)
    ):
        raise DamagedError("a chunk's head is damaged")
    return about


def _piece(facts: object) -> ColumnEntry:
    """Return the entry of which these are the :meth:`ColumnEntry.facts`.

    Raises:
        DamagedError: they are something else.
    """
    kinds = (str, int, str, bool, int, int, int)
    if not isinstance(facts, list) or [type(one) for one in facts] != list(kinds):
        raise DamagedError("a chunk's head is damaged")
    piece = ColumnEntry(*facts)
    sound = min(piece.rows, piece.size, piece.crc) >= 0 and abs(piece.value) <= 1 << 63
    if not sound or piece.type not in ("", JSON, *NUMBERS):
        raise DamagedError("a chunk's head is damaged")
    return piece
