"""Bytes to columns: one segment to the slots and events of one launch, vectorised and validated.

Nothing here trusts the bytes. What can't be a segment of this ABI raises; a record or slot that
can't be true is skipped and counted in the launch's notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ikp.core import abi
from ikp.core.abi import OverflowMode, SlotState
from ikp.core.decoding._records import Kept, kept_records, used_slots
from ikp.core.decoding._times import NOMINAL_HZ, Timeline
from ikp.core.decoding.launch_header import Layout, Source, read_layout
from ikp.core.decoding.losses import needed_bytes, note_losses
from ikp.core.regions import fallback_name, merge
from ikp.core.totals import make_totals, total_columns
from ikp.core.trace import (
    Column,
    Events,
    Launch,
    Region,
    Slots,
    Totals,
    Trace,
    make_columns,
    no_totals,
)

_Columns = dict[str, Column]


@dataclass(frozen=True, slots=True)
class _Decoded:
    launch: Launch
    slots: _Columns
    events: _Columns
    totals: _Columns
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
    layout = read_layout(source)
    if layout is None:
        return None
    notes = list(layout.notes)
    kept, timeline, slots, events, totals = _columns(source, layout, notes)
    clock_notes = timeline.notes(advertised=source.clock_rate_hz > 0)
    finished = slots["finished"]
    needed = needed_bytes(layout, kept.reached, finished)
    note_losses(notes, source, layout, kept, finished, needed)
    launch = Launch(
        label=source.label,
        grid=layout.grid,
        block=layout.block,
        warps_per_block=layout.warps_per_block,
        device=source.device,
        backend=layout.language,
        clock=timeline.fit,
        overflow=layout.overflow.name.lower(),
        capacity=layout.capacity,
        segment_bytes=len(source.data),
        attempted=int(kept.attempted.sum()),
        kept=int(kept.kept.sum()),
        unfinished=int((~finished).sum()),
        needed_bytes=needed,
        relaunches=layout.relaunches,
        notes=(*notes, *clock_notes),
        rank=source.rank,
        mode="totals" if layout.summed else "timeline",
    )
    names = merge([known, source.regions or {}])
    regions = events.pop("region")
    return _Decoded(launch, slots, events, totals, totals.get("region", regions), names)


def _columns(
    source: Source, layout: Layout, notes: list[str]
) -> tuple[Kept, Timeline, _Columns, _Columns, _Columns]:
    """Return what the slots hold, on which timeline, and the columns of slots, events and totals.

    ``region`` and ``role`` hold ids. A launch that kept totals has no events, and one that kept
    events no columns of totals.
    """
    heads, ids = used_slots(source, layout, notes)
    finished = heads["state"] == SlotState.FINISHED
    kept = kept_records(source, layout, heads, ids, notes)
    warps = max(1, len(layout.warps))
    block = layout.chosen.chosen_blocks(ids // warps)
    timeline = Timeline(layout.clock, heads, finished, source.clock_rate_hz or NOMINAL_HZ)
    start = timeline.slot_start()
    end = np.maximum(timeline.slot_end(), start)
    records, row = kept.records, kept.row
    totals: _Columns = {}
    if layout.summed:
        totals = total_columns(records, row, timeline.rates(start, end))
        records, row = records[:0], row[:0]
    lost_oldest = (kept.reached > layout.capacity) & (layout.overflow is OverflowMode.WRAP)
    event_start, event_end, ticks = timeline.place(records, row, lost_oldest)
    np.maximum.at(end, row, event_end)
    slots = {
        "block": block,
        "warp": layout.warps[ids % warps],
        "sm": heads["sm"],
        "role": heads["role"],
        "start_ns": start,
        "end_ns": end,
        "attempted": kept.attempted,
        "kept": kept.kept,
        "finished": finished,
    }
    tag = records["tag"]
    events = {
        "slot": row,
        "region": tag & abi.REGION_MASK,
        "kind": kept.kinds[: len(row)],
        "start_ns": event_start,
        "end_ns": event_end,
        "ticks": ticks,
        "payload_type": tag >> abi.PAYLOAD_SHIFT & 3,
        "payload": records["payload"],
    }
    return kept, timeline, slots, events, totals


def _index_regions(
    decoded: Sequence[_Decoded],
) -> tuple[tuple[Region, ...], list[NDArray[np.int64]]]:
    """Return the regions that occur, and each event's index among them.

    Launches may give one number different names: those are different regions.
    """
    occurring = [_occurring(d.region, np.array(sorted(d.names), np.uint32)) for d in decoded]
    tables = [
        [Region(i, _name_of(i, d.names)) for i in ids.tolist()]
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
        {number: _name_of(number, d.names) if number else "" for number in numbers}
        for d, numbers in zip(decoded, used, strict=True)
    ]
    names = ("", *sorted({name for table in tables for name in table.values()} - {""}))
    for d, table in zip(decoded, tables, strict=True):
        numbers = np.array(list(table), np.uint32)
        index = np.array([names.index(name) for name in table.values()], np.int64)
        d.slots["role"] = index[np.searchsorted(numbers, d.slots["role"])]
    return names


def _name_of(number: int, names: Mapping[int, str]) -> str:
    return names[number] if number in names else fallback_name(number)


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
    totals = _concatenate_totals(list(zip(decoded, base.tolist(), regions, strict=False)))
    return (
        make_columns(Slots, launch=np.repeat(np.arange(len(decoded)), counts), **slots),
        make_columns(
            Events,
            slot=np.concatenate(rows or [np.empty(0, np.int64)]),
            region=np.concatenate(of_event or [np.empty(0, np.int64)]),
            **events,
        ),
        totals,
    )


def _concatenate_totals(
    decoded: Sequence[tuple[_Decoded, int, NDArray[np.int64]]],
) -> Totals:
    """Return the totals of launches; with each come its first slot, and its rows' regions."""
    summed = [(d.totals, first, region) for d, first, region in decoded if d.totals]
    if not summed:
        return no_totals()
    return make_totals(
        slot=np.concatenate([totals["slot"] + first for totals, first, _ in summed]),
        region=np.concatenate([region for _, _, region in summed]),
        **{
            name: np.concatenate([totals[name] for totals, _, _ in summed])
            for name in ("kind", "count", "ticks", "total_ns")
        },
    )
