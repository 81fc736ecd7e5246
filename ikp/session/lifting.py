"""Raw copies of a launch's segment to the host: when it has finished, or while its kernel runs
(``Drain``).

A finished launch is copied while the program runs, so the copy takes little: a few copies of rows,
which need no kernel of the GPU. Only the bytes that the launch wrote are read back, and zeroed
again. Records are decoded when the session ends.

Of a stream, the device's service looks at the counts of all warps every millisecond, and copies the
slots once a quarter of one is new. A copy needs no kernel and waits for none. Nor does the kernel
wait for it: what it overwrites meanwhile is dropped and counted (``ikp.core.decoding.stream``).
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from typing import Final

import numpy as np

from ikp.core import abi
from ikp.core.abi import Rows, SlotState
from ikp.core.decoding.launch_header import Bytes, Excerpt, Ints, SegmentLayout, SegmentSource
from ikp.core.decoding.slots import Memory, awaited, header_rows
from ikp.core.decoding.stream import StreamReader
from ikp.core.segment import Segment, SegmentRows
from ikp.errors import DecodeError, PatchError
from ikp.session.service import Service
from ikp.session.storage import Storage

LAUNCH_HEADER = SegmentRows(0, abi.LAUNCH_HEADER_BYTES)
_MOST_RUNS = 64
_FEW = 4096
"""Most records, empty ones included, that are copied whole in no more time than selectively."""


def header_parts(layout: SegmentLayout) -> list[SegmentRows]:
    """Return the parts that hold the headers of slots, then those behind all slots."""
    if layout.together:
        return [SegmentRows(part.start, part.stop - part.start) for part in layout.heads]
    width, pitch = abi.SLOT_HEADER_BYTES, layout.slot_bytes
    return [SegmentRows(abi.LAUNCH_HEADER_BYTES, width, pitch, layout.slots)]


def tail_part(layout: SegmentLayout, nbytes: int) -> SegmentRows:
    """Return the part behind all that a launch writes to a segment of ``nbytes`` bytes."""
    return SegmentRows(layout.end, max(0, nbytes - layout.end))


@dataclass(frozen=True, slots=True)
class Run:
    """The first ``count`` records of each of some consecutive slots.

    ``first`` and ``past`` count groups of slots whose records lie in one row, or single slots.
    """

    first: int
    past: int
    count: int

    def part(self, layout: SegmentLayout, behind: int = 0) -> SegmentRows:
        """Return the part that holds the records, with space for up to ``behind`` more of each."""
        together, size = max(1, layout.together), layout.clock.record.itemsize
        begin = abi.LAUNCH_HEADER_BYTES + layout.header_bytes
        pitch = room = layout.slot_bytes
        if layout.together:
            begin = abi.LAUNCH_HEADER_BYTES + layout.slots * layout.header_bytes
            pitch = room = together * (layout.slot_bytes - layout.header_bytes)
        else:
            room -= layout.header_bytes
        width = min((self.count + behind) * size * together, room)
        return SegmentRows(begin + self.first * pitch, width, pitch, self.past - self.first)

    def by_slot(self, data: Bytes, layout: SegmentLayout) -> Bytes:
        """Return the run's records slot by slot, from ``data`` read row by row."""
        together = max(1, layout.together)
        if together == 1:
            return data
        rows = data.reshape(self.past - self.first, self.count, together, -1)
        return rows.swapaxes(1, 2).reshape(-1)


def runs_to_copy(layout: SegmentLayout, counts: Ints) -> list[Run] | None:
    """Return the runs of records to copy, for ``counts`` records in each slot.

    Runs hold a few records more than ``counts``: consecutive slots with similar counts are one run.

    Returns:
        None where the counts are so uneven that too many copies would be made.
    """
    most = counts.reshape(-1, max(1, layout.together)).max(1, initial=0)
    total = int(most.max(initial=0)) * len(most)
    if total <= _FEW or 4 * total <= 5 * int(most.sum()):
        edges = [0, len(most)]
    else:
        sizes = np.ceil(np.log2(most + 1))
        edges = [0, *(np.flatnonzero(np.diff(sizes)) + 1).tolist(), len(most)]
    if len(edges) > _MOST_RUNS + 1:
        return None
    return [
        Run(first, past, int(most[first:past].max(initial=0)))
        for first, past in pairwise(edges)
        if past > first
    ]


