"""The few packets that are written once: names, clocks, tracks, and the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ikp.core.trace import Trace
from ikp.exporters.perfetto.args import OwnArgs
from ikp.exporters.perfetto.clock import Clock
from ikp.exporters.perfetto.evidence import annotate, of_launch, of_trace
from ikp.exporters.perfetto.schema import (
    BOOTTIME,
    CLEARED_STATE,
    FIRST_OWN_ARG,
    NEEDS_STATE,
    REALTIME,
    SEQUENCE,
    SUMMARY,
    TRACE_CLOCK,
    Arg,
    EventType,
)
from ikp.exporters.perfetto.totals import SLICE, region_arg
from ikp.exporters.perfetto.tracks import Kind, Layout, Track

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket


def setup(trace: Trace, layout: Layout, clock: Clock, first_name: int, args: OwnArgs) -> bytes:
    """Return the packets before all others. Region i is interned as name ``first_name + i``."""
    own_track, *tracks = layout.tracks
    packets = [
        _sequence_start(trace, first_name, args),  # the reader knows our files by these four
        _clocks(clock),
        _descriptor(own_track),
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


def _sequence_start(trace: Trace, first_name: int, args: OwnArgs) -> TracePacket:
    packet = _packet(CLEARED_STATE)
    packet.first_packet_on_sequence = True
    packet.trace_packet_defaults.timestamp_clock_id = TRACE_CLOCK
    for iid, region in enumerate(trace.regions, first_name):
        packet.interned_data.event_names.add(iid=iid, name=region.name)
    for arg in Arg:
        packet.interned_data.debug_annotation_names.add(iid=arg, name=arg.label)
    for iid, name in enumerate(trace.args, FIRST_OWN_ARG):
        packet.interned_data.debug_annotation_names.add(iid=iid, name=name)
    if len(trace.totals):
        packet.interned_data.event_names.add(iid=first_name + len(trace.regions), name=SLICE)
        for iid, region in enumerate(trace.regions, region_arg(trace)):
            name = region.name or "(no name)"
            packet.interned_data.debug_annotation_names.add(iid=iid, name=name)
    for iid, text in enumerate(args.texts, 1):
        packet.interned_data.debug_annotation_string_values.add(iid=iid, str=text.encode())
    return packet


def _clocks(clock: Clock) -> TracePacket:
    """Place the trace's clock. Our times are Unix times, so UTC is known too."""
    packet = _packet()
    packet.clock_snapshot.primary_trace_clock = BOOTTIME
    for one in (BOOTTIME, REALTIME):
        packet.clock_snapshot.clocks.add(clock_id=one, timestamp=clock.unix_ns)
    packet.clock_snapshot.clocks.add(clock_id=TRACE_CLOCK, timestamp=clock.ticks)
    return packet


def _descriptor(track: Track) -> TracePacket:
    packet = _packet()
    descriptor = packet.track_descriptor
    descriptor.uuid = track.uuid
    if track.kind is Kind.PROCESS:
        descriptor.process.pid = track.rank
        descriptor.process.process_name = track.name
        descriptor.process.legacy_sort_index = track.rank
        return packet
    descriptor.name = track.name
    if track.parent:
        descriptor.parent_uuid = track.parent
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
    """Yield a slice for each launch, from the start of its first warp to the end of its last."""
    for number, (launch, tracks) in enumerate(zip(trace.launches, layout.launches, strict=True)):
        blocks = layout.blocks.of_launch(number)
        start = end = clock.unix_ns
        if len(blocks):
            start, end = int(blocks.start.min()), int(blocks.end.max())
        start, end = clock.time(start), clock.time(end)
        opening = _event(EventType.SLICE_BEGIN, tracks.evidence, start, launch.label)
        annotate(opening.track_event, of_launch(launch, trace.provenance))
        yield opening
        if launch.dropped > 0:
            name = f"{launch.dropped} records dropped"
            yield _event(EventType.INSTANT, tracks.evidence, end, name)
        yield _event(EventType.SLICE_END, tracks.evidence, end)
