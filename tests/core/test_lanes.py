from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.core import lanes
from ikp.core.abi import Kind
from tests.strategies import recordings
from tests.trace_processor.nesting import depths, parents

Columns = tuple[Any, Any, Any, Any]


def columns(slots: list[list[tuple[int, int, int, int]]]) -> Columns:
    rows = [(slot, *event) for slot, events in enumerate(slots) for event in events]
    slot, kind, _, start, end = np.array(rows, np.int64).reshape(-1, 5).T
    return slot, start, end, kind == Kind.RANGE


def ranges(*intervals: tuple[int, int]) -> Columns:
    return columns([[(Kind.RANGE, 0, start, end) for start, end in intervals]])


def slots(**options: Any) -> st.SearchStrategy[Columns]:
    return st.lists(recordings(2, 5, 1, **options), max_size=4).map(columns)


def assert_brackets(stream: lanes.Stream, data: Columns, max_depth: int) -> None:
    """Each lane opens and closes as brackets do: what opened last closes first."""
    slot, start, end, is_range = data
    packets: dict[int, tuple[int, str]] = {}
    for i in range(len(slot)):
        packets[int(stream.closes[i])] = (i, "close")
        if is_range[i]:
            packets[int(stream.opens[i])] = (i, "open")
        else:
            assert stream.opens[i] == stream.closes[i]
            assert stream.lane[i] == 0
    assert sorted(packets) == list(range(len(slot) + int(is_range.sum()))) == [*range(len(stream))]
    stacks: dict[tuple[int, int], list[int]] = {}
    last: tuple[int, int] = (-1, 0)
    for place in sorted(packets):
        i, what = packets[place]
        stack = stacks.setdefault((int(slot[i]), int(stream.lane[i])), [])
        now = int(slot[i]), int(start[i] if what == "open" else end[i])
        assert now >= last, "time goes back within a slot, or slots are mixed"
        last = now
        if what == "open":
            stack.append(i)
            assert len(stack) <= max_depth
        elif is_range[i]:
            assert stack.pop() == i
    assert not any(stacks.values())


def reference(data: Columns, slot: int) -> list[int] | None:
    rows = data[0] == slot
    return parents(*(column[rows].tolist() for column in data[1:]))


@given(slots(), st.sampled_from([1, 2, lanes.MAX_DEPTH]))
def test_every_lane_nests(data: Columns, max_depth: int) -> None:
    stream = lanes.arrange(*data, max_depth=max_depth)
    assert_brackets(stream, data, max_depth)


@given(slots())
def test_lanes_are_for_what_overlaps_and_nothing_else(data: Columns) -> None:
    stream = lanes.arrange(*data)
    for slot in np.unique(data[0]).tolist():
        nests = reference(data, slot) is not None
        assert nests == (not stream.lane[data[0] == slot].any())


@given(slots(overlap=False))
def test_the_plain_way_and_the_thorough_way_agree(data: Columns) -> None:
    quick = lanes.arrange(*data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "MAX_VISITS", -1)
        thorough = lanes.arrange(*data)
    for name in ("opens", "closes", "lane"):
        np.testing.assert_array_equal(getattr(quick, name), getattr(thorough, name))


@given(slots(), st.sampled_from([1, 2, lanes.MAX_DEPTH]), st.sampled_from([1, 2, 8]))
def test_slots_taken_together_get_the_lanes_of_each_alone(
    data: Columns, max_depth: int, known: int
) -> None:
    found = []
    for groups in (1, 1 << 30):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lanes, "GROUPS", groups)
            patch.setattr(lanes, "FIRST_LANES", known)
            patch.setattr(lanes, "_FIRST_DEPTH", 1)
            found.append(lanes.arrange(*data, max_depth=max_depth).lane)
    np.testing.assert_array_equal(*found)


@given(slots(), st.sampled_from([0, lanes._WORD_BITS]))
def test_moments_of_slots_are_found_on_one_axis_or_by_bisecting(data: Columns, bits: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "_WORD_BITS", bits)
        found = lanes.arrange(*data)
    usual = lanes.arrange(*data)
    for name in ("opens", "closes", "lane"):
        np.testing.assert_array_equal(getattr(found, name), getattr(usual, name))


@given(slots(overlap=False))
def test_ranges_lie_as_deep_as_a_plain_algorithm_says(data: Columns) -> None:
    stream = lanes.arrange(*data)
    slot, _, _, is_range = data
    for number in np.unique(slot).tolist():
        rows = np.flatnonzero((slot == number) & is_range)
        parent = parents(*(column[rows].tolist() for column in data[1:]))
        assert parent is not None
        opens, closes = stream.opens[rows], stream.closes[rows]
        depth = [int(np.sum((opens < opens[i]) & (closes > closes[i]))) for i in range(len(rows))]
        assert depth == depths(parent)


@pytest.mark.parametrize(
    ("intervals", "order"),
    [
        ([(0, 1), (1, 2)], "a A b B"),
        ([(1, 2), (0, 3)], "b a A B"),
        ([(0, 3), (0, 3)], "b a A B"),
        ([(0, 0), (0, 3)], "a A b B"),
        ([(0, 3), (3, 3)], "a A b B"),
        ([(3, 3), (0, 3)], "b a A B"),
        ([(2, 2), (2, 2)], "a A b B"),
        ([(0, 2), (1, 3)], "a b A B"),
    ],
)
def test_where_times_tie_the_order_of_recording_decides(
    intervals: list[tuple[int, int]], order: str
) -> None:
    stream = lanes.arrange(*ranges(*intervals))
    letters = dict(zip(stream.opens.tolist(), "ab", strict=True))
    letters |= zip(stream.closes.tolist(), "AB", strict=True)
    assert " ".join(letters[i] for i in range(4)) == order


def test_only_the_later_one_of_two_overlapping_ranges_moves_aside() -> None:
    stream = lanes.arrange(*ranges((0, 4), (2, 6), (6, 8)))
    assert stream.lane.tolist() == [0, 1, 0]


def test_three_that_overlap_take_three_lanes() -> None:
    stream = lanes.arrange(*ranges((0, 7), (1, 8), (2, 9), (9, 10)))
    assert stream.lane.tolist() == [0, 1, 2, 0]


def test_what_lies_too_deep_moves_to_another_lane() -> None:
    depth = 1100
    data = ranges(*((depth - i, depth + i) for i in range(depth)))
    stream = lanes.arrange(*data)
    assert_brackets(stream, data, lanes.MAX_DEPTH)
    assert np.bincount(stream.lane).tolist() == [510, 510, 80]
    assert stream.lane[-1] == 0  # the outermost


def test_deep_nesting_takes_no_longer_than_its_events() -> None:
    one = [(200 - i, 200 + i) for i in range(200)]
    data = columns([[(Kind.RANGE, 0, start, end) for start, end in one]] * 50)
    stream = lanes.arrange(*data)
    assert not stream.lane.any()
    assert_brackets(stream, data, lanes.MAX_DEPTH)


def test_nothing_at_all() -> None:
    assert len(lanes.arrange(*columns([]))) == 0
