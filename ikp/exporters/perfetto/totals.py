"""Totals as slices: each warp that has some shows one, from its init to its finish.

The totals are the slice's arguments: ``totals.dot.count``, ``totals.dot.cycles``, ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind
from ikp.core.trace import Totals, Trace
from ikp.exporters.perfetto.packets import Clock, entry, event_type, integer, packet
from ikp.exporters.perfetto.schema import FIRST_OWN_ARG, Annotation, Arg, Event, EventType
from ikp.exporters.protobuf.shapes import Message, join, join_groups, message
from ikp.exporters.protobuf.varints import (
    BYTES,
    FIXED64,
    VARINT,
    WORD,
    Column,
    encoded_varint,
    tag,
    varints,
)
from ikp.exporters.timeline.tracks import Layout

AT_ONCE: Final = 4096
"""Warps encoded together."""


def region_arg(trace: Trace) -> int:
    """Return the interned name of the first region where it names an argument."""
    return FIRST_OWN_ARG + len(trace.args)


def total_slices(
    trace: Trace, layout: Layout, clock: Clock, first_name: int
) -> Iterator[NDArray[np.uint8]]:
    """Yield the packets of the slices that hold totals."""
    slots, first = np.unique(trace.totals.slot, return_index=True)
    bounds = np.append(first, len(trace.totals))
    name = encoded_varint(first_name + len(trace.regions))
    for low in range(0, len(slots), AT_ONCE):
        high = min(low + AT_ONCE, len(slots))
        rows = slice(int(bounds[low]), int(bounds[high]))
        groups = join_groups(_entries(trace, rows), first[low:high] - first[low])
        yield _encode(trace, layout, clock, slots[low:high], name, groups)


def _encode(
    trace: Trace,
    layout: Layout,
    clock: Clock,
    slot: NDArray[Any],
    name: bytes,
    totals: Column,
) -> NDArray[np.uint8]:
    start, end = trace.slots.start_ns[slot], trace.slots.end_ns[slot]
    track = (tag(Event.TRACK_UUID, VARINT), varints(layout.slot_track[slot]))
    opening = packet(
        clock.times(start),
        integer(Arg.BLOCK, trace.slots.block[slot]),
        message(
            tag(Event.DEBUG_ANNOTATIONS, BYTES),
            tag(Annotation.NAME_IID, VARINT) + bytes([Arg.TOTALS]),
            totals,
        ),
        event_type(EventType.SLICE_BEGIN),
        tag(Event.NAME_IID, VARINT) + name,
        *track,
    )
    closing = packet(clock.times(np.maximum(start, end)), event_type(EventType.SLICE_END), *track)
    places = 2 * np.arange(len(slot))
    return join((opening, places), (closing, places + 1))


def _entries(trace: Trace, rows: slice) -> Message:
    """Return an entry of the dict ``totals`` for each of some rows: a dict."""
    totals = Totals(*(getattr(trace.totals, name)[rows] for name in Totals.__slots__))
    ranges = totals.kind == int(Kind.RANGE)
    in_cycles = np.array([one.clock.kind == "cycles" for one in trace.launches], bool)
    cycles = in_cycles[trace.slots.launch[totals.slot]]
    count, ticks = varints(totals.count), varints(totals.ticks)
    return message(
        tag(Annotation.DICT_ENTRIES, BYTES),
        tag(Annotation.NAME_IID, VARINT),
        varints(region_arg(trace) + totals.region.astype(np.int64)),
        entry(Arg.COUNT, count.where(ranges)),
        entry(Arg.INSTANTS, count.where(~ranges)),
        entry(Arg.CYCLES, ticks.where(ranges & cycles)),
        entry(Arg.TICKS, ticks.where(ranges & ~cycles)),
        entry(Arg.TOTAL_NS, varints(totals.total_ns).where(ranges)),
        entry(Arg.SHARE, _share(trace, totals, ranges), tag(Annotation.DOUBLE_VALUE, FIXED64)),
    )


def _share(trace: Trace, totals: Totals, ranges: NDArray[np.bool_]) -> Column:
    """Return which part of its warp's time each total is; the reader needs it not."""
    life = (trace.slots.end_ns - trace.slots.start_ns)[totals.slot]
    there = ranges & (life > 0)
    share = np.where(there, totals.total_ns / np.maximum(life, 1), 0.0)
    return Column(share.view(np.uint64)[:, None], there * np.uint8(WORD))
