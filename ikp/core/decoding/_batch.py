"""The decoding of a batch of launches: their columns of slots, of events or totals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.decoding._records import Codes, RecordChunk, count_attempted, in_chunks, read_chunk
from ikp.core.decoding._times import Timeline
from ikp.core.decoding.launch_header import Excerpt, Ints, SegmentLayout, SegmentSource
from ikp.core.decoding.losses import Figures, clock_notes, launch_notes, needed_bytes
from ikp.core.decoding.slots import Columns, Used, used_slots
from ikp.core.rows import total_columns
from ikp.core.segment import MAX_WARPS
from ikp.core.trace import Column, Launch

if TYPE_CHECKING:
    from ikp.core.decoding._plain import PlainRows

_WORTH_PLAIN = 1 << 15
"""Fewest records that ``plain.c`` decodes: fewer don't take as long as compiling it."""
_LAUNCHES = 1 << 10
_SLOTS = 1 << 8
_BYTES = 64 << 20
"""Limits of a batch of several launches: their number, slots of each, and bytes in all."""

EVENT_COLUMNS = {
    "slot": np.int32,
    "region": np.int32,
    "kind": np.uint8,
    "start_ns": np.int64,
    "end_ns": np.int64,
    "ticks": np.int64,
    "payload_type": np.uint8,
    "payload": np.uint32,
}


def _is_small(layout: SegmentLayout) -> bool:
    return layout.slots + layout.others <= _SLOTS


@dataclass(slots=True)
class LaunchBatch:
    """Launches to be decoded together: a large one, or small ones of one clock and one mode."""

    sources: list[SegmentSource] = field(default_factory=list)
    layouts: list[SegmentLayout] = field(default_factory=list)
    tables: list[int] = field(default_factory=list)  # of names
    _nbytes: int = 0  # of what was read back

    @property
    def full(self) -> bool:
        """Whether no other launch fits in."""
        large = bool(self.layouts) and not _is_small(self.layouts[-1])
        return large or len(self.layouts) >= _LAUNCHES or self._nbytes >= _BYTES

    def fits(self, layout: SegmentLayout) -> bool:
        """Return whether a launch can be added."""
        if not self.layouts:
            return True
        last = self.layouts[-1]
        same = (last.clock, last.overflow, last.summed)
        alike = same == (layout.clock, layout.overflow, layout.summed)
        return alike and not self.full and _is_small(layout)

    def add(self, source: SegmentSource, layout: SegmentLayout, table: int) -> None:
        """Add a launch; ``table`` is that of its names."""
        self.sources.append(source)
        self.layouts.append(layout)
        self.tables.append(table)
        if isinstance(source.data, Excerpt):
            self._nbytes += source.data.records.nbytes


@dataclass(frozen=True, slots=True)
class Decoded:
    """The columns of a batch. Regions and roles are codes; slots count from the batch's first."""

    launches: list[Launch]
    warps: int
    slots: Columns
    others: Columns
    events: Columns
    totals: list[Columns]


def decode_batch(
    batch: LaunchBatch, regions: Codes, roles: Codes, progress: Callable[[float], None]
) -> Decoded:
    """Decode some launches.

    Args:
        batch: the launches.
        regions: gives regions their codes.
        roles: gives roles theirs.
        progress: called repeatedly with the number of launches done since, or the part of one.
    """
    used = used_slots(batch.sources, batch.layouts)
    reached, more = count_attempted(used)
    timeline = Timeline(used)
    tables = np.array(batch.tables)
    work = _BatchColumns(used, timeline, reached, tables, regions)
    share = len(batch.layouts) / max(1, len(used.ids))
    plain = work.plain(used) if len(work.events["slot"]) >= _WORTH_PLAIN else None
    for slots in in_chunks(used, reached):
        if plain is None or not work.take(plain, slots, plain.place):
            work.add(read_chunk(used, slots, reached))
        progress((slots.stop - slots.start) * share)
        if plain is None or slots.start:
            continue
        rest = slice(slots.stop, len(used.ids))  # of regions that are known now: mostly all of them
        if work.take(plain, rest, plain.place_all):
            progress((rest.stop - rest.start) * share)
            break
    if plain is not None:
        plain.add_to(timeline, work.end)
    events = {name: column[: work.rows] for name, column in work.events.items()}
    slots_of = _slot_columns(used, timeline, work)
    slots_of["role"] = roles.of(tables[used.launch], used.heads["role"])
    launches = _launches(used, timeline, work, more)
    others = _other_columns(used, timeline)
    return Decoded(launches, len(used.ids), slots_of, others, events, work.totals)


