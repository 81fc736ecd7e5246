"""Ranges and instants as packets.

Every event has a packet that opens it, with its arguments; a range also has one that closes it.
Where an arrow ends at the end of a range, an instant stands in front of that. The trace's own
arguments stand in the field for their type, texts interned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import PayloadType
from ikp.core.trace import Trace
from ikp.exporters.perfetto._flows import ARRIVING, NAMED, Flows
from ikp.exporters.perfetto._packets import INTEGER, TYPES, argument, packet, typed
from ikp.exporters.perfetto._schema import FIRST_OWN_ARG, Annotation, Arg, Event, EventType
from ikp.exporters.perfetto._setup import FirstIds, OwnArgs
from ikp.exporters.perfetto._steps import Clock, steps
from ikp.exporters.protobuf.shapes import Message, join
from ikp.exporters.protobuf.varints import (
    FIXED64,
    VARINT,
    WORD,
    Column,
    Words,
    as_words,
    encoded_varint,
    tag,
    varints,
)
from ikp.exporters.timeline.batches import Arrows, Batch

Ints = NDArray[np.int64]


class Encoder:
    """Turns events into columns."""

    def __init__(self, trace: Trace, clock: Clock, ids: FirstIds, args: OwnArgs) -> None:
        self._trace = trace
        self._clock = clock
        self._args = args
        self._arrows = Arrows.of(trace)
        self._first_flow = ids.flow
        self._names = varints(ids.region + np.arange(len(trace.regions)))
        self._cycles = np.array([one.clock.kind == "cycles" for one in trace.launches], bool)

    def columns(self, batch: Batch) -> EventColumns:
        """Return the columns of a batch."""
        events = batch.events
        slot = events.slot.astype(np.intp)
        name, ticks = self._ticks(batch, slot)
        before = self._clock.now
        self._clock.now = int(events.end_ns[-1])  # events close in order: nothing is behind that
        return EventColumns(
            before=before,
            start=events.start_ns,
            end=events.end_ns,
            is_range=batch.ranges,
            name=self._names.take(events.region.astype(np.intp)),
            track=varints(batch.track),
            ticks=ticks,
            ticks_name=name,
            payload=events.payload,
            payload_type=events.payload_type,
            args=self._own_args(batch.rows),
            opens=batch.opens,
            closes=batch.closes,
            flows=self._flows(batch.rows),
        )

    def _own_args(self, rows: NDArray[np.intp]) -> tuple[Message, ...]:
        """Return the trace's own arguments of the given events."""
        parts = zip(self._args.kinds, self._args.columns, strict=True)
        return tuple(
            argument(encoded_varint(iid), *typed(column.take(rows), kind))
            for iid, (kind, column) in enumerate(parts, FIRST_OWN_ARG)
        )

    def _flows(self, rows: NDArray[np.intp]) -> Flows | None:
        return None if self._arrows is None else Flows.of(self._arrows, rows, self._first_flow)

    def _ticks(self, batch: Batch, slot: NDArray[np.intp]) -> tuple[Arg | Column, Column]:
        """Return what the ticks are called, and themselves where the duration doesn't tell them."""
        events, ranges = batch.events, batch.ranges
        ticks = varints(events.ticks)
        if self._cycles.all() and ranges.all():
            return Arg.CYCLES, ticks
        cycles = self._cycles[self._trace.slots.launch[slot]]
        shown = (events.ticks != events.end_ns - events.start_ns) | (ranges & cycles)
        names = varints(np.where(cycles, Arg.CYCLES, Arg.TICKS))
        return names.where(shown), ticks.where(shown)


