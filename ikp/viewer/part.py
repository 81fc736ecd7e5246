"""``TracePart``: launch, SMs, blocks or window of a trace file, read and written alone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ikp.core.trace import Trace
    from ikp.exporters.columns.chunk import Chunk
    from ikp.exporters.perfetto.reader import Head

MANY: Final = 3_000_000
"""Ranges that the UI takes about ten seconds to open; a file with more is large."""
_MOST: Final = 15_000_000
"""Ranges that use up the memory that a browser gives the UI's trace processor."""
_SECONDS_PER_MILLION: Final = 4.3
MANY_ROWS: Final = 300_000
"""Rows that take the UI's trace processor 1 GB, with two ranges each: 2.6 KB a row."""


@dataclass(frozen=True, slots=True)
class TracePart:
    """The launches, SMs, blocks and window of time to show; an empty field means all.

    The window counts from the start of the first launch that is chosen, else of the trace.
    """

    launch: int | range | None = None
    sm: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    window_ns: tuple[float | None, float | None] | None = None

    def of(self, trace: Trace) -> Trace:
        """Return this part of a trace.

        Raises:
            UsageError: the trace has no event of the part.
        """
        from ikp.edit import cut, select

        if self.launch is not None:
            trace = select(trace, launch=self._launches())
        if self.window_ns is not None:
            trace = cut(trace, *self.window_ns)
        if self.sm or self.block:
            trace = select(trace, sm=self.sm or None, block=self.block or None)
        return trace

    def _launches(self) -> list[int]:
        return [self.launch] if isinstance(self.launch, int) else list(self.launch or ())

    def may_hold(self, head: Head) -> Callable[[Chunk], bool]:
        """Return a predicate of an event chunk: whether, by its head, any may be of this part."""
        import numpy as np

        warps = np.ones(len(head.launch), bool)
        if self.launch is not None:
            warps &= np.isin(head.launch, self._launches())
        zero = int(head.start_ns[warps].min()) if warps.any() else 0
        for wanted, column in ((self.sm, head.sm), (self.block, head.block)):
            if wanted:
                warps &= np.isin(column, wanted)
        begin, end = self.window_ns or (None, None)

        def may(chunk: Chunk) -> bool:
            (first, last), (least, most) = chunk.pair("slots"), chunk.pair("time")
            over = begin is not None and most - zero < begin
            to_come = end is not None and least - zero > end
            return not over and not to_come and bool(warps[first : last + 1].any())

        return may


def read_part(exporter: object, path: Path, part: TracePart) -> tuple[Trace, int] | None:
    """Return a trace with the events that may be of a part, and how many its file has.

    None where the exporter's files have no chunks to choose from.

    Raises:
        ExportError: the file can't be read.
    """
    from ikp.exporters.perfetto import PerfettoExporter
    from ikp.exporters.perfetto.reader import open_columns, read, read_head

    if not isinstance(exporter, PerfettoExporter):
        return None
    with open_columns(path) as columns:
        events = sum(one.size("rows") for one in columns.chunks("events"))
    return read(path, part.may_hold(read_head(path))), events


def write_part(path: Path, part: TracePart, folder: Path) -> tuple[Path, int]:
    """Write a part of a trace file to a folder; return the new file and its number of events.

    Raises:
        ExportError: the file can't be read.
        UsageError: the file has no event of the part.
    """
    from ikp.exporters.perfetto import PerfettoExporter
    from ikp.exporters.perfetto.reader import read, read_head

    trace = part.of(read(path, part.may_hold(read_head(path))))
    target = folder / f"{path.name.partition('.')[0]}-part.pftrace"
    PerfettoExporter().write(trace, target)
    return target, len(trace.events)


def with_rows_for(rows: Sequence[int], first: int, shared: int | None = None) -> range | None:
    """Return the launches from the first one on whose rows the UI has memory for; None for all.

    Args:
        rows: of each launch of a trace.
        first: the number of the launch to begin with.
        shared: how many rows all launches share; None where each has its own.
    """
    if (sum(rows) if shared is None else shared) <= MANY_ROWS:
        return None
    fits = sum(taken <= MANY_ROWS for taken in accumulate(rows[first:]))
    return range(first, first + max(fits, 1))


def opening(path: Path, ranges: int, launches: int) -> list[str]:
    """Return lines on how long a large file takes to open, and how to cut it; [] for others."""
    if ranges <= MANY:
        return []
    seconds = ranges / 1e6 * _SECONDS_PER_MILLION
    ends = " Its memory ends at about 15 million: this may be too much." if ranges > _MOST else ""
    several = "--launch 0, " if launches > 1 else ""
    return [
        f"{path} holds {ranges:,} ranges: the UI takes about {seconds:,.0f} s to open it.{ends}",
        f"A part opens sooner: {several}--sm 0, --block 0 or --window 0:100us cut it out.",
    ]
