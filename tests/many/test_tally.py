"""What was counted file by file is what one trace of them all has."""

from __future__ import annotations

import math
import pickle
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.analysis.stats import RegionStats, Stats
from ikp.analysis.tally import RELATIVE_ERROR, Tally, sketched_quantile, sketches
from ikp.analysis.tallying import merge, tally_trace
from ikp.core.trace import Trace
from ikp.edit import concat
from ikp.errors import UsageError
from tests.analysis.example import trace
from tests.many.recorded import of_rank
from tests.strategies import traces, traces_with_totals

PERCENTILES = ("p50_ns", "p95_ns", "p99_ns", "p50_cycles", "p95_cycles")


def rows(table: Stats) -> dict[tuple[Any, ...], RegionStats]:
    return {
        (row.launch, row.region, row.kind, row.group, row.self_ns is None): row for row in table
    }


def exact(row: RegionStats) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if name not in PERCENTILES}


def with_running_clocks(trace: Trace) -> Trace:
    """Return the trace with no clock that stands still, whose rate there would be no number for."""
    clocks = [replace(one.clock, ns_per_tick=one.clock.ns_per_tick + 0.5) for one in trace.launches]
    pairs = zip(trace.launches, clocks, strict=True)
    return replace(trace, launches=tuple(replace(one, clock=clock) for one, clock in pairs))


def several(kind: st.SearchStrategy[Trace]) -> st.SearchStrategy[list[Trace]]:
    return st.lists(kind.map(with_running_clocks), min_size=1, max_size=3)


@given(
    parts=several(traces()) | several(traces_with_totals()),
    by=st.sampled_from([None, "rank", "sm", "role"]),
)
def test_all_but_percentiles_is_exact(parts: list[Trace], by: str | None) -> None:
    found = merge(tally_trace(one, by) for one in parts).stats()
    wanted = concat(parts).stats(by)
    # A label may have launches of both modes: an instant has a row of each, alike but in counts.
    assert sorted(repr(exact(row)) for row in found) == sorted(repr(exact(row)) for row in wanted)
    assert sorted(map(repr, found.residence)) == sorted(map(repr, wanted.residence))
    middle = {one.launch: one for one in found.evidence}
    for one in wanted.evidence:
        own = middle[one.launch]
        assert (own.launches, own.dropped, own.notes) == (one.launches, one.dropped, one.notes)
        assert (own.ghz is None) == (one.ghz is None)


@given(
    values=st.lists(st.integers(0, (1 << 63) - 1), min_size=1, max_size=60),
    cut=st.integers(0, 60),
    q=st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0]),
)
def test_a_percentile_is_within_its_error_of_the_value_at_its_rank(
    values: list[int], cut: int, q: float
) -> None:
    parts = [np.array(one, np.int64) for one in (values[:cut], values[cut:]) if one]
    whole, *rest = [sketches(np.zeros(len(one), np.int64), one)[0] for one in parts]
    for one in rest:
        whole.merge(one)
    value = sorted(values)[math.floor(q * (len(values) - 1))]
    assert abs(sketched_quantile(whole, q) - value) <= RELATIVE_ERROR * value * (1 + 1e-9)


def test_many_groups_that_hardly_occur_are_told_apart() -> None:
    group = np.arange(0, 1 << 30, 1 << 20)
    found = sketches(group, group + 1)
    assert found.keys() == set(group.tolist())
    assert all(one.count == 1 for one in found.values())


def test_the_order_and_the_steps_of_merging_change_nothing() -> None:
    parts = [tally_trace(of_rank(rank), "rank") for rank in range(4)]
    whole = merge(parts)
    backwards = merge([merge([parts[3], parts[2]]), merge([parts[1], parts[0]])])
    assert rows(whole.stats()) == rows(backwards.stats())
    assert whole.files == backwards.files == 4


def test_what_is_merged_stays_as_it_was_and_travels() -> None:
    part = tally_trace(of_rank(1))
    before = part.stats()
    both = merge([part, pickle.loads(pickle.dumps(part))])  # noqa: S301 - our own
    assert part.stats() == before
    assert [row.count for row in both.stats()] == [2 * row.count for row in before]


@pytest.mark.parametrize("by", ["iteration", "window:200ns"])
def test_groups_of_events_have_their_labels_shares_and_order(by: str) -> None:
    parts = [trace([(0, 0, 0, 150), (1, 0, 250, 400)], payload={0: 1, 1: 0}) for _ in range(2)]
    found, wanted = merge(tally_trace(one, by) for one in parts).stats(), concat(parts).stats(by)
    assert list(map(exact, found)) == list(map(exact, wanted))
    assert len({row.group for row in found}) == (1 if by == "iteration" else 2)


def test_the_table_says_how_exact_it_is_and_of_what() -> None:
    table = merge(tally_trace(of_rank(rank)) for rank in range(3)).stats()
    assert "3 files counted together; percentiles are within 0.5 %" in str(table)
    assert "2 of 5 gemm" not in str(table) and "6 of 15 records dropped" in str(table)


def test_the_frame_has_the_error_beside_the_figures() -> None:
    frame = tally_trace(of_rank(0)).to_pandas()
    load, dot, done = frame.to_dict("records")
    assert (load["region"], load["count"], load["relative_error"]) == ("load", 2, RELATIVE_ERROR)
    assert (dot["region"], dot["relative_error"]) == ("dot", RELATIVE_ERROR)
    assert done["region"] == "tile done" and math.isnan(done["relative_error"])


def test_nothing_has_no_table() -> None:
    with pytest.raises(UsageError, match="there is no file to count"):
        Tally().stats()
