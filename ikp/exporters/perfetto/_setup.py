"""What a file begins with: where its ids and times start, names, clocks, tracks, and the evidence.

Perfetto can join files: one behind the other (``cat``), or in an archive. Ids of tracks, clocks and
flows then share one space, and whatever has equal ids becomes one. So each file's begin at
numbers drawn from what the trace is: where, when and what was recorded, and how it was edited. The
same trace gets the same ids each time.

Evidence is what a trace says about itself, as arguments of events: readable in the viewer, and by
``_evidence``. Python values become Perfetto's debug annotations: dicts and
lists nest, integers, floats, booleans and strings keep their type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.args import ArgColumn
from ikp.core.trace import Launch, Slots, Trace
from ikp.exporters.columns.facts import described, vars_of
from ikp.exporters.perfetto._packets import TYPES, Clock, argument, packet
from ikp.exporters.perfetto._schema import (
    CLEARED_STATE,
    EXPLICIT,
    FIRST_GLOBAL_CLOCK,
    FIRST_OWN_ARG,
    FORMAT,
    MAX_TRACKS,
    MERGE_NONE,
    NEEDS_STATE,
    REALTIME,
    SEQUENCE,
    STEPS,
    SUMMARY,
    Arg,
    Descriptor,
    Event,
    EventType,
    Facts,
    Packet,
)
from ikp.exporters.protobuf.joining import join
from ikp.exporters.protobuf.shapes import Message, Numbers
from ikp.exporters.protobuf.varints import (
    BYTES,
    VARINT,
    VARINT_BITS,
    Column,
    encoded_varint,
    tag,
    texts,
    varint_size,
)
from ikp.exporters.timeline.sums import NAME, Sums
from ikp.exporters.timeline.tracks import Kind, Layout, Track

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
        DebugAnnotation,
        TracePacket,
        TrackEvent,
    )

Ints = NDArray[np.int64]

_TRACK_BYTES: Final = 6
"""What a track's id takes in a packet, as a varint. All take as much, which makes packets faster to
encode. With 20,000 tracks each, two files have one in common once in 10^8."""
_LEAST: Final = 1 << VARINT_BITS * (_TRACK_BYTES - 1)
"""The least number that takes so many bytes. The greatest one is just below 128 times that."""


@dataclass(frozen=True, slots=True)
class FirstIds:
    """Where the ids of one file begin."""

    clock: int
    track: int
    flow: int
    region: int  # interned, among the names of events
    sums: int  # interned behind those: the name of the slices of what was summed up
    region_arg: int  # interned, among the names of arguments: a region as part of such a slice

    @classmethod
    def of(cls, trace: Trace) -> FirstIds:
        """Draw ids from what tells a trace from any other one."""
        digest = blake2b(digest_size=24)
        region = same_size(len(trace.regions) + 1)
        facts = (trace.launches, trace.regions, trace.roles, trace.provenance, list(trace.args))
        sizes = len(trace.events), len(trace.totals)
        digest.update(repr((facts, *sizes)).encode(errors="replace"))
        for name in Slots.__slots__:
            digest.update(np.ascontiguousarray(getattr(trace.slots, name)).tobytes())
        words = np.frombuffer(digest.digest(), "<u8").tolist()
        return cls(
            clock=FIRST_GLOBAL_CLOCK + words[0] % (1 << 31),
            track=_LEAST + words[1] % (_LEAST * 127 - MAX_TRACKS),
            flow=words[2] >> 2,  # flow ids take 8 bytes each, whatever they are
            region=region,
            sums=region + len(trace.regions),
            region_arg=FIRST_OWN_ARG + len(trace.args),
        )


def same_size(span: int) -> int:
    """Return the least number from which ``span`` successive ones take equally many bytes each.

    Ids and times that start there keep packets alike, which makes them faster to encode.
    """
    size = 1
    while varint_size(_least(size) + max(1, span) - 1) != size:
        size += 1
    return _least(size)


def _least(size: int) -> int:
    return 1 << VARINT_BITS * (size - 1) if size > 1 else 1


@dataclass(frozen=True, slots=True)
class OwnArgs:
    """A trace's arguments, and the texts that occur in them: the i-th is interned as ``i + 1``."""

    columns: tuple[ArgColumn, ...]  # those of texts hold numbers of texts
    kinds: str  # numpy's kind of each
    texts: tuple[str, ...]

    @classmethod
    def of(cls, trace: Trace) -> OwnArgs:
        """Intern the texts of a trace's arguments."""
        texts: dict[str, int] = {}
        columns = [_interned(column, texts) for column in trace.args.values()]
        kinds = "".join(column.values.dtype.kind for column in trace.args.values())
        return cls(tuple(columns), kinds, tuple(texts))


