"""A trace as a file: what is written in which order, compressed chunk by chunk."""

from __future__ import annotations

from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind, PayloadType
from ikp.core.trace import Trace
from ikp.errors import ExportError
from ikp.exporters.perfetto.batches import EVENTS_AT_ONCE, Batches, cuts
from ikp.exporters.perfetto.blocks import block_slices, counters
from ikp.exporters.perfetto.clock import Clock
from ikp.exporters.perfetto.events import encode
from ikp.exporters.perfetto.schema import BYTES, Packet, tag
from ikp.exporters.perfetto.setup import descriptors, setup
from ikp.exporters.perfetto.tracks import lay_out
from ikp.exporters.perfetto.varints import encoded_varint, same_size
from ikp.progress import track

Ints = NDArray[np.int64]
Packets = bytes | NDArray[np.uint8]

FAST: Final = 1
WINDOW_BITS: Final = 12
"""What repeats does so within a few packets; short distances take fewer bits."""


def write(trace: Trace, out: BinaryIO, name: str) -> None:
    """Write a trace as compressed Perfetto packets, showing progress if it takes long.

    Raises:
        ExportError: the trace contradicts itself.
    """
    _check(trace)
    bounds = np.searchsorted(trace.events.slot, np.arange(len(trace.slots) + 1))
    used_start, used_end = _in_use(trace, bounds)
    clock = Clock.over(used_start, used_end)
    layout = lay_out(trace, used_start, used_end)
    first_name = same_size(len(trace.regions))
    out.write(compressed(setup(trace, layout, clock, first_name)))
    out.writelines(map(compressed, block_slices(trace, layout.blocks, clock)))
    out.writelines(map(compressed, counters(trace, layout, clock)))
    batches = Batches(trace, layout, bounds, clock, first_name)
    parts = cuts(bounds, EVENTS_AT_ONCE)
    for low, high in track(parts, len(parts), f"writing {name}"):
        batch, tracks = batches.make(low, high)
        if tracks:
            out.write(compressed(descriptors(tracks)))
        out.write(compressed(encode(batch)))


def compressed(packets: Packets) -> bytes:
    """Return packets as one packet that holds them all, deflated."""
    from isal import igzip_lib

    content: bytes = igzip_lib.compress(
        packets, FAST, igzip_lib.COMP_ZLIB, igzip_lib.MEM_LEVEL_DEFAULT, WINDOW_BITS
    )
    inner = tag(Packet.COMPRESSED_PACKETS, BYTES) + encoded_varint(len(content))
    outer = tag(Packet.PACKET, BYTES) + encoded_varint(len(inner) + len(content))
    return outer + inner + content


def _in_use(trace: Trace, bounds: Ints) -> tuple[Ints, Ints]:
    """Return from when to when each slot needs its track: its warp's life, and all its events."""
    slots, events = trace.slots, trace.events
    start, end = slots.start_ns.copy(), np.maximum(slots.start_ns, slots.end_ns)
    filled = np.flatnonzero(bounds[1:] > bounds[:-1])
    if len(filled):
        first = bounds[filled]
        start[filled] = np.minimum(start[filled], np.minimum.reduceat(events.start_ns, first))
        end[filled] = np.maximum(end[filled], np.maximum.reduceat(events.end_ns, first))
    return start, end


def _check(trace: Trace) -> None:
    """Refuse a trace that contradicts itself: a file made of it would be garbage."""
    events, slots = trace.events, trace.slots
    faults = {
        "a slot names a launch that there is not": _outside(slots.launch, 0, len(trace.launches)),
        "a slot names a role that there is not": _outside(slots.role, 0, len(trace.roles)),
        "an event names a slot that there is not": _outside(events.slot, 0, len(slots)),
        "an event names a region that there is not": _outside(events.region, 0, len(trace.regions)),
        "an event is neither range nor instant": _outside(
            events.kind, Kind.RANGE, Kind.INSTANT + 1
        ),
        "a payload's type is unknown": _outside(
            events.payload_type, PayloadType.NONE, PayloadType.F32 + 1
        ),
        "events are not sorted by slot": bool(np.any(events.slot[1:] < events.slot[:-1])),
        "an event ends before it starts": bool(np.any(events.end_ns < events.start_ns)),
        "an instant has a duration": bool(
            np.any((events.end_ns != events.start_ns) & (events.kind == Kind.INSTANT))
        ),
        "a time is negative": _outside(events.start_ns, 0, None)
        or _outside(slots.start_ns, 0, None),
    }
    found = [fault for fault, there in faults.items() if there]
    if found:
        raise ExportError(
            f"the trace can't be written, because it contradicts itself: {'; '.join(found)}. "
            "ikp's own decoder never makes such a trace: repair what built or changed it."
        )


def _outside(values: NDArray[Any], low: int, high: int | None) -> bool:
    if not len(values):
        return False
    return int(values.min()) < low or (high is not None and int(values.max()) >= high)