def written_parts(
    layout: SegmentLayout, nbytes: int, found: list[Run], *, tailed: bool
) -> Iterator[SegmentRows]:
    """Yield all parts that a launch may have written in a segment that was zero before it.

    Args:
        layout: of the segment.
        nbytes: of the segment.
        found: the runs of its records.
        tailed: whether the memory behind the layout's end is not zero.
    """
    if tailed or not layout.fresh:
        yield SegmentRows(0, nbytes)
        return
    yield LAUNCH_HEADER
    yield from header_parts(layout)
    margin = (layout.beside_bytes - layout.header_bytes) // abi.RECORD_BYTES
    for run in found:
        yield run.part(layout, behind=1 + margin)


_NOTHING = np.zeros(0, np.uint8)


@dataclass(frozen=True, slots=True)
class Lifted:
    """A finished launch's bytes on the host: launch header, slot headers, runs of records."""

    segment_bytes: int
    head: Bytes
    heads: list[Bytes]
    runs: list[Run]
    records: list[Bytes]  # of each run
    tail: bool
    most: int | None = None  # records of the busiest warp; None where no warp has a slot

    @property
    def nbytes(self) -> int:
        """Bytes that the copy takes on the host."""
        return sum(each.nbytes for each in (self.head, *self.heads, *self.records))

    def source(self, segment: Segment) -> SegmentSource:
        """Return the decoder's source for ``segment``, from which this was copied."""
        head = SegmentSource.of(segment, self._excerpt(_NOTHING.reshape(0, abi.SLOT_HEADER_BYTES)))
        layout = head.layout if self.heads else None
        if layout is None:
            return head
        rows = header_rows(self.heads, layout, head.grid_id)
        together = max(1, layout.together)
        counts = [np.full((run.past - run.first) * together, run.count) for run in self.runs]
        records = [
            run.by_slot(each, layout) for run, each in zip(self.runs, self.records, strict=True)
        ]
        excerpt = self._excerpt(
            rows,
            np.concatenate([np.zeros(0, np.int64), *counts]),
            np.concatenate([_NOTHING, *records]) if len(records) != 1 else records[0],
        )
        return SegmentSource.of(segment, excerpt)

    def _excerpt(
        self, rows: Bytes, counts: Ints | None = None, records: Bytes = _NOTHING
    ) -> Excerpt:
        counts = np.zeros(0, np.int64) if counts is None else counts
        return Excerpt(self.segment_bytes, self.head, rows, counts, records, self.tail)


@dataclass(frozen=True, slots=True)
class Whole:
    """All bytes of a segment on the host: of a launch whose parts are not known, or are many."""

    data: Bytes
    most: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that the copy takes on the host."""
        return self.data.nbytes

    def source(self, segment: Segment) -> SegmentSource:
        """Return the decoder's source for ``segment``, from which this was copied."""
        return SegmentSource.of(segment, self.data)


_Found = tuple[Lifted, list[SegmentRows]] | None
_Steps = Generator[list[SegmentRows], list[Bytes], _Found]


def lift(storage: Storage, segment: Segment) -> _Found:
    """Copy the bytes of a segment that its launch wrote, if all its warps have finished.

    Returns:
        The copy, and the parts to zero before the segment is used again. None where the segment has
        to stay until the session ends: a warp has not finished, or the layout is corrupt.
    """
    return lift_all(storage, [segment])[0]


def lift_all(storage: Storage, segments: Sequence[Segment]) -> list[_Found]:
    """Return what ``lift`` does of each segment. Parts of all are copied together, step by step."""
    made: list[_Found] = [None] * len(segments)
    works = [_steps(each) for each in segments]
    wanted = {number: next(work) for number, work in enumerate(works)}
    while wanted:
        every = [
            (segments[number].data, part) for number, parts in wanted.items() for part in parts
        ]
        copies, going = iter(storage.read_all(every)), wanted
        wanted = {}
        for number, parts in going.items():
            try:
                wanted[number] = works[number].send(list(islice(copies, len(parts))))
            except StopIteration as done:
                made[number] = done.value
    return made


