"""Reads the traces of other profilers (``HostTrace``) back from a ``.pftrace`` that ikp wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

from ikp.core.host_trace import HostSlice, HostTrace, HostTrack
from ikp.exporters.perfetto._host import FIRST_SEQUENCE, OF_ONE_CALL, ROWS_OF_TRACK, SEPARATOR
from ikp.exporters.perfetto._schema import EventType
from ikp.exporters.perfetto._walk import PACKET, ByteBudget, Bytes, inflated, number, unpacked, walk
from ikp.exporters.perfetto.column_file import damaged
from ikp.exporters.protobuf.varints import DamagedError
from ikp.uncollected import uncollected

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
        DebugAnnotation,
        TracePacket,
        TrackEvent,
    )


@uncollected()
def read_hosts(path: str | PathLike[str]) -> list[HostTrace]:
    """Return the other profilers' traces in a file that ``ikp`` wrote, with times since 1970.

    Raises:
        ExportError: the file is damaged.
    """
    from google.protobuf.message import DecodeError

    found: dict[int, _HostPackets] = {}
    try:
        with unpacked(path) as file:
            for packet in _packets(path, Bytes(file)):
                sequence = packet.trusted_packet_sequence_id
                found.setdefault(sequence, _HostPackets()).take(packet)
    except (DamagedError, DecodeError) as error:
        raise damaged(path, error) from error
    return [each.made() for _, each in sorted(found.items())]


def _packets(path: str | PathLike[str], source: Bytes) -> Iterator[TracePacket]:
    """Yield the packets of other traces, which are in front of the second chunk of columns."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage

    budget = ByteBudget(path, source.size)
    parts = list(walk(source))
    at, end = (parts[1].packets, parts[1].packets_end) if len(parts) > 1 else (0, 0)
    while at < end:
        packed, at = source.packed(at)
        content = b"" if packed is None else b"".join(inflated(packed, budget))
        if _sequence(content) >= FIRST_SEQUENCE:
            yield from TraceMessage.FromString(content).packet


def _sequence(content: bytes) -> int:
    """Return the sequence of the first of some packets."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

    if not content.startswith(PACKET):
        return 0
    size, at = number(content[:16], len(PACKET))
    return int(TracePacket.FromString(content[at : at + size]).trusted_packet_sequence_id)


@dataclass(slots=True)
class _HostPackets:
    """The packets of one trace, as far as they are taken."""

    source: str = ""
    first: int | None = None  # what correlations count from in the ids of flows
    groups: dict[int, str] = field(default_factory=dict)  # by the id of a track
    rows: dict[int, int] = field(default_factory=dict)  # by the id: the number of the track
    tracks: dict[int, HostTrack] = field(default_factory=dict)  # by that number
    open_: dict[int, list[tuple[int, TrackEvent]]] = field(default_factory=dict)
    slices: list[tuple[int, int, int, TrackEvent]] = field(default_factory=list)

    def take(self, packet: TracePacket) -> None:
        if packet.HasField("track_descriptor"):
            self._describe(packet.track_descriptor)
            return
        event = packet.track_event
        if event.type == EventType.SLICE_BEGIN:
            self.open_.setdefault(event.track_uuid, []).append((packet.timestamp, event))
        elif event.type == EventType.SLICE_END:
            begun = self.open_.get(event.track_uuid)
            if not begun or event.track_uuid not in self.rows:
                raise DamagedError("a slice of another profiler ends before it begins")
            start, opened = begun.pop()
            track = self.rows[event.track_uuid]
            self.slices.append((start, packet.timestamp, track, opened))

    def _describe(self, made: Any) -> None:
        if not made.HasField("parent_uuid"):
            name, _, self.source = made.name.rpartition(SEPARATOR)
            self.groups[made.uuid] = name
            self.first = made.uuid if self.first is None else self.first
            return
        track, row = divmod(made.sibling_order_rank, ROWS_OF_TRACK)
        self.rows[made.uuid] = track
        if not row:
            self.tracks[track] = HostTrack(self.groups.get(made.parent_uuid, ""), made.name)

    def made(self) -> HostTrace:
        """Return the trace."""
        at = {track: index for index, track in enumerate(sorted(self.tracks))}
        base = min((start for start, *_ in self.slices), default=0)
        slices = tuple(
            HostSlice(
                at[track],
                event.name,
                "".join(event.categories[:1]),
                start - base,
                end - base,
                self._correlation(event),
                {each.name: _value(each) for each in event.debug_annotations},
            )
            for start, end, track, event in self.slices
            if track in at
        )
        tracks = tuple(self.tracks[track] for track in at)
        return HostTrace(self.source, base, tracks, slices)

    def _correlation(self, event: TrackEvent) -> int | None:
        ids = event.flow_ids or event.terminating_flow_ids
        return (ids[0] - self.first) % OF_ONE_CALL if ids and self.first is not None else None


_VALUES: Final = ("bool_value", "int_value", "double_value", "string_value")


def _value(annotation: DebugAnnotation) -> Any:
    if annotation.dict_entries:
        return {each.name: _value(each) for each in annotation.dict_entries}
    if annotation.array_values:
        return [_value(each) for each in annotation.array_values]
    kind = annotation.WhichOneof("value")
    return getattr(annotation, kind) if kind in _VALUES else None
