"""``Drain``: copies a launch's records to the host while its kernel still runs (a stream).

The device's service looks at the counts of all warps every millisecond, and copies the slots once a
quarter of one is new. A copy needs no kernel and waits for none. Nor does the kernel wait for it:
what it overwrites meanwhile is dropped and counted (``ikp.core.decoding.stream``).
"""

from __future__ import annotations

import time
import weakref
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from ikp.core import abi
from ikp.core.abi import Rows, SlotState
from ikp.core.decoding.launch_header import Bytes, Excerpt, SegmentLayout, SegmentSource
from ikp.core.decoding.slots import Memory
from ikp.core.decoding.stream import StreamReader
from ikp.core.segment import Segment, SegmentRows
from ikp.errors import DecodeError, PatchError
from ikp.session.lifting import LAUNCH_HEADER, header_parts
from ikp.session.service import Service

_POLL_S: Final = 0.001
_SHARE: Final = 4
"""Slots are copied once a warp has filled one part in so many of its own since the last copy."""
_FRESH_S: Final = 0.1
"""The age at which records are copied, however few: a kernel that fails takes the rest with it."""
_ARRIVED_S: Final = 20e-6
"""The time after which a store has come to memory. It takes about a microsecond."""
_NO_HEADS: Final = np.zeros((0, abi.SLOT_HEADER_BYTES), np.uint8)
_NOTHING: Final = np.zeros(0, np.uint8)


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
