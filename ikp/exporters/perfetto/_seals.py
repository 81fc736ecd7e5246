"""Check of a chunk's seal: that the packets in front of it are those that it was written with."""

from __future__ import annotations

from ikp.exporters.columns.chunk import Chunk
from ikp.exporters.columns.packing import checksum
from ikp.exporters.perfetto._inflate import Budget, inflated
from ikp.exporters.perfetto._walk import Bytes, Part
from ikp.exporters.protobuf.damage import DamagedError


def check_seal(source: Bytes, part: Part, chunk: Chunk, budget: Budget) -> None:
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


def _content(source: Bytes, start: int, end: int, budget: Budget) -> int:
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
