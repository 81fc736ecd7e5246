"""The packets of which there are many: their shapes, those of blocks, and those of counters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.args import ArgColumn
from ikp.core.trace import Slots, Trace
from ikp.exporters.perfetto._schema import (
    NEEDS_STATE,
    SEQUENCE,
    Annotation,
    Arg,
    Event,
    EventType,
    Packet,
)
from ikp.exporters.protobuf.joining import join
from ikp.exporters.protobuf.shapes import Group, Message, Numbers, Stream, Times
from ikp.exporters.protobuf.varints import (
    BYTES,
    FIXED64,
    VARINT,
    WORD,
    Column,
    encoded_varint,
    tag,
    texts,
)
from ikp.exporters.timeline.blocks import Blocks
from ikp.exporters.timeline.tracks import Counted

Ints = NDArray[np.int64]

_AT_ONCE: Final = 4096
"""Blocks encoded together: enough to hide the cost of each numpy call, few enough for the cache."""
_FAST: Final = 1
_WINDOW_BITS: Final = 12
"""What repeats does so within a few packets; short distances take fewer bits."""


def compressed(packets: bytes | NDArray[np.uint8]) -> bytes:
    """Return packets as one packet that holds them all, deflated."""
    from isal import igzip_lib

    content: bytes = igzip_lib.compress(
        packets, _FAST, igzip_lib.COMP_ZLIB, igzip_lib.MEM_LEVEL_DEFAULT, _WINDOW_BITS
    )
    inner = tag(Packet.COMPRESSED_PACKETS, BYTES) + encoded_varint(len(content))
    outer = tag(Packet.PACKET, BYTES) + encoded_varint(len(inner) + len(content))
    return outer + inner + content


INTEGER: Final = tag(Annotation.INT_VALUE, VARINT)


TYPES: Final = {kind: tag(Event.TYPE, VARINT) + bytes([kind]) for kind in EventType}
"""The field that says what an event is."""


@dataclass(slots=True)
class Clock:
    """The file's clock: each packet says how much later it is than the one in front of it.

    ``now`` is the Unix time in ns at which the last packet was. Steps take fewer bytes than times.
    """

    now: int

    def step(self, time: int) -> int:
        """Return how much later than the last packet it is, as protobuf has it, and be there."""
        step, self.now = time - self.now, time
        return step % (1 << 64)

    def join(self, *streams: Stream) -> NDArray[np.uint8]:
        """Lay packets end to end, and be at the last one; each stream's places ascend."""
        out = join(*streams, before=self.now)
        lasts = [
            (int(places[-1]), int(times[-1]))
            for shape, places in streams
            if (times := shape.times()) is not None and len(times)
        ]
        self.now = max(lasts)[1] if lasts else self.now
        return out


def packet(times: Ints, *event: bytes | Column | Numbers | Group | Message) -> Message:
    """Return packets that each hold one track event of the given parts, at the given times."""
    parts = (
        tag(Packet.TIMESTAMP, VARINT),
        Times(times),
        tag(Packet.SEQUENCE_ID, VARINT) + bytes([SEQUENCE]),
        Message(tag(Packet.TRACK_EVENT, BYTES), event),
        tag(Packet.SEQUENCE_FLAGS, VARINT) + bytes([NEEDS_STATE]),
    )
    return Message(tag(Packet.PACKET, BYTES), parts)


def argument(
    name: Arg | bytes | Numbers,
    value: Column | Numbers,
    value_tag: bytes = INTEGER,
    field: bytes = tag(Event.DEBUG_ANNOTATIONS, BYTES),
) -> Message:
    """Return an argument with an interned name, left out where the value is empty.

    ``field`` holds the argument: the event's, or that of a dict.
    """
    iid = bytes([name]) if isinstance(name, Arg) else name
    return Message(field, (tag(Annotation.NAME_IID, VARINT), iid, value_tag, value))


def entry(name: Arg, value: Column | Numbers, value_tag: bytes = INTEGER) -> Message:
    """Return an entry of an argument that is a dict."""
    return argument(name, value, value_tag, tag(Annotation.DICT_ENTRIES, BYTES))


def typed(column: ArgColumn, kind: str = "") -> tuple[Column | Numbers, bytes]:
    """Return the values of an argument, empty where it is not given, and their tag.

    ``kind`` is numpy's, where it is not that of the values: ``"U"`` if those number texts.
    """
    found = _TAGS[kind or column.values.dtype.kind]
    if column.values.dtype.kind == "f":
        words = column.values.view(np.uint64)[:, None]
        return Column(words, column.given * np.uint8(WORD)), found
    return Numbers.of(column.values).where(column.given), found


_TAGS: Final = {
    "i": tag(Annotation.INT_VALUE, VARINT),
    "f": tag(Annotation.DOUBLE_VALUE, FIXED64),
    "b": tag(Annotation.BOOL_VALUE, VARINT),
    "U": tag(Annotation.STRING_VALUE_IID, VARINT),
}


def block_slices(trace: Trace, blocks: Blocks, clock: Clock) -> Iterator[NDArray[np.uint8]]:
    """Yield the packets of the slices that show where each block ran, lane by lane.

    They also carry what is known of each warp.
    """
    for low in range(0, len(blocks.block), _AT_ONCE):
        yield _encode(trace, blocks.part(low, low + _AT_ONCE), clock)


def _encode(trace: Trace, blocks: Blocks, clock: Clock) -> NDArray[np.uint8]:
    names, facts = _names(trace, blocks), _warps(trace.slots, blocks)
    name = Message(tag(Event.NAME, BYTES), (texts(names),))
    warps = Message(tag(Annotation.ARRAY_VALUES, BYTES), tuple(entry(*fact) for fact in facts))
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
    return clock.join((opening, places), (closing, places + 1))


def _names(trace: Trace, blocks: Blocks) -> list[bytes]:
    grids = np.array([launch.grid for launch in trace.launches], np.int64).reshape(-1, 3)
    grid = np.maximum(grids[blocks.launch], 1)
    block = blocks.block
    x, y, z = block % grid[:, 0], block // grid[:, 0] % grid[:, 1], block // grid[:, :2].prod(1)
    return [
        b"block (%d,%d,%d)" % index
        for index in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
    ]


def _warps(slots: Slots, blocks: Blocks) -> list[tuple[Arg, Numbers, bytes]]:
    """Return what is told of each slot: name, values, and their tag; what is usual left out."""
    rows = blocks.slots
    start = np.repeat(blocks.start, np.diff(blocks.first, append=len(rows)))
    kept, attempted, role = slots.kept[rows], slots.attempted[rows], slots.role[rows]
    unfinished = Numbers.of(np.zeros_like(rows)).where(~slots.finished[rows])
    return [
        (Arg.WARP, Numbers.of(slots.warp[rows]), INTEGER),
        (Arg.ROLE, Numbers.of(role).where(role != 0), INTEGER),
        (Arg.START_OFFSET_NS, Numbers.of(slots.start_ns[rows] - start), INTEGER),
        (Arg.END_OFFSET_NS, Numbers.of(slots.end_ns[rows] - start), INTEGER),
        (Arg.KEPT, Numbers.of(kept), INTEGER),
        (Arg.ATTEMPTED, Numbers.of(attempted).where(attempted != kept), INTEGER),
        (Arg.FINISHED, unfinished, tag(Annotation.BOOL_VALUE, VARINT)),
    ]


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
