"""What probe code keeps in a kernel's registers, however it is asked what is free."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ikp.sass.disassembly.effects import R
from tests.sass.test_room import room

pytestmark = pytest.mark.any_pins

CODE = [
    ("LDG.E R4, desc[UR4][R2.64]", 0, None, 0),
    ("@P2 EXIT", None, None, 0),
    ("IADD3 R5, R4, R4, RZ", None, None, 1),
    ("EXIT", None, None, 0),
]


def test_a_reserved_register_is_in_no_answer() -> None:
    made = replace(room(*CODE), registers=16)
    asked = (made.at, made.waited, made.left)
    assert all(9 in ask(1).registers for ask in asked)
    made.reserve([R.first + 9])
    assert not any(9 in ask(1).registers for ask in asked)
    assert 9 not in made.entering.registers and 9 not in made.through([1, 2]).registers
    made.release([R.first + 9])
    assert all(9 in ask(1).registers for ask in asked)


def test_a_reservation_is_of_its_instructions() -> None:
    made = replace(room(*CODE), registers=16)
    made.reserve([R.first + 9], [2, 3])
    assert 9 in made.left(1).registers and 9 not in made.left(3).registers
    part = made.within(frozenset({0, 1}))
    part.reserve([R.first + 10])
    assert 10 not in made.left(1).registers and 10 in made.left(3).registers


def test_a_release_frees_nothing_that_the_kernel_needs() -> None:
    made = replace(room(*CODE), registers=16)
    made.reserve([R.first + 4])
    made.release([R.first + 4])
    assert 4 not in made.at(1).registers and 4 not in made.at(2).registers


def test_reservations_can_be_restored() -> None:
    made = replace(room(*CODE), registers=16)
    made.reserve([R.first + 9])
    before, free = made.kept.copy(), made.free.copy()
    made.reserve([R.first + 10, R.first + 4], [1])
    made.restore(before)
    assert (made.kept == before).all() and (made.free == free).all()
