"""How many registers a warp has left, on any way to an instruction."""

from __future__ import annotations

import pytest

from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.register_handover import hands_over, registers_at
from tests.sass.test_room import controlled

pytestmark = pytest.mark.any_pins


def flow(*lines: str) -> Flow:
    return Flow(controlled(*[(line, None, None, 0) for line in lines]))


def test_the_smallest_number_of_all_ways_holds() -> None:
    made = flow(
        "@P0 BRA `(.L_x_0)",
        "USETMAXREG.DEALLOC.CTAPOOL 0x28",
        "@P1 BRA `(.L_x_0)",
        "USETMAXREG.DEALLOC.CTAPOOL 0x18",
        ".L_x_0:",
        "NOP",
        "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xe8",
        "EXIT",
    )
    assert registers_at(made, 168) == [168, 168, 40, 40, 24, 24, 24]
    assert hands_over(made) and not hands_over(flow("EXIT"))


def test_behind_the_loop_in_which_a_warp_asks_it_has_more() -> None:
    made = flow(
        ".L_x_1:",
        "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xe8",
        "PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0",
        "@!P0 BRA `(.L_x_1)",
        "NOP",
        "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0",  # in no loop
        "NOP",
        "NOP",
        "EXIT",
    )
    assert registers_at(made, 168) == [168, 168, 168, 232, 232, 232, 232, 232]


def test_who_asks_for_all_there_are_is_followed_further() -> None:
    made = flow(
        ".L_x_1:",
        "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0x100",
        "PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0",
        "@!P0 BRA `(.L_x_1)",
        "USETMAXREG.DEALLOC.CTAPOOL 0x28",
        "@P1 BRA `(.L_x_2)",
        "NOP",
        ".L_x_2:",
        "NOP",
        "EXIT",
    )
    assert registers_at(made, 168) == [168, 168, 168, 255, 40, 40, 40, 40]


def test_who_gives_nothing_back_keeps_all() -> None:
    assert registers_at(flow("NOP", "EXIT"), 64) == [64, 64]
