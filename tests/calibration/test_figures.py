"""What a record costs, from what the kernels recorded: known pieces come back."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ikp
from ikp.calibration.figures import figures
from ikp.core.trace import Trace
from ikp.edit import concat, select
from ikp.errors import UsageError
from tests.calibration.recorded import AFTER, EMPTY, INSTANT, recorded


def test_each_cost_is_that_of_its_pieces() -> None:
    found = figures(recorded(), clock="cycles", blocks=1, warps=1)
    assert found.empty_range.ticks == EMPTY
    assert found.range_inside.ticks == found.nested_inside.ticks == EMPTY + AFTER
    assert found.instant_inside.ticks == INSTANT
    assert found.at_end == AFTER
    assert (found.device, found.clock) == ("GPU", "cycles")
    assert str(found) == (
        "11.0 cycles in each range, 33.0 for each range in it, 20.0 for each instant"
    )


def test_the_spread_is_told_and_cold_ranges_do_not_count() -> None:
    found = figures(recorded(noise=(0, 0, 8, 0)), clock="cycles")
    assert (found.empty_range.low, found.empty_range.ticks) == (EMPTY, EMPTY)
    assert found.empty_range.high == EMPTY + 8
    # Twelve records and four were slow alike: what one adds is not.
    assert found.range_inside.low == found.range_inside.high == EMPTY + AFTER


def test_what_it_measured_is_what_it_deducts() -> None:
    trace = recorded(cold=0, twice=False)
    overhead = figures(trace, clock="cycles")
    bare = ikp.edit.deduct_overhead(trace, overhead)
    assert bare.events.ticks.max() <= 1  # ns and cycles are rounded apart
    assert trace.events.ticks.max() > 300


def without(trace: Trace, label: str) -> Trace:
    return select(trace, launch=lambda name: name != label)


def test_a_trace_that_lacks_a_kernel_or_dropped_records_is_refused() -> None:
    with pytest.raises(UsageError, match="'12 nested' is missing"):
        figures(without(recorded(), "12 nested"), clock="cycles")
    trace = concat([recorded(twice=False)])
    launches = tuple(replace(each, attempted=each.kept + 1) for each in trace.launches)
    with pytest.raises(UsageError, match="records of it were dropped"):
        figures(replace(trace, launches=launches), clock="cycles")
