"""Packets of other profilers' slices beside those of a trace; flows from calls to launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import filterfalse
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.host_trace import REPLAY, HostSlice, HostTrace
from ikp.exporters.perfetto._packets import (
    ARRIVING,
    LEAVING,
    TYPES,
    serialized,
    state_packet,
)
from ikp.exporters.perfetto._schema import (
    CLEARED_STATE,
    EXPLICIT,
    MERGE_NONE,
    NEEDS_STATE,
    REALTIME,
    Event,
    EventType,
    Packet,
)
from ikp.exporters.perfetto._tracks import annotate
from ikp.exporters.protobuf.joining import join
from ikp.exporters.protobuf.shapes import Message
from ikp.exporters.protobuf.varints import (
    BYTES,
    VARINT,
    MessagePart,
    Numbers,
    encoded_varint,
    in_field,
    tag,
    texts,
)
from ikp.exporters.text import some_at_once

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
_ALIKE: Final = 1 << 12
"""Arguments whose bytes are kept: those of a graph's kernels are the same in each replay."""
Ints = NDArray[np.int64]


@dataclass(frozen=True)
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
        for flows, record in zip(self._flows, self.records, strict=True):
            for launch, index in record.items():
                found[launch] = flows.get(index, 0)
        return found

    def packets(self) -> Iterator[NDArray[np.uint8]]:
        """Yield all packets, many at once."""
        every = zip(self.hosts, self.records, self._flows, strict=True)
        for number, (host, record, flows) in enumerate(every):
            on = frozenset(record.values())
            yield from _packets(host, FIRST_SEQUENCE + number, on, flows)

    @cached_property
    def _flows(self) -> list[dict[int, int]]:
        return [_flows(host) for host in self.hosts]


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
    called = {each.correlation for each in filter(_is_call, host.slices)}
    started = Counter(each.correlation for each in filterfalse(_is_call, host.slices))
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
    host: HostTrace, sequence: int, goes_on: frozenset[int], flows: Mapping[int, int]
) -> Iterator[NDArray[np.uint8]]:
    """Yield the packets of one file."""
    lanes = _Lanes(_first_id(host))
    rows = _rows(host, lanes)
    yield serialized([_first_packet(sequence), *lanes.descriptors(host, sequence)])
    bodies, base_ns = _Bodies(host, goes_on, flows), host.base_ns or 0
    for low in range(0, len(rows), _AT_ONCE):
        some = rows.part(slice(low, low + _AT_ONCE))
        made = [bodies.of(index) for index in some.index[some.begins].tolist()]
        sizes = np.zeros(len(some), np.int64)
        sizes[some.begins] = [len(each) for each in made]
        first = np.append(0, np.cumsum(some.begins))
        yield np.concatenate(
            [
                _joined(
                    some.part(part), base_ns, sequence, made[first[part.start] : first[part.stop]]
                )
                for part in some_at_once(sizes.tolist(), _AT_ONCE)
            ]
        )


def _joined(rows: _Rows, base_ns: int, sequence: int, bodies: Sequence[bytes]) -> NDArray[np.uint8]:
    """Return packets laid end to end."""
    known = tag(Packet.SEQUENCE_ID, VARINT) + encoded_varint(sequence)
    known += tag(Packet.SEQUENCE_FLAGS, VARINT) + encoded_varint(int(NEEDS_STATE))

    def shape(of: NDArray[np.bool_], kind: EventType, *more: MessagePart) -> Message:
        track = tag(Event.TRACK_UUID, VARINT), Numbers.of(rows.lane[of])
        event = Message(tag(Packet.TRACK_EVENT, BYTES), (*more, TYPES[kind], *track))
        time = tag(Packet.TIMESTAMP, VARINT), Numbers.of(base_ns + rows.at[of])
        return Message(tag(Packet.PACKET, BYTES), (known, event, *time))

    begins, ends = rows.begins, ~rows.begins
    streams = [
        (shape(begins, EventType.SLICE_BEGIN, texts(bodies)), np.flatnonzero(begins)),
        (shape(ends, EventType.SLICE_END), np.flatnonzero(ends)),
    ]
    return join(*(each for each in streams if len(each[1])))


