"""A trace as a file: what is written in which order."""

from __future__ import annotations

from typing import BinaryIO, Final

from ikp.core.trace import Trace
from ikp.exporters.perfetto._events import Encoder, encode
from ikp.exporters.perfetto._packets import block_slices, compressed, counter
from ikp.exporters.perfetto._setup import Clock, FirstIds, OwnArgs, descriptors, setup
from ikp.exporters.perfetto._sums import sum_slices
from ikp.exporters.timeline.batches import Batches
from ikp.exporters.timeline.sums import Sums
from ikp.exporters.timeline.tracks import lay_out
from ikp.progress import track

EVENTS_AT_ONCE: Final = 1 << 15
"""Events encoded together, if slots allow it: their packets fit into a core's cache."""


def write(trace: Trace, out: BinaryIO, name: str) -> None:
    """Write a trace as compressed Perfetto packets, showing progress if it takes long."""
    ids = FirstIds.of(trace)
    layout = lay_out(trace, ids.track)
    clock, args = Clock.over(layout.span), OwnArgs.of(trace)
    sums = Sums.of(trace) if len(trace.totals) else None
    out.write(compressed(setup(trace, layout, clock, ids, args, sums)))
    out.writelines(map(compressed, block_slices(trace, layout.blocks, clock)))
    out.writelines(
        compressed(counter(uuid, times, values, clock))
        for uuid, _, (times, values) in layout.counters
    )
    if sums is not None:
        out.writelines(map(compressed, sum_slices(trace, sums, layout, clock, ids)))
    encoder = Encoder(trace, clock, ids, args)
    batches = Batches(trace, layout, EVENTS_AT_ONCE)
    for batch in track(batches, len(batches), f"writing {name}"):
        if batch.new:
            out.write(compressed(descriptors(batch.new)))
        out.write(compressed(encode(encoder.columns(batch))))
