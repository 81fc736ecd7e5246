"""A walk over a file, packet by packet: its chunks of columns apart from what viewers show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from ikp.exporters.columns.packing import checksum
from ikp.exporters.perfetto._schema import COLUMNS, Packet
from ikp.exporters.protobuf.damage import DamagedError
from ikp.exporters.protobuf.varints import BYTES, tag

PACKET: Final = tag(Packet.PACKET, BYTES)
_COLUMNS: Final = tag(COLUMNS, BYTES)
_PACKED: Final = tag(Packet.COMPRESSED_PACKETS, BYTES)
_MOST_VARINT: Final = 10
_HEAD: Final = len(PACKET) + len(_COLUMNS) + 2 * _MOST_VARINT
_AT_ONCE: Final = 4 << 20
"""Bytes whose checksum is made together."""


@dataclass(frozen=True, slots=True)
class Part:
    """A chunk of columns, and the packets between it and the chunk before it."""

    packets: int  # where they begin
    packets_end: int
    chunk: int  # where it begins, behind the packet's own bytes
    chunk_end: int


class Bytes:
    """A file that is read here and there."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = file.seek(0, 2)

    def read(self, start: int, size: int) -> bytes:
        """Return so many bytes from a place on; fewer where the file ends."""
        self._file.seek(start)
        return self._file.read(size)

    def packet(self, start: int) -> tuple[bytes, int, int]:
        """Return the first bytes of the packet at a place, where its content begins, and ends.

        Raises:
            DamagedError: there is none, or it is not whole.
        """
        head = self.read(start, _HEAD)
        if not head.startswith(PACKET):
            raise DamagedError("it does not consist of packets")
        size, at = number(head, len(PACKET))
        if start + at + size > self.size:
            raise DamagedError("the last packet is cut off")
        return head[at:], start + at, start + at + size

    def chunk(self, start: int) -> tuple[int, int, int]:
        """Return where the chunk in a packet begins, 0 if it holds none; and both ends.

        Raises:
            DamagedError: there is no packet, or it is not whole.
        """
        head, begin, end = self.packet(start)
        if not head.startswith(_COLUMNS):
            return 0, 0, end
        size, at = number(head, len(_COLUMNS))
        if begin + at + size > end:
            raise DamagedError("a chunk of columns is cut short")
        return begin + at, begin + at + size, end

    def checksum(self, start: int, end: int) -> int:
        """Return that of a part of the file."""
        crc = 0
        for low in range(start, end, _AT_ONCE):
            crc = checksum(self.read(low, min(_AT_ONCE, end - low)), crc)
        return crc

    def packed(self, start: int) -> tuple[bytes | None, int]:
        """Return what the packet at a place has deflated, if anything, and where it ends."""
        head, begin, end = self.packet(start)
        if not head.startswith(_PACKED):
            return None, end
        size, at = number(head, len(_PACKED))
        if begin + at + size != end:
            raise DamagedError("a compressed part is cut off")
        return self.read(begin + at, size), end


def walk(source: Bytes, start: int = 0) -> Iterator[Part]:
    """Yield the chunks of a file, from a place on.

    Raises:
        DamagedError: it does not consist of packets, or the last one is cut off.
    """
    at = behind = start
    while at < source.size:
        chunk, chunk_end, end = source.chunk(at)
        if chunk:
            yield Part(behind, at, chunk, chunk_end)
            behind = end
        at = end
    if behind < source.size:
        raise DamagedError("its columns end before its packets do")


def begins_with_columns(head: bytes) -> bool:
    """Return whether a file that begins so has columns, in front of all packets."""
    if not head.startswith(PACKET):
        return False
    try:
        _, at = number(head, len(PACKET))
    except DamagedError:
        return False
    return head.startswith(_COLUMNS, at)


def number(content: bytes, at: int) -> tuple[int, int]:
    """Read a varint; return it, and where it ends."""
    value = 0
    for place, byte in enumerate(content[at : at + _MOST_VARINT]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise DamagedError("a packet is cut off" if len(content) < _HEAD else "a number is too long")
