"""Writer of ``.pftrace`` files: packets and chunks of columns, encoded in threads, in file order.

Packets are for viewers. Totals are a slice per warp there, whose argument is a dict of the warp's
totals by region.

Beside the packets are the trace's own columns, in a packet's field that Perfetto does not know, and
so skips. Each chunk of columns seals the packets in front of it, by their number of bytes and two
checksums. One is of these bytes, the other of the inflated ones. So a reader notices if the columns
are not what a viewer shows.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from itertools import chain
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.trace import Slots, Totals, Trace
from ikp.exporters.columns.packing import (
    Packed,
    build,
    checksum,
    deflated,
    facts_of,
    pack_json,
    pack_rows,
    to_json,
)
from ikp.exporters.perfetto._events import Encoder
from ikp.exporters.perfetto._host import AddedTraces
from ikp.exporters.perfetto._packets import TYPES, Clock, argument, entry, packet, typed
from ikp.exporters.perfetto._schema import (
    COLUMNS,
    ROWS,
    SHARED,
    Annotation,
    Arg,
    Event,
    EventType,
    Packet,
)
from ikp.exporters.perfetto._setup import FirstIds, format_of, setup
from ikp.exporters.perfetto._tracks import block_slices, counter_steps, descriptors, first_blocks
from ikp.exporters.protobuf import joining
from ikp.exporters.protobuf.shapes import Message, SubmessageGroup
from ikp.exporters.protobuf.varints import BYTES, VARINT, Numbers, encoded_varint, in_field, tag
from ikp.exporters.timeline.batches import NAME, Batches, Sums, by_track, cuts
from ikp.exporters.timeline.blocks import BlockRows, slot_bounds
from ikp.exporters.timeline.shared_rows import are_shared
from ikp.exporters.timeline.tracks import Layout, Track, lay_out
from ikp.progress import progress

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
        groups = SubmessageGroup(
            entries, first[low:high] - first[low], int(bounds[high] - bounds[low])
        )
        yield _encode(trace, layout, clock, slots[low:high], name, groups)


def _encode(
    trace: Trace, layout: Layout, clock: Clock, slot: Ints, name: bytes, sums: SubmessageGroup
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


Bytes = NDArray[np.uint8]
Rows = tuple[dict[str, Any], Sequence[Packed]]
"""The chunk head's entries for some rows, and their columns."""

EVENTS_AT_ONCE: Final = 1 << 16
"""Events encoded together, if slots allow it: enough to hide the fixed cost of a batch."""
BLOCKS_AT_ONCE: Final = 1 << 12
ROWS_AT_ONCE: Final = 1 << 15
"""Slots, or totals, in one chunk of columns."""
_WORTH_THREADS: Final = 2
"""Batches from which on threads take less time than it takes to start them."""


def write(trace: Trace, file: BinaryIO, name: str, beside: AddedTraces | None = None) -> None:
    """Write a trace as packets and columns, showing progress if it takes long.

    ``beside`` is for viewers alone: who reads the file gets the trace.
    """
    # Each warp is placed and counted, each slot also written, and each event.
    steps = 3 * len(trace.slots) + 2 * len(trace.others) + len(trace.events)
    with progress(steps, f"writing {name}") as done:
        _write(trace, file, done, beside)


