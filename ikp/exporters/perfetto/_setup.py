"""The first packets of a file: interned names, clocks, the summary, tracks and launches.

Perfetto can join files: one behind the other (``cat``), or in an archive. Ids of tracks, clocks and
flows then share one space, and tracks (clocks, flows) of one id become one. So each file's ids
begin at numbers drawn from a hash of the trace: where, when and what was recorded, and how it was
edited. The same trace gets the same ids each time.

Evidence is the facts of launches, as arguments of their slices: readable in the viewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import fields as fields_of
from hashlib import blake2b
from itertools import chain
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.trace import ClockFit, Launch, Slots, Trace
from ikp.exporters.columns.packing import MANY, described, vars_of
from ikp.exporters.perfetto._packets import (
    LEAVING,
    TO_BLOCK,
    TYPES,
    Clock,
    Ids,
    argument,
    packet,
    serialized,
    state_packet,
)
from ikp.exporters.perfetto._render_stages import render_stages
from ikp.exporters.perfetto._schema import (
    CLEARED_STATE,
    FIRST_GLOBAL_CLOCK,
    FIRST_OWN_ARG,
    FORMAT,
    FORMAT_FOLDED,
    FORMAT_WITH_OTHERS,
    MAX_TRACKS,
    REALTIME,
    SEQUENCE,
    STEPS,
    SUMMARY,
    Arg,
    Event,
    EventType,
    Facts,
)
from ikp.exporters.perfetto._tracks import annotate, descriptors, named
from ikp.exporters.protobuf.shapes import Message
from ikp.exporters.protobuf.varints import VARINT, VARINT_BITS, MessagePart, Numbers, tag, texts
from ikp.exporters.text import some_at_once
from ikp.exporters.timeline.batches import NAME, Sums
from ikp.exporters.timeline.tracks import Layout

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

Ints = NDArray[np.int64]

_TRACK_BYTES: Final = 6
"""Bytes of a track's id in a packet, as a varint. All take as many, which makes packets faster to
encode. With 20,000 tracks each, two files have one in common once in 10^8."""
_LEAST: Final = 1 << VARINT_BITS * (_TRACK_BYTES - 1)
"""The least number that takes so many bytes. The greatest one is just below 128 times that."""


@dataclass(frozen=True, slots=True)
class FirstIds:
    """The first id of each kind in one file."""

    clock: int
    track: int
    flow: int
    region: int  # interned, among the names of events
    sums: int  # interned behind those: the name of the slices of totals
    region_arg: int  # interned, among the names of arguments: a region as part of such a slice

    @classmethod
    def of(cls, trace: Trace, facts: bytes) -> FirstIds:
        """Draw ids from a hash of a trace's facts, the sizes of its tables, and its slots."""
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
            flow=words[2] >> 2,  # flow ids take 8 bytes each, large or small
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


def setup(
    trace: Trace,
    layout: Layout,
    clock: Clock,
    ids: FirstIds,
    texts_of_args: tuple[str, ...],
    sums: Sums | None,
    calls: Ints | None = None,
) -> NDArray[np.uint8]:
    """Return the packets before all others; ``calls`` as in :func:`launch_slices`."""
    begin = serialized([_sequence_start(trace, ids, texts_of_args, sums), _clocks(clock, ids)])
    summary = serialized([_summary(trace, layout, sums)])
    # The reader knows ikp's files by the first five.
    first_five = [begin, *descriptors(layout.tracks[:2]), summary]
    rest = [*descriptors(layout.tracks[2:]), *launch_slices(trace.launches, layout, clock, calls)]
    rest += render_stages(trace.launches, layout, clock, ids.flow)
    return np.concatenate([*first_five, *rest])


def _sequence_start(
    trace: Trace, ids: FirstIds, texts_of_args: tuple[str, ...], sums: Sums | None
) -> TracePacket:
    packet = state_packet(SEQUENCE, CLEARED_STATE)
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
    for iid, text in enumerate(texts_of_args, 1):
        packet.interned_data.debug_annotation_string_values.add(iid=iid, str=text.encode())
    return packet