@dataclass(slots=True)
class _Bodies:
    """What packets that open slices say of them, encoded: name, category, arguments and flow."""

    host: HostTrace
    goes_on: frozenset[int]
    flows: Mapping[int, int]
    names: dict[tuple[str, str], bytes] = field(default_factory=dict)
    args: dict[str, bytes] = field(default_factory=dict)

    def of(self, index: int) -> bytes:
        """Return the bytes of a slice."""
        one = self.host.slices[index]
        key = one.name, one.category
        body = self.names.get(key)
        if body is None:
            body = in_field(_NAME, _utf8(one.name)) + in_field(_CATEGORY, _utf8(one.category))
            self.names[key] = body
        if one.args:
            body += self._args(one.args)
        flow = self.flows.get(index)
        if flow is not None:
            on = _is_call(one) or index in self.goes_on
            body += (LEAVING if on else ARRIVING) + _FIXED.pack(flow)
        return body

    def _args(self, args: Mapping[str, Any]) -> bytes:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

        key = repr(args)
        made = self.args.get(key)
        if made is None:
            event = TrackEvent()
            annotate(event, dict(args))
            made = bytes(event.SerializeToString())
            if len(self.args) >= _ALIKE:
                self.args.clear()
            self.args[key] = made
        return made


_NAME: Final = tag(Event.NAME, BYTES)
_CATEGORY: Final = tag(Event.CATEGORIES, BYTES)
_FIXED: Final = Struct("<Q")


def _utf8(text: str) -> bytes:
    return text.encode(errors="replace")


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
            packet = state_packet(sequence)
            made = packet.track_descriptor
            made.uuid, made.name = self.first + number, f"{name}{SEPARATOR}{Path(host.source).name}"
            made.child_ordering = EXPLICIT
            made.sibling_merge_behavior = MERGE_NONE
            yield packet
        for (track, row), uuid in sorted(self.uuid.items()):
            packet = state_packet(sequence)
            made, about = packet.track_descriptor, host.tracks[track]
            made.uuid, made.parent_uuid = uuid, self.first + groups[about.group]
            made.name = about.name if not row else f"{about.name} · {row + 1}"
            made.sibling_order_rank = track * ROWS_OF_TRACK + min(row, ROWS_OF_TRACK - 1)
            made.sibling_merge_behavior = MERGE_NONE
            yield packet


@dataclass(frozen=True, slots=True)
class _Rows:
    """Begins and ends of slices, in the order of a file."""

    at: Ints
    begins: NDArray[np.bool_]
    lane: Ints
    index: Ints  # of the slice

    def __len__(self) -> int:
        return len(self.at)

    def part(self, rows: slice) -> _Rows:
        """Return some rows."""
        return _Rows(self.at[rows], self.begins[rows], self.lane[rows], self.index[rows])


def _rows(host: HostTrace, lanes: _Lanes) -> _Rows:
    """Return begins and ends in the order of a file.

    On each row slices are inside of one another or apart. At one time, what ends comes first.
    """
    count = len(host.slices)
    start = np.fromiter((each.start_ns for each in host.slices), np.int64, count)
    end = np.fromiter((each.end_ns for each in host.slices), np.int64, count)
    track = np.fromiter((each.track for each in host.slices), np.int64, count)
    lane, depth = np.zeros(count, np.int64), np.zeros(count, np.int64)
    open_: list[list[int]] = []  # by row: the ends of slices that contain what comes
    on = -1
    for index in np.lexsort((-end, start, track)).tolist():
        one = host.slices[index]
        if one.track != on:
            open_, on = [], one.track
        row = _row_for(open_, one)
        depth[index] = len(open_[row])
        open_[row].append(one.end_ns)
        lane[index] = lanes.of(on, row)
    short = end == start  # it is over before anything else of its time begins
    at, begins = np.append(start, end), np.arange(2 * count) < count
    order = np.append(np.where(short, 1, 2), short)
    depths = np.append(depth, np.where(short, depth, -depth))
    index = np.tile(np.arange(count), 2)
    by = np.lexsort((index, ~begins, depths, order, at))
    return _Rows(at[by], begins[by], np.tile(lane, 2)[by], index[by])


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
    packet = state_packet(sequence, CLEARED_STATE)
    packet.first_packet_on_sequence = True
    packet.trace_packet_defaults.timestamp_clock_id = REALTIME
    return packet
