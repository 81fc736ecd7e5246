"""A trace as a file: what is written in which order, compressed chunk by chunk."""

from __future__ import annotations

from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.trace import Trace
from ikp.exporters.perfetto._blocks import block_slices, counter
from ikp.exporters.perfetto._events import Encoder, OwnArgs, encode
from ikp.exporters.perfetto._packets import Clock, FirstIds
from ikp.exporters.perfetto._schema import Packet
from ikp.exporters.perfetto._setup import descriptors, setup
from ikp.exporters.perfetto._sums import sum_slices
from ikp.exporters.protobuf.varints import BYTES, encoded_varint, tag
from ikp.exporters.timeline.batches import Batches
from ikp.exporters.timeline.sums import Sums
from ikp.exporters.timeline.tracks import counters, in_use, lay_out
from ikp.progress import track

Ints = NDArray[np.int64]
Packets = bytes | NDArray[np.uint8]

EVENTS_AT_ONCE: Final = 1 << 15
"""Events encoded together, if slots allow it: their packets fit into a core's cache."""
_FAST: Final = 1
_WINDOW_BITS: Final = 12
"""What repeats does so within a few packets; short distances take fewer bits."""


def write(trace: Trace, out: BinaryIO, name: str) -> None:
    """Write a trace as compressed Perfetto packets, showing progress if it takes long."""
    used_start, used_end = in_use(trace)
    ids = FirstIds.of(trace)
    clock = Clock.over(used_start, used_end)
    layout = lay_out(trace, used_start, used_end, ids.track)
    args, sums = OwnArgs.of(trace), Sums.of(trace)
    out.write(compressed(setup(trace, layout, clock, ids, args, sums)))
    out.writelines(map(compressed, block_slices(trace, layout.blocks, clock)))
    out.writelines(
        compressed(counter(uuid, times, values, clock))
        for uuid, _, times, values in counters(trace.slots, layout)
    )
    if sums is not None:
        out.writelines(map(compressed, sum_slices(trace, sums, layout, clock, ids)))
    encoder = Encoder(trace, clock, ids, args)
    batches = Batches(trace, layout, EVENTS_AT_ONCE)
    for batch in track(batches, len(batches), f"writing {name}"):
        if batch.new:
            out.write(compressed(descriptors(batch.new)))
        out.write(compressed(encode(encoder.columns(batch))))


def compressed(packets: Packets) -> bytes:
    """Return packets as one packet that holds them all, deflated."""
    from isal import igzip_lib

    content: bytes = igzip_lib.compress(
        packets, _FAST, igzip_lib.COMP_ZLIB, igzip_lib.MEM_LEVEL_DEFAULT, _WINDOW_BITS
    )
    inner = tag(Packet.COMPRESSED_PACKETS, BYTES) + encoded_varint(len(content))
    outer = tag(Packet.PACKET, BYTES) + encoded_varint(len(inner) + len(content))
    return outer + inner + content