def _clocks(clock: Clock, ids: FirstIds) -> TracePacket:
    """Place the trace's clock on Unix time; no relation to other clocks is known.

    A system trace relates its other clocks to Unix time, so the two have one time axis when joined.
    Perfetto wants time to ascend from one snapshot to the next of the same clocks. A further clock,
    which no packet is on, makes this file's clocks differ from those of any file joined with it.
    """
    packet = state_packet(SEQUENCE)
    packet.clock_snapshot.primary_trace_clock = REALTIME
    packet.clock_snapshot.clocks.add(clock_id=REALTIME, timestamp=clock.now)
    packet.clock_snapshot.clocks.add(clock_id=STEPS, timestamp=clock.now, is_incremental=True)
    packet.clock_snapshot.clocks.add(clock_id=ids.clock, timestamp=clock.now)
    return packet


def _summary(trace: Trace, layout: Layout, sums: Sums | None) -> TracePacket:
    packet, facts = state_packet(SEQUENCE), _of_trace(trace, sums)
    packet.timestamp = 0  # no later than the first of all
    packet.track_event.type = EventType.INSTANT
    packet.track_event.track_uuid = layout.summary
    packet.track_event.name = SUMMARY
    annotate(packet.track_event, facts)
    return packet


def _of_trace(trace: Trace, sums: Sums | None) -> Facts:
    """Return the facts of the whole file: its format, the sizes of its tables, its names."""
    return {
        "format": format_of(trace),
        "launches": len(trace.launches),
        "slots": len(trace.slots),
        "events": len(trace.events),
        NAME: None if sums is None else len(sums),
        "regions": [{"id": region.id, "name": region.name} for region in trace.regions],
        "roles": list(trace.roles[1:]),
        "args": described(trace.args),
        "provenance": trace.provenance,
    }


def format_of(trace: Trace) -> int:
    """Return the version of the layout that a trace is written in: the oldest that holds it."""
    if len(trace.launches) >= MANY:
        return FORMAT_FOLDED
    return FORMAT_WITH_OTHERS if len(trace.others) else FORMAT


_LAUNCHES_AT_ONCE: Final = 512


def launch_slices(
    launches: Sequence[Launch], layout: Layout, clock: Clock, calls: Ints | None = None
) -> Iterator[NDArray[np.uint8]]:
    """Yield each launch's slices: with the evidence on its own row, and on the row of all launches.

    The one with the evidence comes first: a link to a launch finds it by its time alone. ``calls``
    has by launch the id of the flow from the host's call; 0: none. From the launch, a flow with an
    id of its own (``TO_BLOCK``) leads to the first block.
    """
    evidence = _Evidence()
    sizes = [len(one.label) + sum(map(len, one.notes)) for one in launches]
    for rows in some_at_once(sizes, _LAUNCHES_AT_ONCE):
        low, part = rows.start, launches[rows]
        overview, _, own, start, end = (
            np.array(column, np.int64)
            for column in zip(*layout.launches[low : low + len(part)], strict=True)
        )
        label = named(Event.NAME, [one.label for one in part])
        facts = texts([evidence.of(one) for one in part])
        lossy = np.flatnonzero([one.dropped > 0 for one in part])
        lost = [f"{part[row].dropped} records dropped" for row in lossy.tolist()]
        first = 4 * np.arange(len(part))
        first[1:] += np.cumsum(np.bincount(lossy, minlength=len(part)))[:-1]
        closed = first + 1 + np.bincount(lossy, minlength=len(part))
        number = Numbers.of(np.arange(low, low + len(part)))
        flows: tuple[MessagePart, ...] = ()
        if calls is not None:
            called = np.flatnonzero(calls[rows])
            both = calls[rows][called][:, None] + np.array([0, TO_BLOCK])
            count = 2 * np.bincount(called, minlength=len(part))
            flows = (Ids(called.repeat(2), both.ravel(), count).column(LEAVING),)
        yield clock.join(
            (_slice(start, EventType.SLICE_BEGIN, own, facts, *flows, name=label), first),
            (
                _slice(end[lossy], EventType.INSTANT, own[lossy], name=named(Event.NAME, lost)),
                first[lossy] + 1,
            ),
            (_slice(end, EventType.SLICE_END, own), closed),
            (
                _slice(
                    *(start, EventType.SLICE_BEGIN, overview, argument(Arg.LAUNCH, number)),
                    name=label,
                ),
                closed + 1,
            ),
            (_slice(end, EventType.SLICE_END, overview), closed + 2),
        )