def _write(
    trace: Trace, file: BinaryIO, advance: Callable[[float], None], beside: AddedTraces | None
) -> None:
    text = to_json(facts_of(trace))
    facts, ids = pack_json("facts", text), FirstIds.of(trace, text)
    shared = are_shared(trace.launches, len(trace.slots))
    layout = lay_out(trace, ids.track, advance, shared=shared)
    clock = Clock(layout.span[0] if layout.span else 0)
    sums = Sums.of(trace) if len(trace.totals) else None
    encoder = Encoder(trace, ids)
    batches = Batches(trace, layout, EVENTS_AT_ONCE, by_track(trace, layout))
    chunks = cuts(slot_bounds(trace), EVENTS_AT_ONCE)
    threads = 0
    if len(batches) >= _WORTH_THREADS:
        joining.prepare()
        threads = spare_threads()
    with ordered(threads) as jobs:
        out = Output(file, jobs)
        out.chunk("trace", partial(_whole, trace, facts, len(chunks), shared))
        calls = None if beside is None else beside.arriving(len(trace.launches))
        first = setup(trace, layout, clock, ids, encoder.texts, sums, calls)
        out.packets(partial(np.asarray, first))
        for packets in () if beside is None else beside.packets():
            out.packets(partial(np.asarray, packets))
        _put_blocks(out, trace, layout.blocks, clock, first_blocks(layout.blocks, calls), advance)
        summed = () if sums is None else sum_slices(trace, sums, layout, clock, ids)
        for packets in chain(counter_steps(layout.counters, clock), summed):
            out.packets(partial(np.asarray, packets))
        for kind, table, rows in _parts(trace):
            out.chunk(kind, partial(pack_rows, table, rows))
        _put_events(out, encoder, batches, chunks, clock, advance)


def _put_blocks(
    out: Output,
    trace: Trace,
    every: BlockRows,
    clock: Clock,
    arrows: Ints | None,
    advance: Callable[[float], None],
) -> None:
    """Put the slices of blocks, some at a time; ``arrows`` has the flow that ends at each."""
    row = 0
    for blocks in every.parts(BLOCKS_AT_ONCE):
        mine = None if arrows is None else arrows[row : row + len(blocks.block)]
        out.packets(partial(block_slices, trace, blocks, clock.now, mine))
        row += len(blocks.block)
        clock.now = int(blocks.end[-1])
        advance(len(blocks.slots))


def _put_events(
    out: Output,
    encoder: Encoder,
    batches: Batches,
    chunks: Sequence[tuple[int, int]],
    clock: Clock,
    advance: Callable[[float], None],
) -> None:
    """Put the packets of all events, and chunks of their columns between."""
    done = 0
    for number, batch in enumerate(batches, 1):
        if batch.new:
            out.packets(partial(_announced, batch.new))
        out.packets(partial(encoder.encode, batch, clock.now))
        clock.now = int(batch.events.end_ns[-1])  # ranges close in order: no packet is later
        # The last chunk is behind the last batch: it seals what is in front of it.
        while (done + 1) * len(batches) <= number * len(chunks):
            out.chunk("events", partial(encoder.packed, *chunks[done]))
            done += 1
        advance(len(batch.rows))


def _announced(tracks: Sequence[Track]) -> Bytes:
    return np.concatenate([*descriptors(tracks)])


def _whole(trace: Trace, facts: Packed, chunks: int, shared: bool) -> Rows:
    """Return the head and the facts of the trace: the sizes of its tables, and all else."""
    about = {
        "format": format_of(trace),
        "launches": len(trace.launches),
        "slots": len(trace.slots),
        "events": len(trace.events),
        "totals": len(trace.totals),
        **({"others": len(trace.others)} if len(trace.others) else {}),
        "chunks": sum(1 for _ in _parts(trace)) + chunks,
        **({ROWS: SHARED} if shared else {}),
    }
    return about, [facts]


def _parts(trace: Trace) -> Iterator[tuple[str, Slots | Totals, slice]]:
    tables: tuple[tuple[str, Slots | Totals], ...]
    tables = (("slots", trace.slots), ("others", trace.others), ("totals", trace.totals))
    for kind, table in tables:
        least = 1 if kind == "slots" else 0  # one, even of none, seals what is in front of it
        for low in range(0, max(len(table), least), ROWS_AT_ONCE):
            yield kind, table, slice(low, min(low + ROWS_AT_ONCE, len(table)))


_WINDOW_BITS: Final = 12
"""Window of deflate: bytes repeat within a few packets, and short distances take fewer bits."""
Job = Callable[[], Any]
Use = Callable[[Any], None]

