"""Recording's own cost, taken out of a timeline: exactly where it was, and never more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ikp
from ikp.backends.triton.passes.schedule import MAX_PENDING
from ikp.core.abi import Kind
from ikp.core.overhead import Figure, Overhead
from ikp.core.trace import ClockFit, Trace
from ikp.edit.deduct import DEDUCTED, PENDING, _late
from ikp.errors import UsageError
from tests.exporters.perfetto.examples import START, warp, warps
from tests.strategies import traces
from tests.trace_processor import check_trace

TIMER = ClockFit("globaltimer", 1.0, "exact")
EMPTY, AT_END, INSTANT = 10, 20, 15


def figure(ticks: float) -> Figure:
    return Figure(ticks, ticks, ticks)


def overhead(
    device: str = "NVIDIA H200",
    clock: str = "globaltimer",
    costs: tuple[float, float, float] = (EMPTY, EMPTY + AT_END, INSTANT),
) -> Overhead:
    empty, inside, instant = map(figure, costs)
    return Overhead(device, clock, empty, inside, inside, instant, inside)


def deducted(trace: Trace) -> list[tuple[int, int]]:
    """Return (start, end) of each event after the deduction, in the order of recording."""
    result = ikp.edit.deduct_overhead(trace, overhead())
    start, end = (getattr(result.events, name) - START for name in ("start_ns", "end_ns"))
    return list(zip(start.tolist(), end.tolist(), strict=True))


def test_a_range_loses_what_an_empty_one_shows() -> None:
    assert deducted(warp((100, 150), clock=TIMER)) == [(100, 140)]


def test_what_follows_moves_ahead_by_all_that_came_before() -> None:
    one, other = (100, 150), (200, 250)
    assert deducted(warp(one, other, clock=TIMER)) == [(100, 140), (170, 210)]


def test_the_range_around_loses_the_whole_cost_of_those_in_it() -> None:
    inner, second, outer = (200, 250), (300, 350), (100, 500)
    found = deducted(warp(inner, second, outer, clock=TIMER))
    # Around: 400 ns, of which 10 are its own, and 30 of each range in it.
    assert found == [(190, 230), (260, 300), (100, 430)]


def test_an_instant_has_its_own_cost() -> None:
    assert deducted(warp(150, (100, 200), clock=TIMER)) == [(140, 140), (100, 175)]


def test_ranges_that_overlap_lose_what_happens_in_each() -> None:
    # One is open from 100 to 300, the other from 200 to 400.
    found = deducted(warp((100, 300), (200, 400), clock=TIMER))
    # The first loses its own and the other's start, the other its own and the first one's store.
    assert found == [(100, 280), (190, 360)]


def test_a_range_shorter_than_its_cost_becomes_empty_and_no_more() -> None:
    assert deducted(warp((100, 104), (1000, 1100), clock=TIMER)) == [(100, 100), (970, 1060)]


def test_what_a_gap_can_not_give_is_taken_from_those_that_follow() -> None:
    # The store of the first comes after the second: the pass over the PTX put it there.
    found = deducted(warp((100, 150), (152, 200), (300, 400), clock=TIMER))
    assert found == [(100, 140), (140, 160), (240, 330)]


def test_but_only_of_as_many_records_as_may_be_late() -> None:
    tight = [(100 + i, 100 + i) for i in range(40)]
    found = deducted(warp(*tight, (10_000, 11_000), clock=TIMER))
    late = PENDING * AT_END
    assert PENDING == MAX_PENDING
    # All 39 ns of the tight ones, what may be late, and what the last of them costs at its end.
    gone = 39 + late + AT_END
    assert found[-1] == (10_000 - gone, 11_000 - gone - EMPTY)
    assert set(found[:-1]) == {(100, 100)}


def test_cycles_become_time_at_the_rate_of_the_launch() -> None:
    trace = warp((100, 150), (200, 300))  # half a nanosecond per cycle
    trace = replace(trace, events=replace(trace.events, ticks=np.array([100, 200])))
    result = ikp.edit.deduct_overhead(trace, overhead(clock="cycles"))
    assert result.events.ticks.tolist() == [90, 190]
    assert (result.events.end_ns - result.events.start_ns).tolist() == [45, 95]
    assert (result.events.start_ns - START).tolist() == [100, 185]


def test_each_warp_has_a_timeline_of_its_own() -> None:
    recorded = [[(100, 150)], [(100, 150), (200, 250)]]
    trace = warps(recorded, blocks=[(0, 0, 400), (0, 50, 400)], clock=TIMER)
    result = ikp.edit.deduct_overhead(trace, overhead())
    assert (result.slots.start_ns - START).tolist() == [0, 50]
    assert (result.slots.end_ns - START).tolist() == [370, 340]
    assert (result.events.end_ns - START).tolist() == [140, 140, 210]


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(0, 5)), max_size=70))
def test_what_is_late_is_what_one_step_after_the_other_says(
    steps: list[tuple[float, float]],
) -> None:
    excess, most = np.array(steps, np.float64).reshape(-1, 2).T
    late, expected = 0.0, []
    for add, bound in steps:
        expected.append(late)
        late = min(max(late + add, 0.0), bound)
    assert np.allclose(_late(excess, most), expected)


def costed(trace: Trace, costs: tuple[float, float, float]) -> list[Overhead]:
    """Return overheads for every launch of any clock."""
    kinds = {(each.device, each.clock.name) for each in trace.launches}
    return [overhead(device, clock, costs) for device, clock in kinds]


COSTS = st.tuples(st.floats(0, 1e4), st.floats(0, 3e4), st.floats(0, 1e4))


@given(traces(), COSTS)
def test_order_and_nesting_stay_and_nothing_becomes_negative(
    trace: Trace, costs: tuple[float, float, float]
) -> None:
    result = ikp.edit.deduct_overhead(trace, *costed(trace, costs))
    old, new = trace.events, result.events
    assert (new.start_ns <= new.end_ns).all()
    assert (new.ticks >= 0).all() and (new.ticks <= old.ticks).all()
    assert (new.end_ns - new.start_ns <= old.end_ns - old.start_ns).all()
    assert (new.start_ns[new.kind == Kind.INSTANT] == new.end_ns[new.kind == Kind.INSTANT]).all()
    for name in ("slot", "region", "kind", "payload_type", "payload"):
        assert getattr(new, name).tolist() == getattr(old, name).tolist()
    for slot in range(len(trace.slots)):
        mine = old.slot == slot
        before, after = (
            np.concatenate([each.start_ns[mine], each.end_ns[mine]]) for each in (old, new)
        )
        order = np.argsort(before, kind="stable")
        # What came later does not come earlier; so ranges hold what they held.
        assert (np.diff(after[order])[np.diff(before[order]) > 0] >= 0).all()
        assert (after <= before).all()
    assert (result.slots.start_ns == trace.slots.start_ns).all()
    assert (result.slots.end_ns <= trace.slots.end_ns).all()
    assert (result.slots.end_ns >= result.slots.start_ns).all()


@given(traces())
def test_recording_that_cost_nothing_changes_no_time(trace: Trace) -> None:
    result = ikp.edit.deduct_overhead(trace, *costed(trace, (0.0, 0.0, 0.0)))
    for table in ("slots", "events"):
        for name in ("start_ns", "end_ns"):
            old, new = (getattr(getattr(each, table), name) for each in (trace, result))
            assert old.tolist() == new.tolist()
    assert result.events.ticks.tolist() == trace.events.ticks.tolist()


def test_a_trace_gives_only_once() -> None:
    result = ikp.edit.deduct_overhead(warp((100, 150), clock=TIMER), overhead())
    with pytest.raises(UsageError, match="was deducted from this trace before"):
        ikp.edit.deduct_overhead(result, overhead())
    joined = ikp.edit.concat([result, warp((100, 150), clock=TIMER)])
    with pytest.raises(UsageError, match="before"):
        ikp.edit.deduct_overhead(joined, overhead())


@pytest.mark.parametrize(
    ("clock", "remedy"),
    [
        (ClockFit("cycles", 0.5, "fitted"), r"ikp\.calibrate\(clock='cycles'\)"),
        (ClockFit("cycles", 0.5, "fitted", bits=64), r"ikp\.calibrate\(clock='cycles64'\)"),
        (ClockFit("host", 1.0, "exact"), "interpreter can't be calibrated"),
    ],
)
def test_a_cost_of_another_clock_is_refused(clock: ClockFit, remedy: str) -> None:
    with pytest.raises(UsageError, match=remedy):
        ikp.edit.deduct_overhead(warp((100, 150), clock=clock), overhead())


def test_a_cost_of_another_device_is_refused() -> None:
    with pytest.raises(UsageError, match=r"it ran on NVIDIA H200 .* measured was globaltimer on A"):
        ikp.edit.deduct_overhead(warp((100, 150), clock=TIMER), overhead("A"))
    with pytest.raises(UsageError, match=r"takes what ikp\.calibrate returned, not 3"):
        ikp.edit.deduct_overhead(warp((100, 150), clock=TIMER), 3)  # type: ignore[arg-type]


def test_the_trace_says_so_and_its_file_keeps_it(tmp_path: Path) -> None:
    trace = warp((200, 250), (100, 500), clock=TIMER, attempted=7)
    result = ikp.edit.deduct_overhead(trace, overhead())
    told = result.provenance[DEDUCTED]
    assert told == (
        "10.0 ns in each range, 30.0 for each range in it, 15.0 for each instant on NVIDIA H200: "
        "40 of the warps' 500 ns (8.00 %); not that of 5 dropped records, whose places are not "
        "known"
    )
    path = tmp_path / "deducted.pftrace"
    result.save(path)
    check_trace(path, result)
    again = ikp.load(path)
    assert again.provenance[DEDUCTED] == told
    assert f"overhead deducted: {told}." in str(again.stats())
    with pytest.raises(UsageError, match="before"):
        ikp.edit.deduct_overhead(again, overhead())
