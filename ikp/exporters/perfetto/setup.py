"""The few packets that are written once: names, clocks, tracks, and the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ikp.core.trace import Trace
from ikp.exporters.perfetto.args import OwnArgs
from ikp.exporters.perfetto.evidence import annotate, of_launch, of_trace
from ikp.exporters.perfetto.file_clock import Clock
from ikp.exporters.perfetto.schema import (
    CLEARED_STATE,
    FIRST_OWN_ARG,
    NEEDS_STATE,
    REALTIME,
    SEQUENCE,
    SUMMARY,
    Arg,
    EventType,
)
from ikp.exporters.perfetto.totals import region_arg
from ikp.exporters.timeline.launches import TOTALS, Kind, Track
from ikp.exporters.timeline.tracks import Layout

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket


def setup(
    trace: Trace, layout: Layout, clock: Clock, clock_id: int, first_name: int, args: OwnArgs
) -> bytes:
    """Return the packets before all others. Region i is interned as name ``first_name + i``."""
    first, about, *tracks = layout.tracks
    packets = [  # the reader knows our files by the first five
        _sequence_start(trace, clock_id, first_name, args),
        _clocks(clock, clock_id),
        _descriptor(first),
        _descriptor(about),
        _summary(trace, layout, clock),
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


def _sequence_start(trace: Trace, clock_id: int, first_name: int, args: OwnArgs) -> TracePacket:
    packet = _packet(CLEARED_STATE)
    packet.first_packet_on_sequence = True
    packet.trace_packet_defaults.timestamp_clock_id = clock_id
    for iid, region in enumerate(trace.regions, first_name):
        packet.interned_data.event_names.add(iid=iid, name=region.name)
    for arg in Arg:
        packet.interned_data.debug_annotation_names.add(iid=arg, name=arg.label)
    for iid, name in enumerate(trace.args, FIRST_OWN_ARG):
        packet.interned_data.debug_annotation_names.add(iid=iid, name=name)
    if len(trace.totals):
        packet.interned_data.event_names.add(iid=first_name + len(trace.regions), name=TOTALS)
        for iid, region in enumerate(trace.regions, region_arg(trace)):
            name = region.name or "(no name)"
            packet.interned_data.debug_annotation_names.add(iid=iid, name=name)
    for iid, text in enumerate(args.texts, 1):
        packet.interned_data.debug_annotation_string_values.add(iid=iid, str=text.encode())
    return packet


def _clocks(clock: Clock, clock_id: int) -> TracePacket:
    """Place the trace's clock on Unix time, and say no more: nothing else is known.

    A system trace knows how its other clocks stand to that one, so the two are one when joined.
    """
    packet = _packet()
    packet.clock_snapshot.primary_trace_clock = REALTIME
    packet.clock_snapshot.clocks.add(clock_id=REALTIME, timestamp=clock.unix_ns)
    packet.clock_snapshot.clocks.add(clock_id=clock_id, timestamp=clock.ticks)
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


def _summary(trace: Trace, layout: Layout, clock: Clock) -> TracePacket:
    packet = _event(EventType.INSTANT, layout.summary, clock.ticks, SUMMARY)
    annotate(packet.track_event, of_trace(trace))
    return packet


def _launches(trace: Trace, layout: Layout, clock: Clock) -> Iterator[TracePacket]:
    """Yield each launch's slices, on its own row with the evidence and on that of all launches.

    The one with the evidence comes first: a link to a launch finds it by its time alone.
    """
    for number, (launch, tracks) in enumerate(zip(trace.launches, layout.launches, strict=True)):
        start, end = clock.time(tracks.start), clock.time(tracks.end)
        opening = _event(EventType.SLICE_BEGIN, tracks.evidence, start, launch.label)
        annotate(opening.track_event, of_launch(launch, trace.provenance))
        yield opening
        if launch.dropped > 0:
            name = f"{launch.dropped} records dropped"
            yield _event(EventType.INSTANT, tracks.evidence, end, name)
        yield _event(EventType.SLICE_END, tracks.evidence, end)
        one_of_all = _event(EventType.SLICE_BEGIN, tracks.overview, start, launch.label)
        one_of_all.track_event.debug_annotations.add(name_iid=Arg.LAUNCH, int_value=number)
        yield one_of_all
        yield _event(EventType.SLICE_END, tracks.overview, end)
