"""Packets of other profilers' slices beside those of a trace; flows from calls to launches."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.host_trace import REPLAY, HostSlice, HostTrace
from ikp.exporters.perfetto._schema import (
    CLEARED_STATE,
    EXPLICIT,
    MERGE_NONE,
    NEEDS_STATE,
    REALTIME,
    EventType,
)
from ikp.exporters.perfetto._tracks import annotate

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

FIRST_SEQUENCE: Final = 1 << 16
"""Ids of sequences from here on: one for each file."""
SEPARATOR: Final = " · "
"""Between the name of a group of rows, and the file that it is of."""
ROWS_OF_TRACK: Final = 1 << 8
"""Rows of a track that have a place of their own among others; further ones share the last."""
OF_ONE_CALL: Final = 1 << 32
"""Ids of flows are so far apart for slices that share a correlation id, which has 32 bits."""
_AT_ONCE: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class AddedTraces:
    """Other profilers' traces that go into the file of a trace.

    Args:
        hosts: their times count from a known base.
        records: for each of them, by launch of the trace, the index of its kernel record.
    """

    hosts: Sequence[HostTrace]
    records: Sequence[Mapping[int, int]]

    def arriving(self, launches: int) -> NDArray[np.int64]:
        """Return by launch the id of the flow that goes through it; 0 for none."""
        found = np.zeros(launches, np.int64)
        for host, record in zip(self.hosts, self.records, strict=True):
            flows = _flows(host)
            for launch, index in record.items():
                found[launch] = flows.get(index, 0)
        return found

    def packets(self) -> Iterator[NDArray[np.uint8]]:
        """Yield all packets, many at once."""
        for number, (host, record) in enumerate(zip(self.hosts, self.records, strict=True)):
            yield from _packets(host, FIRST_SEQUENCE + number, frozenset(record.values()))


def _first_id(host: HostTrace) -> int:
    """Return a number from which on ids are those of one file alone, in any joined file."""
    text = f"{host.source} {host.base_ns} {len(host.slices)}".encode()
    return int.from_bytes(blake2b(text, digest_size=7).digest(), "little") << 6 | 1 << 5


def _flows(host: HostTrace) -> dict[int, int]:
    """Return by slice the id of the flow through it: from a call to what the call has started.

    A call of ``cudaGraphLaunch`` has its correlation id in common with all that its graph starts:
    its flow goes to the replay, and each of these has a flow of its own, to a launch.
    """
    first, made = _first_id(host), dict[int, int]()
    called = {each.correlation for each in host.slices if _is_call(each)}
    started = Counter(each.correlation for each in host.slices if not _is_call(each))
    seen = Counter[int]()
    for index, each in enumerate(host.slices):
        number = each.correlation
        if number is None or number not in called:
            continue
        made[index] = first + number
        if started[number] > 1 and not _is_call(each) and each.category != REPLAY:
            seen[number] += 1
            made[index] += seen[number] * OF_ONE_CALL
    return made


def _packets(
    host: HostTrace, sequence: int, goes_on: frozenset[int]
) -> Iterator[NDArray[np.uint8]]:
    """Yield the packets of one file."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage

    lanes = _Lanes(_first_id(host))
    rows = _rows(host, lanes)
    yield _serialized([_first_packet(sequence), *lanes.descriptors(host, sequence)])
    flows, base_ns, flags = _flows(host), host.base_ns or 0, int(NEEDS_STATE)
    for first in range(0, len(rows), _AT_ONCE):
        made = TraceMessage()
        add = made.packet.add  # packets that are made elsewhere would be copied
        for at, kind, lane, index in rows[first : first + _AT_ONCE]:
            packet = add(
                timestamp=base_ns + at, trusted_packet_sequence_id=sequence, sequence_flags=flags
            )
            event = packet.track_event
            event.track_uuid = lane
            event.type = kind
            if kind is EventType.SLICE_BEGIN:
                one = host.slices[index]
                event.name = one.name
                event.categories.append(one.category)
                if one.args:
                    annotate(event, dict(one.args))
                if index in flows:
                    on = _is_call(one) or index in goes_on
                    (event.flow_ids if on else event.terminating_flow_ids).append(flows[index])
        yield np.frombuffer(made.SerializeToString(), np.uint8)


