"""Which MOVs set a return address, by where their values go."""

from __future__ import annotations

import numpy as np
import pytest

from ikp.sass.cubins.instruction import Words
from ikp.sass.insertion._references import _comes_to

pytestmark = pytest.mark.any_pins

NOP = (0x7918, 0)
MOVE = (0x7802 | 5 << 16, 0)
"""A number into R5."""


def mov(into: int, source: int) -> tuple[int, int]:
    return 0x7202 | into << 16 | 0xFF << 24 | source << 32, 0


def imad_mov(into: int, source: int) -> tuple[int, int]:
    return 0x7224 | into << 16 | 0xFF << 24 | 0xFF << 32, source


def comes(*words: tuple[int, int], goals: set[int]) -> bool:
    made: Words = np.array([NOP, MOVE, *words], np.uint64)
    return _comes_to(made, 1, goals)


def test_a_number_comes_to_the_register_that_it_is_put_into_or_copied_to() -> None:
    assert comes(NOP, goals={5}) and not comes(NOP, goals={6})
    for copy in (mov, imad_mov):
        assert comes(copy(20, 5), goals={20}) and not comes(copy(20, 5), goals={21})
        assert not comes(copy(20, 6), goals={20}), "a copy of another register"
        assert not comes(copy(20, 5), goals={5}), "the copy is what is used"
        assert comes(NOP, NOP, NOP, copy(20, 5), goals={20})
        assert not comes(NOP, NOP, NOP, NOP, copy(20, 5), goals={20}), "too far behind"
