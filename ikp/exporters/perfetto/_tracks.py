"""A trace's tracks as packets: what they are called, and the launches, blocks and counters on them.

Evidence is what a trace says of its launches, as arguments of their slices: readable in the viewer.
Facts become arguments: Python values as Perfetto's debug annotations. Dicts and lists nest,
integers, floats, booleans and strings keep their type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields as fields_of
from functools import lru_cache
from itertools import chain, starmap
from numbers import Integral
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.trace import ClockFit, Launch, Slots, Trace
from ikp.exporters.columns.small_tables import vars_of
from ikp.exporters.perfetto._packets import (
    IN_SEQUENCE,
    INTEGER,
    TYPES,
    Clock,
    argument,
    entry,
    packet,
)
from ikp.exporters.perfetto._schema import (
    EXPLICIT,
    MERGE_NONE,
    Annotation,
    Arg,
    Descriptor,
    Event,
    EventType,
    Facts,
    Packet,
)
from ikp.exporters.protobuf.joining import join
from ikp.exporters.protobuf.shapes import Group, Message
from ikp.exporters.protobuf.varints import (
    BYTES,
    VARINT,
    Column,
    Numbers,
    decimals,
    in_field,
    tag,
    texts,
)
from ikp.exporters.timeline.blocks import Blocks
from ikp.exporters.timeline.tracks import Counted, Kind, Layout, Track

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation, TrackEvent

Ints = NDArray[np.int64]

_AT_ONCE: Final = 4096
"""Tracks encoded together: enough to hide the cost of each numpy call, few enough for the cache."""
_LAUNCHES_AT_ONCE: Final = 512


def descriptors(tracks: Sequence[Track]) -> Iterator[NDArray[np.uint8]]:
    """Yield the packets that announce tracks, many of them at once."""
    for low in range(0, len(tracks), _AT_ONCE):
        alike: dict[tuple[bool, bool, bool], list[int]] = {}
        part = tracks[low : low + _AT_ONCE]
        for place, (_, _, parent, _, kind, about) in enumerate(part):
            fields = (parent > 0, about != "", kind is Kind.COUNTER)
            alike.setdefault(fields, []).append(place)
        streams = (
            (_descriptors([part[place] for place in places], *fields), np.array(places))
            for fields, places in alike.items()
        )
        yield join(*streams)


def _descriptors(tracks: list[Track], parent: bool, description: bool, counts: bool) -> Message:
    """Return descriptors of tracks that all have such fields, or have not."""
    uuid, name, parents, rank, _, about = zip(*tracks, strict=True)
    called = named(Descriptor.NAME, name)
    above = (tag(Descriptor.PARENT_UUID, VARINT), Numbers.of(np.array(parents, np.int64)))
    shown = tag(Descriptor.CHILD_ORDERING, VARINT) + bytes([EXPLICIT])
    if counts:
        shown = tag(Descriptor.COUNTER, BYTES) + bytes(1)
    fields = (
        tag(Descriptor.UUID, VARINT),
        Numbers.of(np.array(uuid, np.int64)),
        *called,
        *(above if parent else ()),
        shown + tag(Descriptor.SIBLING_ORDER_RANK, VARINT),
        Numbers.of(np.array(rank, np.int64)),
        *(named(Descriptor.DESCRIPTION, about) if description else ()),
        tag(Descriptor.SIBLING_MERGE_BEHAVIOR, VARINT) + bytes([MERGE_NONE]),
    )
    parts = (IN_SEQUENCE, Message(tag(Packet.TRACK_DESCRIPTOR, BYTES), fields))
    return Message(tag(Packet.PACKET, BYTES), parts)


def named(field: int, names: Sequence[str]) -> tuple[bytes, Column]:
    """Return a field of text, which is there even where the text is empty."""
    return tag(field, BYTES), texts([*map(_sized, names)])


@lru_cache(1024)
def _sized(text: str) -> bytes:
    return in_field(b"", text.encode())


def launch_slices(
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
        label = named(Event.NAME, [one.label for one in part])
        facts = texts([evidence.of(one) for one in part])
        lossy = np.flatnonzero([one.dropped > 0 for one in part])
        lost = [f"{part[row].dropped} records dropped" for row in lossy.tolist()]
        first = 4 * np.arange(len(part))
        first[1:] += np.cumsum(np.bincount(lossy, minlength=len(part)))[:-1]
        closed = first + 1 + np.bincount(lossy, minlength=len(part))
        number = Numbers.of(np.arange(low, low + len(part)))
        yield clock.join(
            (_slice(start, EventType.SLICE_BEGIN, own, facts, name=label), first),
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
    *args: Message | Column,
    name: tuple[bytes, Column] | tuple[()] = (),
) -> Message:
    """Return events of one kind, on the given tracks."""
    return packet(
        times, *args, TYPES[kind], tag(Event.TRACK_UUID, VARINT), Numbers.of(track), *name
    )


def of_launch(launch: Launch) -> Facts:
    """Return everything known of a launch. Where the trace comes from, the summary tells."""
    return {**vars_of(launch), "clock": _of_clock(launch.clock), "dropped": launch.dropped}


def _of_clock(clock: ClockFit) -> Facts:
    facts = {name: value for name, value in vars_of(clock).items() if value is not None}
    if clock.residual_max_ns is None and clock.rate != "exact":
        facts["residual"] = "unknown: no spare anchors"
    return facts


class _Evidence:
    """Facts as arguments of events. Of many launches most are alike: those are made once."""

    def __init__(self) -> None:
        self._beside: dict[tuple[object, ...], list[bytes]] = {}  # in front of the clock, behind it
        self._known: dict[tuple[str, type, object], bytes] = {}
        self._around: dict[tuple[object, ...], list[bytes]] = {}  # bytes between numbers

    def of(self, launch: Launch) -> bytes:
        """Return what :func:`annotate` gives an event of a launch."""
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
        """Return a dict as an argument; of several that differ in their floats alone, see those."""
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


def annotate(event: TrackEvent, facts: Facts) -> None:
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


def block_slices(trace: Trace, blocks: Blocks, before: int) -> NDArray[np.uint8]:
    """Return the packets of the slices that show where each block ran, lane by lane.

    They also carry what is known of each warp. ``before`` is when the packet in front of them is.
    """
    name, facts = _names(trace, blocks), _warps(trace.slots, blocks)
    warps = Message(tag(Annotation.ARRAY_VALUES, BYTES), facts)
    track = (tag(Event.TRACK_UUID, VARINT), Numbers.of(blocks.track))
    places = 2 * np.arange(len(blocks.block))
    closing = packet(blocks.end, TYPES[EventType.SLICE_END], *track)
    of_warps = tag(Annotation.NAME_IID, VARINT) + bytes([Arg.WARPS])
    listed = Group(warps, blocks.first, len(blocks.slots))
    opening = packet(
        blocks.start,
        argument(Arg.BLOCK, Numbers.of(blocks.block)),
        argument(Arg.SM, Numbers.of(blocks.sm)),
        argument(Arg.LAUNCH, Numbers.of(blocks.launch)),
        Message(
            tag(Event.DEBUG_ANNOTATIONS, BYTES),
            (of_warps, listed),
        ),
        TYPES[EventType.SLICE_BEGIN],
        *track,
        name,
    )
    return join((opening, places), (closing, places + 1), before=before)


def _names(trace: Trace, blocks: Blocks) -> Message:
    grids = np.array([launch.grid for launch in trace.launches], np.int64).reshape(-1, 3)
    grid = np.maximum(grids[blocks.launch], 1)
    block = blocks.block
    x, y, z = block % grid[:, 0], block // grid[:, 0] % grid[:, 1], block // grid[:, :2].prod(1)
    rows, planes = (decimals(index) if index.any() else b"0" for index in (y, z))
    parts = (b"block (", decimals(x), b",", rows, b",", planes, b")")
    return Message(tag(Event.NAME, BYTES), parts)


def _warps(slots: Slots, blocks: Blocks) -> tuple[Message, ...]:
    """Return what is told of each slot, as entries; what is usual left out."""
    rows = blocks.slots
    start = np.repeat(blocks.start, np.diff(blocks.first, append=len(rows)))
    kept, attempted, role = slots.kept[rows], slots.attempted[rows], slots.role[rows]
    unfinished = Numbers.of(np.zeros_like(rows), ~slots.finished[rows])
    facts: list[tuple[Arg, Numbers, bytes]] = [
        (Arg.WARP, Numbers.of(slots.warp[rows]), INTEGER),
        (Arg.ROLE, Numbers.of(role, role != 0), INTEGER),
        (Arg.START_OFFSET_NS, Numbers.of(slots.start_ns[rows] - start), INTEGER),
        (Arg.END_OFFSET_NS, Numbers.of(slots.end_ns[rows] - start), INTEGER),
        (Arg.KEPT, Numbers.of(kept), INTEGER),
        (Arg.ATTEMPTED, Numbers.of(attempted, attempted != kept), INTEGER),
        (Arg.FINISHED, unfinished, tag(Annotation.BOOL_VALUE, VARINT)),
    ]
    given = (fact for fact in facts if fact[1].given is None or fact[1].given.any())
    return tuple(starmap(entry, given))


def counter_steps(counters: Sequence[Counted], clock: Clock) -> Iterator[NDArray[np.uint8]]:
    """Yield the packets of counters, many of them at once: when each changed, and to what."""
    lengths = np.array([len(one.steps[0]) for one in counters], np.int64)
    track = np.repeat(np.array([one.track for one in counters], np.int64), lengths)
    times, values = (
        np.concatenate([np.zeros(0, np.int64), *(one.steps[i] for one in counters)])
        for i in range(2)
    )
    for low in range(0, len(track), _STEPS_AT_ONCE):
        rows = slice(low, low + _STEPS_AT_ONCE)
        places = np.arange(len(track[rows]))
        packets = packet(
            times[rows],
            TYPES[EventType.COUNTER],
            tag(Event.TRACK_UUID, VARINT),
            Numbers.of(track[rows]),
            tag(Event.COUNTER_VALUE, VARINT),
            Numbers.of(values[rows]),
        )
        yield clock.join((packets, places))


_STEPS_AT_ONCE: Final = 1 << 15
