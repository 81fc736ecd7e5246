"""What a file begins with: where its ids and times start, names, clocks, tracks and launches.

Perfetto can join files: one behind the other (``cat``), or in an archive. Ids of tracks, clocks and
flows then share one space, and whatever has equal ids becomes one. So each file's begin at
numbers drawn from what the trace is: where, when and what was recorded, and how it was edited. The
same trace gets the same ids each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.args import ArgColumn
from ikp.core.trace import Slots, Trace
from ikp.exporters.columns.small_tables import described
from ikp.exporters.perfetto._packets import Clock
from ikp.exporters.perfetto._schema import (
    CLEARED_STATE,
    FIRST_GLOBAL_CLOCK,
    FIRST_OWN_ARG,
    FORMAT,
    MAX_TRACKS,
    NEEDS_STATE,
    REALTIME,
    SEQUENCE,
    STEPS,
    SUMMARY,
    Arg,
    EventType,
    Facts,
)
from ikp.exporters.perfetto._tracks import annotate, descriptors, launch_slices
from ikp.exporters.protobuf.varints import VARINT_BITS
from ikp.exporters.timeline.sums import NAME, Sums
from ikp.exporters.timeline.tracks import Layout

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
        TracePacket,
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
    def of(cls, trace: Trace, facts: bytes) -> FirstIds:
        """Draw ids from what tells a trace from any other one: all that it says beside its tables.

        Of these, what stands in its slots is enough.
        """
        digest = blake2b(digest_size=24)
        region = same_size(len(trace.regions) + 1)
        digest.update(facts)
        digest.update(b"%d events, %d totals" % (len(trace.events), len(trace.totals)))
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
    while _least(size) + max(1, span) > _least(size + 1):
        size += 1
    return _least(size)


def _least(size: int) -> int:
    """Return the least number that takes so many bytes; the greatest is in front of the next."""
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
    begin = _serialized([_sequence_start(trace, ids, args, sums), _clocks(clock, ids)])
    summary = _serialized([_summary(trace, layout, sums)])
    # The reader knows our files by the first five.
    first_five = [begin, *descriptors(layout.tracks[:2]), summary]
    rest = [*descriptors(layout.tracks[2:]), *launch_slices(trace.launches, layout, clock)]
    return np.concatenate([*first_five, *rest])


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


def _summary(trace: Trace, layout: Layout, sums: Sums | None) -> TracePacket:
    packet, facts = _packet(), _of_trace(trace, sums)
    packet.timestamp = 0  # no later than the first of all
    packet.track_event.type = EventType.INSTANT
    packet.track_event.track_uuid = layout.summary
    packet.track_event.name = SUMMARY
    annotate(packet.track_event, facts)
    return packet


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