def _slice(
    times: Ints,
    kind: EventType,
    track: Ints,
    *args: Message | MessagePart,
    name: tuple[bytes, MessagePart] | tuple[()] = (),
) -> Message:
    """Return events of one kind, on the given tracks."""
    return packet(
        times, *args, TYPES[kind], tag(Event.TRACK_UUID, VARINT), Numbers.of(track), *name
    )


def of_launch(launch: Launch) -> Facts:
    """Return the facts of a launch. The summary has the provenance of the trace."""
    return {**vars_of(launch), "clock": _of_clock(launch.clock), "dropped": launch.dropped}


def _of_clock(clock: ClockFit) -> Facts:
    facts = {name: value for name, value in vars_of(clock).items() if value is not None}
    if clock.residual_max_ns is None and clock.rate != "exact":
        facts["residual"] = "unknown: no spare anchors"
    return facts


class _Evidence:
    """Facts as arguments of events, cached: most facts of many launches are equal."""

    def __init__(self) -> None:
        self._beside: dict[tuple[object, ...], list[bytes]] = {}  # in front of the clock, behind it
        self._known: dict[tuple[str, type, object], bytes] = {}
        self._around: dict[tuple[object, ...], list[bytes]] = {}  # bytes between numbers

    def of(self, launch: Launch) -> bytes:
        """Return the arguments that :func:`annotate` gives an event of a launch, encoded."""
        beside = _BESIDE_CLOCK(launch)
        key = *beside, *map(type, beside)
        if key not in self._beside:
            facts = of_launch(launch)
            place = list(facts).index("clock")
            made = [self._fact(*each) for each in facts.items() if each[0] != "clock"]
            self._beside[key] = [b"".join(made[:place]), b"".join(made[place:])]
        # Times of the clock: no two launches share them.
        return self._with_floats("clock", _of_clock(launch.clock)).join(self._beside[key])

    def _fact(self, name: str, value: object) -> bytes:
        key = name, type(value), value if type(value) in _SIMPLE else repr(value)
        if key not in self._known:
            self._known[key] = annotated(name, value)
        return self._known[key]

    def _with_floats(self, name: str, facts: Facts) -> bytes:
        """Return a dict as an argument; dicts that differ in floats alone are encoded once."""
        floats, marked = [b""], dict(facts)
        for each, value in facts.items():
            if type(value) is float:
                floats.append(_FLOAT.pack(value))
                marked[each] = _MARK
        key = name, *marked.items()
        if key not in self._around:
            self._around[key] = annotated(name, marked).split(_FLOAT.pack(_MARK))
        parts = zip(floats, self._around[key], strict=True)
        return b"".join(chain.from_iterable(parts))


_BESIDE_CLOCK: Final = attrgetter(
    *(each.name for each in fields_of(Launch) if each.name != "clock")
)
_FLOAT: Final = Struct("<d")
_MARK: Final = -5.3113237325590895e303  # its bytes are no text, and no clock has it
_SIMPLE: Final = (int, str, bool)


def annotated(name: str, value: Any) -> bytes:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

    event = TrackEvent()
    annotate(event, {name: value})
    return bytes(event.SerializeToString())
