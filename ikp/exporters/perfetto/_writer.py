"""A trace as a file: what is written in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import BinaryIO, Final

import numpy as np

from ikp.core.args import take_args
from ikp.core.trace import Slots, Totals, Trace
from ikp.exporters.columns.chunk import pack_json
from ikp.exporters.columns.event_chunks import pack_events
from ikp.exporters.columns.small_tables import facts_of, pack_rows
from ikp.exporters.perfetto._events import Encoder
from ikp.exporters.perfetto._output import Content, Output, Rows, ordered, spare_threads
from ikp.exporters.perfetto._packets import Clock
from ikp.exporters.perfetto._schema import FORMAT
from ikp.exporters.perfetto._setup import FirstIds, OwnArgs, setup
from ikp.exporters.perfetto._sums import sum_slices
from ikp.exporters.perfetto._tracks import block_slices, counter_steps, descriptors
from ikp.exporters.protobuf import joining
from ikp.exporters.timeline.batches import Batches, by_end, by_track, cuts
from ikp.exporters.timeline.blocks import slot_bounds
from ikp.exporters.timeline.sums import Sums
from ikp.exporters.timeline.tracks import Layout, Track, lay_out
from ikp.progress import progress

EVENTS_AT_ONCE: Final = 1 << 15
"""Events encoded together, if slots allow it: their packets fit into a core's cache."""
ROWS_AT_ONCE: Final = 1 << 15
"""Slots, or totals, in one chunk of columns."""
_WORTH_THREADS: Final = 3
"""Batches from which on threads take less time than it takes to start them."""


def write(trace: Trace, file: BinaryIO, name: str) -> None:
    """Write a trace as packets and columns, showing progress if it takes long."""
    with progress(3 * len(trace.slots) + len(trace.events), f"writing {name}") as told:
        _write(trace, file, _Done(told))


class _Done:
    """Adds up what is done: each slot is placed, counted and written, each event written."""

    def __init__(self, told: Callable[[float], None]) -> None:
        self._told, self._done = told, 0

    def __call__(self, more: int) -> None:
        """Tell of some slots, or events, that are done."""
        self._done += more
        self._told(self._done)


def _write(trace: Trace, file: BinaryIO, told: _Done) -> None:
    ids = FirstIds.of(trace)
    layout = lay_out(trace, ids.track, told)
    clock, args = Clock(layout.span[0] if layout.span else 0), OwnArgs.of(trace)
    sums = Sums.of(trace) if len(trace.totals) else None
    batches = Batches(trace, layout, EVENTS_AT_ONCE, by_track(trace, layout))
    chunks = cuts(slot_bounds(trace), EVENTS_AT_ONCE)
    threads = 0
    if len(batches) >= _WORTH_THREADS:
        joining.prepare()
        threads = spare_threads()
    with ordered(threads) as jobs:
        out = Output(file, jobs)
        out.chunk("trace", lambda: _whole(trace, len(chunks)))
        for make in _before_events(trace, layout, clock, ids, args, sums, told):
            out.packets(make)
        _tables(trace, out)
        encoder, done = Encoder(trace, ids, args), 0
        for number, batch in enumerate(batches, 1):
            if batch.new:
                out.packets(partial(_announced, batch.new))
            out.packets(partial(encoder.encode, batch, clock.now))
            clock.now = int(batch.events.end_ns[-1])  # they close in order: nothing is behind that
            # The last chunk is behind the last batch: it seals what is in front of it.
            while (done + 1) * len(batches) <= number * len(chunks):
                _events(trace, *chunks[done], out)
                done += 1
            told(len(batch.rows))


def _before_events(
    trace: Trace,
    layout: Layout,
    clock: Clock,
    ids: FirstIds,
    args: OwnArgs,
    sums: Sums | None,
    told: _Done,
) -> Iterator[Callable[[], Content]]:
    yield partial(_as_it_is, setup(trace, layout, clock, ids, args, sums))
    yield from block_slices(trace, layout.blocks, clock, told)
    for packets in counter_steps(layout.counters, clock):
        yield partial(_as_it_is, packets)
    if sums is not None:
        for packets in sum_slices(trace, sums, layout, clock, ids):
            yield partial(_as_it_is, packets)


def _announced(tracks: Sequence[Track]) -> Content:
    return np.concatenate([*descriptors(tracks)])


def _as_it_is(content: Content) -> Content:
    return content


def _whole(trace: Trace, chunks: int) -> Rows:
    """Return what is not in tables, and how much must be in them."""
    about = {
        "format": FORMAT,
        "launches": len(trace.launches),
        "slots": len(trace.slots),
        "events": len(trace.events),
        "totals": len(trace.totals),
        "chunks": sum(1 for _ in _parts(trace)) + chunks,
    }
    return about, [pack_json("facts", facts_of(trace))]


def _parts(trace: Trace) -> Iterator[tuple[str, Slots | Totals, slice]]:
    tables: tuple[tuple[str, Slots | Totals], ...]
    tables = (("slots", trace.slots), ("totals", trace.totals))
    for kind, table in tables:
        least = 1 if kind == "slots" else 0  # one, even of none, seals what is in front of it
        for low in range(0, max(len(table), least), ROWS_AT_ONCE):
            yield kind, table, slice(low, min(low + ROWS_AT_ONCE, len(table)))


def _tables(trace: Trace, out: Output) -> None:
    for kind, table, rows in _parts(trace):
        out.chunk(kind, partial(_rows, table, rows))


def _rows(table: Slots | Totals, rows: slice) -> Rows:
    return {"rows": rows.stop - rows.start, "first": rows.start}, pack_rows(table, rows)


def _events(trace: Trace, low: int, high: int, out: Output) -> None:
    def make() -> Rows:
        events, rows = by_end(trace.events, low, high)
        args = take_args(trace.args, rows) if trace.args else {}
        return pack_events(events, args, trace.slots.launch)

    out.chunk("events", make)