def _interned(column: ArgColumn, texts: dict[str, int]) -> ArgColumn:
    if column.values.dtype.kind != "U":
        return column
    distinct, code = np.unique(column.values[column.given], return_inverse=True)
    iids = [texts.setdefault(text, len(texts) + 1) for text in distinct.tolist()]
    values = np.zeros(len(column), np.int64)
    values[column.given] = np.array(iids, np.int64)[code]
    return ArgColumn(values, column.given)


def setup(
    trace: Trace,
    layout: Layout,
    clock: Clock,
    ids: FirstIds,
    args: OwnArgs,
    sums: Sums | None,
) -> NDArray[np.uint8]:
    """Return the packets before all others."""
    first_five = [  # the reader knows our files by them
        _serialized([_sequence_start(trace, ids, args, sums), _clocks(clock, ids)]),
        *descriptors(layout.tracks[:2]),
        _serialized([_summary(trace, layout, clock, sums)]),
    ]
    rest = [*descriptors(layout.tracks[2:]), *_launches(trace.launches, layout, clock)]
    return np.concatenate([*first_five, *rest])


def descriptors(tracks: Sequence[Track]) -> Iterator[NDArray[np.uint8]]:
    """Yield the packets that announce tracks, many of them at once."""
    for low in range(0, len(tracks), _TRACKS_AT_ONCE):
        alike: dict[tuple[bool, bool, bool], list[int]] = {}
        part = tracks[low : low + _TRACKS_AT_ONCE]
        for place, one in enumerate(part):
            fields = (bool(one.parent), bool(one.description), one.kind is Kind.COUNTER)
            alike.setdefault(fields, []).append(place)
        streams = (
            (_descriptors([part[place] for place in places], *fields), np.array(places))
            for fields, places in alike.items()
        )
        yield join(*streams)


def _descriptors(tracks: list[Track], parent: bool, description: bool, counts: bool) -> Message:
    """Return descriptors of tracks that all have such fields, or have not."""
    uuid, name, parents, rank, _, about = zip(*tracks, strict=True)
    above = (tag(Descriptor.PARENT_UUID, VARINT), Numbers.of(np.array(parents, np.int64)))
    shown = tag(Descriptor.CHILD_ORDERING, VARINT) + bytes([EXPLICIT])
    if counts:
        shown = tag(Descriptor.COUNTER, BYTES) + bytes(1)
    fields = (
        tag(Descriptor.UUID, VARINT),
        Numbers.of(np.array(uuid, np.int64)),
        *_named(Descriptor.NAME, name),
        *(above if parent else ()),
        shown + tag(Descriptor.SIBLING_ORDER_RANK, VARINT),
        Numbers.of(np.array(rank, np.int64)),
        *(_named(Descriptor.DESCRIPTION, about) if description else ()),
        tag(Descriptor.SIBLING_MERGE_BEHAVIOR, VARINT) + bytes([MERGE_NONE]),
    )
    parts = (_IN_SEQUENCE, Message(tag(Packet.TRACK_DESCRIPTOR, BYTES), fields))
    return Message(tag(Packet.PACKET, BYTES), parts)