def _is_call(one: HostSlice) -> bool:
    return one.category in {"cuda_runtime", "cuda_driver"}


@dataclass(slots=True)
class _Lanes:
    """The rows of a file: one for each track, and more where slices of a track overlap."""

    first: int
    uuid: dict[tuple[int, int], int] = field(default_factory=dict)  # by track, and row of it

    def of(self, track: int, row: int) -> int:
        """Return the id of a row."""
        return self.uuid.setdefault((track, row), self.first + 1000 + len(self.uuid))

    def descriptors(self, host: HostTrace, sequence: int) -> Iterator[TracePacket]:
        """Yield the descriptors of all rows, and of the groups that they are in."""
        groups = {
            name: i for i, name in enumerate(dict.fromkeys(each.group for each in host.tracks))
        }
        for name, number in groups.items():
            packet = _packet(sequence)
            made = packet.track_descriptor
            made.uuid, made.name = self.first + number, f"{name}{SEPARATOR}{Path(host.source).name}"
            made.child_ordering = EXPLICIT
            made.sibling_merge_behavior = MERGE_NONE
            yield packet
        for (track, row), uuid in sorted(self.uuid.items()):
            packet = _packet(sequence)
            made, about = packet.track_descriptor, host.tracks[track]
            made.uuid, made.parent_uuid = uuid, self.first + groups[about.group]
            made.name = about.name if not row else f"{about.name} · {row + 1}"
            made.sibling_order_rank = track * ROWS_OF_TRACK + min(row, ROWS_OF_TRACK - 1)
            made.sibling_merge_behavior = MERGE_NONE
            yield packet


def _rows(host: HostTrace, lanes: _Lanes) -> list[tuple[int, EventType, int, int]]:
    """Return begins and ends in the order of a file: time, kind, row, index of the slice.

    On each row slices are inside of one another or apart. At one time, what ends comes first.
    """
    by_track = defaultdict[int, list[int]](list)
    for index, each in enumerate(host.slices):
        by_track[each.track].append(index)
    made: list[tuple[Any, ...]] = []
    for track, members in sorted(by_track.items()):
        members.sort(key=lambda i: (host.slices[i].start_ns, -host.slices[i].end_ns, i))
        open_: list[list[int]] = []  # by row: the ends of slices that contain what comes
        for index in members:
            one = host.slices[index]
            row = _row_for(open_, one)
            depth = len(open_[row])
            open_[row].append(one.end_ns)
            lane = lanes.of(track, row)
            if one.end_ns == one.start_ns:  # it is over before anything else of its time begins
                made.append((one.start_ns, 1, depth, 0, lane, index))
                made.append((one.end_ns, 1, depth, 1, lane, index))
            else:
                made.append((one.start_ns, 2, depth, 0, lane, index))
                made.append((one.end_ns, 0, -depth, 1, lane, index))
    made.sort(key=lambda each: (*each[:4], each[5]))
    kinds = (EventType.SLICE_BEGIN, EventType.SLICE_END)
    return [(at, kinds[kind], lane, index) for at, _, _, kind, lane, index in made]


def _row_for(open_: list[list[int]], one: HostSlice) -> int:
    """Return the first row in which a slice lies inside of what is open, or beside it."""
    for row, ends in enumerate(open_):
        while ends and ends[-1] <= one.start_ns:
            ends.pop()
        if not ends or one.end_ns <= ends[-1]:
            return row
    open_.append([])
    return len(open_) - 1


def _first_packet(sequence: int) -> TracePacket:
    packet = _packet(sequence, CLEARED_STATE)
    packet.first_packet_on_sequence = True
    packet.trace_packet_defaults.timestamp_clock_id = REALTIME
    return packet


def _packet(sequence: int, flags: int = NEEDS_STATE) -> TracePacket:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

    return TracePacket(trusted_packet_sequence_id=sequence, sequence_flags=flags)


def _serialized(packets: list[TracePacket]) -> NDArray[np.uint8]:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage

    return np.frombuffer(TraceMessage(packet=packets).SerializeToString(), np.uint8)
