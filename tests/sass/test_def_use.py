"""Definitions and uses of registers: across blocks, loops and guards."""

from __future__ import annotations

import pytest

from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.disassembly.effects import bit
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins


def uses_of(*lines: str, ours: frozenset[int] = frozenset()) -> DefUse:
    return DefUse(Flow(sass(*lines, "EXIT")), ours)


def test_a_later_write_hides_an_earlier_one() -> None:
    uses = uses_of("MOV R1, 0x1", "MOV R1, 0x2", "IADD3 R2, R1, 0x3, RZ")
    assert uses.sources(2) == {1} and uses.users(1) == {2} and uses.users(0) == set()


def test_a_write_under_a_guard_leaves_the_earlier_one_standing() -> None:
    uses = uses_of("MOV R1, 0x1", "@P0 MOV R1, 0x2", "IADD3 R2, R1, 0x3, RZ")
    assert uses.sources(2) == {0, 1}


def test_both_ways_of_a_branch_reach_where_they_meet() -> None:
    uses = uses_of(
        *("MOV R1, 0x1", "@P0 BRA `(.L_x_0)", "MOV R1, 0x2", ".L_x_0:", "FADD R2, R1, R1")
    )
    assert uses.sources(3) == {0, 2}


def test_a_loop_hands_its_last_write_to_its_next_iteration() -> None:
    uses = uses_of(
        *("MOV R1, RZ", ".L_x_0:", "FADD R1, R1, R2", "ISETP.NE.AND P0, PT, R3, RZ, PT"),
        *("@P0 BRA `(.L_x_0)", "STG.E desc[UR4][R4.64], R1"),
    )
    assert uses.sources(1) == {0, 1} and uses.sources(4) == {1}
    assert uses.users(1) == {1, 4} and uses.sources(3) == {2}


def test_registers_of_one_operand_can_be_asked_for() -> None:
    uses = uses_of("MOV R4, 0x0", "MOV R6, 0x1", "STG.E desc[UR4][R4.64], R6")
    assert uses.sources(2, 1 << bit("R6")) == {1} and uses.sources(2, 1 << bit("R4")) == {0}


def test_what_records_write_is_left_out() -> None:
    uses = uses_of("MOV R1, 0x1", "MOV R1, 0x2", "FADD R2, R1, R1", ours=frozenset({1}))
    assert uses.sources(2) == {0} and uses.users(1) == set()
