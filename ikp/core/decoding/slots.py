"""The slots of some launches: headers of the warps that ran, and access to their records.

Buffers are made for the busiest warp there may be, so most of a segment is usually empty. Of a
segment in a device's memory, only an excerpt is copied to the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import ClockKind, Kind, OverflowMode, Rows, SlotState
from ikp.core.decoding.dense import expanded
from ikp.core.decoding.launch_header import Bytes, Excerpt, Ints, SegmentLayout, SegmentSource
from ikp.core.trace import Column

Columns = dict[str, Column]
Bools = NDArray[np.bool_]

_MAX_SMS = 1 << 16
MAX_CLOCK = 1 << 62
"""A century of nanoseconds or cycles: sums of a few such clocks still fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class Came:
    """The warps of some launches that ran init, launch by launch."""

    heads: Mapping[str, Column]
    launch: Ints  # of each, index into the launches
    ids: Ints  # its number among its launch's headers: the slots', then those behind the slots
    finished: Bools

    def take(self, rows: Ints | slice) -> Came:
        """Return the given rows."""
        heads = {name: column[rows] for name, column in self.heads.items()}
        return Came(heads, self.launch[rows], self.ids[rows], self.finished[rows])

    def followed_by(self, others: Came) -> Came:
        """Return these warps and, behind them, others."""
        if not len(others.launch):
            return self
        heads = {name: np.append(column, others.heads[name]) for name, column in self.heads.items()}
        columns = (("launch", "ids", "finished"), (self, others))
        launch, ids, finished = (
            np.concatenate([getattr(each, name) for each in columns[1]]) for name in columns[0]
        )
        return Came(heads, launch, ids, finished)


@dataclass(frozen=True, slots=True)
class Used:
    """The slots that some launches of one clock and one mode initialised, launch by launch."""

    sources: Sequence[SegmentSource]
    layouts: Sequence[SegmentLayout]
    memories: Sequence[Memory]
    clock: ClockKind  # of the records' times
    unit: ClockKind  # of the clock
    ring: bool  # a full slot keeps its latest records
    stream: bool  # counts are exact at any time, and records are those that the host has read
    summed: bool  # the records are totals
    heads: Mapping[str, Column]
    launch: Ints  # by slot, index into the first three
    ids: Ints  # by slot, its number in its segment
    bounds: Ints  # by launch, its first slot; one more at the end
    finished: Bools
    capacity: Ints  # by slot: records that it can keep
    fresh: Bools  # by slot: all is zero where the launch didn't write
    others: Came  # warps that have no slot, but a header that says when they ran
    # By launch, for its notes:
    tail: Bools  # the memory behind the last slot is not zero
    corrupt: Ints  # slots with headers that can't be this launch's
    absent: Ints  # warps that never ran init

    def everyone(self) -> Came:
        """Return all warps that ran init: those that have slots, then the others."""
        return Came(self.heads, self.launch, self.ids, self.finished).followed_by(self.others)

    def count(self, chosen: Bools) -> Ints:
        """Return how many of the chosen slots each launch has."""
        return np.bincount(self.launch[chosen], minlength=len(self.layouts))

    def total(self, values: Ints) -> Ints:
        """Return the sum of a value per slot of each launch."""
        ends = np.append([0], np.cumsum(values))[self.bounds]
        return np.diff(ends)

    def parts(self, slots: Ints) -> Iterator[tuple[int, slice]]:
        """Yield the launches that have any of ``slots``, which ascend, and the range of these."""
        if len(self.layouts) == 1:
            yield 0, slice(0, len(slots))
            return
        launch = self.launch[slots]
        edge = np.flatnonzero(np.diff(launch)) + 1
        starts = np.append([0], edge)[: len(slots)]
        ends = np.append(edge, len(slots))[: len(starts)]
        for number, start, end in zip(
            launch[starts].tolist(), starts.tolist(), ends.tolist(), strict=True
        ):
            yield number, slice(start, end)

    def read(self, slots: Ints, position: Ints) -> Rows:
        """Return records by their slots, which ascend, and their positions there."""
        parts = [
            self.memories[launch].read(self.ids[slots[part]], position[part])
            for launch, part in self.parts(slots)
        ]
        if len(parts) == 1:
            return parts[0]
        record = self.clock.record
        plain = np.dtype((np.void, record.itemsize))  # numpy compares fields part by part
        return np.concatenate([np.zeros(0, plain), *(one.view(plain) for one in parts)]).view(
            record
        )


