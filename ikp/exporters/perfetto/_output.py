"""A file on its way to the disk: packets for viewers, and beside them the trace's own columns.

Columns stand in a packet's field that Perfetto does not know, and so skips. Each chunk of them
seals the packets in front of it: how many bytes those are, and two checksums, of these bytes and of
what they inflate to. So no reader takes columns for what a viewer shows if they are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ikp.exporters.columns.chunk import build
from ikp.exporters.columns.pieces import Packed, checksum
from ikp.exporters.perfetto._packets import compressed
from ikp.exporters.perfetto._schema import COLUMNS, Packet
from ikp.exporters.perfetto._threads import Ordered
from ikp.exporters.protobuf.varints import BYTES, encoded_varint, tag

Content = bytes | NDArray[np.uint8]
Rows = tuple[dict[str, Any], Sequence[Packed]]
"""What a chunk's head tells of its rows, and their columns."""


class Output:
    """Writes packets and chunks in the order in which they come."""

    def __init__(self, file: BinaryIO, jobs: Ordered) -> None:
        self._file = file
        self._jobs = jobs
        self._seal = [0, 0, 0]  # size and checksums of the packets behind the last chunk

    def packets(self, make: Callable[[], Content]) -> None:
        """Write what ``make`` returns, packets, as one that holds them all, deflated."""

        def job() -> tuple[Content, bytes]:
            content = make()
            return content, compressed(content) if len(content) else b""

        self._jobs.run(job, lambda made: self._put(*made))

    def chunk(self, kind: str, make: Callable[[], Rows]) -> None:
        """Write a chunk of columns."""
        self._jobs.run(make, lambda made: self._put_chunk(kind, *made))

    def _put(self, content: Content, packed: bytes) -> None:
        self._file.write(packed)
        size, crc, inflated = self._seal
        self._seal = [size + len(packed), checksum(packed, crc), checksum(content, inflated)]

    def _put_chunk(self, kind: str, about: dict[str, Any], parts: Sequence[Packed]) -> None:
        chunk = build(kind, {**about, "packets": self._seal}, parts)
        self._file.write(_in_packet(chunk))
        self._seal = [0, 0, 0]


def _in_packet(chunk: bytes) -> bytes:
    inner = tag(COLUMNS, BYTES) + encoded_varint(len(chunk))
    outer = tag(Packet.PACKET, BYTES) + encoded_varint(len(inner) + len(chunk))
    return outer + inner + chunk
