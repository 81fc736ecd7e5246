"""What a record costs, from what the kernels recorded: known pieces come back."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ikp
from ikp.calibration.calibrate import (
    ALONE,
    INSTANTS,
    MANY,
    NESTED,
    SIDE_BY_SIDE,
    MeasuredKernel,
    cost_figures,
)
from ikp.core.overhead import Figure
from ikp.core.trace import Trace
from ikp.edit import concat, select
from ikp.errors import UsageError
from tests.calibration.recorded import AFTER, EMPTY, HIDDEN, INSTANT, WORK, recorded

pytestmark = pytest.mark.any_pins


def test_each_cost_is_that_of_its_pieces() -> None:
    found = cost_figures(recorded(), clock="cycles", blocks=1, warps=1)
    assert found.empty_range.ticks == found.at_start == EMPTY
    assert found.range_inside.ticks == found.nested_inside.ticks == EMPTY + HIDDEN
    assert found.instant_inside.ticks == found.at_instant == INSTANT
    assert found.range_alone.ticks == EMPTY + AFTER
    assert found.at_end == HIDDEN
    assert (found.device, found.clock) == ("GPU", "cycles")
    assert str(found) == (
        "11.0 cycles in each range, 14.0 for each range in it, 5.0 for each instant"
    )


def test_the_spread_is_told_and_cold_ranges_do_not_count() -> None:
    found = cost_figures(recorded(noise=(0, 0, 8, 0)), clock="cycles")
    assert (found.empty_range.low, found.empty_range.ticks) == (EMPTY, EMPTY)
    assert found.empty_range.high == EMPTY + 8
    # Twelve records and four were slow alike: what one adds is not.
    assert found.range_inside.low == found.range_inside.high == EMPTY + HIDDEN


def test_the_steps_of_a_timer_average_out() -> None:
    found = cost_figures(recorded(noise=(0, 16)), clock="globaltimer")
    assert found.empty_range.ticks == EMPTY + 8


@pytest.mark.parametrize("kind", [SIDE_BY_SIDE, NESTED, INSTANTS])
def test_what_it_measured_is_what_it_deducts(kind: str) -> None:
    trace = recorded(cold=0, twice=False)
    bare = ikp.edit.deduct_overhead(trace, cost_figures(trace, clock="cycles"))
    around = select(bare, region="around", launch=MeasuredKernel(kind, MANY).label)
    assert (around.events.ticks == MANY * 2 * WORK).all()


def test_of_a_warp_that_only_records_no_more_is_deducted_than_work_would_have_hidden() -> None:
    trace = recorded(cold=0, twice=False)
    bare = ikp.edit.deduct_overhead(trace, cost_figures(trace, clock="cycles"))
    around = select(bare, region="around", launch=MeasuredKernel(ALONE, MANY).label)
    assert (around.events.ticks == MANY * (AFTER - HIDDEN)).all()


def test_no_range_gives_more_than_it_adds_to_the_one_around_it() -> None:
    found = cost_figures(recorded(), clock="cycles")
    hidden = replace(found, range_inside=Figure(4.0, 4.0, 4.0))
    assert (hidden.at_start, hidden.at_end) == (4.0, 0.0)
    faster = replace(found, range_inside=Figure(-1.0, -1.0, -1.0))
    assert (faster.at_start, faster.at_end) == (0.0, 0.0)


def without(trace: Trace, label: str) -> Trace:
    return select(trace, launch=lambda name: name != label)


def test_a_trace_that_lacks_a_kernel_or_dropped_records_is_refused() -> None:
    with pytest.raises(UsageError, match="'12 nested' is missing"):
        cost_figures(without(recorded(), "12 nested"), clock="cycles")
    trace = concat([recorded(twice=False)])
    launches = tuple(replace(each, attempted=each.kept + 1) for each in trace.launches)
    with pytest.raises(UsageError, match="records of it were dropped"):
        cost_figures(replace(trace, launches=launches), clock="cycles")
