"""When launches began and ended: what every table of them counts from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ikp.core.warps import launch_bounds
from tests.analysis.example import START, launch, trace

pytestmark = pytest.mark.any_pins


def test_from_the_first_start_to_the_last_end_and_none_where_no_warp_recorded() -> None:
    made = trace(
        [], launches=(launch(), launch("idle"), launch("b")), slots=[(0, 0), (2, 0), (0, 1)]
    )
    starts = START + np.array([5, 100, 2])
    made = replace(
        made, slots=replace(made.slots, start_ns=starts, end_ns=starts + np.array([4, 7, 9]))
    )
    start, end = launch_bounds(made)
    assert (end >= start).tolist() == [True, False, True]
    assert (start[[0, 2]] - START).tolist() == [2, 100]
    assert (end[[0, 2]] - START).tolist() == [11, 107]
