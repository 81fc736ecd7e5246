"""Records of a kernel that still runs: ``StreamReader``, from copies of rings that the
kernel overwrites; its open ranges.

A warp stores record ``n``, then publishes the count ``n + 1`` in its slot's header. The host copies
headers, slots, and headers again, with a pause between the copies that is longer than a store's way
to memory. Below the count of the first headers, all records had arrived when the slots were copied.
When they had been, at most the record behind the count of the last headers had been begun: it is
the one that overwrites the oldest. What lies between is kept; a record that may have been
overwritten during the copy counts as dropped. No copy has to be free of writes.

An open range becomes an instant at its start, is decoded with the records of its slot, and then a
range that ends when the stream was read. It has a name of its own: the range's, with ``OPEN``
behind it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from ikp.core import abi
from ikp.core.abi import Kind, PayloadType, Rows, SlotState
from ikp.core.decoding.launch_header import Bytes, Excerpt, Ints, SegmentLayout, SegmentSource
from ikp.core.decoding.slots import Memory, first_records, has_tail, is_used, slot_heads
from ikp.core.regions import fallback_name, merge, region_id
from ikp.core.trace import Trace

_MANY: Final = 64
"""Records per slot from which on they are copied together."""
_UNDER_WAY: Final = 1
"""Records that a warp may have begun to store, and not counted."""


class StreamReader:
    """The records of one launch's slots, in their order, from copies of its memory."""

    def __init__(self, layout: SegmentLayout, grid_id: int) -> None:
        self._layout, self._grid_id = layout, grid_id
        self._next = np.zeros(layout.slots, np.int64)  # by slot: one behind the last that is kept
        self._kept: list[tuple[Ints, Rows]] = []  # of each copy: records by slot; these

    @property
    def nbytes(self) -> int:
        """Bytes of the records kept so far."""
        return sum(records.nbytes for _, records in self._kept)

    def unread(self, heads: Rows) -> int:
        """Return the records of the slot that has most of them behind the last that is kept."""
        return int((self._counts(heads) - self._next).max(initial=0))

    def take(self, before: Rows, memory: Memory, after: Rows) -> int:
        """Keep the records that are new in a copy; return how many there are.

        Args:
            before: the slots' headers as they were before the copy.
            memory: the copy.
            after: the headers as they were after it.
        """
        past, latest = self._counts(before), self._counts(after)
        begun = latest + _UNDER_WAY * (after["state"] != SlotState.FINISHED)
        first = np.maximum(self._next, begun - self._layout.capacity)
        count = np.maximum(past - first, 0)
        self._next = np.where(count > 0, past, self._next)
        total = int(count.sum())
        if total:
            some = np.flatnonzero(count)
            many = total >= _MANY * len(some) and memory.counts is None
            read = self._runs if many else self._single
            self._kept.append((count, read(memory, some, first[some], count[some])))
        return total

    def _single(self, memory: Memory, slots: Ints, first: Ints, count: Ints) -> Rows:
        """Return records, each by its own index."""
        row = np.repeat(np.arange(len(slots)), count)
        number = np.arange(len(row)) + (first - (np.cumsum(count) - count))[row]
        return memory.read(slots[row], number & self._layout.capacity - 1)

    def _runs(self, memory: Memory, slots: Ints, first: Ints, count: Ints) -> Rows:
        """Return records by one or two copies per slot: three times as fast where they are long."""
        layout, record = self._layout, self._layout.clock.record
        size, room = record.itemsize, layout.capacity * record.itemsize
        made = np.empty(int(count.sum()) * size, np.uint8)
        base = first_records(layout, slots)
        begins = first % layout.capacity * size
        rows = zip(base.tolist(), begins.tolist(), (count * size).tolist(), strict=True)
        raw, at = memory.raw, 0
        for slot, begin, length in rows:
            straight = min(length, room - begin)
            made[at : at + straight] = raw[slot + begin : slot + begin + straight]
            made[at + straight : at + length] = raw[slot : slot + length - straight]
            at += length
        return made.view(record)

    def excerpt(self, head: Bytes, heads: Rows, nbytes: int) -> Excerpt:
        """Return all kept records, slot by slot.

        Args:
            head: the launch header.
            heads: the slots' headers.
            nbytes: of the segment.
        """
        counts = sum((count for count, _ in self._kept), np.zeros(self._layout.slots, np.int64))
        made = np.empty(int(counts.sum()), self._layout.clock.record)
        at = np.cumsum(counts) - counts
        for count, records in self._kept:
            begins = at - (np.cumsum(count) - count)
            made[np.repeat(begins, count) + np.arange(len(records))] = records
            at = at + count
        raw = heads.view(np.uint8).reshape(-1, abi.SLOT_HEADER_BYTES)
        return Excerpt(nbytes, head, raw, counts, made.view(np.uint8), tail=False, in_order=True)

    def _counts(self, heads: Rows) -> Ints:
        counted = heads["attempted"].astype(np.int64)
        return np.where(is_used(heads, self._grid_id), counted, 0)


