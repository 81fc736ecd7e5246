"""The tree of ranges that nest, found without a sort, is the one that sorting finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.analysis.explain import nesting
from ikp.analysis.explain.prepared import Prepared, prepare
from ikp.trace import Trace
from tests.analysis.example import trace

pytestmark = pytest.mark.any_pins

CUTS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20), st.integers(0, 2)), max_size=12)


def nested(cuts: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the ranges (start, end, region) that cross none before them, as warps record them."""
    kept: list[tuple[int, int, int]] = []
    for start, length, region in cuts:
        end = start + length
        if not any(a < start < b < end or start < a < end < b for a, b, _ in kept):
            kept.append((start, end, region))
    return sorted(kept, key=lambda one: (one[1], -one[0]))


@given(st.lists(CUTS, min_size=1, max_size=4).filter(any))
def test_it_is_what_sorting_finds(warps: list[list[tuple[int, int, int]]]) -> None:
    events = [
        (slot, region, start, end)
        for slot, cuts in enumerate(warps)
        for start, end, region in nested(cuts)
    ]
    made = trace(events, slots=[(0, slot) for slot in range(len(warps))], residence=60)
    launch = prepare(made, 0)
    assert nesting._nested(all_ranges(launch)) is not None
    found = tuple(nesting.tree(launch))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "_nested", lambda ranges: None)
        assert tuple(nesting.tree(launch)) == found


def of(*events: tuple[int, int, int]) -> Prepared:
    made: Trace = trace([(0, *one) for one in events], slots=[(0, 0)])
    return prepare(made, 0)


def all_ranges(launch: Prepared) -> nesting._Ranges:
    return nesting._Ranges.of(launch, slice(None))


def test_what_overlaps_is_sorted() -> None:
    assert nesting._nested(all_ranges(of((0, 0, 9), (1, 5, 12)))) is None
    crossing = tuple(nesting.tree(of((0, 0, 9), (1, 5, 12), (2, 6, 7))))
    assert {one.path for one in crossing} == {("load",), ("dot",), ("dot", "tile done")}


def test_a_time_that_is_too_far_away_moves_no_other_warps_ranges() -> None:
    crossing = [(0, 0, 0, 9), (0, 1, 5, 12), (0, 2, 6, 7)]
    far = (1, 1, (1 << 62) + 1, (1 << 62) + 3)
    near, made = (trace([*crossing, one], slots=[(0, 0), (0, 1)]) for one in ((1, 1, 1, 3), far))
    paths = [
        [(one.path, one.count) for one in nesting.tree(prepare(each, 0))] for each in (near, made)
    ]
    assert sorted(paths[0]) == sorted(paths[1])
