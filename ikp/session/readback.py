"""The read-back of segments from a device by torch: headers first, then the records kept.

The read-back itself does not wait: it is a generator that yields the event of each copy under way,
and its caller waits for the event, or polls it later. Copies run on a stream of their own, so that
no kernel of the user's waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice, pairwise
from typing import Any, TypeAlias

import numpy as np

from ikp.core import abi
from ikp.core.abi import Rows, SlotState
from ikp.core.decoding.launch_header import Bytes, Excerpt, Ints, SegmentLayout, SegmentSource
from ikp.core.decoding.slots import first_records, header_rows, is_used
from ikp.core.segment import Segment, Tensor
from ikp.errors import DecodeError
from ikp.session.device import device_of, tensor_of
from ikp.session.storage import beside, on

STAGED_BYTES = 32 << 20
"""Staging memory of one copy, on the device and, pinned, on the host."""

Event: TypeAlias = Any
"""A ``torch.cuda.Event``, or None where there is nothing to wait for."""
_Copies = Generator[Event, None, list[Bytes]]
_NOTHING = np.zeros(0, np.uint8)


def waited(reading: Generator[Event, None, list[SegmentSource]]) -> list[SegmentSource]:
    """Run a read-back to its end, waiting for each copy; return its sources."""
    while True:
        try:
            event = next(reading)
        except StopIteration as end:
            found: list[SegmentSource] = end.value
            return found
        if event is not None:
            event.synchronize()


@dataclass(frozen=True, slots=True)
class _WrittenSegment:
    """A segment that a kernel wrote to."""

    data: Tensor
    layout: SegmentLayout
    source: SegmentSource

    def heads(self) -> list[Tensor]:
        """Return the headers: those of slots, and those behind all slots."""
        if not self.layout.together:
            return [self.rows()[:, : abi.SLOT_HEADER_BYTES]]
        return [self.data[part] for part in self.layout.heads]

    def rows(self) -> Tensor:
        """Return the slots, a row each."""
        layout = self.layout
        slots = self.data[abi.LAUNCH_HEADER_BYTES : layout.slots_end]
        return slots.view(layout.slots, layout.slot_bytes)

    def tail(self) -> Tensor:
        """Return the bytes behind all that the launch writes."""
        return self.data[self.layout.end :]


def read_back(segments: Sequence[Segment]) -> Generator[Event, None, list[SegmentSource]]:
    """Copy the records of some segments of one device.

    Args:
        segments: those whose kernels are done.

    Returns:
        A source for each segment.
    """
    if not segments:
        return []
    stream = beside(device_of(segments[0].data.device))
    heads = yield from _fetch(
        stream, lambda: [tensor_of(each.data)[: abi.LAUNCH_HEADER_BYTES] for each in segments]
    )
    sources, launched = [], {}
    for i, (segment, head) in enumerate(zip(segments, heads, strict=True)):
        none = np.zeros(0, np.int64)
        excerpt = Excerpt(segment.nbytes, head, _NOTHING.reshape(0, 64), none, _NOTHING, False)
        sources.append(SegmentSource.of(segment, excerpt))
        try:
            layout = sources[i].layout
        except DecodeError:  # raised again when it is decoded
            continue
        if layout is not None and layout.slots:
            launched[i] = _WrittenSegment(tensor_of(segment.data), layout, sources[i])
    found = yield from _read_slots(stream, list(launched.values()))
    for i, excerpt_of in zip(launched, found, strict=True):
        sources[i] = replace(sources[i], data=excerpt_of)
    return sources


def _read_slots(
    stream: Any, launched: Sequence[_WrittenSegment]
) -> Generator[Event, None, list[Excerpt]]:
    """Return the slots' headers and records, by launch."""
    parts = yield from _fetch(
        stream, lambda: [part for each in launched for part in (*each.heads(), each.tail())]
    )
    fetched = iter(parts)
    found: list[Excerpt] = []
    wanted: list[Ints] = []
    for each in launched:
        head, grid = each.source.head, each.source.grid_id
        *heads, tail = islice(fetched, len(each.layout.heads) + 1)
        rows = header_rows(heads, each.layout, grid)
        every: Rows = rows.view(abi.SLOT_HEADER).reshape(-1)
        slots = every[: each.layout.slots]
        counts = _look_at(each.layout, slots, grid)
        unfinished = slots["state"] != SlotState.FINISHED
        if len(unknown := np.flatnonzero(unfinished & (counts > 0))):
            counts[unknown] = yield from _last_records(stream, each, unknown)
        wanted.append(_evened(counts))
        found.append(
            Excerpt(
                nbytes=each.source.nbytes,
                head=np.frombuffer(head, np.uint8),
                heads=rows,
                counts=wanted[-1],
                records=_NOTHING,
                tail=bool(tail.any()),
            )
        )
    pieces = [
        piece
        for each, counts in zip(launched, wanted, strict=True)
        for piece in _pieces(each, counts)
    ]
    records = yield from _records(stream, pieces)
    return [
        replace(each, records=records.get(id(launch), _NOTHING))
        for each, launch in zip(found, launched, strict=True)
    ]


def _look_at(layout: SegmentLayout, heads: Rows, grid_id: int) -> Ints:
    """Return how many records to read of each slot.

    For a warp that finished, it is one more than it counted, which should be empty; for a warp that
    did not finish, the slot's capacity.
    """
    finished = heads["state"] == SlotState.FINISHED
    counted = np.minimum(heads["attempted"].astype(np.int64) + 1, layout.capacity)
    counts = np.where(finished, counted, 0 if layout.summed else layout.capacity)
    return np.where(is_used(heads, grid_id), counts, 0)


