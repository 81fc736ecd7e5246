"""Packets of totals: a slice per warp, whose argument is a dict of its totals by region."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.trace import Trace
from ikp.exporters.perfetto._packets import TYPES, Clock, argument, entry, packet, typed
from ikp.exporters.perfetto._schema import Annotation, Arg, Event, EventType
from ikp.exporters.perfetto._setup import FirstIds
from ikp.exporters.protobuf.shapes import Group, Message
from ikp.exporters.protobuf.varints import BYTES, VARINT, Numbers, encoded_varint, tag
from ikp.exporters.timeline.sums import NAME, Sums
from ikp.exporters.timeline.tracks import Layout

Ints = NDArray[np.int64]

AT_ONCE: Final = 4096
"""Warps encoded together."""


def sum_slices(
    trace: Trace, sums: Sums, layout: Layout, clock: Clock, ids: FirstIds
) -> Iterator[NDArray[np.uint8]]:
    """Yield the packets of the slices."""
    slots, first = sums.slices()
    bounds = np.append(first, len(sums))
    name = encoded_varint(ids.sums)
    for low in range(0, len(slots), AT_ONCE):
        high = min(low + AT_ONCE, len(slots))
        entries = _entries(sums, ids.region_arg, slice(int(bounds[low]), int(bounds[high])))
        groups = Group(entries, first[low:high] - first[low], int(bounds[high] - bounds[low]))
        yield _encode(trace, layout, clock, slots[low:high], name, groups)


def _encode(
    trace: Trace, layout: Layout, clock: Clock, slot: Ints, name: bytes, sums: Group
) -> NDArray[np.uint8]:
    start, end = trace.slots.start_ns[slot], trace.slots.end_ns[slot]
    track = (tag(Event.TRACK_UUID, VARINT), Numbers.of(layout.slot_track[slot]))
    named = tag(Annotation.NAME_IID, VARINT) + bytes([Arg[NAME.upper()]])
    places = 2 * np.arange(len(slot))
    opening = packet(
        start,
        argument(Arg.BLOCK, Numbers.of(trace.slots.block[slot])),
        Message(tag(Event.DEBUG_ANNOTATIONS, BYTES), (named, sums)),
        TYPES[EventType.SLICE_BEGIN],
        tag(Event.NAME_IID, VARINT) + name,
        *track,
    )
    closing = packet(np.maximum(start, end), TYPES[EventType.SLICE_END], *track)
    return clock.join((opening, places), (closing, places + 1))


def _entries(sums: Sums, first_region: int, rows: slice) -> Message:
    """Return an entry for each of some rows: a dict."""
    facts = (entry(Arg[name.upper()], *typed(one.take(rows))) for name, one in sums.facts.items())
    region = Numbers.of(first_region + sums.region[rows])
    name = tag(Annotation.NAME_IID, VARINT)
    return Message(tag(Annotation.DICT_ENTRIES, BYTES), (name, region, *facts))
