"""A chunk: some rows of a table, behind a head that tells what they are and where each column lies.

::

    "ikpc" | size of the head, 4 bytes | CRC-32 of the head, 4 bytes | head, as JSON | columns

The head has its own checksum, and one of each column: any of them is read without the others.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ikp.exporters.columns.pieces import Integers, Packed, Piece, checksum, unpack, unpack_json
from ikp.exporters.protobuf.damage import DamagedError

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