def used_slots(sources: Sequence[SegmentSource], layouts: Sequence[SegmentLayout]) -> Used:
    """Return the slots that launches initialised, with counts of corrupt and absent ones."""
    both = list(zip(sources, layouts, strict=True))
    every = [slot_heads(source, layout) for source, layout in both]
    stream = layouts[0].overflow is OverflowMode.STREAM
    raw = np.ascontiguousarray(every[0] if len(every) == 1 else np.concatenate(every))
    heads = _columns(raw.view(abi.SLOT_HEADER).reshape(-1))
    counts = np.array([each.slots + each.others for each in layouts])
    launch = np.repeat(np.arange(len(layouts)), counts)
    fresh = np.array([each.fresh for each in layouts], bool)
    grid_ids = np.array([each.grid_id for each in sources], np.uint32)
    waited = np.concatenate([awaited(each) for each in layouts])
    ours = is_used(heads, np.repeat(grid_ids, counts)) & waited
    chosen, empty = np.flatnonzero(ours), heads["state"] == SlotState.UNUSED
    if len(chosen) < len(ours):
        blank = np.flatnonzero(empty & fresh[launch])  # a slot whose warp never came is all zero
        empty[blank[raw[blank].any(1)]] = False
        heads = {name: column[chosen] for name, column in heads.items()}
    used = launch[chosen] if len(chosen) < len(ours) else launch
    first = np.cumsum(counts) - counts
    finished = np.asarray(heads["state"] == SlotState.FINISHED)
    full = np.array([each.capacity for each in layouts])
    came, others = _parted(Came(heads, used, chosen - first[used], finished), layouts)
    return Used(
        sources=sources,
        layouts=layouts,
        memories=[Memory(source.data, layout) for source, layout in both],
        clock=layouts[0].clock,
        unit=layouts[0].unit,
        ring=layouts[0].overflow is OverflowMode.WRAP,
        stream=stream,
        summed=layouts[0].summed,
        heads=came.heads,
        launch=came.launch,
        ids=came.ids,
        bounds=np.searchsorted(came.launch, np.arange(len(layouts) + 1)),
        finished=came.finished,
        capacity=_capacities(sources, came) if stream else full[came.launch],
        fresh=fresh[came.launch],
        others=others,
        tail=np.array([has_tail(source.data, layout) for source, layout in both], bool),
        corrupt=np.bincount(launch[~empty & ~ours], minlength=len(layouts)),
        absent=np.bincount(launch[empty & waited], minlength=len(layouts)),
    )


def _capacities(sources: Sequence[SegmentSource], came: Came) -> Ints:
    """Return of each slot of streams, which are excerpts, how many records the host has."""
    counts = [each.data.counts for each in sources if isinstance(each.data, Excerpt)]
    first = np.cumsum([0, *map(len, counts)])
    held: Ints = np.concatenate(counts)[first[came.launch] + came.ids]
    return held


