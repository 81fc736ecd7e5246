"""Events as objects: what they say is what the columns say."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from ikp.core.abi import Kind
from ikp.core.objects import Instant
from ikp.core.trace import Trace
from tests.strategies import traces


@given(trace=traces())
def test_objects_say_what_the_columns_say(trace: Trace) -> None:
    events, slots = trace.events, trace.slots
    of_kind: dict[Kind, list[Instant]] = {
        Kind.RANGE: list(trace.ranges()),
        Kind.INSTANT: list(trace.instants()),
    }
    assert sum(map(len, of_kind.values())) == len(events)
    for kind, found in of_kind.items():
        rows = np.flatnonzero(events.kind == kind).tolist()
        for row, one in zip(rows, found, strict=True):
            slot = events.slot[row]
            launch = trace.launches[slots.launch[slot]]
            assert (one.launch, one.label) == (slots.launch[slot], launch.label)
            assert one.region == trace.regions[events.region[row]].name
            where = (slots.block[slot], slots.warp[slot], slots.sm[slot])
            assert (one.block, one.warp, one.sm) == where
            assert one.role == trace.roles[slots.role[slot]]
            assert one.start_ns == events.start_ns[row]
            payload = trace.payload[row]
            assert (one.payload is None) == (events.payload_type[row] == 0)
            assert one.payload is None or np.array_equal(one.payload, payload, equal_nan=True)


@given(trace=traces())
def test_a_range_also_says_how_long_it_was(trace: Trace) -> None:
    events = trace.events
    is_range = events.kind == Kind.RANGE
    found = list(trace.ranges())
    assert [one.end_ns for one in found] == events.end_ns[is_range].tolist()
    durations = (events.end_ns - events.start_ns)[is_range]
    assert [one.duration_ns for one in found] == durations.tolist()
    assert [one.ticks for one in found] == events.ticks[is_range].tolist()
    for one in found:
        counts_cycles = trace.launches[one.launch].clock.kind == "cycles"
        assert one.cycles == (one.ticks if counts_cycles else None)
