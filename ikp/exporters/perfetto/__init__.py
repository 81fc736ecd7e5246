"""Native Perfetto traces (``.pftrace``): the format that holds a whole trace, and gives it back.

Written with the ``perfetto`` package's protobufs; the packets of which there are millions are
encoded by vectorised numpy, byte for byte as the package would.
"""

from __future__ import annotations

from os import PathLike
from typing import BinaryIO, Final

from ikp.core.trace import Trace
from ikp.exporters.files import FileExporter
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


class PerfettoExporter(FileExporter):
    """Writes and reads native Perfetto traces."""

    suffixes = (".pftrace", ".perfetto-trace")

    def prepare(self) -> None:
        """Import what writing takes."""
        import isal.igzip_lib  # noqa: F401
        import perfetto.protos.perfetto.trace.perfetto_trace_pb2  # noqa: F401

    def _put(self, trace: Trace, file: BinaryIO, name: str) -> None:
        write(trace, file, name)

    def read(self, path: str | PathLike[str]) -> Trace:
        """Rebuild the trace that :meth:`write` wrote to ``path``.

        Raises:
            ExportError: the file can't be read, is damaged, or was not written by ``ikp``.
        """
        from ikp.exporters.perfetto.reader import read

        return read(path)


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
