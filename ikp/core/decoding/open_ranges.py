"""Open ranges of a kernel that is read while it runs: decoded as ranges that end at that time.

Each becomes an instant at its start, is decoded with the records of its slot, and then a range that
ends when the stream was read. It has a name of its own: the range's, with ``OPEN`` behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from ikp.core import abi
from ikp.core.abi import Kind, PayloadType, Rows, SlotState
from ikp.core.decoding.launch_header import Excerpt, SegmentSource
from ikp.core.decoding.slots import is_used
from ikp.core.regions import fallback_name, merge, region_id
from ikp.core.trace import Trace

OPEN: Final = " (open)"


def with_open(
    sources: Iterable[SegmentSource], names: Mapping[int, str]
) -> tuple[list[SegmentSource], dict[int, str]]:
    """Return sources, with an instant where the open range of each warp of a stream began.

    Args:
        sources: of launches.
        names: of regions, by id.

    Returns:
        The sources, and the names of regions with those of the open ranges.
    """
    both = [_with_open(each, names) for each in sources]
    return [source for source, _ in both], merge([names, *(made for _, made in both)])


def _with_open(
    source: SegmentSource, names: Mapping[int, str]
) -> tuple[SegmentSource, dict[int, str]]:
    data, layout = source.data, source.layout
    if layout is None or not isinstance(data, Excerpt) or not data.in_order:
        return source, {}
    heads: Rows = data.heads.copy().view(abi.SLOT_HEADER).reshape(-1)
    running = is_used(heads, source.grid_id) & (heads["state"] == SlotState.RUNNING)
    slots = np.flatnonzero(running & (heads["open"] != 0))
    known = {**names, **(source.regions or {})}
    regions = (heads["open"][slots] & abi.REGION_MASK).tolist()
    texts = {each: f"{known.get(each, fallback_name(each))}{OPEN}" for each in set(regions)}
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


def until(trace: Trace, now_ns: int) -> Trace:
    """Return a snapshot's trace, in which open ranges end at the time when it was taken."""
    names = np.array([region.name.endswith(OPEN) for region in trace.regions], bool)
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
