"""Gathers what a file's packets hold, as columns, without interpreting it yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ikp.exporters.columns.small_tables import args_of
from ikp.exporters.perfetto import _evidence as evidence
from ikp.exporters.perfetto._arguments import UNSET, Arguments, Columns, arguments_of, sum_rows
from ikp.exporters.perfetto._schema import (
    FIRST_OWN_ARG,
    MAX_TRACKS,
    REALTIME,
    SUMMARY,
    Annotation,
    Arg,
    Event,
    EventType,
    Facts,
    Packet,
)
from ikp.exporters.protobuf.damage import DamagedError
from ikp.exporters.protobuf.split import Data, Fields, Ints, split

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket


class Role(IntEnum):
    """What a track is for, which is how deep it lies."""

    UNKNOWN = -2
    SUMMARY = -1
    TOP = 0  # all launches; in layout 1, a process, which was a launch
    LAUNCH = 1
    SM = 2  # in layout 1 only
    LANE = 3
    WARP = 4
    OVERLAP = 5


@dataclass(slots=True)
class _Tracks:
    """The tracks seen so far, numbered from 1 on by their ids.

    Ids count from some large number; in layout 1, from 1.
    """

    before_first: int = 0
    parent: list[int] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)
    role: list[int] = field(default_factory=list)
    most: int = MAX_TRACKS

    def add(self, packet: TracePacket) -> None:
        """Note a track descriptor."""
        track = packet.track_descriptor
        if not self.role and MAX_TRACKS < track.uuid < 1 << 63:  # what numpy's columns hold
            self.before_first = track.uuid - 1
        number = track.uuid - self.before_first
        missing = number + 1 - len(self.role)
        if not 0 < number <= self.most:
            raise DamagedError("a track has an impossible id")
        self.parent.extend([0] * missing)
        self.rank.extend([0] * missing)
        self.role.extend([Role.UNKNOWN] * missing)
        parent = track.parent_uuid and track.parent_uuid - self.before_first
        is_process = track.HasField("process")
        rank = track.process.pid if is_process else track.sibling_order_rank
        self.parent[number], self.rank[number] = parent, rank
        self.role[number] = Role.TOP if is_process else self._below(parent, rank)

    def _below(self, parent: int, rank: int) -> int:
        if not parent:
            return Role.TOP if self.before_first else Role.SUMMARY
        if not 0 < parent < len(self.role):
            raise DamagedError("a track comes before its parent")
        role = self.role[parent] + 1
        if self.before_first and role == Role.LAUNCH and rank < 0:
            return Role.TOP  # launches that ran beside those of the parent
        return Role.LANE if self.before_first and role == Role.SM else role

    def launch(self, number: int) -> int:
        """Return which launch a track tells the evidence of, counted from 1."""
        return self.rank[number] if self.before_first else self.rank[self.parent[number]]


_FIRST_OWN_CLOCK: Final = 64
"""Smaller ids are Perfetto's. The clock of layout 1 was this one."""
_OTHERS: Final = (Packet.TRACK_DESCRIPTOR, Packet.CLOCK_SNAPSHOT, Packet.INTERNED_DATA)
"""Packets without events that say something that the reader wants to know."""


