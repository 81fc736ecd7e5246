"""Encoder of ranges and instants: Perfetto packets, and chunks of columns beside them.

Every event has a packet that opens it, with its arguments; a range also has one that closes it.
Where an arrow ends at the end of a range, an instant is in front of the closing packet. The trace's
own arguments are in the field for their type, texts interned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import PayloadType
from ikp.core.args import TEXT, ArgColumn, coded, take_args
from ikp.core.trace import Trace
from ikp.exporters.columns.packing import Packed, pack_events
from ikp.exporters.perfetto._packets import (
    ARRIVING,
    INTEGER,
    NAMED,
    TYPES,
    Flows,
    argument,
    packet,
    typed,
)
from ikp.exporters.perfetto._schema import (
    CORRELATED,
    FIRST_OWN_ARG,
    Annotation,
    Arg,
    Event,
    EventType,
)
from ikp.exporters.perfetto._setup import FirstIds
from ikp.exporters.protobuf.joining import join
from ikp.exporters.protobuf.shapes import Message
from ikp.exporters.protobuf.varints import (
    FIXED64,
    VARINT,
    WORD,
    MessagePart,
    Numbers,
    Words,
    encoded_varint,
    tag,
    varints,
)
from ikp.exporters.timeline.batches import Arrows, Batch, by_end

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Encoder:
    """Turns events into packets, and into columns beside them."""

    def __init__(self, trace: Trace, ids: FirstIds) -> None:
        self._trace = trace
        self._args = _OwnArgs.of(trace)
        self.texts = self._args.texts  # packets name them by their number, from 1 on
        self._ids = ids
        self._cycles = np.array([one.clock.kind == "cycles" for one in trace.launches], bool)
        self._arrows = Arrows.of(trace)

    def encode(self, batch: Batch, before: int) -> NDArray[np.uint8]:
        """Return the packets of a batch; ``before`` is the time of the packet in front of them."""
        events, arrows = batch.events, self._arrows
        columns = EventColumns(
            before=before,
            start=events.start_ns,
            end=events.end_ns,
            is_range=batch.ranges,
            name=Numbers.of(events.region + np.int64(self._ids.region)),
            track=Numbers.of(batch.track),
            args=(
                *payloads(events.payload, events.payload_type),
                *self._own_args(batch.rows),
                *self._ticks(batch),
            ),
            opens=batch.opens,
            closes=batch.closes,
            flows=None if arrows is None else Flows.of(arrows, batch.rows, self._ids.flow),
        )
        return encode(columns)

    def packed(self, low: int, high: int) -> tuple[dict[str, Any], list[Packed]]:
        """Return the chunk head's entries for the events of some slots, by rows, and columns."""
        events, rows = by_end(self._trace.events, slice(low, high))
        args = take_args(self._trace.args, rows) if self._trace.args else {}
        return pack_events(events, args, self._trace.slots.launch)

    def _ticks(self, batch: Batch) -> Iterator[Message]:
        """Yield the ticks, as ``cycles`` or ``ticks``, where they don't equal the duration."""
        events, ranges = batch.events, batch.ranges
        if self._cycles.all() and ranges.all():
            yield argument(Arg.CYCLES, Numbers.of(events.ticks))
            return
        cycles = self._cycles[self._trace.slots.launch[events.slot]]
        shown = (events.ticks != events.end_ns - events.start_ns) | (ranges & cycles)
        yield argument(Arg.CYCLES, Numbers.of(events.ticks, shown & cycles))
        yield argument(Arg.TICKS, Numbers.of(events.ticks, shown & ~cycles))

    def _own_args(self, rows: NDArray[np.intp]) -> Iterator[Message | MessagePart]:
        """Yield the trace's own arguments of the given events."""
        parts = zip(self._trace.args, self._args.kinds, self._args.columns, strict=True)
        for iid, (name, kind, column) in enumerate(parts, FIRST_OWN_ARG):
            if name == CORRELATED and kind == "i":
                yield correlated(column.take(rows))
            else:
                yield argument(encoded_varint(iid), *typed(column.take(rows), kind))


@dataclass(frozen=True, slots=True)
class _OwnArgs:
    """A trace's arguments, and the texts that occur in them: the i-th is interned as ``i + 1``."""

    columns: tuple[ArgColumn, ...]  # those of texts hold numbers of texts
    kinds: str  # numpy's kind of each
    texts: tuple[str, ...]

    @classmethod
    def of(cls, trace: Trace) -> _OwnArgs:
        """Intern the texts of a trace's arguments."""
        texts: dict[str, int] = {}
        columns = [_interned(column, texts) for column in trace.args.values()]
        kinds = "".join(column.values.dtype.kind for column in trace.args.values())
        return cls(tuple(columns), kinds, tuple(texts))


def _interned(column: ArgColumn, texts: dict[str, int]) -> ArgColumn:
    if column.values.dtype.kind != TEXT:
        return column
    distinct, code = coded(column.values[column.given])
    iids = [texts.setdefault(text, len(texts) + 1) for text in distinct]
    values = np.zeros(len(column), np.int64)
    values[column.given] = np.array(iids, np.int64)[code]
    return ArgColumn(values, column.given)


