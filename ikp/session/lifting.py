"""The raw copy of a finished launch's segment to the host, and the parts of its memory to zero.

The copy is made while the program runs, so it takes little: a few copies of rows, which need no
kernel of the GPU. Only the bytes that the launch wrote are read back, and zeroed again. Records are
decoded when the session ends.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

import numpy as np

from ikp.core import abi
from ikp.core.abi import SlotState
from ikp.core.decoding.launch_header import Bytes, Excerpt, Ints, SegmentLayout, SegmentSource
from ikp.core.decoding.slots import awaited, header_rows
from ikp.core.segment import Segment, SegmentRows
from ikp.errors import DecodeError
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
