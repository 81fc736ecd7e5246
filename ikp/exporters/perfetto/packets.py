"""The shapes that all vectorised packets share."""

from __future__ import annotations

from typing import Any, Final

from numpy.typing import NDArray

from ikp.exporters.perfetto.schema import (
    NEEDS_STATE,
    SEQUENCE,
    Annotation,
    Arg,
    Event,
    EventType,
    Packet,
)
from ikp.exporters.protobuf.shapes import Message, message
from ikp.exporters.protobuf.varints import BYTES, VARINT, Column, Words, tag, texts, varints

INTEGER: Final = tag(Annotation.INT_VALUE, VARINT)


def packet(times: Words, *event: bytes | Column | Message) -> Message:
    """Return packets that each hold one track event of the given parts, at the given times."""
    return message(
        tag(Packet.PACKET, BYTES),
        tag(Packet.TIMESTAMP, VARINT),
        varints(times),
        tag(Packet.SEQUENCE_ID, VARINT) + bytes([SEQUENCE]),
        message(tag(Packet.TRACK_EVENT, BYTES), *event),
        tag(Packet.SEQUENCE_FLAGS, VARINT) + bytes([NEEDS_STATE]),
    )


def event_type(kind: EventType) -> bytes:
    """Return the field that says what an event is."""
    return tag(Event.TYPE, VARINT) + bytes([kind])


def argument(
    name: Arg | bytes | Column,
    value: Column,
    value_tag: bytes | Column = INTEGER,
    field: bytes = tag(Event.DEBUG_ANNOTATIONS, BYTES),
) -> Message:
    """Return an argument with an interned name, left out where the value is empty.

    ``name`` and ``value_tag`` are the same in all events, or given for each and empty with it.
    ``field`` holds the argument: the event's, or that of a dict.
    """
    iid = bytes([name]) if isinstance(name, Arg) else name
    return message(field, tag(Annotation.NAME_IID, VARINT), iid, value_tag, value)


def integer(name: Arg, values: NDArray[Any]) -> Message:
    """Return an argument that is an integer."""
    return argument(name, varints(values))


def entry(name: Arg, value: Column, value_tag: bytes = INTEGER) -> Message:
    """Return an entry of an argument that is a dict."""
    return argument(name, value, value_tag, tag(Annotation.DICT_ENTRIES, BYTES))


def text(field: int, values: list[bytes]) -> Message:
    """Return a field that is a string."""
    return message(tag(field, BYTES), texts(values))
