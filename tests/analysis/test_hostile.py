"""Traces out of files that hold together, and say what no recording says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ikp.core.abi import Kind
from ikp.core.rows import make_totals
from ikp.core.trace import Region
from tests.analysis.example import launch, trace
from tests.growth import peak_bytes

pytestmark = pytest.mark.any_pins


def test_totals_of_what_never_took_place_have_no_mean() -> None:
    made = trace([], launches=(launch(mode="totals"),))
    columns = {"slot": [0], "region": [0], "kind": [Kind.RANGE], "count": [0]}
    made = replace(made, totals=make_totals(**columns, ticks=[7], total_ns=[5]))
    (row,) = made.stats()
    assert (row.count, row.total_ns, row.mean_ns, row.mean_cycles) == (0, 5, None, None)


def test_an_sm_of_any_number_takes_no_memory() -> None:
    made = trace(
        [(slot, 0, 0, 100 + 100 * (slot == 7)) for slot in range(8)],
        slots=[(0, block) for block in range(8)],
        launches=(launch(grid=(8, 1, 1)),),
    )
    sms = np.arange(8, dtype=np.int32) + (1 << 30)
    made = replace(made, slots=replace(made.slots, sm=sms))
    made.explain()
    assert peak_bytes(made.explain) < 1 << 22


def test_a_launch_of_centuries_is_not_explained() -> None:
    made = trace([(0, 0, 1, 5), (1, 0, 1, 5)])
    ends = made.slots.end_ns.copy()
    ends[0] = (1 << 63) - 1
    made = replace(made, slots=replace(made.slots, end_ns=ends))
    verdict = made.explain()
    assert verdict.launch is None and "its times are wrong" in verdict.unknown[0].rationale


def test_a_range_of_iterations_that_no_warp_recorded_is_no_phase() -> None:
    made = trace([(slot, 0, at, at + 1) for slot in range(4) for at in range(0, 80, 10)])
    made = replace(made, regions=(*made.regions[:2], Region(2, "iteration")))
    phases = made.explain().phases
    assert phases is not None and phases.iteration == "load"
