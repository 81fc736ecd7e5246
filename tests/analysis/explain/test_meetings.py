"""Barriers of many regions are found together as each is alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.analysis.explain import connections
from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.connections import meetings
from ikp.analysis.explain.prepared import Prepared, prepare
from tests.analysis.example import launch, trace

pytestmark = pytest.mark.any_pins

BARRIERS = ("barrier a", "barrier b", "barrier c", "dot")
ARRIVALS = st.lists(st.lists(st.integers(0, 40), min_size=4, max_size=4), min_size=1, max_size=6)


def of(arrivals: list[list[int]], payloads: bool) -> Prepared:
    """Return four warps in two blocks that meet again and again, and leave nearly together."""
    events, now = [], 0
    for turn, came in enumerate(arrivals):
        left = now + 42
        events += [
            (slot, (turn + slot // 2) % 4, now + at, left + at // 20)
            for slot, at in enumerate(came)
        ]
        now = left + 10
    events.sort(key=lambda one: (one[0], one[3]))
    made = trace(
        events,
        launches=(launch(grid=(2, 1, 1), warps_per_block=2),),
        slots=[(0, 0), (0, 0), (0, 1), (0, 1)],
        regions=BARRIERS,
        payload={at: at % 2 for at in range(len(events))} if payloads else None,
        residence=now + 10,
    )
    return prepare(made, 0)


@given(ARRIVALS, st.booleans())
def test_regions_together_meet_as_each_alone(arrivals, payloads):
    together, alone = of(arrivals, payloads), of(arrivals, payloads)
    for region in together.regions([Activity.WAIT_BARRIER]).tolist():
        found = meetings(together, region)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connections, "_SMALL", -1)
            other = meetings(alone, region)
        assert (found is None) == (other is None)
        if found is not None:
            for name in found.__slots__:
                assert np.array_equal(getattr(found, name), getattr(other, name))


def test_they_meet():
    launch = of([[0, 40, 40, 0]] * 4, payloads=False)
    met = meetings(launch, 0)
    assert met is not None
    assert met.count.tolist() == [2, 2]
    assert (met.last - met.mean).tolist() == [20, 20]
