"""A chunk: some rows of a table, behind a head that tells what they are and where each column lies.

::

    "ikpc" | size of the head, 4 bytes | CRC-32 of the head, 4 bytes | head, as JSON | columns

The head has its own checksum, and one of each column: any of them is read without the others.

A column's whole numbers are kept in as few bytes as the largest of them needs, as themselves or as
the steps from one to the next, whichever takes fewer. The lowest bytes of all of them stand
together, then the next ones, and so on: most higher bytes are alike, and deflate takes them for
next to nothing.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.exporters.protobuf.damage import DamagedError

Integers = NDArray[np.integer[Any]]

RAW: Final = -15
"""Window bits of bytes without zlib's header and checksum."""
_FAST: Final = 1
"""Levels above are slower, and gain little where rows are so much alike."""
JSON: Final = "json"
_TYPES: Final = ("u1", "i1", "u2", "i2", "u4", "i4", "i8")
"""What numbers are packed as: signed or not, and how many bytes."""
_NARROWEST: Final = ("u1", "i1")


@dataclass(frozen=True, slots=True)
class Piece:
    """What a chunk's head tells of a column."""

    name: str
    rows: int  # of JSON: its bytes
    type: str  # one of ``_TYPES``; empty where all rows are ``value``
    steps: bool  # each row is the step from the one before it, the first one from ``value``
    value: int
    size: int  # in the chunk
    crc: int

    @property
    def room(self) -> int:
        """Bytes that the rows take while they are unpacked."""
        return self.rows * (1 if self.type == JSON else 8)

    @classmethod
    def told(cls, facts: object) -> Piece:
        """Return what :meth:`facts` returned.

        Raises:
            DamagedError: it is something else.
        """
        kinds = (str, int, str, bool, int, int, int)
        if not isinstance(facts, list) or [type(one) for one in facts] != list(kinds):
            raise DamagedError("a chunk's head is damaged")
        piece = cls(*facts)
        sound = min(piece.rows, piece.size, piece.crc) >= 0 and abs(piece.value) <= 1 << 63
        if not sound or piece.type not in ("", JSON, *_TYPES):
            raise DamagedError("a chunk's head is damaged")
        return piece

    def facts(self) -> list[str | int]:
        """Return all of it, for a chunk's head."""
        told = (self.rows, self.type, self.steps, self.value, self.size, self.crc)
        return [self.name, *told]


Packed = tuple[Piece, bytes]


def pack(name: str, values: NDArray[Any], *, steps: bool = True) -> Packed:
    """Pack whole numbers, or booleans; ``steps``: maybe as steps, if they take less room."""
    if not len(values):
        return Piece(name, 0, "", False, 0, 0, 0), b""
    numbers: Integers = values.view(np.uint8) if values.dtype == np.bool_ else values
    plain = _type(numbers)
    if not plain:
        return Piece(name, len(numbers), "", False, int(numbers[0]), 0, 0), b""
    if steps and plain not in _NARROWEST:
        wide = numbers.astype(np.int64, copy=False)
        between = np.diff(wide, prepend=wide[:1])
        narrow = _type(between)
        if _width(narrow) < _width(plain):
            return _packed(name, between, narrow, True, int(wide[0]))
    return _packed(name, numbers, plain, False, 0)


def _packed(name: str, values: Integers, kind: str, steps: bool, first: int) -> Packed:
    content = deflated(_planes(values.astype(f"<{kind}", copy=False)))
    return Piece(name, len(values), kind, steps, first, len(content), checksum(content)), content


def _type(values: Integers) -> str:
    """Return the smallest type for some numbers; nothing if all are equal."""
    least, most = int(values.min()), int(values.max())
    if least == most:
        return ""
    if least < 0:
        span = max(-least - 1, most)
        return next(f"i{size}" for size in (1, 2, 4, 8) if span < 1 << 8 * size - 1)
    return next((f"u{size}" for size in (1, 2, 4) if most < 1 << 8 * size), "i8")


def _width(kind: str) -> int:
    return int(kind[1:] or 0)


def to_json(value: object) -> bytes:
    """Return plain values as a text: texts, and facts of which there are few."""
    return json.dumps(value, separators=(",", ":"), default=int).encode()


def pack_json(name: str, text: bytes) -> Packed:
    """Pack what :func:`to_json` returned."""
    content = deflated(text)
    return Piece(name, len(text), JSON, False, 0, len(content), checksum(content)), content


def unpack(piece: Piece, content: bytes) -> Integers:
    """Return the numbers, in a type that holds them.

    Raises:
        DamagedError: the content is not what the piece tells.
    """
    if not piece.type:
        return np.broadcast_to(np.int64(_checked(piece.value)), piece.rows)
    if piece.type == JSON:
        raise DamagedError(f"the column {piece.name!r} holds no numbers")
    width = _width(piece.type)
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


def unpack_json(piece: Piece, content: bytes) -> Any:
    """Return plain values.

    Raises:
        DamagedError: the content is not what the piece tells.
    """
    if piece.type != JSON:
        raise DamagedError(f"the column {piece.name!r} holds no texts")
    try:
        return json.loads(_inflated(piece, content, piece.rows))
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"the column {piece.name!r} holds no texts") from error