def _named(field: int, names: Sequence[str]) -> tuple[bytes, Column]:
    """Return a field of text, which is there even where the text is empty."""
    return tag(field, BYTES), texts([*map(_sized, names)])


@lru_cache(1024)
def _sized(text: str) -> bytes:
    encoded = text.encode()
    return encoded_varint(len(encoded)) + encoded


_TRACKS_AT_ONCE: Final = 4096
_LAUNCHES_AT_ONCE: Final = 512
_IN_SEQUENCE: Final = b"".join(
    tag(field, VARINT) + bytes([value])
    for field, value in ((Packet.SEQUENCE_ID, SEQUENCE), (Packet.SEQUENCE_FLAGS, NEEDS_STATE))
)


def _serialized(packets: list[TracePacket]) -> NDArray[np.uint8]:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage

    return np.frombuffer(TraceMessage(packet=packets).SerializeToString(), np.uint8)


def _packet(flags: int = NEEDS_STATE) -> TracePacket:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

    return TracePacket(trusted_packet_sequence_id=SEQUENCE, sequence_flags=flags)


def _sequence_start(trace: Trace, ids: FirstIds, args: OwnArgs, sums: Sums | None) -> TracePacket:
    packet = _packet(CLEARED_STATE)
    packet.first_packet_on_sequence = True
    packet.trace_packet_defaults.timestamp_clock_id = STEPS
    for iid, region in enumerate(trace.regions, ids.region):
        packet.interned_data.event_names.add(iid=iid, name=region.name)
    for arg in Arg:
        packet.interned_data.debug_annotation_names.add(iid=arg, name=arg.name.lower())
    for iid, name in enumerate(trace.args, FIRST_OWN_ARG):
        packet.interned_data.debug_annotation_names.add(iid=iid, name=name)
    if sums is not None:
        packet.interned_data.event_names.add(iid=ids.sums, name=NAME)
        for iid, name in enumerate(sums.names, ids.region_arg):
            packet.interned_data.debug_annotation_names.add(iid=iid, name=name)
    for iid, text in enumerate(args.texts, 1):
        packet.interned_data.debug_annotation_string_values.add(iid=iid, str=text.encode())
    return packet


def _clocks(clock: Clock, ids: FirstIds) -> TracePacket:
    """Place the trace's clock on Unix time, and say no more: nothing else is known.

    A system trace knows how its other clocks stand to that one, so the two are one when joined.
    Perfetto wants time to go on from one snapshot to the next of the same clocks. A further clock,
    which nothing is on, makes this file's other ones than those of any file it is joined with.
    """
    packet = _packet()
    packet.clock_snapshot.primary_trace_clock = REALTIME
    packet.clock_snapshot.clocks.add(clock_id=REALTIME, timestamp=clock.now)
    packet.clock_snapshot.clocks.add(clock_id=STEPS, timestamp=clock.now, is_incremental=True)
    packet.clock_snapshot.clocks.add(clock_id=ids.clock, timestamp=clock.now)
    return packet


def _summary(trace: Trace, layout: Layout, clock: Clock, sums: Sums | None) -> TracePacket:
    packet = _packet()
    packet.timestamp = clock.step(clock.now)
    packet.track_event.type = EventType.INSTANT
    packet.track_event.track_uuid = layout.summary
    packet.track_event.name = SUMMARY
    _annotate(packet.track_event, _of_trace(trace, sums))
    return packet