def in_order(source: SegmentSource, layout: SegmentLayout) -> SegmentSource:
    """Return the source of a launch that streams, with the records that are there in order."""
    data = source.data
    if isinstance(data, Excerpt) and data.in_order:
        return source
    heads: Rows = np.ascontiguousarray(slot_heads(source, layout)).view(abi.SLOT_HEADER).reshape(-1)
    reader = StreamReader(layout, source.grid_id)
    reader.take(heads, Memory(data, layout), heads)
    head = np.frombuffer(source.head, np.uint8)
    made = reader.excerpt(head, heads, source.nbytes)
    return replace(source, data=replace(made, tail=has_tail(data, layout)))


OPEN: Final = " (open)"


def with_open(
    sources: Iterable[SegmentSource], names: Mapping[int, str]
) -> tuple[list[SegmentSource], dict[int, str], dict[str, str]]:
    """Return sources, with an instant where the open range of each warp of a stream began.

    Args:
        sources: of launches.
        names: of regions, by id.

    Returns:
        The sources, the names of regions with those of the open ranges, and for each of the latter
        the name of the range. None is a region's of the program.
    """
    every = list(sources)
    known = {*names.values(), *(text for each in every for text in (each.regions or {}).values())}
    opened: dict[str, str] = {}
    both = [_with_open(each, names, known, opened) for each in every]
    return [source for source, _ in both], merge([names, *(made for _, made in both)]), opened


def _with_open(
    source: SegmentSource, names: Mapping[int, str], taken: set[str], opened: dict[str, str]
) -> tuple[SegmentSource, dict[int, str]]:
    """Return a source with open ranges, and their names; add the plain names to ``opened``."""
    data, layout = source.data, source.layout
    if layout is None or not isinstance(data, Excerpt) or not data.in_order:
        return source, {}
    heads: Rows = data.heads.copy().view(abi.SLOT_HEADER).reshape(-1)
    running = is_used(heads, source.grid_id) & (heads["state"] == SlotState.RUNNING)
    slots = np.flatnonzero(running & (heads["open"] != 0))
    known = {**names, **(source.regions or {})}
    regions = (heads["open"][slots] & abi.REGION_MASK).tolist()
    texts = {}
    for each in set(regions):
        plain = known.get(each, fallback_name(each))
        texts[each] = text = _free(f"{plain}{OPEN}", taken)
        opened[text] = plain
    made = np.zeros(len(slots), layout.clock.record)
    ids = {each: region_id(text) for each, text in texts.items()}
    made["tag"] = [abi.tag(Kind.INSTANT, PayloadType.NONE, ids[each]) for each in regions]
    made["start"] = made["end"] = heads["open_start"][slots] & ((1 << layout.clock.bits) - 1)
    counts = data.counts.copy()
    records = np.insert(data.records.view(layout.clock.record), np.cumsum(counts)[slots], made)
    counts[slots] += 1
    heads["attempted"][slots] += 1
    excerpt = replace(
        data,
        heads=heads.view(np.uint8).reshape(-1, abi.SLOT_HEADER_BYTES),
        counts=counts,
        records=records.view(np.uint8),
    )
    return replace(source, data=excerpt), {ids[each]: text for each, text in texts.items()}


def _free(text: str, taken: set[str]) -> str:
    """Return a name that is not taken, by as many suffixes as it needs."""
    while text in taken:
        text += OPEN
    return text


def until(trace: Trace, now_ns: int, opened: Container[str]) -> Trace:
    """Return a snapshot's trace, in which open ranges end at the time when it was taken.

    Args:
        trace: as ``with_open`` had it decoded.
        now_ns: the time.
        opened: the names of open ranges.
    """
    names = np.array([region.name in opened for region in trace.regions], bool)
    events = trace.events
    rows = np.flatnonzero(names[events.region]) if len(names) else np.zeros(0, np.int64)
    if not len(rows):
        return trace
    kind, end, ticks = (getattr(events, name).copy() for name in ("kind", "end_ns", "ticks"))
    rates = np.array([each.clock.ns_per_tick for each in trace.launches])
    kind[rows], end[rows] = Kind.RANGE, np.maximum(events.start_ns[rows], now_ns)
    launch = trace.slots.launch[events.slot[rows]]
    ticks[rows] = ((end - events.start_ns)[rows] / rates[launch]).astype(np.int64)
    slot_end = trace.slots.end_ns.copy()
    slot_end[events.slot[rows]] = end[rows]
    return replace(
        trace,
        events=replace(events, kind=kind, end_ns=end, ticks=ticks),
        slots=replace(trace.slots, end_ns=slot_end),
    )
