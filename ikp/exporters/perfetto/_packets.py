"""Building blocks of packets: track events, arguments, and the clock that their times count on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.args import TEXT, ArgColumn
from ikp.exporters.perfetto._schema import (
    NEEDS_STATE,
    SEQUENCE,
    Annotation,
    Arg,
    Event,
    EventType,
    Packet,
)
from ikp.exporters.protobuf.joining import join
from ikp.exporters.protobuf.shapes import Group, Message, Stream, Times
from ikp.exporters.protobuf.varints import (
    BYTES,
    FIXED64,
    VARINT,
    WORD,
    Column,
    Numbers,
    tag,
)

Ints = NDArray[np.int64]

INTEGER: Final = tag(Annotation.INT_VALUE, VARINT)


IN_SEQUENCE: Final = b"".join(
    tag(field, VARINT) + bytes([value])
    for field, value in ((Packet.SEQUENCE_ID, SEQUENCE), (Packet.SEQUENCE_FLAGS, NEEDS_STATE))
)
"""The fields that all packets but the first have in common."""
TYPES: Final = {kind: tag(Event.TYPE, VARINT) + bytes([kind]) for kind in EventType}
"""The field for the type of an event, by type."""


@dataclass(slots=True)
class Clock:
    """The file's clock: each packet says how much later it is than the one in front of it.

    ``now`` is the Unix time of the last packet in ns. Steps take fewer bytes than times.
    """

    now: int

    def join(self, *streams: Stream) -> NDArray[np.uint8]:
        """Lay packets end to end, and set ``now`` to the last one; each stream's places ascend."""
        out = join(*streams, before=self.now)
        lasts = [
            (int(places[-1]), int(part.values[-1]))
            for shape, places in streams
            for part in shape.parts
            if isinstance(part, Times) and len(part.values)
        ]
        self.now = max(lasts)[1] if lasts else self.now
        return out


def packet(times: Ints, *event: bytes | Column | Numbers | Group | Message) -> Message:
    """Return packets that each hold one track event of the given parts, at the given times.

    The time is last, not in the order of field numbers. If an event's own numbers are last in it,
    too, all bytes that differ between packets are together, and deflate finds one long match
    between.
    """
    parts = (
        IN_SEQUENCE,
        Message(tag(Packet.TRACK_EVENT, BYTES), event),
        tag(Packet.TIMESTAMP, VARINT),
        Times(times),
    )
    return Message(tag(Packet.PACKET, BYTES), parts)


def argument(
    name: Arg | bytes | Numbers,
    value: Column | Numbers,
    value_tag: bytes = INTEGER,
    field: bytes = tag(Event.DEBUG_ANNOTATIONS, BYTES),
) -> Message:
    """Return an argument with an interned name, left out where the value is empty.

    ``field`` is the tag of the field that holds the argument: of the event, or of a dict.
    """
    iid = bytes([name]) if isinstance(name, Arg) else name
    return Message(field, (tag(Annotation.NAME_IID, VARINT), iid, value_tag, value))


entry: Final = partial(argument, field=tag(Annotation.DICT_ENTRIES, BYTES))
"""Returns an entry of an argument that is a dict."""


def typed(column: ArgColumn, kind: str = "") -> tuple[Column | Numbers, bytes]:
    """Return the values of an argument, empty where it is not given, and their tag.

    ``kind`` is numpy's kind, where it is not that of the values: ``TEXT`` if they number texts.
    """
    found = _TAGS[kind or column.values.dtype.kind]
    if column.values.dtype.kind == "f":
        words = column.values.view(np.uint64)[:, None]
        return Column(words, column.given * np.uint8(WORD)), found
    return Numbers.of(column.values, column.given), found


_TAGS: Final = {
    "i": tag(Annotation.INT_VALUE, VARINT),
    "f": tag(Annotation.DOUBLE_VALUE, FIXED64),
    "b": tag(Annotation.BOOL_VALUE, VARINT),
    TEXT: tag(Annotation.STRING_VALUE_IID, VARINT),
}
