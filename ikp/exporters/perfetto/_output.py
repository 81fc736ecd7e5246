"""A file on its way to the disk: packets for viewers, and beside them the trace's own columns.

Columns stand in a packet's field that Perfetto does not know, and so skips. Each chunk of them
seals the packets in front of it: how many bytes those are, and two checksums, of these bytes and of
what they inflate to. So no reader takes columns for what a viewer shows if they are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ikp.exporters.columns.chunk import build
from ikp.exporters.columns.pieces import Packed, checksum
from ikp.exporters.perfetto._packets import compressed
from ikp.exporters.perfetto._schema import COLUMNS, Packet
from ikp.exporters.perfetto._threads import Ordered
from ikp.exporters.protobuf.varints import BYTES, encoded_varint, tag

Rows = tuple[dict[str, Any], Sequence[Packed]]
"""What a chunk's head tells of its rows, and their columns."""


@dataclass(slots=True)
class _Seal:
    """What is known of the packets behind the last chunk."""

    size: int = 0
    crc: int = 0


class Output:
    """Writes packets and chunks in the order in which they come."""

    def __init__(self, file: BinaryIO, jobs: Ordered) -> None:
        self._file = file
        self._jobs = jobs
        self._seal = _Seal()
        self._content = 0  # checksum of the packets as they were before they were deflated

    def packets(self, content: bytes | NDArray[np.uint8]) -> None:
        """Write packets, as one that holds them all, deflated."""
        if len(content):
            self._content = checksum(content, self._content)
            self._jobs.run(lambda: compressed(content), self._put)

    def chunk(self, kind: str, rows: Callable[[], Rows]) -> None:
        """Write a chunk of columns."""
        content, self._content = self._content, 0
        self._jobs.run(rows, lambda packed: self._put_chunk(kind, content, *packed))

    def _put(self, content: bytes) -> None:
        self._file.write(content)
        self._seal.size += len(content)
        self._seal.crc = checksum(content, self._seal.crc)

    def _put_chunk(
        self, kind: str, content: int, about: dict[str, Any], parts: Sequence[Packed]
    ) -> None:
        sealed = [self._seal.size, self._seal.crc, content]
        chunk = build(kind, {**about, "packets": sealed}, parts)
        self._file.write(_in_packet(chunk))
        self._seal = _Seal()


def _in_packet(chunk: bytes) -> bytes:
    inner = tag(COLUMNS, BYTES) + encoded_varint(len(chunk))
    outer = tag(Packet.PACKET, BYTES) + encoded_varint(len(inner) + len(chunk))
    return outer + inner + chunk