def awaited(layout: SegmentLayout) -> Bools:
    """Return of each header of a launch whether its warp writes it, if it runs.

    The headers behind the slots are of all warps; those of warps with a slot stay empty.
    """
    found = np.ones(layout.slots + layout.others, bool)
    if layout.others:
        of_warps = found[layout.slots :].reshape(-1, layout.warps_per_block)
        ranks = np.arange(layout.slots // len(layout.warps))
        of_warps[np.ix_(layout.chosen.chosen_blocks(ranks), layout.warps)] = False
    return found


def _parted(came: Came, layouts: Sequence[SegmentLayout]) -> tuple[Came, Came]:
    """Return the warps that have a slot, and those that have none."""
    if not any(each.others for each in layouts):
        return came, came.take(slice(0, 0))
    slots = np.array([each.slots for each in layouts])
    recorded = came.ids < slots[came.launch]
    return came.take(np.flatnonzero(recorded)), came.take(np.flatnonzero(~recorded))


def _columns(heads: Rows) -> dict[str, Column]:
    """Return the fields of headers as columns; each header is read from memory once."""
    columns = {name: np.empty(len(heads), heads.dtype[name]) for name in _FIELDS}
    for low in range(0, len(heads), _AT_ONCE):
        part = slice(low, low + _AT_ONCE)
        for name, column in columns.items():
            column[part] = heads[name][part]
    return columns


_FIELDS = tuple(name for name in abi.SLOT_HEADER.names or () if name != "reserved")
_AT_ONCE = 1 << 12


def slot_heads(source: SegmentSource, layout: SegmentLayout) -> Bytes:
    """Return the headers of a segment's slots, a row each."""
    data = source.data
    if isinstance(data, Excerpt):
        return data.heads
    if not layout.slots:  # they may be shorter than a header
        return np.zeros((0, abi.SLOT_HEADER_BYTES), np.uint8)
    if layout.together:
        parts = [data[part] for part in layout.heads]
        return header_rows(parts, layout, source.grid_id)
    rows = data[abi.LAUNCH_HEADER_BYTES : layout.slots_end]
    return rows.reshape(layout.slots, layout.slot_bytes)[:, : abi.SLOT_HEADER_BYTES]


def header_rows(parts: Sequence[Bytes], layout: SegmentLayout, grid_id: int) -> Bytes:
    """Return headers that lie side by side as rows of full slot headers."""
    heads = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if not layout.together:
        return heads.reshape(-1, abi.SLOT_HEADER_BYTES)
    made = expanded(heads, layout.slots + layout.others, grid_id)
    return made.view(np.uint8).reshape(-1, abi.SLOT_HEADER_BYTES)


def is_used(heads: Rows | Mapping[str, Column], grid_id: NDArray[np.uint32] | int) -> Bools:
    """Return which slots a launch initialised, with numbers that columns can hold."""
    state = heads["state"]
    good = (state == SlotState.RUNNING) | (state == SlotState.FINISHED)
    good &= heads["grid_id"] == grid_id
    good &= (heads["sm"] < _MAX_SMS) & (heads["role"] <= abi.REGION_MASK)
    for name in ("init_ns", "init_clock", "finish_ns", "finish_clock"):
        good &= heads[name] < MAX_CLOCK
    return np.asarray(good)


def has_tail(data: Bytes | Excerpt, layout: SegmentLayout) -> bool:
    """Return whether a fresh segment is not zero behind all that a launch writes."""
    if not (layout.slots and layout.fresh):
        return False
    if isinstance(data, Excerpt):
        return data.tail
    behind = data[layout.end :]
    return bool(len(behind) and behind.any())


class Memory:
    """The records of one segment, whole or an excerpt."""

    def __init__(self, data: Bytes | Excerpt, layout: SegmentLayout) -> None:
        record, unit = layout.clock.record, abi.ALIGNMENT
        if isinstance(data, Excerpt):
            self.step = record.itemsize // unit
            self.counts: Ints | None = data.counts
            self.first = (np.cumsum(data.counts) - data.counts) * self.step
            raw = data.records if len(data.records) else np.zeros(record.itemsize, np.uint8)
        else:
            self.counts = None
            self.step = record.itemsize * max(1, layout.together) // unit
            self.first = first_records(layout, np.arange(layout.slots)) // unit
            raw = np.ascontiguousarray(data)
        self.raw: Bytes = raw
        # A record may begin at any unit, also one of several units.
        self._units: Rows = np.ndarray(
            (max(0, (len(raw) - record.itemsize) // unit + 1),), record, raw, strides=(unit,)
        )

    def read(self, slot: Ints, position: Ints) -> Rows:
        """Return records by their slots and their positions there."""
        index = self.first[slot] + position * self.step
        if self.counts is None:
            here: Rows = self._units[index]
            return here
        there = position < self.counts[slot]
        found: Rows = self._units[np.where(there, index, 0)]
        found[~there] = np.zeros((), found.dtype)
        return found


def first_records(layout: SegmentLayout, ids: Ints) -> Ints:
    """Return the offset in a segment of each slot's first record."""
    head, slot, together = layout.header_bytes, layout.slot_bytes, layout.together
    if not together:
        return abi.LAUNCH_HEADER_BYTES + ids * slot + head
    within = ids % together
    begin = abi.LAUNCH_HEADER_BYTES + layout.slots * head + within * abi.RECORD_BYTES
    return begin + (ids - within) * (slot - head)


def is_empty(records: Rows) -> Bools:
    """Return which records are all zero: never written."""
    words = np.ascontiguousarray(records).view("<u8")
    return np.asarray(~words.reshape(*records.shape, records.dtype.itemsize // 8).any(-1))


def is_placed(tag: NDArray[np.uint32]) -> Bools:
    """Return which records lie at an index that the kernel gave."""
    kind = tag >> abi.KIND_SHIFT
    return np.asarray((kind == Kind.PLACED_RANGE) | (kind == Kind.PLACED_INSTANT))
