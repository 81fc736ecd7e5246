"""Packets of tracks: their descriptors, the slices of blocks on them, and the steps of counters.

Facts become arguments: Python values as Perfetto's debug annotations. Dicts and lists nest,
integers, floats, booleans and strings keep their type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import starmap
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.trace import Slots, Trace
from ikp.exporters.perfetto._packets import (
    ARRIVING,
    IN_SEQUENCE,
    INTEGER,
    TO_BLOCK,
    TYPES,
    Clock,
    Ids,
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
from ikp.exporters.protobuf.shapes import Message, SubmessageGroup
from ikp.exporters.protobuf.varints import (
    BYTES,
    VARINT,
    WORD,
    Integers,
    MessagePart,
    Numbers,
    as_words,
    in_field,
    tag,
    texts,
)
from ikp.exporters.text import some_at_once
from ikp.exporters.timeline.blocks import BlockRows
from ikp.exporters.timeline.tracks import Counted, Track, TrackKind

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation, TrackEvent

Ints = NDArray[np.int64]

_AT_ONCE: Final = 4096
"""Tracks encoded together: enough to hide the cost of each numpy call, few enough for the cache."""


def descriptors(tracks: Sequence[Track]) -> Iterator[NDArray[np.uint8]]:
    """Yield the packets that announce tracks, many of them at once."""
    for rows in some_at_once([len(one.name) + len(one.description) for one in tracks], _AT_ONCE):
        alike: dict[tuple[bool, bool, bool], list[int]] = {}
        part = tracks[rows]
        for place, (_, _, parent, _, kind, about) in enumerate(part):
            fields = (parent > 0, about != "", kind is TrackKind.COUNTER)
            alike.setdefault(fields, []).append(place)
        streams = (
            (_descriptors([part[place] for place in places], *fields), np.array(places))
            for fields, places in alike.items()
        )
        yield join(*streams)


def _descriptors(tracks: list[Track], parent: bool, description: bool, counts: bool) -> Message:
    """Return descriptors of tracks that all have the same of three optional fields."""
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


def named(field: int, names: Sequence[str]) -> tuple[bytes, MessagePart]:
    """Return a field of text, which is there even where the text is empty."""
    return tag(field, BYTES), texts([*map(_sized, names)])


@lru_cache(1024)
def _sized(text: str) -> bytes:
    return in_field(b"", text.encode())


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


def first_blocks(blocks: BlockRows, calls: Ints | None) -> Ints | None:
    """Return by block the id of the flow from its launch: it ends at the launch's first block.

    Not the flow from the call: a viewer leads that by time, and it would end here before it comes
    to a kernel record that begins later than its launch, by less than the bound of the clocks.

    Args:
        blocks: all of a trace.
        calls: by launch, the id of the flow from the host's call; 0 for none.
    """
    if calls is None:
        return None
    order = np.lexsort((blocks.start, blocks.launch))
    launch, first = np.unique(blocks.launch[order], return_index=True)
    found = np.zeros(len(blocks.block), np.int64)
    found[order[first]] = np.where(calls[launch], calls[launch] + TO_BLOCK, 0)
    return found


def block_slices(
    trace: Trace, blocks: BlockRows, before: int, arrows: Ints | None = None
) -> NDArray[np.uint8]:
    """Return the packets of the slices that show where each block ran, CTA slot by CTA slot.

    They also carry the facts of each warp that left records; where none did, ``recorded: false``.
    ``before`` is the time of the packet in front of them; ``arrows`` as ``first_blocks`` has it.
    """
    track = (tag(Event.TRACK_UUID, VARINT), Numbers.of(blocks.track))
    closing = packet(blocks.end, TYPES[EventType.SLICE_END], *track)
    streams = [(closing, 2 * np.arange(len(blocks.block)) + 1)]
    recorded, others = np.flatnonzero(blocks.recorded), np.flatnonzero(~blocks.recorded)
    if len(recorded):
        warps = Message(tag(Annotation.ARRAY_VALUES, BYTES), _warps(trace.slots, blocks))
        listed = SubmessageGroup(warps, blocks.first[recorded], len(blocks.slots))
        of_warps = tag(Annotation.NAME_IID, VARINT) + bytes([Arg.WARPS])
        facts = Message(tag(Event.DEBUG_ANNOTATIONS, BYTES), (of_warps, listed))
        streams.append((_opening(trace, blocks, recorded, facts, arrows), 2 * recorded))
    if len(others):
        no = Numbers.of(np.zeros(len(others), np.int64))
        facts = argument(Arg.RECORDED, no, tag(Annotation.BOOL_VALUE, VARINT))
        streams.append((_opening(trace, blocks, others, facts, arrows), 2 * others))
    return join(*streams, before=before)


def _opening(
    trace: Trace,
    blocks: BlockRows,
    rows: NDArray[np.intp],
    facts: Message,
    arrows: Ints | None,
) -> Message:
    """Return the packets that open some blocks' slices, with the facts of their warps."""
    launch, block = blocks.launch[rows], blocks.block[rows]
    flows: tuple[MessagePart, ...] = ()
    if arrows is not None:
        ends = np.flatnonzero(arrows[rows])
        count = np.bincount(ends, minlength=len(rows))
        flows = (Ids(ends, arrows[rows][ends], count).column(ARRIVING),)
    return packet(
        blocks.start[rows],
        argument(Arg.BLOCK, Numbers.of(block)),
        argument(Arg.SM, Numbers.of(blocks.sm[rows])),
        argument(Arg.LAUNCH, Numbers.of(launch)),
        facts,
        *flows,
        TYPES[EventType.SLICE_BEGIN],
        tag(Event.TRACK_UUID, VARINT),
        Numbers.of(blocks.track[rows]),
        _names(trace, launch, block),
    )


def _names(trace: Trace, launch: Ints, block: Ints) -> Message:
    grids = np.array([launch.grid for launch in trace.launches], np.int64).reshape(-1, 3)
    grid = np.maximum(grids[launch], 1)
    x, y, z = block % grid[:, 0], block // grid[:, 0] % grid[:, 1], block // grid[:, :2].prod(1)
    rows, planes = (decimals(index) if index.any() else b"0" for index in (y, z))
    parts = (b"block (", decimals(x), b",", rows, b",", planes, b")")
    return Message(tag(Event.NAME, BYTES), parts)


def decimals(values: Integers) -> MessagePart:
    """Return numbers, none negative, as decimal digits."""
    rest = as_words(values)
    if int(rest.max(initial=0)) >= 10**WORD:
        return texts([b"%d" % value for value in rest.tolist()])
    word, sizes = np.zeros_like(rest), np.zeros(len(rest), np.int64)
    more = np.ones(len(rest), np.bool_)
    while more.any():  # from the last digit on; each further one shifts the word
        rest, digit = np.divmod(rest, np.uint64(10))
        word = np.where(more, word << np.uint64(8) | digit + np.uint64(ord("0")), word)
        sizes += more
        more = rest > 0
    return MessagePart(word[:, None], sizes)


def _warps(slots: Slots, blocks: BlockRows) -> tuple[Message, ...]:
    """Return the facts of each slot, as entries; usual values are left out."""
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
