from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ikp
from ikp.core.objects import items
from ikp.core.trace import Trace
from ikp.errors import UsageError
from tests.edit.test_select import example
from tests.exporters.perfetto.examples import assert_same, warp
from tests.strategies import traces, traces_with_args
from tests.trace_processor import check_trace

pytestmark = pytest.mark.any_pins


def without_launch(trace: Trace) -> list[str]:
    return [repr(one).partition("label=")[2] for one in items(trace)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(traces_with_args(), min_size=1, max_size=3))
def test_all_launches_with_all_their_events_are_there(parts: list[Trace]) -> None:
    joined = ikp.edit.concat(parts)
    assert joined.launches == tuple(launch for part in parts for launch in part.launches)
    assert without_launch(joined) == [one for part in parts for one in without_launch(part)]
    assert len(joined.slots) == sum(len(part.slots) for part in parts)


@given(trace=traces())
def test_one_trace_stays_as_it_is(trace: Trace) -> None:
    assert_same(ikp.edit.concat([trace]), trace)


@pytest.mark.tp
def test_traces_of_two_ranks_are_one_in_the_viewer(tmp_path: Path) -> None:
    ranks = [
        ikp.edit.rename_launches(ikp.edit.shift(example(), 7 * rank), lambda x, r=rank: f"{r}: {x}")
        for rank in range(2)
    ]
    both = ikp.edit.concat(ranks)
    assert [launch.label for launch in both.launches] == [
        "0: gemm",
        "0: norm",
        "1: gemm",
        "1: norm",
    ]
    assert [region.name for region in both.regions] == ["load", "done", "load_a", "dot"]
    assert both.roles == ("", "producer")
    both.save(tmp_path / "t.pftrace")
    check_trace(tmp_path / "t.pftrace", both)
    assert_same(ikp.load(tmp_path / "t.pftrace"), both)


def test_arguments_that_only_one_has_are_missing_in_the_other() -> None:
    one = ikp.edit.add_args(warp((0, 1)), step=[4])
    both = ikp.edit.concat([one, warp((0, 1)), one])
    assert both.args["step"].tolist() == [4, None, 4]
    other = ikp.edit.add_args(warp((0, 1)), step=["four"])
    with pytest.raises(UsageError, match="'step' has values of different types"):
        ikp.edit.concat([one, other])


def test_what_each_trace_says_of_its_making_is_kept() -> None:
    parts = [ikp.edit.shift(example(), n) for n in (1, 2)]
    assert ikp.edit.concat(parts).provenance == {"ikp": "0.1.0", "edited": "shift(1) | shift(2)"}


@pytest.mark.parametrize("parts", [[], [example(), None]])
def test_what_is_no_trace_cannot_be_joined(parts: list[Trace]) -> None:
    with pytest.raises(UsageError, match="concat joins traces"):
        ikp.edit.concat(parts)


def test_all_times_are_shifted() -> None:
    trace, moved = example(), ikp.edit.shift(example(), -5)
    for table in ("slots", "events"):
        for name in ("start_ns", "end_ns"):
            before, after = (getattr(getattr(one, table), name) for one in (trace, moved))
            assert np.array_equal(after, before - 5)
    assert moved.events.ticks.tolist() == trace.events.ticks.tolist()


@pytest.mark.parametrize("by_ns", [0.5, None, -(1 << 62), (1 << 63) - 1])
def test_a_shift_that_cannot_be_is_told(by_ns: int) -> None:
    with pytest.raises(UsageError, match=r"shifted by|is not an integer"):
        ikp.edit.shift(example(), by_ns)
