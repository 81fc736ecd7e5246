"""Where a warp finds its slot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ikp.probes.placement.entry_and_exits import _ground, start
from ikp.sass.dataflow.free_registers import FreeRegisters, Spare
from tests.sass.test_room import room

pytestmark = pytest.mark.any_pins

LOADS = (
    ("MOV R2, 0x1", None, None, 0),
    ("LDG.E R4, desc[UR4][R2.64]", 0, None, 0),
    ("NOP", None, None, 0),
    ("FADD R5, R4, R4", None, None, 1),
    ("EXIT", None, None, 0),
)
ROOM = replace(room(*LOADS), registers=40)


def index(made: FreeRegisters, first: int = 99, kept: bool = True) -> int | None:
    found = start(made, first, known=True, kept=kept)
    return found.index if found else None


def test_it_is_where_the_kernel_waits_for_its_first_loads() -> None:
    assert index(ROOM) == 3
    assert index(ROOM, first=2) == 2  # records come before
    assert index(ROOM, kept=False) == 0  # what the entry read is stored at once
    assert index(replace(ROOM, registers=10)) is None


def test_without_a_wait_it_is_behind_the_last_load() -> None:
    assert index(replace(room(*LOADS[:3], LOADS[-1]), registers=40)) == 2
    assert index(replace(room(LOADS[0], LOADS[-1]), registers=40)) == 0


def test_what_a_loop_begins_with_is_run_again() -> None:
    loop = (".L_x_0:", None, None, 0), *LOADS[:-1], ("@P0 BRA `(.L_x_0)", None, None, 0), LOADS[-1]
    assert index(replace(room(*loop), registers=40)) == 0


def test_its_registers_are_apart() -> None:
    found = start(ROOM, 99, known=True, kept=True)
    assert found is not None
    ground = found.ground
    pairs = [each + n for each in (ground.cell, ground.sizes) for n in range(2)]
    taken = [*pairs, *ground.single, *[each + n for each in ground.quads for n in range(4)]]
    assert len(set(taken)) == len(taken) and not {1, 2, 3} & set(taken)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_it_takes_as_many_rows_as_leave_two_pairs_and_the_rest(rows: int) -> None:
    quads = tuple(range(0, 4 * rows, 4))
    free = Spare(tuple(range(4 * rows)), tuple(range(0, 4 * rows, 2)), quads, (1,), (), (), (0,))
    made = _ground(free, 0)
    taken = None if made is None else (len(made.quads), {made.cell, made.sizes})
    assert taken == (None if rows == 1 else (rows - 1, {0, 2}))
    more = replace(free, registers=(*free.registers, 30, 33, 35))
    with_rest = _ground(more, 3)
    assert (with_rest is None) == (rows == 1)
    assert with_rest is None or {*with_rest.single} == {30, 33, 35}
    fewer = _ground(more, 5)
    assert (fewer is None) == (rows < 3) and (fewer is None or len(fewer.quads) == rows - 2)
    assert _ground(replace(free, predicates=()), 0) is None
    assert _ground(replace(free, scoreboards=()), 0) is None
