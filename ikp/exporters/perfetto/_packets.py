"""Building blocks of packets: track events, arguments, flows, and the clock that times count on.

Arrows are Perfetto's flows: ids on the packets that open the events they join.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

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
from ikp.exporters.protobuf.shapes import Message, Stream, SubmessageGroup, Times
from ikp.exporters.protobuf.varints import BYTES, FIXED64, VARINT, WORD, MessagePart, Numbers, tag
from ikp.exporters.timeline.batches import ARROW, Arrows

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

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


def packet(
    times: Ints, *event: bytes | MessagePart | Numbers | SubmessageGroup | Message
) -> Message:
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
    value: MessagePart | Numbers,
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


def typed(column: ArgColumn, kind: str = "") -> tuple[MessagePart | Numbers, bytes]:
    """Return the values of an argument, empty where it is not given, and their tag.

    ``kind`` is numpy's kind, where it is not that of the values: ``TEXT`` if they number texts.
    """
    found = _TAGS[kind or column.values.dtype.kind]
    if column.values.dtype.kind == "f":
        words = column.values.view(np.uint64)[:, None]
        return MessagePart(words, column.given * np.uint8(WORD)), found
    return Numbers.of(column.values, column.given), found


_TAGS: Final = {
    "i": INTEGER,
    "f": tag(Annotation.DOUBLE_VALUE, FIXED64),
    "b": tag(Annotation.BOOL_VALUE, VARINT),
    TEXT: tag(Annotation.STRING_VALUE_IID, VARINT),
}


Rows = NDArray[np.intp]

LEAVING: Final = tag(Event.FLOW_IDS, FIXED64)
ARRIVING: Final = tag(Event.TERMINATING_FLOW_IDS, FIXED64)
TO_BLOCK: Final = 1 << 62
"""What the id of the flow from a launch to its first block is above that of the flow from the
host's call. Ids of hosts' flows are below it."""
NAMED: Final = tag(Event.NAME, BYTES) + bytes([len(ARROW)]) + ARROW


@dataclass(frozen=True, slots=True)
class Ids:
    """The arrows of some events, event by event: the event's number and the id of each arrow."""

    event: Rows
    id: Ints
    count: Ints  # of each event

    @classmethod
    def of(cls, found: tuple[Rows, Ints], events: int) -> Ids:
        """Return the ids of arrows that :meth:`ikp.exporters.timeline.batches.Lists.take` found."""
        return cls(*found, np.bincount(found[0], minlength=events))

    def take(self, rows: Rows) -> Ids:
        """Return the arrows of the given events."""
        place = np.full(len(self.count), -1)
        place[rows] = np.arange(len(rows))
        event = place[self.event]
        order = np.argsort(event, kind="stable")[np.count_nonzero(event < 0) :]
        return Ids(event[order], self.id[order], self.count[rows])

    def column(self, key: bytes) -> MessagePart:
        """Return the field for the ids, once for each of them."""
        size = len(key) + WORD
        fields = np.zeros((len(self.event), size), np.uint8)
        fields[:, : len(key)] = np.frombuffer(key, np.uint8)
        fields[:, len(key) :] = self.id.astype("<u8").view(np.uint8).reshape(-1, WORD)
        most = int(self.count.max(initial=0))
        width = max(1, -(-most * size // WORD))
        nth = np.arange(len(self.event)) - np.repeat(np.cumsum(self.count) - self.count, self.count)
        rows = np.zeros((len(self.count), width * WORD), np.uint8)
        # A view of each row as so many fields: numpy copies each in one go.
        cells = np.ndarray((len(rows), most), f"V{size}", rows, strides=(rows.shape[1], size))
        cells[self.event, nth] = fields.view(f"V{size}")[:, 0]
        return MessagePart(rows.view(np.uint64), self.count * size)


@dataclass(frozen=True, slots=True)
class Flows:
    """The arrows of a batch's events."""

    leaving: Ids
    arriving: Ids
    late: Ids

    @classmethod
    def of(cls, arrows: Arrows, rows: Rows, first_id: int) -> Flows | None:
        """Return the arrows of the given events; None if they have none.

        Arrow 1 gets the id behind ``first_id``, and so on.
        """
        lists = (one.take(rows) for one in (arrows.leaving, arrows.arriving, arrows.late))
        found = [Ids.of((event, first_id + number), len(rows)) for event, number in lists]
        return cls(*found) if any(len(one.id) for one in found) else None

    def take(self, rows: Rows) -> Flows:
        """Return the arrows of the given events."""
        return Flows(*(one.take(rows) for one in (self.leaving, self.arriving, self.late)))

    def fields(self) -> tuple[MessagePart, MessagePart]:
        """Return the fields of the packets that open the events: leaving and arriving flows."""
        return self.leaving.column(LEAVING), self.arriving.column(ARRIVING)

    def alike(self) -> list[Rows]:
        """Return events by how many arrows they have: each list holds up to twice as many."""
        most = np.maximum(np.maximum(self.leaving.count, self.arriving.count), 1)
        kind = np.ceil(np.log2(most)).astype(np.int64)
        return [np.flatnonzero(kind == one) for one in np.unique(kind).tolist()]


def state_packet(sequence: int, flags: int = NEEDS_STATE) -> TracePacket:
    """Return a packet for protobuf's own classes to fill: one of few, whose fields vary."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

    return TracePacket(trusted_packet_sequence_id=sequence, sequence_flags=flags)


def serialized(packets: list[TracePacket]) -> NDArray[np.uint8]:
    """Return the bytes of such packets, one after the other."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage

    return np.frombuffer(TraceMessage(packet=packets).SerializeToString(), np.uint8)
