"""Bytes to columns: one segment to the slots and events of one launch, vectorised and validated.

Nothing here trusts the bytes. What can't be a segment of this ABI raises; a record or slot that
can't be true is skipped and counted in the launch's notes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import ClockKind, Kind, Language, Option, OverflowMode, SlotState
from ikp.core.clock import Anchors, Axis, fit_axis
from ikp.core.regions import fallback_name, merge
from ikp.core.selection import EVERYTHING, MAX_WARPS, Selection
from ikp.core.totals import find_sound, make_totals, split_totals
from ikp.core.trace import ClockFit, Events, Launch, Region, Slots, Totals, Trace, make_columns
from ikp.errors import DecodeError

WRAP = 1 << 32
MAX_SMS = 1 << 16
MAX_CLOCK = 1 << 62
"""A century of nanoseconds or cycles: sums of a few such clocks still fit into 64 bits."""
SCAN_RECORDS = 1 << 20
"""Records looked at together where counts must be read from the records."""
FIRST_RECORDS = 64
"""Records per warp to propose where a buffer was too small to learn how many there are."""
NOMINAL_HZ = 1.5e9
"""Clock rate assumed where neither anchors nor the device tell one; the fit says so."""


@dataclass(frozen=True, slots=True)
class Source:
    """One segment's bytes and what the host knows of it."""

    label: str
    data: NDArray[np.uint8]
    device: str = "unknown device"
    backend: str = "unknown"
    clock_rate_hz: float = 0.0
    regions: Mapping[int, str] | None = None  # names of user-given ids, for this launch
    selected: bool = False  # the host chose which warps and blocks record
    totals: bool = False  # the host asked for totals
    rank: int | None = None  # of the process that launched the kernel


@dataclass(frozen=True, slots=True)
class _Decoded:
    launch: Launch
    slots: dict[str, Any]
    events: dict[str, Any]
    totals: dict[str, Any]
    region: NDArray[np.uint32]  # id per event, then per total; a launch has only one of the two
    names: Mapping[int, str]  # of this launch's regions


def decode(
    sources: Sequence[Source],
    names: Mapping[int, str] | None = None,
    provenance: dict[str, str] | None = None,
) -> Trace:
    """Decode segments into one trace. A segment that no kernel wrote to gives no launch.

    Args:
        sources: one per segment, in the order of launch.
        names: region names known to the backends, by id.
        provenance: what the trace should say of its making.

    Raises:
        DecodeError: a segment is truncated, foreign, or of another ABI version.
        RegionError: two names share an id.
    """
    maybe = (_decode_launch(source, names or {}) for source in sources)
    decoded = [launch for launch in maybe if launch is not None]
    regions, indices = _index_regions(decoded)
    roles = _index_roles(decoded)
    slots, events, totals = _concatenate(decoded, indices)
    launches = tuple(d.launch for d in decoded)
    facts = dict(provenance or {})
    return Trace(launches, regions, slots, events, facts, roles, totals=totals)