@dataclass(frozen=True, slots=True)
class EventColumns:
    """Events of some slots, one row each, and where their packets stand among the batch's.

    Columns hold varints: interned names, block and track ids, ticks.
    """

    before: int  # when the packet in front of them is
    start: Ints
    end: Ints
    is_range: NDArray[np.bool_]  # an instant where it is not
    name: Column
    track: Column
    ticks: Column  # empty where they say no more than the duration
    ticks_name: Arg | Column  # CYCLES or TICKS: of all, or of each event
    payload: NDArray[np.uint32]
    payload_type: NDArray[np.uint8]
    opens: Ints
    closes: Ints  # the same place as ``opens`` for an instant
    args: tuple[Message, ...] = ()  # the trace's own arguments
    flows: Flows | None = None

    def take(self, rows: NDArray[np.intp]) -> EventColumns:
        """Return the given events."""
        name = self.ticks_name
        return EventColumns(
            before=self.before,
            start=self.start[rows],
            end=self.end[rows],
            is_range=self.is_range[rows],
            name=self.name.take(rows),
            track=self.track.take(rows),
            ticks=self.ticks.take(rows),
            ticks_name=name if isinstance(name, Arg) else name.take(rows),
            payload=self.payload[rows],
            payload_type=self.payload_type[rows],
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
    later = steps(batch.before, (batch.start, batch.opens), (end, closes))
    opening, closing = _opening(batch, later[0]), _closing(later[1], track)
    return join((opening, batch.opens), (closing, closes))


def _with_flows(batch: EventColumns, flows: Flows) -> NDArray[np.uint8]:
    """Return the packets of a batch of which some events have arrows."""
    late = np.flatnonzero(flows.late.count)
    late = late[np.argsort(batch.closes[late])]
    at = batch.closes[late]  # the instants stand there, and what is there and behind makes room
    parts = [batch.take(rows) for rows in flows.alike()]
    rows = np.flatnonzero(batch.is_range)
    moved = np.arange(len(batch.opens) + len(rows))
    moved += np.cumsum(np.bincount(at, minlength=len(moved)))
    opens = [moved[part.opens] for part in parts]
    closes, instants_at = moved[batch.closes[rows]], at + np.arange(len(at))
    *starts, ends, lates = steps(
        batch.before,
        *zip([part.start for part in parts], opens, strict=True),
        (batch.end[rows], closes),
        (batch.end[late], instants_at),
    )
    streams = [
        (_opening(part, later), places)
        for part, later, places in zip(parts, starts, opens, strict=True)
    ]
    streams.append((_closing(ends, batch.track.take(rows)), closes))
    instants = packet(
        lates,
        TYPES[EventType.INSTANT],
        tag(Event.TRACK_UUID, VARINT),
        batch.track.take(late),
        NAMED,
        flows.late.take(late).column(ARRIVING),
    )
    return join(*streams, (instants, instants_at))


def _opening(batch: EventColumns, later: Ints) -> Message:
    return packet(
        later,
        argument(batch.ticks_name, batch.ticks),
        *_payload(batch),
        *batch.args,
        *_type(batch.is_range),
        tag(Event.NAME_IID, VARINT),
        batch.name,
        tag(Event.TRACK_UUID, VARINT),
        batch.track,
        *(() if batch.flows is None else batch.flows.fields()),
    )


def _type(is_range: NDArray[np.bool_]) -> tuple[bytes | Column, ...]:
    if is_range.all():
        return (TYPES[EventType.SLICE_BEGIN],)
    types = np.where(is_range, EventType.SLICE_BEGIN, EventType.INSTANT)
    return tag(Event.TYPE, VARINT), varints(types)


def _closing(later: Ints, track: Column) -> Message:
    return packet(later, TYPES[EventType.SLICE_END], tag(Event.TRACK_UUID, VARINT), track)


def _payload(batch: EventColumns) -> list[Message]:
    """Return the argument of those events that have a payload, in the field for its type."""
    types = batch.payload_type
    # As plain ints: numpy compares bytes with those ten times as fast as with an enum's members.
    of = {kind: types == int(kind) for kind in PayloadType}
    present = {kind for kind, rows in of.items() if rows.any()}
    if present <= {PayloadType.NONE}:
        return []
    numbers = batch.payload.astype(np.uint64)
    if PayloadType.I32 in present:
        signed = of[PayloadType.I32]
        numbers[signed] = as_words(batch.payload[signed].view(np.int32))
    value = varints(numbers)
    if PayloadType.F32 in present:
        real = of[PayloadType.F32]
        words = value.words.copy()
        words[real] = 0
        words[real, 0] = widen_float(batch.payload[real])
        value = Column(words, np.where(real, np.uint8(WORD), value.sizes))
    value_tag: bytes | Column = _PAYLOAD_TAGS[PayloadType.U32]
    if present & {PayloadType.I32, PayloadType.F32}:
        value_tag = varints(np.array([_PAYLOAD_TAGS[kind][0] for kind in PayloadType])[types])
    if PayloadType.NONE in present:
        there = ~of[PayloadType.NONE]
        value = value.where(there)
        value_tag = value_tag if isinstance(value_tag, bytes) else value_tag.where(there)
    return [argument(Arg.PAYLOAD, value, value_tag)]


_PAYLOAD_TAGS: Final = {
    PayloadType.NONE: b"\0",
    PayloadType.U32: tag(Annotation.UINT_VALUE, VARINT),
    PayloadType.I32: INTEGER,
    PayloadType.F32: tag(Annotation.DOUBLE_VALUE, FIXED64),
}


def widen_float(bits: NDArray[np.uint32]) -> Words:
    """Return the bits of float32 numbers as those of float64; a NaN keeps its bits too."""
    with np.errstate(invalid="ignore"):  # signalling NaNs: they are put right below
        wide = bits.view(np.float32).astype(np.float64).view(np.uint64)
    nan = np.isnan(bits.view(np.float32))
    sign = (bits[nan] >> np.uint32(31)).astype(np.uint64) << np.uint64(63)
    fraction = (bits[nan] & np.uint32(0x7FFFFF)).astype(np.uint64) << np.uint64(29)
    wide[nan] = sign | np.uint64(0x7FF << 52) | fraction
    return wide
