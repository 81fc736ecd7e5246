"""Compares totals: each warp that has some is one slice, whose arguments they are."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from ikp.core.abi import Kind
from ikp.core.trace import Trace
from tests.trace_processor.found import WARP, Found
from tests.trace_processor.query import Column, columns

Rows = dict[tuple[int, ...], dict[str, Any]]


def summed(trace: Trace) -> list[int]:
    """Return the launches that have totals."""
    return np.unique(trace.slots.launch[trace.totals.slot]).tolist()


def events_of(found: Found, trace: Trace) -> dict[str, Column]:
    """Return the slices of warps that are no totals, and no ends of arrows."""
    slices = found.with_role(WARP)
    rows = ~np.isin(slices["launch"].astype(np.int64), summed(trace)) & ~arrow_ends(slices)
    return {name: column[rows] for name, column in slices.items()}


def arrow_ends(slices: dict[str, Column]) -> Column:
    """Tell which slices are there only for an arrow to end at: all events have arguments."""
    return (slices["name"] == "arrow") & (slices["arguments"] == -1)


def check_totals(found: Found, trace: Trace) -> None:
    """Fail unless each warp's slice lasts from its init to its finish, and has its totals."""
    slices = found.with_role(WARP)
    rows = np.isin(slices["launch"].astype(np.int64), summed(trace))
    arguments = _arguments(found, slices["arguments"][rows].tolist())
    got: Rows = {}
    names = ("launch", "sm", "warp", "ts", "dur", "depth", "arguments", "name")
    for launch, sm, warp, start, duration, depth, of, name in zip(
        *(slices[one][rows].tolist() for one in names), strict=True
    ):
        assert (name, depth) == ("totals", 0), f"{name} nests in something at depth {depth}"
        facts = dict(arguments[of])
        place = (launch, facts.pop("debug.block"), warp, sm, start, duration)
        assert place not in got
        got[place] = facts
    wanted = _wanted(trace)
    assert got.keys() == wanted.keys(), "slices of totals are missing, or elsewhere"
    for place, facts in wanted.items():
        assert got[place] == facts, f"totals of {place}: found {got[place]}, not {facts}"


def _wanted(trace: Trace) -> Rows:
    slots, totals = trace.slots, trace.totals
    rows: Rows = {}
    for slot, region, kind, count, ticks, total_ns in zip(
        *(getattr(totals, name).tolist() for name in totals.__slots__), strict=True
    ):
        start, end = int(slots.start_ns[slot]), int(slots.end_ns[slot])
        launch = int(slots.launch[slot])
        place = (launch, *(int(getattr(slots, one)[slot]) for one in ("block", "warp", "sm")))
        facts = rows.setdefault((*place, start, max(0, end - start)), {})
        name = "".join("_" if c in ".[]" else c for c in trace.regions[region].name or "(no name)")
        clock = "cycles" if trace.launches[launch].clock.kind == "cycles" else "ticks"
        found: dict[str, Any] = {"instants": count}
        if kind == Kind.RANGE:
            found = {"count": count, clock: ticks, "total_ns": total_ns}
            found |= {"share": total_ns / (end - start)} if end > start else {}
        facts |= {f"debug.totals.{name}.{one}": value for one, value in found.items()}
    return rows


def _arguments(found: Found, sets: list[int]) -> dict[int, dict[str, Any]]:
    rows = columns(
        found.processor,
        "select arg_set_id s, key, int_value i, real_value r from args"
        f" where arg_set_id in ({','.join(map(str, sets))})",
    )
    facts: defaultdict[int, dict[str, Any]] = defaultdict(dict)
    for of, key, whole, real in zip(*(rows[name].tolist() for name in rows), strict=True):
        facts[of][key] = real if whole is None else whole
    return facts