def _launches(
    launches: Sequence[Launch], layout: Layout, clock: Clock
) -> Iterator[NDArray[np.uint8]]:
    """Yield each launch's slices, on its own row with the evidence and on that of all launches.

    The one with the evidence comes first: a link to a launch finds it by its time alone.
    """
    evidence = _Evidence()
    for low in range(0, len(launches), _LAUNCHES_AT_ONCE):
        part = launches[low : low + _LAUNCHES_AT_ONCE]
        overview, _, own, _, _, start, end = (
            np.array(column, np.int64)
            for column in zip(*layout.launches[low : low + len(part)], strict=True)
        )
        label = _named(Event.NAME, [one.label for one in part])
        facts = texts([evidence.of(of_launch(one)) for one in part])
        number = argument(Arg.LAUNCH, Numbers.of(np.arange(low, low + len(part))))
        lossy = np.flatnonzero([one.dropped > 0 for one in part])
        lost = [f"{part[row].dropped} records dropped" for row in lossy.tolist()]
        first = 4 * np.arange(len(part))
        first[1:] += np.cumsum(np.bincount(lossy, minlength=len(part)))[:-1]
        closed = first + 1 + np.bincount(lossy, minlength=len(part))
        yield clock.join(
            (_slice(start, EventType.SLICE_BEGIN, own, facts, name=label), first),
            (
                _slice(end[lossy], EventType.INSTANT, own[lossy], name=_named(Event.NAME, lost)),
                first[lossy] + 1,
            ),
            (_slice(end, EventType.SLICE_END, own), closed),
            (_slice(start, EventType.SLICE_BEGIN, overview, number, name=label), closed + 1),
            (_slice(end, EventType.SLICE_END, overview), closed + 2),
        )


def _slice(
    times: Ints,
    kind: EventType,
    track: Ints,
    *args: Message | Column,
    name: tuple[bytes, Column] | tuple[()] = (),
) -> Message:
    """Return events of one kind, on the given tracks."""
    return packet(
        times, *args, TYPES[kind], tag(Event.TRACK_UUID, VARINT), Numbers.of(track), *name
    )


def of_launch(launch: Launch) -> Facts:
    """Return everything known of a launch. Where the trace comes from, the summary tells."""
    clock = {name: value for name, value in vars_of(launch.clock).items() if value is not None}
    if launch.clock.residual_max_ns is None and launch.clock.rate != "exact":
        clock["residual"] = "unknown: no spare anchors"
    return {**vars_of(launch), "clock": clock, "dropped": launch.dropped}


def _of_trace(trace: Trace, sums: Sums | None) -> Facts:
    """Return what concerns the file as a whole, and how much it must hold."""
    return {
        "format": FORMAT,
        "launches": len(trace.launches),
        "slots": len(trace.slots),
        "events": len(trace.events),
        NAME: None if sums is None else len(sums),
        "regions": [{"id": region.id, "name": region.name} for region in trace.regions],
        "roles": list(trace.roles[1:]),
        "args": described(trace.args),
        "provenance": trace.provenance,
    }


class _Evidence:
    """Facts as arguments of events. Of many launches most are alike: those are made once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, type, object], bytes] = {}

    def of(self, facts: Facts) -> bytes:
        """Return what :func:`_annotate` gives an event."""
        known, found = self._known, []
        for name, value in facts.items():
            if isinstance(value, dict):  # times of the clock: no two launches share them
                found.append(_annotated(name, value))
                continue
            key = name, type(value), value if type(value) in _SIMPLE else repr(value)
            if key not in known:
                known[key] = _annotated(name, value)
            found.append(known[key])
        return b"".join(found)


_SIMPLE: Final = (int, str, bool)


def _annotated(name: str, value: Any) -> bytes:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

    event = TrackEvent()
    _annotate(event, {name: value})
    return bytes(event.SerializeToString())


def _annotate(event: TrackEvent, facts: Facts) -> None:
    """Give an event one argument for each fact; None and empty lists and dicts are left out."""
    for name, value in facts.items():
        if value is not None and value not in ({}, [], ()):
            _set(event.debug_annotations.add(name=name), value)


def _set(annotation: DebugAnnotation, value: Any) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            _set(annotation.dict_entries.add(name=name), item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _set(annotation.array_values.add(), item)
    elif isinstance(value, str):
        annotation.string_value = value
    elif isinstance(value, bool):
        annotation.bool_value = value
    elif isinstance(value, Integral):
        annotation.int_value = int(value)
    else:
        annotation.double_value = float(value)