_MOST_THREADS: Final = 4
_WAITING: Final = 2
"""Jobs beyond those in the threads. Their results stay in memory until they are used."""


def spare_threads() -> int:
    """Return how many threads may work beside this one: none on a single core."""
    return min(_MOST_THREADS, len(os.sched_getaffinity(0)) - 1)


class Ordered:
    """Runs jobs, and passes their results to functions, one after another, in this thread.

    Deflating releases Python's lock, so it gains from threads. Without any, jobs run at once.
    """

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._threads: list[Thread] = []
        self._todo: SimpleQueue[tuple[Job, Future[Any]] | None] = SimpleQueue()
        self._running: deque[tuple[Future[Any], Use]] = deque()

    def run(self, job: Job, use: Use) -> None:
        """Let ``job`` run, and ``use`` its result after those of all earlier jobs.

        Raises any error that an earlier job or its use raised.
        """
        if not self._has_threads():
            self.finish()
            use(job())
            return
        future: Future[Any] = Future()
        self._todo.put((job, future))
        self._running.append((future, use))
        while len(self._running) > len(self._threads) + _WAITING:
            self._use_next()

    def finish(self) -> None:
        """Wait for all jobs, and use their results."""
        while self._running:
            self._use_next()

    def close(self) -> None:
        """End the threads; unused results are lost."""
        for future, _ in self._running:
            future.cancel()
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            thread.join()

    def _use_next(self) -> None:
        future, use = self._running.popleft()
        use(future.result())

    def _has_threads(self) -> bool:
        """Start a thread if more may run; return whether there are any.

        A process that is ending starts none any more.
        """
        if len(self._threads) < self._most:
            thread = Thread(target=self._work, name="ikp-writer", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                self._most = len(self._threads)
            else:
                self._threads.append(thread)
        return bool(self._threads)

    def _work(self) -> None:
        while (item := self._todo.get()) is not None:
            job, future = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(job())
                except BaseException as error:  # noqa: BLE001 - raised where the result is used
                    future.set_exception(error)


@contextmanager
def ordered(threads: int) -> Iterator[Ordered]:
    """Run jobs until the block ends; if it ends well, all of them are done and used."""
    jobs = Ordered(threads)
    try:
        yield jobs
        jobs.finish()
    finally:
        jobs.close()


class Output:
    """Writes packets and chunks in the order in which they come."""

    def __init__(self, file: BinaryIO, jobs: Ordered) -> None:
        self._file = file
        self._jobs = jobs
        self._seal = [0, 0, 0]  # size and checksums of the packets behind the last chunk

    def packets(self, make: Callable[[], Bytes]) -> None:
        """Write the packets that ``make`` returns as one packet that holds them all, deflated."""

        def job() -> tuple[Bytes, bytes]:
            content = make()
            return content, deflated(content, _WINDOW_BITS) if len(content) else b""

        self._jobs.run(job, self._put)

    def chunk(self, kind: str, make: Callable[[], Rows]) -> None:
        """Write a chunk of columns."""
        self._jobs.run(make, partial(self._put_chunk, kind))

    def _put(self, made: tuple[Bytes, bytes]) -> None:
        content, packed = made
        if packed:
            packed = in_field(_PACKET, in_field(_PACKETS, packed))
            self._file.write(packed)
        size, crc, inflated = self._seal
        self._seal = [size + len(packed), checksum(packed, crc), checksum(content, inflated)]

    def _put_chunk(self, kind: str, made: Rows) -> None:
        about, parts = made
        chunk = build(kind, {**about, "packets": self._seal}, parts)
        self._file.write(in_field(_PACKET, in_field(_COLUMNS, chunk)))
        self._seal = [0, 0, 0]


_PACKET: Final = tag(Packet.PACKET, BYTES)
_PACKETS: Final = tag(Packet.COMPRESSED_PACKETS, BYTES)
_COLUMNS: Final = tag(COLUMNS, BYTES)
