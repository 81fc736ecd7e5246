"""Rows of a trace: events and totals, taken, joined, merged; totals are decoded from records, too.

Totals are sums of one region's ranges or instants in one warp. They are also decoded here, and
compared with the time of their warp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ikp.core import abi
from ikp.core.abi import Kind, Rows
from ikp.core.args import take_args
from ikp.core.trace import AnyTrace, Column, Events, RowTable, Totals, Trace, make_columns

Ints = NDArray[np.int64]

MOST_TICKS = 1 << 62
"""A sum of ticks from here on is corrupt: it would be a century of cycles."""


def find_sound(records: Rows) -> NDArray[np.bool_]:
    """Return which records are totals that a kernel can have written.

    A total counts something; its ranges took less than 2**32 ticks each, its instants none.
    """
    kind = records["tag"] >> abi.KIND_SHIFT
    words = _as_totals(records)
    count, ticks = words["count"].astype(np.uint64), _ticks(words)
    lasts = (kind == Kind.RANGE_TOTAL) & (ticks < MOST_TICKS) & (ticks >> np.uint64(32) < count)
    return np.asarray(lasts | ((kind == Kind.INSTANT_TOTAL) & (ticks == 0) & (count > 0)))


def total_columns(records: Rows, row: Ints, ns_per_tick: NDArray[np.float64]) -> dict[str, Column]:
    """Return the columns of a launch's totals; ``region`` holds ids.

    Args:
        records: those of all slots, all sound.
        row: the slot of each.
        ns_per_tick: the clock's rate in each slot.
    """
    kind = records["tag"] >> abi.KIND_SHIFT
    words = _as_totals(records)
    ticks = _ticks(words).astype(np.int64)
    total_ns = np.rint(np.minimum(ticks * ns_per_tick[row], MOST_TICKS)).astype(np.int64)
    return {
        "slot": row,
        "region": records["tag"] & abi.REGION_MASK,
        "kind": np.where(kind == Kind.RANGE_TOTAL, Kind.RANGE, Kind.INSTANT),
        "count": words["count"],
        "ticks": ticks,
        "total_ns": total_ns,
    }


def make_totals(**columns: ArrayLike) -> Totals:
    """Return totals in order, those of one slot, region and kind added up."""
    keys = [np.asarray(columns[name], np.int64) for name in ("kind", "region", "slot")]
    order = np.lexsort(keys)
    new = np.ones(len(order), bool)
    new[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    first = np.flatnonzero(new)
    merged = {name: np.asarray(columns[name])[order][first] for name in ("slot", "region", "kind")}
    for name in ("count", "ticks", "total_ns"):
        values = np.asarray(columns[name], np.int64)[order]
        merged[name] = np.add.reduceat(values, first) if len(first) else values
    return make_columns(Totals, **merged)


def take_totals(totals: Totals, rows: Column) -> Totals:
    """Return the given rows, ascending indices or one bool per row."""
    return Totals(*(getattr(totals, name)[rows] for name in Totals.__slots__))


def shares(trace: Trace) -> NDArray[np.float64]:
    """Return each total's share of its warp's time; NaN for instants, and where the warp ran 0."""
    totals, slots = trace.totals, trace.slots
    life = (slots.end_ns - slots.start_ns)[totals.slot]
    there = (life > 0) & (totals.kind == Kind.RANGE)
    share = np.full(len(totals), np.nan)
    share[there] = totals.total_ns[there] / life[there]
    return share


def _as_totals(records: Rows) -> Rows:
    return np.ascontiguousarray(records).view(abi.TOTAL)


def _ticks(words: Rows) -> NDArray[np.uint64]:
    low, high = (words[name].astype(np.uint64) for name in ("ticks_low", "ticks_high"))
    return np.asarray(low | high << np.uint64(32))


def take_events(trace: AnyTrace, rows: NDArray[Any]) -> AnyTrace:
    """Return the trace with the given events, in the given order."""
    events = Events(*(getattr(trace.events, name)[rows] for name in Events.__slots__))
    return replace(trace, events=events, args=take_args(trace.args, rows))


def take_rows(trace: AnyTrace, chosen: Sequence[NDArray[np.bool_]]) -> AnyTrace:
    """Return the trace with the chosen rows of each of :func:`row_tables`."""
    events, totals = chosen
    left = take_events(trace, np.flatnonzero(events))
    return replace(left, totals=take_totals(trace.totals, totals))


def renumber_rows(trace: AnyTrace, **numbers: NDArray[Any]) -> AnyTrace:
    """Return the trace with another ``slot`` or ``region`` in its rows: the new number of each old.

    Totals that get one number are added up.
    """

    def moved(rows: RowTable) -> dict[str, Any]:
        return {
            name: number[getattr(rows, name)].astype(np.int32) for name, number in numbers.items()
        }

    totals = replace(trace.totals, **moved(trace.totals))
    if "region" in numbers:
        totals = make_totals(**_columns([totals]))
    return replace(trace, events=replace(trace.events, **moved(trace.events)), totals=totals)


def joined_rows(traces: Sequence[Trace]) -> dict[str, Any]:
    """Return the fields of a trace with the rows of all traces, trace by trace."""
    return {
        "events": make_columns(Events, **_columns([one.events for one in traces])),
        "totals": make_totals(**_columns([one.totals for one in traces])),
    }


def _columns(tables: Sequence[Events] | Sequence[Totals]) -> dict[str, NDArray[Any]]:
    return {
        name: np.concatenate([getattr(one, name) for one in tables])
        for name in type(tables[0]).__slots__
    }
