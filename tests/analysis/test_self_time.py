"""Self time against an oracle that asks, for each piece of time, which range opened last."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.analysis import _self_time as nested
from ikp.analysis import _self_time as self_time
from ikp.analysis._self_time import self_times
from ikp.core.abi import Kind
from ikp.core.trace import Trace
from tests.analysis.example import trace
from tests.strategies import traces_with_args


def oracle(made: Trace) -> tuple[list[int], list[int]]:
    """Return what ``self_times`` must: piece by piece, range by range."""
    events, slots = made.events, made.slots
    own, inside = [0] * len(events), [0] * len(slots)
    for slot in range(len(slots)):
        rows = np.flatnonzero((events.slot == slot) & (events.kind == Kind.RANGE)).tolist()
        life = int(slots.start_ns[slot]), int(slots.end_ns[slot])
        spans = {row: (int(events.start_ns[row]), int(events.end_ns[row])) for row in rows}
        cuts = sorted({time for span in (*spans.values(), life) for time in span})
        for low, high in pairwise(cuts):
            is_open = [row for row, (begin, end) in spans.items() if begin <= low and high <= end]
            if is_open:
                # Of ranges that start together, the one recorded first lies inside.
                own[max(is_open, key=lambda row: (spans[row][0], -row))] += high - low
                inside[slot] += (high - low) * (life[0] <= low and high <= life[1])
    return own, inside


def check(made: Trace) -> None:
    own, inside = self_times(made)
    assert (own.tolist(), inside.tolist()) == oracle(made)


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(0, 2)), max_size=9)


@given(st.lists(SPANS, min_size=1, max_size=4), st.sampled_from([1, 3, 1 << 16]), st.integers(0, 3))
def test_ranges_that_nest_overlap_and_tie(
    warps: list[list[tuple[int, int, int]]], most: int, levels: int
) -> None:
    drawn = [
        (slot, region, start, start + length)
        for slot, spans in enumerate(warps)
        for start, length, region in sorted(spans, key=lambda one: one[0] + one[1])
    ]
    made = trace(drawn, slots=[(0, i) for i in range(len(warps))], residence=25)
    made = replace(made, events=replace(made.events, kind=np.full(len(drawn), Kind.RANGE, "u1")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(self_time, "EVENTS_AT_ONCE", most)
        patch.setattr(nested, "MOST_LEVELS", levels)
        check(made)


@given(traces_with_args())
def test_traces_as_kernels_record_them(made: Trace) -> None:
    check(made)


@pytest.mark.parametrize(
    ("spans", "own"),
    [
        ([(0, 4), (5, 9), (0, 9), (0, 9), (0, 12)], [4, 4, 1, 0, 3]),
        ([(0, 5), (3, 9)], None),  # overlap
        ([(0, 2), (1, 9), (0, 9), (2, 12)], None),  # one that holds others overlaps
        ([(5, 9), (0, 4)], None),  # in another order
        ([(0, 1 + depth) for depth in range(nested.MOST_LEVELS + 1)], None),
    ],
)
def test_ranges_that_nest_take_no_sort(spans: list[tuple[int, int]], own: list[int] | None) -> None:
    opens, closes = np.array(spans).T
    found = nested.nested_times(opens, closes, closes - opens)
    assert (None if found is None else found.tolist()) == own


def test_self_times_and_the_time_in_no_range_add_up() -> None:
    # An async range from 0 to 60 overlaps another from 40 to 90, with a range inside both.
    made = trace([(0, 2, 50, 55), (0, 0, 0, 60), (0, 1, 40, 90)], slots=[(0, 0)], residence=100)
    table = made.stats()
    found = {row.region: (row.total_ns, row.self_ns) for row in table}
    assert found == {"load": (60, 40), "dot": (50, 45), "tile done": (5, 5)}
    assert table.residence[0].in_no_range_ns == 10
    assert sum(row.self_share or 0 for row in table) + 0.1 == pytest.approx(1)


def test_times_too_far_apart_to_pack_beside_the_slot() -> None:
    # In 64 bits, the number of the last slot would fall on that of the first.
    made = trace([(0, 0, 0, 9), (0, 1, 0, 20), (4, 0, 5, 6)], slots=[(0, i) for i in range(5)])
    end = made.events.end_ns.copy()
    end[1] += 1 << 61
    check(replace(made, events=replace(made.events, end_ns=end)))


def test_warps_in_another_order_than_their_slots() -> None:
    check(trace([(3, 0, 0, 9), (0, 1, 5, 20), (0, 0, 0, 30), (1, 0, 5, 6)]))
