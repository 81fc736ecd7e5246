"""The few packets that are written once: names, clocks, tracks, and the evidence.

Evidence is what a trace says about itself, as arguments of events: readable in the viewer, and by
``_evidence``. Python values become Perfetto's debug annotations: dicts and
lists nest, integers, floats, booleans and strings keep their type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final

from ikp.core.args import ArgColumn
from ikp.core.trace import Launch, Trace
from ikp.exporters.perfetto._events import OwnArgs
from ikp.exporters.perfetto._packets import Clock, FirstIds
from ikp.exporters.perfetto._schema import (
    CLEARED_STATE,
    FIRST_OWN_ARG,
    FORMAT,
    NEEDS_STATE,
    REALTIME,
    SEQUENCE,
    SUMMARY,
    Arg,
    EventType,
    Facts,
)
from ikp.exporters.timeline.launches import Kind, Track
from ikp.exporters.timeline.sums import NAME, Sums
from ikp.exporters.timeline.tracks import Layout

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
        DebugAnnotation,
        TracePacket,
        TrackEvent,
    )


def setup(
    trace: Trace,
    layout: Layout,
    clock: Clock,
    ids: FirstIds,
    args: OwnArgs,
    sums: Sums | None,
) -> bytes:
    """Return the packets before all others."""
    first, about, *tracks = layout.tracks
    packets = [  # the reader knows our files by the first five
        _sequence_start(trace, ids, args, sums),
        _clocks(clock, ids),
        _descriptor(first),
        _descriptor(about),
        _summary(trace, layout, clock, sums),
        *(_descriptor(track) for track in tracks),
        *_launches(trace, layout, clock),
    ]
    return _serialized(packets)


def descriptors(tracks: Sequence[Track]) -> bytes:
    """Return the packets that announce further tracks."""
    return _serialized([_descriptor(track) for track in tracks])


def _serialized(packets: list[TracePacket]) -> bytes:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage

    return bytes(TraceMessage(packet=packets).SerializeToString())


def _packet(flags: int = NEEDS_STATE) -> TracePacket:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

    return TracePacket(trusted_packet_sequence_id=SEQUENCE, sequence_flags=flags)


def _sequence_start(trace: Trace, ids: FirstIds, args: OwnArgs, sums: Sums | None) -> TracePacket:
    packet = _packet(CLEARED_STATE)
    packet.first_packet_on_sequence = True
    packet.trace_packet_defaults.timestamp_clock_id = ids.clock
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
    """
    packet = _packet()
    packet.clock_snapshot.primary_trace_clock = REALTIME
    packet.clock_snapshot.clocks.add(clock_id=REALTIME, timestamp=clock.unix_ns)
    packet.clock_snapshot.clocks.add(clock_id=ids.clock, timestamp=clock.ticks)
    return packet


def _descriptor(track: Track) -> TracePacket:
    packet = _packet()
    descriptor = packet.track_descriptor
    descriptor.uuid = track.uuid
    descriptor.name = track.name
    if track.parent:
        descriptor.parent_uuid = track.parent
    if track.description:
        descriptor.description = track.description
    descriptor.sibling_order_rank = track.rank
    descriptor.sibling_merge_behavior = descriptor.SIBLING_MERGE_BEHAVIOR_NONE
    if track.kind is Kind.COUNTER:
        descriptor.counter.SetInParent()
    else:
        descriptor.child_ordering = descriptor.EXPLICIT
    return packet


def _event(kind: EventType, track: int, time: int, name: str | None = None) -> TracePacket:
    packet = _packet()
    packet.timestamp = time
    packet.track_event.type = kind
    packet.track_event.track_uuid = track
    if name is not None:
        packet.track_event.name = name
    return packet


def _summary(trace: Trace, layout: Layout, clock: Clock, sums: Sums | None) -> TracePacket:
    packet = _event(EventType.INSTANT, layout.summary, clock.ticks, SUMMARY)
    _annotate(packet.track_event, _of_trace(trace, sums))
    return packet


def _launches(trace: Trace, layout: Layout, clock: Clock) -> Iterator[TracePacket]:
    """Yield each launch's slices, on its own row with the evidence and on that of all launches.

    The one with the evidence comes first: a link to a launch finds it by its time alone.
    """
    for number, (launch, tracks) in enumerate(zip(trace.launches, layout.launches, strict=True)):
        start, end = clock.time(tracks.start), clock.time(tracks.end)
        opening = _event(EventType.SLICE_BEGIN, tracks.evidence, start, launch.label)
        _annotate(opening.track_event, of_launch(launch, trace.provenance))
        yield opening
        if launch.dropped > 0:
            name = f"{launch.dropped} records dropped"
            yield _event(EventType.INSTANT, tracks.evidence, end, name)
        yield _event(EventType.SLICE_END, tracks.evidence, end)
        one_of_all = _event(EventType.SLICE_BEGIN, tracks.overview, start, launch.label)
        one_of_all.track_event.debug_annotations.add(name_iid=Arg.LAUNCH, int_value=number)
        yield one_of_all
        yield _event(EventType.SLICE_END, tracks.overview, end)


def of_launch(launch: Launch, provenance: dict[str, str]) -> Facts:
    """Return everything known of a launch, and where the trace comes from."""
    clock = {name: value for name, value in asdict(launch.clock).items() if value is not None}
    if launch.clock.residual_max_ns is None and launch.clock.rate != "exact":
        clock["residual"] = "unknown: no spare anchors"
    known = {**asdict(launch), "clock": clock}
    return {**known, "dropped": launch.dropped, "provenance": provenance}


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
        "args": _described(trace.args),
        "provenance": trace.provenance,
    }


_TYPES: Final = {"i": "int", "f": "float", "b": "bool", "U": "str"}
"""What numpy's kinds are called in the file."""


def _described(args: Mapping[str, ArgColumn]) -> list[dict[str, str]]:
    """Return names and types, for the file's summary."""
    return [
        {"name": name, "type": _TYPES[column.values.dtype.kind]} for name, column in args.items()
    ]


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