def _last_records(
    stream: Any, launched: _WrittenSegment, slots: Ints
) -> Generator[Event, None, Ints]:
    """Return, of slots without a count, the number of records up to the last that is not empty."""
    import torch

    layout = launched.layout
    units = layout.capacity * (layout.clock.record.itemsize // abi.ALIGNMENT)
    step = max(1, STAGED_BYTES // layout.slot_bytes)

    def last(chosen: Ints) -> Tensor:
        first = first_records(layout, chosen) // abi.ALIGNMENT
        found = _gather(launched.data, first, np.full(len(chosen), units), max(1, layout.together))
        words = found.view(torch.int64)
        there = (words != 0).view(len(chosen), layout.capacity, -1).any(-1)
        position = torch.arange(1, layout.capacity + 1, device=there.device)
        return (there * position).amax(1).view(torch.uint8)

    found = []
    for i in range(0, len(slots), step):
        found += yield from _fetch(stream, lambda: [last(slots[i : i + step])])  # noqa: B023
    return np.concatenate(found).view(np.int64)


def _evened(counts: Ints) -> Ints:
    """Return one count for all slots, where that reads hardly more records; else ``counts``."""
    most = int(counts.max(initial=0))
    even = most * len(counts)
    few = even <= _FEW
    return np.full(len(counts), most) if few or even <= counts.sum() * 5 // 4 else counts


_FEW = 4096
"""Most records, empty ones included, that are copied whole in no more time than selectively."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """The first records of some consecutive slots, so few that they are copied together."""

    launched: _WrittenSegment
    slots: slice
    counts: Ints

    @property
    def nbytes(self) -> int:
        return int(self.counts.sum()) * self.launched.layout.clock.record.itemsize

    def tensor(self) -> Tensor:
        """Return the records, one after another."""
        layout, unit = self.launched.layout, abi.ALIGNMENT
        size = layout.clock.record.itemsize
        begin = abi.SLOT_HEADER_BYTES
        if not layout.together and (self.counts == self.counts[0]).all():
            end = begin + int(self.counts[0]) * size
            return self.launched.rows()[self.slots, begin:end]
        slot = np.arange(self.slots.start, self.slots.stop)
        first, step = first_records(layout, slot) // unit, max(1, layout.together)
        return _gather(self.launched.data, first, self.counts * (size // unit), step)


def _pieces(launched: _WrittenSegment, counts: Ints) -> Iterator[_Piece]:
    sizes = counts * launched.layout.clock.record.itemsize
    number = (np.cumsum(sizes) - sizes) // STAGED_BYTES
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(counts)]
    for start, past in pairwise(edges):
        if counts[start:past].any():
            yield _Piece(launched, slice(start, past), counts[start:past])


def _records(stream: Any, pieces: list[_Piece]) -> Generator[Event, None, dict[int, Bytes]]:
    """Return the records of launches, by the ``id`` of each."""
    found: dict[int, Bytes] = {}
    sizes: dict[int, int] = {}
    for each in pieces:
        sizes[id(each.launched)] = sizes.get(id(each.launched), 0) + each.nbytes
    at = dict.fromkeys(sizes, 0)
    while pieces:
        count = max(1, sum(total <= STAGED_BYTES for total in accumulate(p.nbytes for p in pieces)))
        some, pieces = pieces[:count], pieces[count:]
        parts = yield from _fetch(stream, lambda: [each.tensor() for each in some])  # noqa: B023
        for each, part in zip(some, parts, strict=True):
            key = id(each.launched)
            if len(part) == sizes[key]:
                found[key] = part
                continue
            out = found.setdefault(key, np.empty(sizes[key], np.uint8))
            out[at[key] : at[key] + len(part)] = part
            at[key] += len(part)
    return found


def _gather(data: Tensor, first: Ints, count: Ints, step: int) -> Tensor:
    """Return runs of a segment's units of ``ALIGNMENT`` bytes, one after another, as bytes.

    ``step`` is the stride between a run's units.
    """
    import torch

    total = int(count.sum())
    begins = first - step * (np.cumsum(count) - count)
    words = data[: data.numel() // abi.ALIGNMENT * abi.ALIGNMENT].view(torch.int64)
    units = words.view(-1, abi.ALIGNMENT // words.itemsize)
    if not data.is_cuda:
        index = np.repeat(begins, count) + step * np.arange(total)
        return torch.from_numpy(units.numpy()[index]).view(torch.uint8)
    # Made on the device: the index of a unit is half as large as the unit, and launches wait.
    there = torch.from_numpy(np.stack((begins, count))).to(data.device)
    index = there[0].repeat_interleave(there[1], output_size=total)
    index += step * torch.arange(total, device=data.device)
    return units.index_select(0, index).view(torch.uint8)


def _fetch(stream: Any, make: Callable[[], list[Tensor]]) -> _Copies:
    """Copy tensors of bytes, made on a stream, to the host in one copy.

    Without a stream they are the host's. Then numpy copies: torch would use threads for it, which
    a forked process has lost.
    """
    import torch

    if stream is None:
        return [piece.numpy().flatten() for piece in make()]
    with on(stream):
        pieces = [piece.reshape(-1) for piece in make()]
        if not pieces:
            return []
        sizes = [0, *accumulate(piece.numel() for piece in pieces)]
        joined = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
        host = torch.empty(joined.numel(), dtype=torch.uint8, pin_memory=True)
        host.copy_(joined, non_blocking=True)
        event = torch.cuda.Event()
        event.record(stream)
    yield event
    copied = host.numpy().copy()  # pinned memory is scarce: the result is kept in other memory
    return [copied[start:end] for start, end in pairwise(sizes)]
