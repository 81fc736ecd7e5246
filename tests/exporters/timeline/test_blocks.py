"""The lane on which each interval stands: the lowest on which it touches no other one."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ikp.core import lanes
from ikp.core.lanes import pack

INTERVALS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(0, 4)), min_size=0, max_size=20
)


def packed(rows: list[tuple[int, int, int]]) -> tuple[Any, Any, Any, Any]:
    group, start, length = np.array(rows, np.int64).reshape(-1, 3).T
    end = start + length
    places = np.arange(len(group)) * 2
    return group, start, end, pack(group, start, end, (places, places + 1))


@given(INTERVALS)
def test_intervals_on_one_lane_follow_each_other(rows: list[tuple[int, int, int]]) -> None:
    group, start, end, lane = packed(rows)
    for i in range(len(group)):
        for j in range(i):
            if (group[i], lane[i]) == (group[j], lane[j]):
                # j comes first in the file: so it may end as i starts, but not the other way round
                assert end[j] <= start[i] or end[i] < start[j]


@given(INTERVALS)
def test_no_more_lanes_than_intervals_at_a_time(rows: list[tuple[int, int, int]]) -> None:
    group, start, end, lane = packed(rows)
    for one in np.unique(group):
        mine = group == one
        most = max(int(np.sum((start[mine] <= t) & (end[mine] >= t))) for t in range(20))
        assert lane[mine].max() < most


@given(INTERVALS, st.sampled_from([1, 3, 64]), st.sampled_from([0, 1 << 50]))
def test_many_groups_at_a_time_get_the_lanes_that_each_gets_alone(
    rows: list[tuple[int, int, int]], most: int, far: int
) -> None:
    rows = [(one, start + far * (one == 1), length) for one, start, length in rows]
    *_, one_by_one = packed(rows)
    with (
        patch.object(lanes, "GROUPS", 1),
        patch.multiple(lanes, FIRST_LANES=1, LANES=most),
        patch.multiple(lanes, _WORD_BITS=20 if far else 63),
    ):
        *_, together = packed(rows)
    assert together.tolist() == one_by_one.tolist()


def test_the_lowest_free_lane_is_taken() -> None:
    _, _, _, lane = packed([(0, 0, 9), (0, 1, 1), (0, 1, 9), (0, 3, 1), (0, 5, 1), (1, 0, 9)])
    assert lane.tolist() == [0, 1, 2, 1, 1, 0]


def test_a_lane_is_not_reused_at_once_by_what_stands_earlier_in_the_file() -> None:
    lane = pack(
        np.zeros(2, np.int64),
        np.array([5, 0]),
        np.array([9, 5]),
        (np.array([0, 1]), np.array([0, 1])),
    )
    assert lane.tolist() == [1, 0]
