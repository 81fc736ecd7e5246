"""The fields of an instruction, as ptxas fills them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.errors import PatchError
from ikp.sass.cubins.instruction import (
    AFTER_REGISTER,
    HALF,
    NARROW,
    WIDE,
    DistanceField,
    branch,
    distances,
    guard,
    number,
    rows,
    set_distances,
)

pytestmark = pytest.mark.any_pins

WRITTEN = [  # by ptxas; the distance as nvdisasm resolves it
    (WIDE, 0x000FEA0003800000_0000000800F88947, 6624 - 3584),
    (WIDE, 0x000FEA000383FFFF_FFFFFFF800580947, 4928 - 6624),
    (NARROW, 0x000FEA0003800000_0000014000008947, 480 - 160),
    (NARROW, 0x000FC0000383FFFF_FFFFFFF000007947, -16),
    (HALF, 0x000FE20003800000_0000005000007945, 8800 - 8720),
    (AFTER_REGISTER, 0x000FCE0000000000_000000001014794E, 496 - 480),
    (WIDE, 0x000FEA0003C00000_00000000060C7348, 23424 - 23376),
]


@pytest.mark.parametrize(("field", "instruction", "distance"), WRITTEN)
def test_distances_as_ptxas_writes_them(
    field: DistanceField, instruction: int, distance: int
) -> None:
    words = rows([instruction])
    assert distances(words, field).tolist() == [distance]
    set_distances(words, field, np.array([0]))
    assert number(words[0]) != instruction
    set_distances(words, field, np.array([distance]))
    assert number(words[0]) == instruction


@given(
    st.sampled_from([WIDE, NARROW, HALF, AFTER_REGISTER]),
    st.integers(0, (1 << 128) - 1),
    st.lists(st.integers(-(1 << 26), (1 << 26) - 1), min_size=1, max_size=4),
)
def test_a_distance_is_read_as_it_was_written(
    field: DistanceField, word: int, far: list[int]
) -> None:
    wanted = np.array(far) * 16
    words = rows([word] * len(far))
    set_distances(words, field, wanted)
    assert distances(words, field).tolist() == wanted.tolist()
    inside = sum(((1 << bits) - 1) << (first + 64 * half) for half, first, bits in field.parts)
    assert all((number(row) ^ word) & ~inside == 0 for row in words)


def test_a_distance_that_has_no_room_is_refused() -> None:
    with pytest.raises(PatchError, match="farther than"):
        set_distances(rows([0]), HALF, np.array([1 << 31]))


def test_guard() -> None:
    assert guard(0x7918) == (7, False)
    assert guard(0x8947) == (0, True)
    assert guard(0x2947) == (2, False)


def test_branches_as_ptxas_writes_them() -> None:
    assert branch(WIDE, 0x2F8 * 4) == 0x000FEA0003800000_0000000800F87947
    assert branch(NARROW, 0x140) == 0x000FEA0003800000_0000014000007947
    assert guard(branch(WIDE, -32)) == (7, False)