@dataclass(frozen=True, slots=True)
class EventColumns:
    """Events of some slots, one row each, and the places of their packets among the batch's."""

    before: int  # the time of the packet in front of them
    start: Ints
    end: Ints
    is_range: Bools  # an instant where it is not
    name: Numbers  # interned
    track: Numbers
    opens: Ints
    closes: Ints  # the same place as ``opens`` for an instant
    args: tuple[Message | MessagePart, ...] = ()
    flows: Flows | None = None

    def take(self, rows: NDArray[np.intp]) -> EventColumns:
        """Return the given events."""
        return EventColumns(
            before=self.before,
            start=self.start[rows],
            end=self.end[rows],
            is_range=self.is_range[rows],
            name=self.name.take(rows),
            track=self.track.take(rows),
            opens=self.opens[rows],
            closes=self.closes[rows],
            args=tuple(one.take(rows) for one in self.args),
            flows=None if self.flows is None else self.flows.take(rows),
        )


def encode(batch: EventColumns) -> NDArray[np.uint8]:
    """Return the packets of a batch, in their order."""
    if batch.flows is not None:
        return _with_flows(batch, batch.flows)
    end, closes, track = batch.end, batch.closes, batch.track
    if not batch.is_range.all():
        rows = np.flatnonzero(batch.is_range)
        end, closes, track = end[rows], closes[rows], track.take(rows)
    return join((_opening(batch), batch.opens), (_closing(end, track), closes), before=batch.before)


def _with_flows(batch: EventColumns, flows: Flows) -> NDArray[np.uint8]:
    """Return the packets of a batch in which some events have arrows."""
    late = np.flatnonzero(flows.late.count)
    late = late[np.argsort(batch.closes[late])]
    at = batch.closes[late]  # the instants go there, and packets from there on move back
    rows = np.flatnonzero(batch.is_range)
    moved = np.arange(len(batch.opens) + len(rows))
    moved += np.cumsum(np.bincount(at, minlength=len(moved)))
    parts = (batch.take(rows) for rows in flows.alike())
    instants = packet(
        batch.end[late],
        TYPES[EventType.INSTANT],
        tag(Event.TRACK_UUID, VARINT),
        batch.track.take(late),
        NAMED,
        flows.late.take(late).column(ARRIVING),
    )
    return join(
        *((_opening(part), moved[part.opens]) for part in parts),
        (_closing(batch.end[rows], batch.track.take(rows)), moved[batch.closes[rows]]),
        (instants, at + np.arange(len(at))),
        before=batch.before,
    )


def _opening(batch: EventColumns) -> Message:
    return packet(
        batch.start,
        *_type(batch.is_range),
        tag(Event.NAME_IID, VARINT),
        batch.name,
        tag(Event.TRACK_UUID, VARINT),
        batch.track,
        *(() if batch.flows is None else batch.flows.fields()),
        *batch.args,
    )


def _type(is_range: Bools) -> tuple[bytes | Numbers, ...]:
    if is_range.all():
        return (TYPES[EventType.SLICE_BEGIN],)
    types = np.where(is_range, EventType.SLICE_BEGIN, EventType.INSTANT)
    return tag(Event.TYPE, VARINT), Numbers.of(types)


def _closing(end: Ints, track: Numbers) -> Message:
    return packet(end, TYPES[EventType.SLICE_END], tag(Event.TRACK_UUID, VARINT), track)


def correlated(column: ArgColumn) -> MessagePart:
    """Return the field by which viewers colour events, of the low 32 bits of numbers."""
    key = tag(Event.CORRELATION_ID, VARINT)
    part = varints(column.values & 0xFFFFFFFF)  # at most 5 bytes: with the tag, a word
    words = part.words << np.uint64(8 * len(key)) | np.uint64(int.from_bytes(key, "little"))
    return MessagePart(words, (part.sizes + np.uint8(len(key))) * column.given)


def payloads(bits: NDArray[np.uint32], types: NDArray[np.uint8]) -> Iterator[Message]:
    """Yield the argument of events that have a payload, in the field for each type."""
    for kind, value_tag in _PAYLOAD_TAGS.items():
        # As a plain int: numpy compares bytes with it ten times as fast as with an enum's member.
        there = types == int(kind)
        if not there.any():
            continue
        if kind is PayloadType.F32:
            value: MessagePart | Numbers = MessagePart(
                widen_float(bits)[:, None], there * np.uint8(WORD)
            )
        else:
            numbers = bits.view(np.int32) if kind is PayloadType.I32 else bits
            value = Numbers.of(numbers, there)
        yield argument(Arg.PAYLOAD, value, value_tag)


_PAYLOAD_TAGS: Final = {
    PayloadType.U32: tag(Annotation.UINT_VALUE, VARINT),
    PayloadType.I32: INTEGER,
    PayloadType.F32: tag(Annotation.DOUBLE_VALUE, FIXED64),
}


def widen_float(bits: NDArray[np.uint32]) -> Words:
    """Return the bits of float32 numbers as those of float64; a NaN keeps its bits too."""
    with np.errstate(invalid="ignore"):  # signalling NaNs: they are corrected below
        wide = bits.view(np.float32).astype(np.float64).view(np.uint64)
    nan = np.isnan(bits.view(np.float32))
    sign = (bits[nan] >> np.uint32(31)).astype(np.uint64) << np.uint64(63)
    fraction = (bits[nan] & np.uint32(0x7FFFFF)).astype(np.uint64) << np.uint64(29)
    wide[nan] = sign | np.uint64(0x7FF << 52) | fraction
    return wide
