"""Block slices, which also carry what is known of each warp, and the counters over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.trace import Slots, Trace
from ikp.exporters.perfetto._packets import Clock, entry, event_type, integer, packet, text
from ikp.exporters.perfetto._schema import Annotation, Arg, Event, EventType
from ikp.exporters.protobuf.shapes import Message, join, join_groups, message
from ikp.exporters.protobuf.varints import BYTES, VARINT, tag, varints
from ikp.exporters.timeline.tracks import Blocks

Ints = NDArray[np.int64]

_AT_ONCE: Final = 4096
"""Blocks encoded together: enough to hide the cost of each numpy call, few enough for the cache."""


def block_slices(trace: Trace, blocks: Blocks, clock: Clock) -> Iterator[NDArray[np.uint8]]:
    """Yield the packets of the slices that show where each block ran, lane by lane."""
    for low in range(0, len(blocks), _AT_ONCE):
        yield _encode(trace, blocks.part(low, min(low + _AT_ONCE, len(blocks))), clock)


def _encode(trace: Trace, blocks: Blocks, clock: Clock) -> NDArray[np.uint8]:
    track = (tag(Event.TRACK_UUID, VARINT), varints(blocks.track))
    opening = packet(
        clock.times(blocks.start),
        integer(Arg.BLOCK, blocks.block),
        integer(Arg.SM, blocks.sm),
        integer(Arg.LAUNCH, blocks.launch),
        message(
            tag(Event.DEBUG_ANNOTATIONS, BYTES),
            tag(Annotation.NAME_IID, VARINT) + bytes([Arg.WARPS]),
            join_groups(_warps(trace.slots, blocks), blocks.first),
        ),
        event_type(EventType.SLICE_BEGIN),
        *track,
        text(Event.NAME, _names(trace, blocks)),
    )
    closing = packet(clock.times(blocks.end), event_type(EventType.SLICE_END), *track)
    places = 2 * np.arange(len(blocks))
    return join((opening, places), (closing, places + 1))


def _names(trace: Trace, blocks: Blocks) -> list[bytes]:
    grids = np.array([launch.grid for launch in trace.launches], np.int64).reshape(-1, 3)
    grid = np.maximum(grids[blocks.launch], 1)
    block = blocks.block
    x, y, z = block % grid[:, 0], block // grid[:, 0] % grid[:, 1], block // grid[:, :2].prod(1)
    return [
        b"block (%d,%d,%d)" % index
        for index in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
    ]


def _warps(slots: Slots, blocks: Blocks) -> Message:
    """Return an element of the list ``warps`` for each slot: a dict, without what is usual."""
    rows = blocks.slots
    start = np.repeat(blocks.start, np.diff(blocks.first, append=len(rows)))
    kept, attempted, role = slots.kept[rows], slots.attempted[rows], slots.role[rows]
    return message(
        tag(Annotation.ARRAY_VALUES, BYTES),
        entry(Arg.WARP, varints(slots.warp[rows])),
        entry(Arg.SLOT, varints(rows)),
        entry(Arg.ROLE, varints(role).where(role != 0)),
        entry(Arg.START_OFFSET_NS, varints(slots.start_ns[rows] - start)),
        entry(Arg.END_OFFSET_NS, varints(slots.end_ns[rows] - start)),
        entry(Arg.KEPT, varints(kept)),
        entry(Arg.ATTEMPTED, varints(attempted).where(attempted != kept)),
        entry(
            Arg.FINISHED,
            varints(np.zeros_like(rows)).where(~slots.finished[rows]),
            tag(Annotation.BOOL_VALUE, VARINT),
        ),
    )


def counter(track: int, times: Ints, values: Ints, clock: Clock) -> NDArray[np.uint8]:
    """Return the packets of a counter: when it changed, and to what."""
    packets = packet(
        clock.times(times),
        event_type(EventType.COUNTER),
        tag(Event.TRACK_UUID, VARINT),
        varints(np.full(len(times), track)),
        tag(Event.COUNTER_VALUE, VARINT),
        varints(values),
    )
    return join((packets, np.arange(len(times))))