def _decode_launch(source: Source, known: Mapping[int, str]) -> _Decoded | None:
    header = read_launch_header(source.data, source.label)
    if header is None:
        return None
    notes: list[str] = []
    overflow, clock = OverflowMode(int(header["overflow"])), ClockKind(int(header["clock"]))
    slot_bytes, warps = int(header["slot_bytes"]), int(header["warps_per_block"])
    summed = _is_summed(header, source, notes)
    chosen = _selection(header, source, notes)
    rows = chosen.chosen_warps(warps)
    slots = chosen.count_blocks(math.prod(_triple(header["grid"]))) * len(rows)
    capacity = _capacity(header, overflow, clock)
    needed, shortage = _shortage(header, source, slots, capacity)
    if shortage:
        notes.append(shortage)
        slots = capacity = 0
    heads = _slot_headers(source.data, slots, slot_bytes)
    ids = _used_slots(heads, int(header["grid_id"]), notes)
    heads = heads[ids]
    finished = heads["state"] == SlotState.FINISHED
    relaunches = max(0, int(header["launches"]) - 1)

    base = heads["init_ns" if clock.unit is ClockKind.GLOBALTIMER else "init_clock"]
    base = base.astype(f"<u{clock.bits // 8}")
    counts = _Counts(
        source.data, ids, heads["attempted"], base, slot_bytes, capacity, overflow, summed, clock
    )
    attempted = counts.attempted(finished, relaunches > 0)
    kept = np.minimum(attempted, capacity)
    records, row = counts.records(attempted, kept)
    placed = _placed_rows(records, row, len(kept))
    reached = attempted  # with given indices: one more than the largest
    if placed.any():
        attempted = attempted - _holes(records, row, placed)
    records, row, kept = _valid(records, row, kept, placed, summed, notes)
    if placed.any():
        records = _by_time(records, row, placed, base)

    timeline = _Timeline(clock, heads, finished, source.clock_rate_hz or NOMINAL_HZ)
    lost_oldest = (reached > capacity) & (overflow is OverflowMode.WRAP)
    slot_start = timeline.slot_start()
    slot_end = np.maximum(timeline.slot_end(), slot_start)
    totals, records, row = split_totals(
        records, row, timeline.rates(slot_start, slot_end), summed=summed
    )
    start, end, ticks = timeline.place(records, row, lost_oldest)
    np.maximum.at(slot_end, row, end)
    if capacity == abi.slot_capacity(slot_bytes, overflow, clock):  # else the stage is too small
        needed = needed or _needed_bytes(reached, finished, capacity, slots, overflow, clock)
    _note_losses(
        notes, source, finished, reached, kept, capacity, overflow, needed, relaunches, summed
    )
    timeline.note(notes, advertised=source.clock_rate_hz > 0)
    launch = Launch(
        label=source.label,
        grid=_triple(header["grid"]),
        block=_triple(header["block"]),
        warps_per_block=warps,
        device=source.device,
        backend=_language(header, source),
        clock=timeline.fit,
        overflow=overflow.name.lower(),
        capacity=capacity,
        segment_bytes=len(source.data),
        attempted=int(attempted.sum()),
        kept=int(kept.sum()),
        unfinished=int((~finished).sum()),
        needed_bytes=needed,
        relaunches=relaunches,
        notes=tuple(notes),
        rank=source.rank,
        mode="totals" if summed else "timeline",
    )
    slot_columns = {
        "block": chosen.chosen_blocks(ids // max(1, len(rows))),
        "warp": rows[ids % max(1, len(rows))],
        "sm": heads["sm"],
        "role": heads["role"],
        "start_ns": slot_start,
        "end_ns": slot_end,
        "attempted": attempted,
        "kept": kept,
        "finished": finished,
    }
    tag = records["tag"]
    event_columns = {
        "slot": row,
        "kind": _plain_kinds(tag >> abi.KIND_SHIFT) if placed.any() else tag >> abi.KIND_SHIFT,
        "start_ns": start,
        "end_ns": end,
        "ticks": ticks,
        "payload_type": tag >> abi.PAYLOAD_SHIFT & 3,
        "payload": records["payload"],
    }
    names = merge([known, source.regions or {}])
    regions = np.concatenate([tag & abi.REGION_MASK, totals["region"]])
    return _Decoded(launch, slot_columns, event_columns, totals, regions, names)


def _is_summed(header: Any, source: Source, notes: list[str]) -> bool:
    """Return whether the kernel kept totals; tell where it did not heed the wish."""
    summed = _has(header, Option.TOTALS)
    if source.totals and not summed:
        notes.append(
            "a timeline was recorded: the code that this kernel was compiled from can't keep totals"
        )
    return summed


def _selection(header: Any, source: Source, notes: list[str]) -> Selection:
    """Return which warps and blocks have slots; tell where the kernel did not heed the choice."""
    asked = Selection.of(header)
    if _has(header, Option.SELECTED):
        return asked
    if source.selected:
        notes.append(
            "every warp recorded: the code that this kernel was compiled from can't choose warps "
            "or blocks"
        )
    return EVERYTHING


def _shortage(header: Any, source: Source, slots: int, capacity: int) -> tuple[int, str]:
    """Return what size would do, and why no warp had room for a record; 0 and "" if they had."""
    overflow, clock = OverflowMode(int(header["overflow"])), ClockKind(int(header["clock"]))
    if not slots:
        return 0, "nothing recorded: none of the warps and blocks chosen to record exist"
    if int(header["slot_bytes"]) < abi.min_slot_bytes(overflow, clock):
        needed = abi.segment_bytes(slots, FIRST_RECORDS, overflow, clock)
        return needed, _too_small(source, slots, needed)
    if capacity < abi.min_records(overflow):
        room = int(header["stage_bytes"])
        return 0, f"nothing recorded: shared_bytes leaves each warp {room} bytes, give more"
    return 0, ""


def _capacity(header: Any, overflow: OverflowMode, clock: ClockKind) -> int:
    """Return how many records a slot can get: those it holds, or those staged for it."""
    slot_bytes = int(header["slot_bytes"])
    if _has(header, Option.STAGED):
        slot_bytes = min(slot_bytes, abi.SLOT_HEADER_BYTES + int(header["stage_bytes"]))
    return abi.slot_capacity(slot_bytes, overflow, clock)


def _has(header: Any, option: Option) -> bool:
    return bool(int(header["options"]) & option)


def read_launch_header(data: NDArray[np.uint8], label: str) -> Any:
    """Return the launch header of a segment, checked; None if no kernel wrote one.

    Raises:
        DecodeError: it is not a launch header of this ABI, or contradicts the segment's size.
    """
    where = f"the segment {label!r} ({len(data)} bytes)"
    if len(data) < abi.LAUNCH_HEADER_BYTES:
        raise DecodeError(
            f"{where} is truncated: a segment starts with a header of {abi.LAUNCH_HEADER_BYTES} "
            "bytes."
        )
    header = np.ascontiguousarray(data[: abi.LAUNCH_HEADER_BYTES]).view(abi.LAUNCH_HEADER)[0]
    if int(header["magic"]) == 0 and not data[: abi.LAUNCH_HEADER_BYTES].any():
        return None
    if int(header["magic"]) != abi.MAGIC:
        raise DecodeError(
            f"{where} was not written by ikp: it starts with {int(header['magic']):#010x}, not "
            f"{abi.MAGIC:#010x}. Did the kernel, or another one, write to it as if it were its own?"
        )
    if int(header["abi"]) != abi.ABI_VERSION:
        raise DecodeError(
            f"{where} has record ABI {int(header['abi'])}, this ikp reads ABI {abi.ABI_VERSION}: "
            "the "
            "kernel was compiled by another ikp version. Clear the DSL's compile cache and run "
            "again."
        )
    _check_launch(header, len(data), where)
    return header


def _check_launch(header: Any, size: int, where: str) -> None:
    grid, block = (np.asarray(header[k], np.float64) for k in ("grid", "block"))
    blocks = math.prod(_triple(header["grid"]))
    warps, slot_bytes = int(header["warps_per_block"]), int(header["slot_bytes"])
    threads = float(np.prod(block))
    lanes = 64 if _has(header, Option.LANES64) else 32
    possible = not _has(header, Option.SELECTED) or int(header["block_step"]) > 0
    problems = [
        (int(header["options"]) & ~sum(Option) != 0, f"options {int(header['options']):#x}"),
        (not possible, "every 0th block"),
        (min(grid.min(), block.min()) < 1, f"an empty grid {grid} or block {block}"),
        (threads > 1024 or warps != -(-threads // lanes), f"{warps} warps for {threads:g} threads"),
        (
            possible and slot_bytes != _slot_bytes(size, *_slots(header, blocks, warps)),
            f"slots of {slot_bytes} bytes for {np.prod(grid):g} blocks of {warps} warps",
        ),
        (int(header["clock"]) not in list(ClockKind), f"clock {int(header['clock'])}"),
        (int(header["overflow"]) not in list(OverflowMode), f"mode {int(header['overflow'])}"),
    ]
    wrong = [text for found, text in problems if found]
    if wrong:
        raise DecodeError(
            f"{where} has a corrupt launch header: it claims {'; '.join(wrong)}. Something else "
            "wrote "
            f"to this memory after the kernel started."
        )


def _slots(header: Any, blocks: int, warps: int) -> tuple[int, int]:
    """Return how many blocks, and warps of each, a kernel divides its segment among."""
    if not _has(header, Option.SELECTED):
        return blocks, warps
    chosen = Selection.of(header)
    return chosen.count_blocks(blocks), len(chosen.chosen_warps(min(warps, MAX_WARPS)))


def _slot_bytes(size: int, blocks: int, warps: int) -> int:
    """Return what a kernel makes of a segment of ``size`` bytes."""
    return (size - abi.LAUNCH_HEADER_BYTES) // (max(1, blocks) * max(1, warps)) & -abi.ALIGNMENT


def _slot_headers(data: NDArray[np.uint8], slots: int, slot_bytes: int) -> Any:
    if not slots:
        return np.zeros(0, abi.SLOT_HEADER)
    rows = data[abi.LAUNCH_HEADER_BYTES :][: slots * slot_bytes].reshape(slots, slot_bytes)
    heads = np.ascontiguousarray(rows[:, : abi.SLOT_HEADER_BYTES])
    return heads.view(abi.SLOT_HEADER).reshape(-1)


def _used_slots(heads: Any, grid_id: int, notes: list[str]) -> NDArray[np.int64]:
    """Return the indices of slots that this launch initialised."""
    state = heads["state"]
    ours = (
        ((state == SlotState.RUNNING) | (state == SlotState.FINISHED))
        & (heads["grid_id"] == grid_id)
        & _plausible(heads)
    )
    corrupt = int(np.count_nonzero((state != SlotState.UNUSED) & ~ours))
    if corrupt:
        notes.append(f"{corrupt} slots skipped: their headers are corrupt or of an earlier launch")
    unused = int(np.count_nonzero(state == SlotState.UNUSED))
    if unused:
        notes.append(
            f"{unused} warps never reached init (the kernel hung, failed, or exited early)"
        )
    return np.flatnonzero(ours)


def _plausible(heads: Any) -> NDArray[np.bool_]:
    """Tell which headers hold numbers that a device can have written, and columns can hold."""
    good = (heads["sm"] < MAX_SMS) & (heads["role"] <= abi.REGION_MASK)
    for name in ("init_ns", "init_clock", "finish_ns", "finish_clock"):
        good &= heads[name] < MAX_CLOCK
    return np.asarray(good)


@dataclass(frozen=True, slots=True)
class _Counts:
    """How many records each used slot holds, and which."""

    data: NDArray[np.uint8]
    ids: NDArray[np.int64]
    reported: NDArray[np.uint32]  # counts written by finish
    base: NDArray[np.unsignedinteger[Any]]  # clock word at init
    slot_bytes: int
    capacity: int
    overflow: OverflowMode
    summed: bool
    clock: ClockKind

    def attempted(self, finished: NDArray[np.bool_], reused: bool) -> NDArray[np.int64]:
        """Return records attempted per slot; counted from the records where finish never ran."""
        attempted = self.reported.astype(np.int64)
        if self.summed:  # finish alone writes totals: others are those of an earlier launch
            return np.where(finished, attempted, 0)
        unknown = np.flatnonzero(~finished)
        step = max(1, SCAN_RECORDS // max(1, self.capacity))
        for i in range(0, len(unknown), step):
            chosen = unknown[i : i + step]
            attempted[chosen] = self._count(chosen, reused)
        return attempted

    def _count(self, chosen: NDArray[np.int64], reused: bool) -> NDArray[np.int64]:
        """Count the leading records of slots; a full ring counts past its seam, to be put in order.

        Within a launch records end in order. So where the clock steps back is a ring's seam, or
        where the records of an earlier launch begin.
        """
        if not self.capacity:
            return np.zeros(len(chosen), np.int64)
        records = self._read(chosen[:, None], np.arange(self.capacity))
        empty = records["tag"] == 0
        count = np.where(empty.any(1), empty.argmax(1), self.capacity)
        placed = _is_placed(records["tag"]).any(1)
        if placed.any():  # up to the last that is there, with holes
            last = self.capacity - (~empty[:, ::-1]).argmax(1)
            return np.asarray(np.where(placed, last, count))
        ring = self.overflow is OverflowMode.WRAP
        if not (ring or reused):
            return np.asarray(count)
        base = self.base[chosen][:, None]
        step = np.diff(records["end"], axis=1, prepend=base)
        back = (step >= 1 << (self.clock.bits - 1)) & (np.arange(self.capacity) < count[:, None])
        elapsed = records["end"] - base
        fall = np.zeros_like(back)
        fall[:, 1:] = elapsed[:, 1:] < elapsed[:, :-1]
        if reused:
            seam = np.where(back.any(1), back.argmax(1), count)
            # Records behind the seam are a ring's older ones if they lie after init.
            older = (count == self.capacity) & np.take_along_axis(
                fall, np.minimum(seam, self.capacity - 1)[:, None], 1
            )[:, 0]
            return np.asarray(np.where(ring & older, seam + count, seam))
        back[:, 0] = False  # late, but not a seam
        back = np.where(back.any(1)[:, None], back, fall)  # a long ring spans half a turn
        return np.asarray(count + np.where(count == self.capacity, back.argmax(1), 0))

    def _read(self, row: NDArray[np.int64], position: NDArray[np.int64]) -> Any:
        """Return records of used slots, by their positions in them."""
        dtype, unit = self.clock.record, abi.ALIGNMENT
        first = abi.LAUNCH_HEADER_BYTES + self.ids * self.slot_bytes + abi.SLOT_HEADER_BYTES
        index = (first // unit)[row] + position * (dtype.itemsize // unit)
        # A record may begin at any unit, also one of several units.
        starts = (len(self.data) - dtype.itemsize) // unit + 1
        records = np.ndarray((starts,), dtype, np.ascontiguousarray(self.data), strides=(unit,))
        return records[index]

    def records(
        self, attempted: NDArray[np.int64], kept: NDArray[np.int64]
    ) -> tuple[Any, NDArray[np.int64]]:
        """Return all kept records in order, and the row (used slot) of each."""
        row = np.repeat(np.arange(len(kept)), kept)
        position = np.arange(len(row)) - (np.cumsum(kept) - kept)[row]
        if self.overflow is OverflowMode.WRAP and self.capacity:
            oldest = np.where(attempted > self.capacity, attempted % self.capacity, 0)
            position = (position + oldest[row]) % self.capacity
        return self._read(row, position), row


def _valid(
    records: Any,
    row: NDArray[np.int64],
    kept: NDArray[np.int64],
    placed: NDArray[np.bool_],
    summed: bool,
    notes: list[str],
) -> tuple[Any, NDArray[np.int64], NDArray[np.int64]]:
    """Drop records that no kernel can have written: unknown kinds, instants that last.

    Of 64-bit clocks, also times that no device shows, and ranges that end before they start.
    """
    kind = records["tag"] >> abi.KIND_SHIFT
    if placed.any():
        kind = _plain_kinds(kind)
    good = (kind == abi.Kind.RANGE) | (
        (kind == abi.Kind.INSTANT) & (records["start"] == records["end"])
    )
    if summed:
        good = find_sound(records)
    elif records.dtype == abi.WIDE_RECORD:
        good &= (records["start"] <= records["end"]) & (records["end"] < MAX_CLOCK)
    if good.all():
        return records, row, kept
    hole = placed[row] & (records["tag"] == 0)
    if bad := int(np.count_nonzero(~good & ~hole)):
        notes.append(f"{bad} corrupt records skipped: something else wrote to the segment")
    return records[good], row[good], np.bincount(row[good], minlength=len(kept))


def _placed_rows(records: Any, row: NDArray[np.int64], slots: int) -> NDArray[np.bool_]:
    """Tell which slots hold records at indices that the kernel gave."""
    placed = np.zeros(slots, bool)
    placed[row[_is_placed(records["tag"])]] = True
    return placed


def _is_placed(tag: NDArray[np.uint32]) -> NDArray[np.bool_]:
    kind = tag >> abi.KIND_SHIFT
    return np.asarray((kind == Kind.PLACED_RANGE) | (kind == Kind.PLACED_INSTANT))


def _plain_kinds(kind: NDArray[np.uint32]) -> NDArray[np.uint32]:
    for plain, placed in abi.PLACED.items():
        kind = np.where(kind == placed, np.uint32(plain), kind)
    return kind


def _holes(records: Any, row: NDArray[np.int64], placed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Count, per slot, the indices below the largest that the kernel gave nothing."""
    empty = placed[row] & (records["tag"] == 0)
    return np.bincount(row[empty], minlength=len(placed))


def _by_time(
    records: Any,
    row: NDArray[np.int64],
    placed: NDArray[np.bool_],
    base: NDArray[np.unsignedinteger[Any]],
) -> Any:
    """Put the records of slots with given indices in the order of their ends."""
    elapsed = np.where(placed[row], records["end"] - base[row], 0)
    return records[np.lexsort((elapsed, row))]


class _Timeline:
    """Places a launch's clock words on the nanosecond axis."""

    def __init__(
        self, clock: ClockKind, heads: Any, finished: NDArray[np.bool_], nominal_hz: float
    ) -> None:
        self.clock = clock
        self.sm = heads["sm"].astype(np.int64)
        self.init_ns, self.finish_ns = (heads[k].astype(np.int64) for k in ("init_ns", "finish_ns"))
        init, finish = (heads[k].astype(np.int64) for k in ("init_clock", "finish_clock"))
        if clock.unit is ClockKind.GLOBALTIMER:
            init, finish = self.init_ns, self.finish_ns
        self.init_ticks, self.finish_ticks = init, finish
        self.turned = np.zeros(len(self.sm), bool)
        self.backwards = finished & (finish < init)
        if clock.unit is ClockKind.CYCLES:
            self.backwards |= finished & (self.finish_ns < self.init_ns)
        self.finished = finished = finished & ~self.backwards
        if clock.unit is ClockKind.CYCLES:
            anchors = Anchors(
                np.concatenate([self.sm, self.sm[finished]]),
                np.concatenate([self.init_ns, self.finish_ns[finished]]),
                np.concatenate([init, finish[finished]]),
            )
            self.axis: Axis | None = fit_axis(anchors, nominal_hz)
            self.fit = replace(self.axis.fit, bits=clock.bits)
        else:
            self.axis = None
            kind = clock.unit.name.lower()
            self.fit = ClockFit(kind, 1.0, "exact", anchors=len(init), bits=clock.bits)

    def place(
        self, records: Any, row: NDArray[np.int64], lost_oldest: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return start and end in ns, and the duration in ticks."""
        ticks = (records["end"] - records["start"]).astype(np.int64)  # modulo 2**32, or exact
        end = self._unwrap(records["end"], row, lost_oldest)
        end_ns, start_ns = self._to_ns(end, row), self._to_ns(end - ticks, row)
        return np.minimum(start_ns, end_ns, out=start_ns), end_ns, ticks

    def _unwrap(
        self, words: NDArray[Any], row: NDArray[np.int64], lost_oldest: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Extend 32-bit words to 64: within a slot records end in order, after init."""
        if self.clock.bits > abi.WORD_BITS:
            return words.astype(np.int64)
        since_init = words - self.init_ticks.astype(np.uint32)[row]
        elapsed: NDArray[np.int64] = since_init.astype(np.int64)
        wrapped = np.zeros(len(row), np.int64)
        if len(row) > 1:
            wrapped[1:] = (elapsed[1:] < elapsed[:-1]) & (row[1:] == row[:-1])
        if wrapped.any():
            self.turned[row[wrapped > 0]] = True
            total = np.cumsum(wrapped)
            before = np.zeros(len(self.sm), np.int64)
            first = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
            before[row[first]] = total[first]
            elapsed += (total - before[row]) * WRAP
        shift = np.zeros(len(self.sm), np.int64)
        late = lost_oldest & self.finished
        if late.any():  # a ring lost its oldest records: place its last one just before finish
            last = np.zeros(len(self.sm), np.int64)
            np.maximum.at(last, row, elapsed)
            shift[late] = (self.finish_ticks - self.init_ticks - last)[late] // WRAP * WRAP
        elapsed += (self.init_ticks + shift)[row]
        return elapsed

    def _to_ns(self, ticks: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.axis is not None:
            placed = self.axis.to_ns(self.sm[row], ticks)
        else:
            placed = ticks + (self.init_ns - self.init_ticks)[row]
        return np.maximum(placed, 0, out=placed)

    def slot_start(self) -> NDArray[np.int64]:
        """Return when each slot's init ran."""
        return self._to_ns(self.init_ticks, np.arange(len(self.sm)))

    def slot_end(self) -> NDArray[np.int64]:
        """Return when each slot's finish ran; its init where it never did."""
        ticks = np.where(self.finished, self.finish_ticks, self.init_ticks)
        return self._to_ns(ticks, np.arange(len(self.sm)))

    def rates(
        self, slot_start: NDArray[np.int64], slot_end: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return ns per tick of each slot, from its init to its finish."""
        ticks = np.where(self.finished, self.finish_ticks - self.init_ticks, 0)
        known = ticks > 0
        spans = (slot_end - slot_start)[known] / ticks[known]
        rates = np.full(len(ticks), self.fit.ns_per_tick)
        rates[known] = spans
        return rates

    def note(self, notes: list[str], advertised: bool) -> None:
        """Tell what the clock can't."""
        if self.backwards.any():
            notes.append(
                f"the clocks of {np.count_nonzero(self.backwards)} warps ran backwards from init "
                "to finish: when these finished is not known"
            )
        if self.axis is not None and self.axis.torn:
            notes.append(
                f"{self.axis.torn} clock anchors left out: no clock can go so far from the others "
                "(a warp was put aside between its two clock reads, or they were overwritten)"
            )
        late = self.finished & (self.finish_ticks - self.init_ticks >= WRAP)
        late &= self.clock.bits == abi.WORD_BITS
        long = int(np.count_nonzero(late | self.turned))
        if long:
            wide = "globaltimer64" if self.clock is ClockKind.GLOBALTIMER else "cycles64"
            seconds = WRAP * self.fit.ns_per_tick / 1e9
            notes.append(
                f"{long} warps ran longer than the 32-bit clock's {seconds:.2f} s: a single "
                "range or a gap between records longer than that is shown short by a multiple of "
                f"it; ikp.profile(clock={wide!r}) records all 64 bits"
            )
        if self.fit.rate == "nominal" and len(self.sm):
            notes.append(
                "too few clock anchors, or too close together, to fit the clock's rate: "
                f"{1 / self.fit.ns_per_tick:.2f} GHz is taken, "
                + ("as the device advertises" if advertised else "which is a guess")
            )


def _note_losses(
    notes: list[str],
    source: Source,
    finished: NDArray[np.bool_],
    attempted: NDArray[np.int64],
    kept: NDArray[np.int64],
    capacity: int,
    overflow: OverflowMode,
    needed: int,
    relaunches: int,
    summed: bool,
) -> None:
    if int(attempted.max(initial=0)) > capacity:
        notes.append(
            f"{int((attempted - np.minimum(attempted, capacity)).sum())} "
            f"{'totals' if summed else 'records'} dropped "
            f"({'the oldest' if overflow is OverflowMode.WRAP else 'the latest'} of each full "
            f"slot); {_remedy(source, needed)} would have held all"
        )
    unfinished = int(np.count_nonzero(~finished))
    if unfinished and summed:
        notes.append(f"{unfinished} warps never reached finish: their totals are lost")
    elif unfinished:
        full = int(np.count_nonzero(~finished & (kept >= capacity)))
        notes.append(
            f"{unfinished} warps never reached finish: their counts are read from the records"
            + (f", and {full} of them are full, so more may be lost" if full else "")
        )
    if relaunches:
        notes.append(
            f"{relaunches} earlier launches wrote to this buffer; only the last is kept"
            + (
                ", though warps that never reached finish may show some of theirs"
                if unfinished and not summed
                else ""
            )
        )


def _too_small(source: Source, slots: int, needed: int) -> str:
    return (
        f"nothing recorded: {len(source.data)} bytes are too small for {slots} warps; "
        f"{_remedy(source, needed)} holds {FIRST_RECORDS} records per warp"
    )


def _remedy(source: Source, needed: int) -> str:
    if needed > abi.MAX_SEGMENT_BYTES:
        return f"only {needed} bytes, more than a buffer can have,"
    return f"prof.buffer({source.label!r}, size={needed})"


def _needed_bytes(
    attempted: NDArray[np.int64],
    finished: NDArray[np.bool_],
    capacity: int,
    slots: int,
    overflow: OverflowMode,
    clock: ClockKind,
) -> int:
    """Return the segment size that would have held all; twice the present one where unknown."""
    need = int(attempted.max(initial=0))
    if (~finished & (attempted >= capacity)).any():
        need = max(need, 2 * capacity)
    return abi.segment_bytes(slots, need, overflow, clock) if need > capacity else 0


def _language(header: Any, source: Source) -> str:
    """Return what the kernel says it was written in, else the backend that made the buffer."""
    language = int(header["language"])
    known = language in list(Language) and language != Language.OTHER
    return Language(language).name.lower() if known else source.backend


def _triple(values: Any) -> tuple[int, int, int]:
    x, y, z = (int(v) for v in values)
    return x, y, z


def _index_regions(
    decoded: Sequence[_Decoded],
) -> tuple[tuple[Region, ...], list[NDArray[np.int64]]]:
    """Return the regions that occur, and each event's index among them.

    Launches may give one number different names: those are different regions.
    """
    occurring = [_occurring(d.region, np.array(sorted(d.names), np.uint32)) for d in decoded]
    tables = [
        [Region(i, d.names.get(i, fallback_name(i))) for i in ids.tolist()]
        for d, ids in zip(decoded, occurring, strict=True)
    ]
    regions = sorted({region for table in tables for region in table}, key=lambda r: (r.id, r.name))
    index = {region: i for i, region in enumerate(regions)}
    return tuple(regions), [
        np.array([index[region] for region in table], np.int64)[np.searchsorted(ids, d.region)]
        for d, ids, table in zip(decoded, occurring, tables, strict=True)
    ]


def _index_roles(decoded: Sequence[_Decoded]) -> tuple[str, ...]:
    """Return the names of the roles that occur; make each slot's role an index among them."""
    used = [np.unique(d.slots["role"]).tolist() for d in decoded]
    tables = [
        {number: d.names.get(number, fallback_name(number)) if number else "" for number in numbers}
        for d, numbers in zip(decoded, used, strict=True)
    ]
    names = ("", *sorted({name for table in tables for name in table.values()} - {""}))
    for d, table in zip(decoded, tables, strict=True):
        numbers = np.array(list(table), np.uint32)
        index = np.array([names.index(name) for name in table.values()], np.int64)
        d.slots["role"] = index[np.searchsorted(numbers, d.slots["role"])]
    return names


def _occurring(ids: NDArray[np.uint32], known: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the distinct ids, sorted; without sorting those that are known."""
    if not len(known):
        return np.unique(ids)
    at = np.searchsorted(known, ids)
    hit = known[np.minimum(at, len(known) - 1)] == ids
    used = known[np.flatnonzero(np.bincount(at[hit], minlength=len(known)))]
    return np.union1d(used, np.unique(ids[~hit]))


def _concatenate(
    decoded: Sequence[_Decoded], regions: Sequence[NDArray[np.int64]]
) -> tuple[Slots, Events, Totals]:
    counts = [len(d.slots["block"]) for d in decoded]
    base = np.cumsum([0, *counts])
    slots = {
        name: np.concatenate([d.slots[name] for d in decoded] or [np.empty(0)])
        for name in Slots.__slots__
        if name != "launch"
    }
    events = {
        name: np.concatenate([d.events[name] for d in decoded] or [np.empty(0)])
        for name in ("kind", "start_ns", "end_ns", "ticks", "payload_type", "payload")
    }
    rows = [d.events["slot"] + b for d, b in zip(decoded, base, strict=False)]
    of_event = [ids[: len(r)] for ids, r in zip(regions, rows, strict=True)]
    totals = {
        name: np.concatenate([d.totals[name] for d in decoded] or [np.empty(0)])
        for name in ("kind", "count", "ticks", "total_ns")
    }
    of_total = [ids[len(r) :] for ids, r in zip(regions, rows, strict=True)]
    summed = [d.totals["slot"] + b for d, b in zip(decoded, base, strict=False)]
    return (
        make_columns(Slots, launch=np.repeat(np.arange(len(decoded)), counts), **slots),
        make_columns(
            Events,
            slot=np.concatenate(rows or [np.empty(0, np.int64)]),
            region=np.concatenate(of_event or [np.empty(0, np.int64)]),
            **events,
        ),
        make_totals(
            slot=np.concatenate(summed or [np.empty(0, np.int64)]),
            region=np.concatenate(of_total or [np.empty(0, np.int64)]),
            **totals,
        ),
    )
