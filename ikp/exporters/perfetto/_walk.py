"""Reads a ``.pftrace`` file packet by packet, whether or not it is compressed: columns and seals.

A chunk's seal has the size and checksums that the packets in front of it had when they were
written. What is compressed is inflated piece by piece, and no further than the file's size
explains.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Final, cast

from ikp.errors import ExportError
from ikp.exporters.columns.chunk import Chunk
from ikp.exporters.columns.packing import checksum
from ikp.exporters.perfetto._schema import COLUMNS, Packet
from ikp.exporters.protobuf.varints import BYTES, DamagedError, tag
from ikp.paths import path_text

_GZIP = b"\x1f\x8b"
_INFLATED_AT_ONCE = 1 << 20
_LARGE = 64 << 20
_RATIO = 256
"""Bounds of what is unpacked: columns are packed already, and packets of ranges by far less."""


@contextmanager
def unpacked(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file; one that gzip has packed is unpacked into a temporary file first.

    Raises:
        ExportError: it can't be read, or unpacked.
    """
    try:
        file: BinaryIO = Path(path_text(path)).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise unreadable(path, error) from error
    with file:
        packed = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        if not packed:
            yield file
            return
        with tempfile.TemporaryFile() as plain:
            _unpack(path, file, cast("BinaryIO", plain))
            plain.seek(0)
            yield cast("BinaryIO", plain)


def _unpack(path: str | PathLike[str], file: BinaryIO, plain: BinaryIO) -> None:
    from isal import igzip

    try:
        with igzip.IGzipFile(fileobj=file, mode="rb") as content:
            most = max(_LARGE, _RATIO * os.fstat(file.fileno()).st_size)
            size = 0
            while part := content.read(_INFLATED_AT_ONCE):
                size += plain.write(part)
                if size > most:
                    raise ExportError(
                        f"{path} unpacks to more than {most >> 20} MiB, which no trace does. Is it "
                        "one? gunzip it, and give the file."
                    )
    except (EOFError, igzip.BadGzipFile, zlib.error) as error:
        why = "it is cut short" if isinstance(error, EOFError) else f"{error}"
        raise ExportError(
            f"{path} is damaged as a gzip file: {why}. Copy it again; what gunzip can unpack of "
            "it, `ikp convert --salvage` may save."
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: str | PathLike[str], error: OSError) -> ExportError:
    """Return the error for a file that the system can't read."""
    return ExportError(f"{path} can't be read: {error.strerror or error}.")


_VARIABLE: Final = "IKP_INFLATE_MIB"
"""In the environment: read files that inflate to so many MiB, of any size themselves."""
_TIMES: Final = 256
LEAST: Final = 64 << 20
"""A file may inflate to ``LEAST`` bytes and ``_TIMES`` its own size. Columns take 3 times a file's
size, and where events repeat each other to the nanosecond, up to ``_TIMES``: their packets take
next to nothing, too. Deflate itself can do 1,000 times."""
PIECE: Final = 4 << 20
"""So many bytes are taken apart together."""


class ByteBudget:
    """What reading one file may still take, in bytes."""

    def __init__(self, path: str | PathLike[str], size: int) -> None:
        self._path, self._size = path, size
        self.most = _asked(path) or LEAST + _TIMES * size
        self.left = self.most

    def take(self, count: int) -> None:
        """Count bytes as used.

        Raises:
            ExportError: that is more than the file's size explains.
        """
        self.left -= count
        if self.left < 0:
            raise ExportError(
                f"{self._path} has {self._size:,} bytes, and inflates to more than "
                f"{self.most >> 20:,} MiB, which no trace of ikp does: it is damaged, or made to "
                f"fill the memory. To read it all the same, set {_VARIABLE} to more in the "
                "environment."
            )


def _asked(path: str | PathLike[str]) -> int:
    text = os.environ.get(_VARIABLE, "0")
    if not text.isdecimal():
        raise ExportError(
            f"{path} was not read, because {_VARIABLE}={text!r} in the environment is no number of "
            "MiB: unset it, or give one."
        )
    return int(text) << 20


def inflated(packed: bytes, budget: ByteBudget) -> Iterator[bytes]:
    """Yield the content of one packed part, in pieces.

    Raises:
        DamagedError: it is not whole.
        ExportError: it inflates to more than the budget has left.
    """
    from isal import isal_zlib

    inflater = isal_zlib.decompressobj(_ZLIB_BITS)
    try:
        while not inflater.eof:
            piece = inflater.decompress(packed, PIECE)
            packed = inflater.unconsumed_tail
            budget.take(len(piece))
            if not piece and not packed and not inflater.eof:
                raise DamagedError("a compressed part is cut off")
            yield piece
    except isal_zlib.error as error:
        raise DamagedError("a compressed part is damaged") from error
    if inflater.unused_data:
        raise DamagedError("a compressed part goes on behind its end")


_ZLIB_BITS: Final = 15
"""The window of zlib's format, with its header and checksum."""


PACKET: Final = tag(Packet.PACKET, BYTES)
_COLUMNS: Final = tag(COLUMNS, BYTES)
_PACKED: Final = tag(Packet.COMPRESSED_PACKETS, BYTES)
_MOST_VARINT: Final = 10
_HEAD: Final = len(PACKET) + len(_COLUMNS) + 2 * _MOST_VARINT
_AT_ONCE: Final = 4 << 20
"""Bytes whose checksum is made together."""


@dataclass(frozen=True, slots=True)
class FilePart:
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


def walk(source: Bytes, start: int = 0) -> Iterator[FilePart]:
    """Yield the chunks of a file, from a place on.

    Raises:
        DamagedError: it does not consist of packets, or the last one is cut off.
    """
    at = behind = start
    while at < source.size:
        chunk, chunk_end, end = source.chunk(at)
        if chunk:
            yield FilePart(behind, at, chunk, chunk_end)
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


def check_seal(source: Bytes, part: FilePart, chunk: Chunk, budget: ByteBudget) -> None:
    """Compare the packets in front of a chunk with the sizes and checksums in its head.

    Packets that another tool only inflated pass.

    Raises:
        DamagedError: they differ.
    """
    sealed = chunk.about.get("packets")
    if not isinstance(sealed, list) or [type(one) for one in sealed] != [int] * 3:
        raise DamagedError("a chunk doesn't say which packets it belongs to")
    size, crc, content = sealed
    begin, end = part.packets, part.packets_end
    if end - begin == size and source.checksum(begin, end) == crc:
        return
    if _content(source, begin, end, budget) != content:
        raise DamagedError("its packets are not those that its columns were written with")


def _content(source: Bytes, start: int, end: int, budget: ByteBudget) -> int:
    """Return the checksum of packets as they were before they were deflated."""
    crc = 0
    while start < end:
        packed, stop = source.packed(start)
        if packed is None:
            crc = checksum(source.read(start, stop - start), crc)
        else:
            for piece in inflated(packed, budget):
                crc = checksum(piece, crc)
        start = stop
    return crc