class _BatchColumns:
    """A batch's columns, filled chunk by chunk."""

    def __init__(
        self, used: Used, timeline: Timeline, reached: Ints, tables: Ints, regions: Codes
    ) -> None:
        self._timeline, self._regions, self.reached = timeline, regions, reached
        self.attempted, self.kept = reached.copy(), np.minimum(reached, used.capacity)
        self.corrupt = np.zeros(len(used.ids), np.int64)
        self.end = timeline.end[: len(used.ids)].copy()
        self._lost_oldest = (reached > used.capacity) & used.ring
        self._rates = timeline.rates() if used.summed else None
        self._tables = tables
        self._table = int(tables[0]) if (tables == tables[:1]).all() else tables[used.launch]
        whole = np.array([layout.whole > 0 for layout in used.layouts])
        room = 0
        if not used.summed:
            room = int(self.kept.sum()) + int(np.count_nonzero(used.finished & whole[used.launch]))
        self.events = {name: np.empty(room, dtype) for name, dtype in EVENT_COLUMNS.items()}
        self.totals: list[Columns] = []
        self.rows = 0

    def plain(self, used: Used) -> PlainRows | None:
        """Return the decoder of slots in C; None where no slot is for it."""
        from ikp.core.decoding._plain import PlainRows

        kept = np.where(self._lost_oldest, -1, self.kept)
        return PlainRows.of(used, self._timeline, kept, self._tables, self.events)

    def take(
        self, plain: PlainRows, slots: slice, place: Callable[[slice, Codes, int], int]
    ) -> bool:
        """Add records by ``place``, a method of ``plain``; return whether it decoded them."""
        row = place(slots, self._regions, self.rows)
        if row < 0:
            return False
        self.attempted[slots] += plain.beside[slots]
        self.kept[slots] += plain.beside[slots]
        self.rows = row
        return True

    def add(self, chunk: RecordChunk) -> None:
        """Add the next slots' records."""
        slots, kept = chunk.slots, chunk.kept
        self.attempted[slots] += chunk.beside
        self.corrupt[slots], self.kept[slots] = chunk.corrupt, kept
        table = self._table if isinstance(self._table, int) else self._table[slots][chunk.row]
        if self._rates is not None:
            totals = total_columns(chunk.records, chunk.row, self._rates[slots])
            totals["region"] = self._regions.of(table, totals["region"])
            totals["slot"] = totals["slot"] + slots.start
            self.totals.append(totals)
            return
        start, end, ticks = self._timeline.place(chunk, self._lost_oldest)
        some = np.flatnonzero(kept)
        if len(some):
            last = np.maximum.reduceat(end, (np.cumsum(kept) - kept)[some])
            self.end[slots.start + some] = np.maximum(self.end[slots.start + some], last)
        tag: NDArray[np.uint32] = np.ascontiguousarray(chunk.records["tag"])
        region: Column = tag & abi.REGION_MASK
        rows = slice(self.rows, self.rows + len(tag))
        for name, values in (
            ("slot", chunk.row + slots.start),
            ("region", self._regions.of(table, region)),
            ("kind", chunk.kinds),
            ("start_ns", start),
            ("end_ns", end),
            ("ticks", ticks),
            ("payload_type", tag >> abi.PAYLOAD_SHIFT & 3),
            ("payload", chunk.records["payload"]),
        ):
            self.events[name][rows] = values
        self.rows = rows.stop


def _slot_columns(used: Used, timeline: Timeline, work: _BatchColumns) -> Columns:
    """Return the columns of slots, but for their roles."""
    layouts = {id(each): each for each in used.layouts}
    number = {key: i for i, key in enumerate(layouts)}
    which = np.array([number[id(each)] for each in used.layouts], np.int64)[used.launch]
    warps = np.zeros((len(layouts), MAX_WARPS), np.int64)
    shape = np.ones((3, len(layouts)), np.int64)
    for i, each in enumerate(layouts.values()):
        warps[i, : len(each.warps)] = each.warps
        shape[:, i] = len(each.warps), each.chosen.first_block, each.chosen.block_step
    one = len(layouts) == 1
    count, first, step = shape[:, 0] if one else shape[:, which]
    block, warp = np.divmod(used.ids, np.maximum(count, 1))
    return {
        "launch": used.launch,
        "block": first + block * step,
        "warp": warps[0][warp] if one else warps[which, warp],
        "sm": used.heads["sm"],
        "start_ns": timeline.start[: len(used.ids)],
        "end_ns": work.end,
        "attempted": work.attempted,
        "kept": work.kept,
        "finished": used.finished,
    }