def copies_of(storage: Storage, segments: Sequence[Segment]) -> list[Lifted | Whole]:
    """Return what launches wrote, all bytes of a segment where its parts are not known, or many.

    Their memory can't be used again: which parts are to be zeroed is not returned.
    """
    return [
        found[0]
        if found is not None
        else Whole(storage.read(segment.data, SegmentRows(0, segment.nbytes)))
        for segment, found in zip(segments, lift_all(storage, segments), strict=True)
    ]


def _steps(segment: Segment) -> _Steps:
    """Yield the parts to copy next; return what ``lift`` does."""
    (head,) = yield [LAUNCH_HEADER]
    nothing = Lifted(segment.nbytes, head, [], [], [], tail=False)
    source = nothing.source(segment)
    try:
        layout = source.layout
    except DecodeError:  # raised again when it is decoded
        return None
    if layout is None or not layout.slots:
        return nothing, [SegmentRows(0, segment.nbytes)]
    return (yield from _lifted(segment.nbytes, nothing, layout, source.grid_id))


def _lifted(nbytes: int, nothing: Lifted, layout: SegmentLayout, grid_id: int) -> _Steps:
    parts = header_parts(layout)
    if any(part.end > nbytes for part in parts):
        return None
    heads = yield parts
    attempted = _attempted(layout, heads, grid_id)
    if attempted is None:
        return None
    # One record more than a warp counted, which should be empty.
    found = runs_to_copy(layout, np.minimum(attempted + 1, layout.capacity))
    if found is None or any(run.part(layout).end > nbytes for run in found):
        return None
    tail, *records = yield [tail_part(layout, nbytes), *(run.part(layout) for run in found)]
    tailed = bool(tail.any())
    lifted = replace(
        nothing,
        heads=heads,
        runs=found,
        records=records,
        tail=tailed,
        most=int(attempted.max()),
    )
    return lifted, list(written_parts(layout, nbytes, found, tailed=tailed))


def _attempted(layout: SegmentLayout, heads: list[Bytes], grid_id: int) -> Ints | None:
    """Return the records attempted by each slot's warp; None where a warp did not finish."""
    every = heads[0] if len(heads) == 1 else np.concatenate(heads)
    if layout.together:
        rows = every.view(abi.DENSE_HEADER)
        done = (rows["finish_ns"] != 0) & (rows["grid_id"] == grid_id & 0xFFFF)
    else:
        rows = every.view(abi.SLOT_HEADER)
        done = (rows["state"] == SlotState.FINISHED) & (rows["grid_id"] == grid_id)
    if not (done if not layout.others else done | ~awaited(layout)).all():
        return None
    made: Ints = rows["attempted"][: layout.slots].astype(np.int64)
    return made


_POLL_S: Final = 0.001
_SHARE: Final = 4
"""Slots are copied once a warp has filled one part in so many of its own since the last copy."""
_FRESH_S: Final = 0.1
"""The age at which records are copied, however few: a kernel that fails takes the rest with it."""
_ARRIVED_S: Final = 20e-6
"""The time after which a store has come to memory. It takes about a microsecond."""
_NO_HEADS: Final = np.zeros((0, abi.SLOT_HEADER_BYTES), np.uint8)


@dataclass(frozen=True, slots=True)
class Drained:
    """A finished launch's records, which were read while it ran."""

    excerpt: Excerpt
    most: int | None  # records of the busiest warp

    @property
    def nbytes(self) -> int:
        """Bytes that the records take on the host."""
        return self.excerpt.heads.nbytes + self.excerpt.records.nbytes

    def source(self, segment: Segment) -> SegmentSource:
        """Return the decoder's source for ``segment``."""
        return SegmentSource.of(segment, self.excerpt)


