"""The raw copy of a finished launch's segment to the host, and the parts to zero in its memory.

It is made while the program runs, so it takes little: a few copies of rows, which need no kernel
of the GPU. Records are decoded when the session ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ikp.core import abi
from ikp.core.abi import SlotState
from ikp.core.decoding.excerpt import Bytes, Excerpt, Ints
from ikp.core.decoding.launch_header import Layout, Source
from ikp.core.decoding.slots import awaited, header_rows
from ikp.core.segment import Part, Segment
from ikp.errors import DecodeError
from ikp.session import extents
from ikp.session.extents import Run
from ikp.session.storage import Storage

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

    def source(self, segment: Segment) -> Source:
        """Return the decoder's source for ``segment``, from which this was copied."""
        head = Source.of(segment, self._excerpt(_NOTHING.reshape(0, abi.SLOT_HEADER_BYTES)))
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
        return Source.of(segment, excerpt)

    def _excerpt(
        self, rows: Bytes, counts: Ints | None = None, records: Bytes = _NOTHING
    ) -> Excerpt:
        counts = np.zeros(0, np.int64) if counts is None else counts
        return Excerpt(self.segment_bytes, self.head, rows, counts, records, self.tail)


def lift(storage: Storage, segment: Segment) -> tuple[Lifted, list[Part]] | None:
    """Copy the bytes of a segment that its launch wrote, if all its warps have finished.

    Returns:
        The copy, and the parts to zero before the segment is used again. None where the segment has
        to stay until the session ends: a warp has not finished, or the layout is corrupt.
    """
    head = storage.read(segment.data, extents.LAUNCH_HEADER)
    nothing = Lifted(segment.nbytes, head, [], [], [], tail=False)
    source = nothing.source(segment)
    try:
        layout = source.layout
    except DecodeError:  # raised again when it is decoded
        return None
    if layout is None or not layout.slots:
        return nothing, [Part(0, segment.nbytes)]
    return _lifted(storage, segment, nothing, layout, source.grid_id)


def _lifted(
    storage: Storage, segment: Segment, nothing: Lifted, layout: Layout, grid_id: int
) -> tuple[Lifted, list[Part]] | None:
    data, nbytes = segment.data, segment.nbytes
    parts = extents.heads(layout)
    if any(part.end > nbytes for part in parts):
        return None
    heads = [storage.read(data, part) for part in parts]
    attempted = _attempted(layout, heads, grid_id)
    if attempted is None:
        return None
    # One record more than a warp counted, which should be empty.
    found = extents.runs(layout, np.minimum(attempted + 1, layout.capacity))
    if found is None or any(run.part(layout).end > nbytes for run in found):
        return None
    tailed = bool(storage.read(data, extents.tail(layout, nbytes)).any())
    lifted = replace(
        nothing,
        heads=heads,
        runs=found,
        records=[storage.read(data, run.part(layout)) for run in found],
        tail=tailed,
        most=int(attempted.max()),
    )
    return lifted, list(extents.written(layout, nbytes, found, tailed=tailed))


def _attempted(layout: Layout, heads: list[Bytes], grid_id: int) -> Ints | None:
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
