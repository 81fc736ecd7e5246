"""Which tracks a trace gets, whatever the format."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ikp.exporters.timeline.tracks import lay_out
from tests.exporters.perfetto.examples import warps


@pytest.mark.parametrize(
    ("roles", "name"),
    [
        ((0, 0), "warp 0"),
        ((1, 1), "warp 0 producer"),
        ((1, 2), "warp 0"),
        ((2, 1), "warp 0"),
        ((0, 1), "warp 0"),
        ((1, 0), "warp 0"),
    ],
)
def test_a_row_of_warps_has_the_role_that_they_all_have(roles: tuple[int, int], name: str) -> None:
    one_after_the_other = [(0, 0, 10), (0, 10, 20)]
    trace = warps([[(1, 2)], [(11, 12)]], blocks=one_after_the_other)
    slots = replace(trace.slots, role=np.array(roles, np.int32))
    trace = replace(trace, slots=slots, roles=("", "producer", "consumer"))
    tracks = lay_out(trace).tracks
    assert [track.name for track in tracks if track.name.startswith("warp ")] == [name]
