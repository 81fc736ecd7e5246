"""Names and ids: stable, told apart, and refused in words where they can't be."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.core.abi import HASHED_REGION, MAX_USER_REGION, REGION_MASK
from ikp.core.regions import checked_id, checked_name, fallback_name, merge, region_id
from ikp.errors import RegionError, UsageError

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@pytest.mark.parametrize(
    ("name", "number"),
    [("load", 0x7471E1E), ("dot", 0x70B833A), ("tile done", 0x7B3C9C7), ("λ → 内核", 0x5839CE3)],
)
def test_an_id_is_the_same_in_every_process_and_release(name: str, number: int) -> None:
    # Compiled kernels hold these ids, on every rank and in every cache.
    assert region_id(name) == number


@given(NAMES)
def test_a_hashed_id_fits_and_is_never_a_number_of_the_user(name: str) -> None:
    assert MAX_USER_REGION < region_id(name) <= REGION_MASK
    assert region_id(name) & HASHED_REGION


def test_a_few_hundred_names_get_ids_of_their_own() -> None:
    names = [f"{verb} {i}" for verb in ("load", "dot", "store", "wait") for i in range(100)]
    assert len({region_id(name) for name in names}) == len(names)


@pytest.mark.parametrize("name", ["", None, 3, b"load", ["load"]])
def test_what_can_not_be_a_name_is_refused(name: object) -> None:
    with pytest.raises(RegionError, match="non-empty string, not"):
        checked_name(name)


def test_half_a_letter_is_refused() -> None:
    with pytest.raises(RegionError, match="valid Unicode"):
        checked_name("load\ud83d")


class Step(IntEnum):
    LOAD = 4


@pytest.mark.parametrize("number", [0, 1, MAX_USER_REGION, np.int64(7), Step.LOAD])
def test_small_integers_are_ids(number: int) -> None:
    assert checked_id(number) == number
    assert type(checked_id(number)) is int


@pytest.mark.parametrize("number", [-1, MAX_USER_REGION + 1, 2**40])
def test_other_integers_are_not(number: int) -> None:
    with pytest.raises(RegionError, match=f"region id {number} is out of range: .*0 to 67108863"):
        checked_id(number)


@pytest.mark.parametrize("number", ["load", 1.0, None, True])
def test_what_is_no_integer_is_no_id(number: object) -> None:
    with pytest.raises(RegionError, match=r"a region id is an integer.*not"):
        checked_id(number)  # type: ignore[arg-type]


IDS = st.integers(0, REGION_MASK)


@given(st.lists(st.dictionaries(IDS, NAMES)))
def test_merged_tables_hold_every_name_or_are_refused(tables: list[dict[int, str]]) -> None:
    names: dict[int, set[str]] = {}
    for table in tables:
        for number, name in table.items():
            names.setdefault(number, set()).add(name)
    if all(len(of_one) == 1 for of_one in names.values()):
        assert merge(tables) == {number: of_one.pop() for number, of_one in names.items()}
    else:
        with pytest.raises(RegionError, match="share the id"):
            merge(tables)


def test_a_collision_names_both_and_the_remedy() -> None:
    with pytest.raises(UsageError, match=r"'load' and 'store' share the id 0x10.*rename one"):
        merge([{16: "load"}, {3: "other"}, {16: "store"}])


def test_a_region_with_no_name_shows_its_number_and_of_which_kind_it_is() -> None:
    assert fallback_name(12) == "region 12"
    assert fallback_name(MAX_USER_REGION) == "region 67108863"
    assert fallback_name(HASHED_REGION | 0x12) == "region 0x0000012?"
    assert fallback_name(REGION_MASK) == "region 0x3ffffff?"
