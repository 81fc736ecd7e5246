"""A file with columns taken apart, changed by tests, and put together with right checksums."""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass
from typing import Any

from ikp.exporters.columns.chunk import Chunk, unpack, unpack_json
from ikp.exporters.columns.packing import Packed, build, pack, pack_json, to_json
from ikp.exporters.perfetto._schema import COLUMNS, Packet
from ikp.exporters.perfetto._walk import Bytes, walk
from ikp.exporters.protobuf.varints import BYTES, encoded_varint, tag


@dataclass
class Section:
    """A chunk, and the packets in front of it."""

    packets: bytes
    kind: str
    about: dict[str, Any]
    pieces: dict[str, Packed]

    def numbers(self, name: str) -> Any:
        return unpack(*self.pieces[name]).astype("int64")

    def json(self, name: str) -> Any:
        return unpack_json(*self.pieces[name])

    def put(self, name: str, values: Any) -> None:
        self.pieces[name] = pack(name, values)

    def put_json(self, name: str, value: Any) -> None:
        self.pieces[name] = pack_json(name, to_json(value))


def take_apart(content: bytes) -> list[Section]:
    """Return the sections of a file."""
    source = Bytes(io.BytesIO(content))
    sections = []
    for part in walk(source):
        chunk = Chunk.at(source.read, part.chunk, part.chunk_end)
        pieces = {
            name: (piece, source.read(chunk.places[name], piece.size))
            for name, piece in chunk.pieces.items()
        }
        packets = content[part.packets : part.packets_end]
        sections.append(Section(packets, chunk.kind, dict(chunk.about), pieces))
    return sections


def put_together(sections: list[Section], *, seal: bool = False) -> bytes:
    """Return a file; with ``seal``, one whose columns claim to belong to its packets."""
    return b"".join(part for one in sections for part in (one.packets, _chunk(one, seal)))


def _chunk(section: Section, seal: bool) -> bytes:
    about = section.about
    if seal:
        about = {**about, "packets": [len(section.packets), zlib.crc32(section.packets), 0]}
    chunk = build(section.kind, about, list(section.pieces.values()))
    inner = tag(COLUMNS, BYTES) + encoded_varint(len(chunk)) + chunk
    return tag(Packet.PACKET, BYTES) + encoded_varint(len(inner)) + inner