class Drain:
    """The drain of one segment. All but ``source`` runs in the service."""

    def __init__(self, service: Service, segment: Segment) -> None:
        self._service, self._storage, self._segment = service, service.storage, segment
        self._head: Bytes = np.zeros(abi.LAUNCH_HEADER_BYTES, np.uint8)
        self._layout: SegmentLayout | None = None
        self._reader: StreamReader | None = None  # of the launch that the header is of
        self._heads: Rows = _NO_HEADS.view(abi.SLOT_HEADER).reshape(-1)
        self._copied_at = 0.0
        self.failed = False  # a kernel has failed: its memory can't be read any more

    @classmethod
    def begin(cls, service: Service, segment: Segment) -> Drain:
        """Return the drain of a segment, which is looked at until it is dropped."""
        made = cls(service, segment)
        service.call(partial(service.storage.stage, segment.nbytes))
        service.post(partial(_step, weakref.ref(made)))
        return made

    def source(self) -> SegmentSource:
        """Return all records that were kept so far, without a wait for the kernel."""
        return SegmentSource.of(self._segment, self._service.call(self._latest))

    def lift(self) -> tuple[Drained, list[SegmentRows]] | None:
        """Return the records of a launch, and the parts to zero; None if a warp runs on."""
        excerpt = self._latest()
        if self._layout is not None and not self._finished():
            return None
        most = int(self._heads["attempted"].max(initial=0)) if len(self._heads) else None
        return Drained(excerpt, most), [SegmentRows(0, self._segment.nbytes)]

    def so_far(self) -> Drained:
        """Return the records of a launch, whether it has finished or not."""
        return Drained(self._latest(), None)

    def step(self) -> float | None:
        """Copy what is new, if it is worth it; return the seconds until the next call."""
        if self.failed or not self._look():
            return None if self.failed else _POLL_S
        reader, layout = self._reader, self._layout
        if reader is None or layout is None:
            return _POLL_S
        new, age = reader.unread(self._heads), time.monotonic() - self._copied_at
        finished = self._finished()
        if new * _SHARE >= layout.capacity or (new and (finished or age > _FRESH_S)):
            self._copy(reader, layout)
            return None if finished else 0.0
        return None if finished else _POLL_S

    def _latest(self) -> Excerpt:
        there = not self.failed and self._look()
        if there and self._reader and self._layout and self._reader.unread(self._heads):
            self._copy(self._reader, self._layout)
        nbytes = self._segment.nbytes
        if self._reader is None:
            none = np.zeros(0, np.int64)
            return Excerpt(nbytes, self._head, _NO_HEADS, none, _NOTHING, tail=False, in_order=True)
        return self._reader.excerpt(self._head, self._heads, nbytes)

    def _finished(self) -> bool:
        return bool((self._heads["state"] == SlotState.FINISHED).all())

    def _look(self) -> bool:
        """Read the headers; return whether there is a launch, all of whose header is there."""
        try:
            head = self._storage.read(self._segment.data, LAUNCH_HEADER)
            if not np.array_equal(head, self._head):
                self._begin_launch(head)
            if self._reader is None or self._layout is None:
                return False
            self._heads = self._read_heads(self._layout)
        except (PatchError, RuntimeError):
            self.failed = True
        return not self.failed

    def _begin_launch(self, head: Bytes) -> None:
        """Forget what was read: of launches that write to one segment the last one is kept."""
        self._head, self._layout, self._reader = head, None, None
        self._heads = self._heads[:0]
        nothing = np.zeros(0, np.int64)
        excerpt = Excerpt(self._segment.nbytes, head, _NO_HEADS, nothing, _NOTHING, tail=False)
        source = SegmentSource.of(self._segment, excerpt)
        try:
            self._layout = source.layout
        except DecodeError:  # half of it is there; decoding names what stays wrong
            return
        if self._layout is not None and self._layout.slots:
            self._reader = StreamReader(self._layout, source.grid_id)

    def _read_heads(self, layout: SegmentLayout) -> Rows:
        (part,) = header_parts(layout)
        heads: Rows = self._storage.read(self._segment.data, part).view(abi.SLOT_HEADER)
        return heads

    def _copy(self, reader: StreamReader, layout: SegmentLayout) -> None:
        try:
            time.sleep(_ARRIVED_S)
            copy = self._storage.peek(self._segment.data, layout.slots_end)
            time.sleep(_ARRIVED_S)
            reader.take(self._heads, Memory(copy, layout), self._read_heads(layout))
        except (PatchError, RuntimeError):
            self.failed = True
        self._copied_at = time.monotonic()


def _step(drain: weakref.ref[Drain]) -> float | None:
    there = drain()
    return None if there is None else there.step()