@dataclass(slots=True)
class Contents:
    """What was found in the packets so far."""

    summary: Facts | None = None
    base_ns: int | None = None  # Unix time at which the trace's clock shows 0
    first_name: int | None = None  # interned id of the first region's name
    texts: dict[int, str] = field(default_factory=dict)  # interned, of arguments
    tracks: _Tracks = field(default_factory=_Tracks)
    launches: dict[int, Facts] = field(default_factory=dict)  # counted from 1
    events: list[Columns] = field(default_factory=list)
    blocks: list[Columns] = field(default_factory=list)
    sums: list[Columns] = field(default_factory=list)

    def add(self, data: Data, starts: Ints, sizes: Ints) -> None:
        """Add packets, in the order of the file.

        Raises:
            DamagedError: they can't be read.
        """
        packets = split(data, starts, sizes)
        others = packets.message[np.isin(packets.number, _OTHERS)]
        for row in np.unique(others).tolist():
            self._add_other(_parse(data, starts[row], sizes[row]))
        self._add_events(data, starts, sizes, packets)

    def _add_other(self, packet: TracePacket) -> None:
        if packet.HasField("track_descriptor"):
            self.tracks.add(packet)
        elif packet.HasField("clock_snapshot"):
            times = {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
            own = [ticks for clock, ticks in times.items() if clock >= _FIRST_OWN_CLOCK]
            if REALTIME in times and own:
                self.base_ns = times[REALTIME] - own[0]
        elif packet.HasField("interned_data"):
            names = packet.interned_data.event_names
            self.first_name = names[0].iid if names else self.first_name
            texts = packet.interned_data.debug_annotation_string_values
            self.texts.update((one.iid, one.str.decode()) for one in texts)

    def _add_events(self, data: Data, starts: Ints, sizes: Ints, packets: Fields) -> None:
        found = packets.numbered(Packet.TRACK_EVENT)
        time = packets.column(Packet.TIMESTAMP, len(starts))[found.message].view(np.int64)
        fields = split(data, found.start, found.size)
        track = fields.column(Event.TRACK_UUID, len(time)).view(np.int64)
        track = track - self.tracks.before_first
        roles = np.array(self.tracks.role, np.int64)
        if len(track) and not (track.min() >= 0 and track.max() < len(roles)):
            raise DamagedError("an event is on a track that was not announced")
        role, kind = roles[track], fields.column(Event.TYPE, len(time)).view(np.int64)
        telling = np.isin(kind, (EventType.SLICE_BEGIN, EventType.INSTANT))
        for row in np.flatnonzero(telling & (role <= Role.LAUNCH)).tolist():
            at = found.message[row]
            self._add_evidence(_parse(data, starts[at], sizes[at]))
        columns = {
            "time": time,
            "track": track,
            "type": kind,
            "name": fields.column(Event.NAME_IID, len(time)).view(np.int64),
        }
        annotations = fields.numbered(Event.DEBUG_ANNOTATIONS)
        arguments = arguments_of(data, annotations.only(role[annotations.message] >= Role.LANE))
        if np.any(role >= Role.WARP):
            own = len(args_of(self.summary or {}))
            self.events.append(_warp_events(columns, arguments, role >= Role.WARP, own))
            self.sums.append(sum_rows(data, columns, arguments, FIRST_OWN_ARG + own))
        if np.any(role == Role.LANE):
            self.blocks.append(_block_rows(data, columns, arguments, role == Role.LANE))

    def _add_evidence(self, packet: TracePacket) -> None:
        event = packet.track_event
        track = event.track_uuid - self.tracks.before_first
        if event.name == SUMMARY and event.type == EventType.INSTANT:
            self.summary = evidence.facts(event)
        elif self.tracks.role[track] == Role.LAUNCH and event.type == EventType.SLICE_BEGIN:
            self.launches[self.tracks.launch(track)] = evidence.facts(event)


def _parse(data: Data, start: int, size: int) -> TracePacket:
    from google.protobuf.message import DecodeError
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

    try:
        return TracePacket.FromString(data[start : start + size].tobytes())
    except DecodeError as error:
        raise DamagedError("a packet can't be read") from error


def _warp_events(
    columns: dict[str, Ints], arguments: Arguments, chosen: NDArray[np.bool_], own: int
) -> Columns:
    """Return the chosen events, with ``own`` arguments beside those that every trace has."""
    count = len(chosen)
    result: Columns = {name: column[chosen] for name, column in columns.items()}
    result["block"] = arguments.of(Arg.BLOCK, count, -1)[chosen]
    ticks, given = np.zeros(count, np.int64), np.zeros(count, bool)
    payload, payload_field = np.zeros(count, np.uint64), np.zeros(count, np.int64)
    rows = (arguments.name == Arg.CYCLES) | (arguments.name == Arg.TICKS)
    ticks[arguments.event[rows]] = arguments.value[rows].view(np.int64)
    given[arguments.event[rows]] = True
    rows = arguments.name == Arg.PAYLOAD
    payload[arguments.event[rows]] = arguments.value[rows]
    payload_field[arguments.event[rows]] = arguments.field[rows]
    for i in range(own):
        rows = arguments.name == FIRST_OWN_ARG + i
        words, there = np.zeros(count, np.uint64), np.zeros(count, bool)
        words[arguments.event[rows]] = arguments.value[rows]
        there[arguments.event[rows]] = True
        result |= {f"arg {i}": words[chosen], f"given {i}": there[chosen]}
    more = {"ticks": ticks, "given": given, "payload": payload, "payload_field": payload_field}
    return result | {name: column[chosen] for name, column in more.items()}


def _block_rows(
    data: Data, columns: dict[str, Ints], arguments: Arguments, chosen: NDArray[np.bool_]
) -> Columns:
    """Return one row for each warp of the blocks whose slices open here."""
    count = len(chosen)
    elements = arguments.parts.numbered(Annotation.ARRAY_VALUES)
    wanted = chosen & (columns["type"] == EventType.SLICE_BEGIN)
    of_event = arguments.event[elements.message]
    inside = wanted[of_event] & (arguments.name[elements.message] == Arg.WARPS)
    elements, of_event = elements.only(inside), of_event[inside]
    entries = split(data, elements.start, elements.size).numbered(Annotation.DICT_ENTRIES)
    warps = arguments_of(data, entries)
    rows = len(of_event)
    kept = warps.of(Arg.KEPT, rows)
    start = columns["time"][of_event]
    attempted = warps.of(Arg.ATTEMPTED, rows, UNSET)
    return {
        "track": columns["track"][of_event],
        "launch": arguments.of(Arg.LAUNCH, count)[of_event],
        "block": arguments.of(Arg.BLOCK, count)[of_event],
        "sm": arguments.of(Arg.SM, count)[of_event],
        "warp": warps.of(Arg.WARP, rows),
        "slot": warps.of(Arg.SLOT, rows),
        "role": warps.of(Arg.ROLE, rows),
        "start_ns": start + warps.of(Arg.START_OFFSET_NS, rows),
        "end_ns": start + warps.of(Arg.END_OFFSET_NS, rows),
        "kept": kept,
        "attempted": np.where(attempted == UNSET, kept, attempted),
        "finished": warps.of(Arg.FINISHED, rows, 1),
    }
