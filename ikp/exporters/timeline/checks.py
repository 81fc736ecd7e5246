"""What exporters ask of a trace before they write it."""

from __future__ import annotations

import numpy as np

from ikp.core.abi import Kind, PayloadType
from ikp.core.flows import is_flow
from ikp.core.trace import Column, Trace
from ikp.errors import ExportError


def check(trace: Trace) -> None:
    """Refuse a trace that contradicts itself: a file made of it would be garbage.

    Raises:
        ExportError: says in what.
    """
    if found := faults(trace):
        raise ExportError(
            f"the trace can't be written, because it contradicts itself: {'; '.join(found)}. "
            "ikp's own decoder never makes such a trace: repair what built or changed it."
        )


def faults(trace: Trace) -> list[str]:
    """Return in what a trace contradicts itself."""
    events, slots, totals = trace.events, trace.slots, trace.totals
    found = {
        "a slot names a launch that there is not": _outside(slots.launch, 0, len(trace.launches)),
        "a slot names a role that there is not": _outside(slots.role, 0, len(trace.roles)),
        "an event names a slot that there is not": _outside(events.slot, 0, len(slots)),
        "an event names a region that there is not": _outside(events.region, 0, len(trace.regions)),
        "an event is neither range nor instant": _outside(
            events.kind, Kind.RANGE, Kind.INSTANT + 1
        ),
        "a payload's type is unknown": _outside(
            events.payload_type, PayloadType.NONE, PayloadType.F32 + 1
        ),
        "events are not sorted by slot": bool(np.any(events.slot[1:] < events.slot[:-1])),
        "an event ends before it starts": bool(np.any(events.end_ns < events.start_ns)),
        "an instant has a duration": bool(
            np.any((events.end_ns != events.start_ns) & (events.kind == Kind.INSTANT))
        ),
        "a time is negative": _outside(events.start_ns, 0, None)
        or _outside(slots.start_ns, 0, None),
        "a total names a slot that there is not": _outside(totals.slot, 0, len(slots)),
        "a total names a region that there is not": _outside(totals.region, 0, len(trace.regions)),
        "a total is of neither ranges nor instants": _outside(
            totals.kind, Kind.RANGE, Kind.INSTANT + 1
        ),
        "a total is negative": any(
            _outside(values, 0, None) for values in (totals.count, totals.ticks, totals.total_ns)
        ),
        "totals are not sorted by slot": bool(np.any(totals.slot[1:] < totals.slot[:-1])),
        "an argument's column is not as long as the events": any(
            len(column) != len(events) for column in trace.args.values()
        ),
        "an arrow's number is no integer": any(
            column.given.any() and column.values.dtype.kind != "i"
            for name, column in trace.args.items()
            if is_flow(name)
        ),
    }
    if len(totals) and not any(found.values()):
        mixed = np.intersect1d(slots.launch[events.slot], slots.launch[totals.slot])
        found["a launch has both events and totals"] = bool(len(mixed))
    return [fault for fault, there in found.items() if there]


def _outside(values: Column, low: int, high: int | None) -> bool:
    if not len(values):
        return False
    return int(values.min()) < low or (high is not None and int(values.max()) >= high)