def deflated(content: bytes | NDArray[np.uint8], window_bits: int = RAW) -> bytes:
    """Return bytes deflated, always as the same; with zlib's header where ``window_bits`` > 0.

    isal (1.6 to 1.9.1) files the third byte that it compresses under a number made of its state's
    address, so that what it finds again depends on where that lies in memory. It does not where a
    stream goes on, nor with so few bytes as the first ones here: so these go through alone.
    """
    from isal import isal_zlib

    stream = isal_zlib.compressobj(_FAST, isal_zlib.DEFLATED, window_bits)
    flat = np.frombuffer(content, np.uint8)
    first = stream.compress(flat[:_ALONE])
    if len(flat) > _ALONE:
        first += stream.flush(isal_zlib.Z_SYNC_FLUSH)
    return bytes(first + stream.compress(flat[_ALONE:]) + stream.flush())


_ALONE: Final = 8
"""From 4 on isal finds the first byte again, from 17 on it looks up the third. They take 5 more."""


def checksum(content: bytes | memoryview | NDArray[np.uint8], before: int = 0) -> int:
    """Return the CRC-32 of some bytes, or of those ``before`` them and these."""
    from isal import isal_zlib

    return int(isal_zlib.crc32(content, before))


def _planes(values: Integers) -> NDArray[np.uint8]:
    width = values.itemsize
    if width == 1:
        return values.view(np.uint8)
    split = values.view(np.uint8).reshape(len(values), width)
    planes = np.empty((width, len(values)), np.uint8)
    for number in range(width):
        planes[number] = split[:, number]
    return planes


def _inflated(piece: Piece, content: bytes, size: int) -> bytes:
    from isal import isal_zlib

    if checksum(content) != piece.crc:
        raise DamagedError(f"the checksum of the column {piece.name!r} fails")
    inflater = isal_zlib.decompressobj(RAW)
    try:
        inflated = bytes(inflater.decompress(content, max(size, 1)))
    except isal_zlib.error as error:
        raise DamagedError(f"the column {piece.name!r} is damaged") from error
    if len(inflated) != size or not inflater.eof:
        raise DamagedError(f"the column {piece.name!r} has not as many rows as it tells")
    return inflated


MAGIC: Final = b"ikpc"
_PREFIX: Final = struct.Struct("<4sII")
_MOST_HEAD: Final = 1 << 24
"""Bytes of a head. It grows with a trace's arguments, not with its rows."""

Read = Callable[[int, int], bytes]
"""Returns so many bytes from a place on; fewer where the file ends."""


def build(kind: str, about: dict[str, Any], parts: Sequence[Packed]) -> bytes:
    """Return a chunk of packed columns. ``about`` tells what a reader must know before these."""
    facts = {"kind": kind, **about, "columns": [piece.facts() for piece, _ in parts]}
    head = json.dumps(facts, separators=(",", ":")).encode()
    prefix = _PREFIX.pack(MAGIC, len(head), checksum(head))
    return b"".join([prefix, head, *(content for _, content in parts)])


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of which the head was read. Columns are read when they are asked for."""

    kind: str
    about: dict[str, Any]
    pieces: dict[str, Piece]
    places: dict[str, int]
    read: Read

    @classmethod
    def at(cls, read: Read, start: int, end: int | None = None) -> Chunk:
        """Read the head of the chunk that begins at ``start``, and is over at ``end``, if known.

        Raises:
            DamagedError: there is none, or it is damaged.
        """
        prefix = read(start, _PREFIX.size)
        if len(prefix) < _PREFIX.size or not prefix.startswith(MAGIC):
            raise DamagedError("a chunk of columns is none")
        _, length, crc = _PREFIX.unpack(prefix)
        head = read(start + _PREFIX.size, min(length, _MOST_HEAD))
        if checksum(head) != crc:
            raise DamagedError("the checksum of a chunk's head fails")
        about = _parsed(head)
        pieces = [Piece.told(one) for one in about.pop("columns")]
        at, places = start + _PREFIX.size + length, {}
        for piece in pieces:
            places[piece.name] = at
            at += piece.size
        if end not in (at, None):
            raise DamagedError("a chunk of columns is cut short, or goes on behind its end")
        return cls(about.pop("kind"), about, {one.name: one for one in pieces}, places, read)

    @property
    def room(self) -> int:
        """Bytes that all columns take while they are unpacked."""
        return sum(piece.room for piece in self.pieces.values())

    def size(self, name: str) -> int:
        """Return a count that the head tells.

        Raises:
            DamagedError: it doesn't.
        """
        value = self.about.get(name)
        if type(value) is not int or not 0 <= value < 1 << 63:
            raise DamagedError(f"a chunk doesn't say its {name}")
        return value

    def pair(self, name: str) -> tuple[int, int]:
        """Return from what to what something reaches, as the head tells.

        Raises:
            DamagedError: it doesn't.
        """
        value = self.about.get(name)
        if not isinstance(value, list) or [type(one) for one in value] != [int, int]:
            raise DamagedError(f"a chunk doesn't say its {name}")
        return value[0], value[1]

    def numbers(self, name: str, rows: int | None = None) -> Integers:
        """Return a column; of so many rows, if that is known.

        Raises:
            DamagedError: it is damaged, or has another number of rows.
        """
        piece, content = self._content(name)
        if rows is not None and piece.rows != rows:
            raise DamagedError(f"the column {name!r} has {piece.rows} rows of {rows}")
        return unpack(piece, content)

    def json(self, name: str) -> Any:
        """Return plain values.

        Raises:
            DamagedError: they are damaged.
        """
        return unpack_json(*self._content(name))

    def _content(self, name: str) -> tuple[Piece, bytes]:
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