def _other_columns(used: Used, timeline: Timeline) -> Columns:
    """Return the columns of warps without a slot: when and where they ran."""
    others, mine = used.others, slice(len(used.ids), None)
    slots, warps = (
        np.array([getattr(each, name) for each in used.layouts], np.int64)[others.launch]
        for name in ("slots", "warps_per_block")
    )
    block, warp = np.divmod(others.ids - slots, warps)
    nothing = np.zeros(len(others.ids), np.int64)
    return {
        "launch": others.launch,
        "block": block,
        "warp": warp,
        "sm": others.heads["sm"],
        "role": nothing,
        "start_ns": timeline.start[mine],
        "end_ns": timeline.end[mine],
        "attempted": nothing,
        "kept": nothing,
        "finished": others.finished,
    }


def _launches(used: Used, timeline: Timeline, work: _BatchColumns, more: Ints) -> list[Launch]:
    """Return the row of each launch: its geometry, its figures and its notes."""
    figures = _figures(used, work, more)
    faults, fits, wraps = timeline.faults(), timeline.fits, timeline.turn_s().tolist()
    odd = faults.any() | (figures["most"] == 0)
    for name in _ODD:
        odd |= figures[name] > 0
    launches = []
    rows = zip(*map(np.ndarray.tolist, _FIGURES(figures)), strict=True)
    for i, (source, layout, row) in enumerate(zip(used.sources, used.layouts, rows, strict=True)):
        known, notes, needed = Figures(*row), layout.notes, 0
        if odd[i] or notes or layout.relaunches or not layout.slots:
            needed = needed_bytes(layout, known.most, known.open > 0)
            advertised = source.clock_rate_hz > 0
            clock = (faults.of(i), used.clock, fits[i], wraps[i], known.warps, advertised)
            notes = (*launch_notes(known, source, layout, needed), *clock_notes(*clock))
        launches.append(
            Launch(
                label=source.label,
                grid=layout.grid,
                block=layout.block,
                warps_per_block=layout.warps_per_block,
                device=source.device,
                backend=layout.language,
                clock=fits[i],
                overflow=layout.overflow.name.lower(),
                capacity=layout.capacity,
                segment_bytes=source.nbytes,
                attempted=known.attempted,
                kept=known.kept,
                unfinished=known.unfinished,
                needed_bytes=needed,
                relaunches=layout.relaunches,
                notes=notes,
                rank=source.rank,
                mode="totals" if layout.summed else "timeline",
                kernel=source.kernel,
                replay=source.replay,
                number=source.number,
            )
        )
    return launches


_ODD = (
    *("tail", "corrupt_slots", "absent", "more", "corrupt"),
    *("dropped", "unfinished", "open_others"),
)
"""Figures that need a note if they are above zero."""
_FIGURES = itemgetter(*Figures.__slots__)


def _figures(used: Used, work: _BatchColumns, more: Ints) -> dict[str, Column]:
    """Return the figures of all launches, an array each."""
    most = np.zeros(len(used.layouts), np.int64)
    np.maximum.at(most, used.launch, work.reached)
    unfinished, capacity = ~used.finished, used.capacity
    unknown = unfinished & (not used.stream)  # how many records these attempted
    return {
        "attempted": used.total(work.attempted),
        "kept": used.total(work.kept),
        "most": most,
        "warps": np.diff(used.bounds),
        "unfinished": used.count(unfinished),
        "open_others": np.bincount(
            used.others.launch[~used.others.finished], minlength=len(used.layouts)
        ),
        "full": used.count(unknown & (work.kept >= capacity)),
        "open": used.count(unknown & (work.reached >= capacity)),
        "dropped": used.total(work.reached - np.minimum(work.reached, capacity)),
        "corrupt": used.total(work.corrupt),
        "more": more,
        "absent": used.absent,
        "corrupt_slots": used.corrupt,
        "tail": used.tail,
    }
