"""Compares arrows: each is one row of the table of flows, and there are no others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from ikp.core.trace import Trace
from tests.trace_processor.query import Column, columns

if TYPE_CHECKING:
    from perfetto.trace_processor import TraceProcessor

Arrow = tuple[int, int]


def check_flows(processor: TraceProcessor, slice_of: Column, trace: Trace) -> None:
    """Fail unless the flows are the arrows of the trace. ``slice_of`` is the slice of each event.

    An arrow whose target began no later than its source ends at an instant at the target's end.
    """
    found = columns(
        processor,
        "select slice_out o, slice_in i, s.ts, s.dur, s.name, coalesce(s.parent_id, -1) parent,"
        " coalesce(s.arg_set_id, -1) args from flow join slice s on slice_in = s.id",
    )
    ends = columns(processor, "select id from slice where name = 'arrow' and arg_set_id is null")
    late = np.isin(found["i"], ends["id"])
    assert not np.any(found["dur"][late]), "an arrow's end has a duration"
    assert set(found["i"][late].tolist()) == set(ends["id"].tolist()), "there are ends of no arrow"
    target = np.where(late, _holders(processor, found["parent"]), found["i"])
    events = trace.events
    wanted: Counter[tuple[Arrow, int, bool]] = Counter()
    for source, to in arrows_of(trace):
        if events.end_ns[to] > events.start_ns[source]:
            is_late = bool(events.start_ns[to] <= events.start_ns[source])
            ts = (events.end_ns if is_late else events.start_ns)[to]
            wanted[(int(slice_of[source]), int(slice_of[to])), int(ts), is_late] += 1
    got = Counter(
        ((out, to), ts, is_late)
        for out, to, ts, is_late in zip(
            *(column.tolist() for column in (found["o"], target, found["ts"], late)), strict=True
        )
    )
    assert got == wanted, f"flows: found {got - wanted}, missing {wanted - got}"


def _holders(processor: TraceProcessor, slices: Column) -> Column:
    """Return the innermost range that each slice lies in, or is: instants stack on instants."""
    rows = columns(processor, "select id, dur, coalesce(parent_id, -1) parent from slice")
    parent, duration = (np.empty(len(rows["id"]) + 1, np.int64) for _ in range(2))
    parent[rows["id"]], duration[rows["id"]] = rows["parent"], rows["dur"]
    parent[-1], duration[-1] = -1, 1
    while np.any(duration[slices] == 0):
        slices = np.where(duration[slices] == 0, parent[slices], slices)
    return slices


def arrows_of(trace: Trace) -> list[Arrow]:
    """Return source and target of each arrow, as the arguments tell them."""
    if "flow_out" not in trace.args:
        return []
    number = trace.args["flow_out"].tolist()
    source = {one: row for row, one in enumerate(number) if one is not None}
    return [
        (source[one], row)
        for name, column in trace.args.items()
        if name.startswith("flow_in")
        for row, one in enumerate(column.tolist())
        if one in source
    ]
