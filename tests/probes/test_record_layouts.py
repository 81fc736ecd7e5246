"""Which free registers a record's words are made in."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ikp.probes.placement.register_choice import kinds_of_layouts
from ikp.sass.disassembly.effects import R

pytestmark = pytest.mark.any_pins

ROW, PAIR_AND_ONE, THREE, PAIR, TWO, ONE = range(6)
"""Kinds of layouts, the best first: by how many registers there are, and how they lie."""


def kinds(*free: int, late: int = 0) -> list[int]:
    """Return the kinds of layouts that there are in free registers."""
    pairs = tuple(at for at in free if at % 2 == 0 and at + 1 in free)
    made = [*kinds_of_layouts(free, pairs, late)]
    assert all({*each} <= {*free} for some in made for each in some), "no other register"
    for some, words in zip(made, (3, 3, 3, 2, 2, 1), strict=True):
        assert all(len({*each}) == words for each in some)
    return [kind for kind, some in enumerate(made) if some]


def test_each_kind_is_there_as_soon_as_its_registers_are() -> None:
    assert kinds() == []
    assert kinds(9) == [ONE]
    assert kinds(6, 9) == [TWO, ONE]
    assert kinds(6, 9, 13) == [THREE, TWO, ONE]
    assert kinds(6, 7) == [PAIR, TWO, ONE]
    assert kinds(6, 7, 9) == [PAIR_AND_ONE, THREE, PAIR, TWO, ONE]
    assert kinds(8, 9, 10) == [ROW, PAIR_AND_ONE, THREE, PAIR, TWO, ONE]
    assert kinds(6, 7, 8) == [PAIR_AND_ONE, THREE, PAIR, TWO, ONE], "a row begins at a fourth"


def test_a_row_reads_no_register_that_a_load_has_yet_to_write() -> None:
    """One store of four registers takes the words in the first three."""
    assert kinds(8, 9, 10, late=1 << R.first + 11)[0] == THREE
    assert kinds(8, 9, 10, late=1 << R.first + 12)[0] == ROW


def test_registers_without_a_neighbour_are_taken_first() -> None:
    """Pairs are left for addresses."""
    _, _, three, _, two, one = kinds_of_layouts((4, 5, 8, 11, 14), (4,), 0)
    assert three[0] == (8, 11, 14) and two[0] == (8, 11, 11)
    assert two == [(first, second, second) for first, second in pairwise((8, 11, 14, 4, 5))]
    assert one[0] == (4, 4, 4)
