"""Rows in order of several columns: as ``lexsort`` has them, whatever the numbers are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ikp.core import sorting
from ikp.core.sorting import distinct, numbered, order_by, sort_by

pytestmark = pytest.mark.any_pins

FEW = st.integers(-3, 3)
WIDE = st.sampled_from([-(1 << 63), -1, 0, 1, (1 << 40), (1 << 63) - 1])


@st.composite
def columns(draw: st.DrawFn) -> list[NDArray[np.int64]]:
    number = draw(st.sampled_from([FEW, WIDE, FEW | WIDE]))
    rows = draw(st.lists(st.tuples(number, FEW, number), min_size=1, max_size=30))
    return [np.array(column, np.int64) for column in zip(*rows, strict=True)]


@pytest.fixture(autouse=True)
def words_of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "_FEW", 1)


@given(columns())
def test_it_is_the_order_of_lexsort(columns: list[NDArray[np.int64]]) -> None:
    order = np.lexsort(columns[::-1])
    assert np.array_equal(order_by(*columns), order)
    found = sort_by(*columns)
    assert [one.tolist() for one in found] == [column[order].tolist() for column in columns]


@given(columns(), st.integers(1, 4))
def test_distinct_rows_are_numbered_in_sorted_order(
    columns: list[NDArray[np.int64]], times: int
) -> None:
    rows = np.repeat(np.stack(columns, axis=1), times, axis=0)  # runs of what is alike
    number, one = distinct(*rows.T)
    wanted, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    assert number.tolist() == which.reshape(-1).tolist()
    assert rows[one].tolist() == wanted.tolist()
    assert one.tolist() == first.tolist()


def test_no_rows_have_an_order() -> None:
    none = np.zeros(0, np.int32)
    assert order_by(none, none).tolist() == []
    assert [one.tolist() for one in sort_by(none, none)] == [[], []]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64, np.int16])
def test_columns_are_of_any_type(dtype: type[np.integer]) -> None:
    column = np.array([np.iinfo(dtype).max, 0, 7, 7], dtype)
    assert order_by(column).tolist() == [1, 2, 3, 0]


@given(st.data(), st.integers(0, 8), st.integers(0, 8))
def test_many_rows_of_few_bits_are_numbered_and_sorted_alike(
    data: st.DataObject, first: int, second: int
) -> None:
    """Words are counted where few are possible, and have 32 bits where these are enough."""
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    rows = [rng.integers(-3, -3 + (1 << bits), 200) for bits in (first, second)]
    number, one = distinct(*rows)
    _, which, told = np.unique(np.stack(rows), axis=1, return_index=True, return_inverse=True)
    assert number.tolist() == told.reshape(-1).tolist() and one.tolist() == which.tolist()
    order = np.lexsort(rows[::-1])
    assert [each.tolist() for each in sort_by(*rows)] == [each[order].tolist() for each in rows]


@given(st.lists(FEW | WIDE.map(lambda n: n >> 2), min_size=1, max_size=40))
def test_numbers_are_numbered_ascending(numbers: list[int]) -> None:
    kinds, place = numbered(np.array(numbers, np.int64))
    assert kinds.tolist() == sorted({*numbers}) and kinds[place].tolist() == numbers
