"""Extents: the bytes of a segment that a launch wrote, as rows to read back and to zero again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ikp.core import abi
from ikp.core.decoding.excerpt import Bytes, Ints
from ikp.core.decoding.launch_header import Layout
from ikp.core.segment import Part

LAUNCH_HEADER = Part(0, abi.LAUNCH_HEADER_BYTES)
_MOST_RUNS = 64
_FEW = 4096
"""Most records, empty ones included, that are copied whole in no more time than selectively."""


def heads(layout: Layout) -> list[Part]:
    """Return the parts that hold the headers of slots, then those behind all slots."""
    if layout.together:
        return [Part(part.start, part.stop - part.start) for part in layout.heads]
    width, pitch = abi.SLOT_HEADER_BYTES, layout.slot_bytes
    return [Part(abi.LAUNCH_HEADER_BYTES, width, pitch, layout.slots)]


def tail(layout: Layout, nbytes: int) -> Part:
    """Return the part behind all that a launch writes to a segment of ``nbytes`` bytes."""
    return Part(layout.end, max(0, nbytes - layout.end))


@dataclass(frozen=True, slots=True)
class Run:
    """The first ``count`` records of each of some consecutive slots.

    ``first`` and ``past`` count groups of slots whose records lie in one row, or single slots.
    """

    first: int
    past: int
    count: int

    def part(self, layout: Layout, behind: int = 0) -> Part:
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
        return Part(begin + self.first * pitch, width, pitch, self.past - self.first)

    def by_slot(self, data: Bytes, layout: Layout) -> Bytes:
        """Return the run's records slot by slot, from ``data`` read row by row."""
        together = max(1, layout.together)
        if together == 1:
            return data
        rows = data.reshape(self.past - self.first, self.count, together, -1)
        return rows.swapaxes(1, 2).reshape(-1)


def runs(layout: Layout, counts: Ints) -> list[Run] | None:
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


def written(layout: Layout, nbytes: int, found: list[Run], *, tailed: bool) -> Iterator[Part]:
    """Yield all parts that a launch may have written in a segment that was zero before it.

    Args:
        layout: of the segment.
        nbytes: of the segment.
        found: the runs of its records.
        tailed: whether the memory behind the layout's end is not zero.
    """
    if tailed or not layout.fresh:
        yield Part(0, nbytes)
        return
    yield LAUNCH_HEADER
    yield from heads(layout)
    margin = (layout.beside_bytes - layout.header_bytes) // abi.RECORD_BYTES
    for run in found:
        yield run.part(layout, behind=1 + margin)
