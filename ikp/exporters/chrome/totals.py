"""Totals as ranges: each warp that has some shows one, from its init to its finish, with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ikp.core.abi import Kind
from ikp.core.table import total_table
from ikp.core.trace import Trace
from ikp.exporters.chrome.tracks import Threads, event, times
from ikp.exporters.timeline.launches import TOTALS
from ikp.exporters.timeline.tracks import Layout

DIGITS = 6
"""Of a share, behind the point: Perfetto's JSON reader can't take many."""


def total_ranges(trace: Trace, layout: Layout, threads: Threads, origin: int) -> Iterator[bytes]:
    """Yield one range for each warp that has totals; they stand in its argument ``totals``."""
    slots, totals = trace.slots, trace.totals
    named: dict[int, dict[str, Any]] = {}
    for slot, region, one in zip(
        totals.slot.tolist(), totals.region.tolist(), _each(trace), strict=True
    ):
        name = trace.regions[region].name or "(no name)"
        named.setdefault(slot, {}).setdefault(name, {}).update(one)
    for slot, found in named.items():
        start, end = int(slots.start_ns[slot]), int(slots.end_ns[slot])
        head = threads.heads[int(layout.slot_track[slot])]
        head += times(start - origin, max(0, end - start))
        args = {"block": int(slots.block[slot]), "totals": found}
        yield event("X", head, {"name": TOTALS, "args": args})


def _each(trace: Trace) -> Iterator[dict[str, int | float]]:
    """Yield what each total says."""
    totals = trace.totals
    in_cycles = np.array([one.clock.kind == "cycles" for one in trace.launches], bool)
    cycles = in_cycles[trace.slots.launch[totals.slot]]
    share = total_table(trace)["share"]
    columns = (totals.kind, totals.count, totals.ticks, totals.total_ns, cycles, share)
    for kind, count, ticks, total_ns, counted, part in zip(
        *(np.asarray(column).tolist() for column in columns), strict=True
    ):
        if kind == Kind.INSTANT:
            yield {"instants": count}
            continue
        one = {"count": count, "cycles" if counted else "ticks": ticks, "total_ns": total_ns}
        yield one if part != part else {**one, "share": round(part, DIGITS)}  # noqa: PLR0124 - NaN isn't itself
