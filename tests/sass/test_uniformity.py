"""Which registers may differ between threads of a warp, a rule each."""

from __future__ import annotations

import pytest

from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.uniformity import Alike
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins

BEFORE = (
    "S2R R0, SR_TID.X",
    "S2R R1, SR_CTAID.X",
    "MOV R2, 0x7",
    "ISETP.GE.AND P0, PT, R0, 0x10, PT",
    "ISETP.GE.AND P1, PT, R1, 0x10, PT",
)
"""R0 and P0 differ between threads; R1, R2 and P1 do not."""


def alike(*lines: str, rows: bool = False, apart: bool = False) -> bool:
    """Return whether R9, behind some instructions, decides a jump for all threads of a warp."""
    test = ("ISETP.NE.AND P6, PT, R9, RZ, PT", "@P6 BRA `(.L_x_9)", "NOP", ".L_x_9:", "EXIT")
    flow = Flow(sass(*BEFORE, *lines, *test))
    return Alike(flow, {0} if apart else set(), rows).decides(len(flow.code.instructions) - 3)


ALIKE = {
    "MOV R9, R0": False,
    "MOV R9, R1": True,
    "IADD3 R9, R1, R2, RZ": True,
    "IADD3 R9, R1, R0, RZ": False,
    "MOV R9, UR4": True,
    "S2R R9, SR_TID.Y": False,
    "S2R R9, SR_LANEID": False,
    "S2R R9, SR_CTAID.Y": True,
    "S2R R9, SR_NCTAID.Z": True,
    "CS2R R9, SRZ": True,
    "CS2R.32 R9, SR_CLOCKLO": False,
    "LDG.E R9, desc[UR4][R2.64]": True,
    "LDS R9, [R0]": False,
    "LDC R9, c[0x0][0x210]": True,
    "SHFL.IDX PT, R9, R0, 0x3, 0x1f": True,
    "SHFL.IDX PT, R9, R0, R1, 0x1f": True,
    "SHFL.IDX PT, R9, R0, RZ, 0x1f": True,
    "SHFL.IDX PT, R9, R0, R0, 0x1f": False,
    "SHFL.IDX PT, R9, R0, RZ, 0x1c1f": False,
    "SHFL.BFLY PT, R9, R0, 0x1, 0x1f": False,
    "REDUX.SUM R9, R0": True,
    "VOTE.ANY R9, PT, P0": True,
    "FROBNICATE R9, R2": False,
    "ATOMG.E.ADD.STRONG.GPU PT, R9, [R2], R1": False,
    "SEL R9, R1, R2, P0": False,
    "SEL R9, R1, R2, P1": True,
}


@pytest.mark.parametrize("text", ALIKE)
def test_a_result_differs_where_what_it_is_made_of_does(text: str) -> None:
    assert alike(text) == ALIKE[text]


def test_a_write_under_a_guard_that_differs_makes_a_register_differ() -> None:
    assert not alike("MOV R9, R1", "@P0 MOV R9, R2")
    assert not alike("MOV R9, R1", "@!P0 MOV R9, R2")
    assert alike("MOV R9, R1", "@P1 MOV R9, R2")
    assert not alike("MOV R9, R0", "@P1 MOV R9, R2"), "threads may keep what differed"
    assert alike("MOV R9, R0", "MOV R9, R2"), "what differed is overwritten"
    assert alike("MOV R9, R1", "@UP0 MOV R9, R2"), "a uniform predicate is one of the warp"


def test_what_threads_write_while_they_are_apart_differs() -> None:
    assert alike("MOV R9, R2")
    assert not alike("MOV R9, R2", apart=True)


def test_a_function_may_write_any_register() -> None:
    assert not alike("MOV R9, R2", "CALL.ABS.NOINC `(f)")


def test_what_may_differ_on_one_path_may_differ_where_paths_meet() -> None:
    lines = ("MOV R9, R2", "@P1 BRA `(.L_x_1)", "MOV R9, {}", ".L_x_1:", "NOP")
    assert alike(*(each.format("R1") for each in lines))
    assert not alike(*(each.format("R0") for each in lines))
    loop = ("MOV R9, R2", ".L_x_1:", "MOV R8, R9", "MOV R9, R0", "@P1 BRA `(.L_x_1)", "MOV R9, R8")
    assert not alike(*loop), "from one iteration to the next"


ROWS = {
    "MOV R9, R0": False,
    "S2R R9, SR_TID.Y": True,
    "S2R R9, SR_TID.Z": True,
    "SHF.R.U32.HI R9, RZ, 0x5, R0": True,
    "SHF.R.S32.HI R9, RZ, 0x7, R0": True,
    "SHF.R.U32.HI R9, RZ, 0x4, R0": False,
    "SHF.R.U32.HI R9, R0, 0x5, R0": False,
    "LOP3.LUT R9, R0, 0xffffffe0, RZ, 0xc0, !PT": True,
    "LOP3.LUT R9, R0, 0x60, RZ, 0xc0, !PT": True,
    "LOP3.LUT R9, R0, 0x70, RZ, 0xc0, !PT": False,
    "LOP3.LUT R9, R0, 0x60, R0, 0xc0, !PT": False,
    "LOP3.LUT R9, R0, 0x60, RZ, 0xfc, !PT": False,
    "LOP3.LUT R9, R0, R2, RZ, 0xc0, !PT": False,
    "IADD3 R9, R0, 0x20, RZ": False,
}


@pytest.mark.parametrize("text", ROWS)
def test_in_a_row_threads_numbers_differ_in_the_lowest_five_bits_alone(text: str) -> None:
    assert alike(text, rows=True) == ROWS[text]
    assert not alike(text), "elsewhere, in any"


@pytest.mark.parametrize(
    ("lines", "same"),
    [
        (("MOV R8, R0", "SHF.R.U32.HI R9, RZ, 0x5, R8"), True),
        (("IMAD.MOV.U32 R8, RZ, RZ, R0", "SHF.R.U32.HI R9, RZ, 0x5, R8"), True),
        (("IMAD.MOV.U32 R8, R0, RZ, R0", "SHF.R.U32.HI R9, RZ, 0x5, R8"), False),
        (("IADD3 R8, R0, 0x1, RZ", "SHF.R.U32.HI R9, RZ, 0x5, R8"), False),
        (("ISETP.GE.AND P3, PT, R0, 0x40, PT", "SEL R9, R1, R2, P3"), True),
        (("ISETP.LT.U32.AND P3, PT, R0, 0x40, PT", "SEL R9, R1, R2, P3"), True),
        (("ISETP.GE.AND P3, PT, R0, 0x41, PT", "SEL R9, R1, R2, P3"), False),
        (("ISETP.GT.AND P3, PT, R0, 0x40, PT", "SEL R9, R1, R2, P3"), False),
        (("ISETP.GE.AND P3, PT, R0, 0x40, P0", "SEL R9, R1, R2, P3"), False),
    ],
)
def test_in_a_row_a_copy_keeps_that_and_comparisons_with_whole_warps_are_uniform(
    lines: tuple[str, ...], same: bool
) -> None:
    assert alike(*lines, rows=True) == same


def test_a_jump_is_decided_by_its_guard_and_its_operands() -> None:
    for jump, same in {
        "@P0 BRA `(.L_x_9)": False,
        "@!P1 BRA `(.L_x_9)": True,
        "@P1 BRA P0, `(.L_x_9)": False,
        'BRX R0 -0x10 (*"BRANCH_TARGETS .L_x_9"*)': False,
        'BRX R4 -0x10 (*"BRANCH_TARGETS .L_x_9"*)': False,
        "@P0 EXIT": False,
        "@P1 EXIT": True,
    }.items():
        flow = Flow(sass(*BEFORE, "MOV R4, R2", "MOV R5, R0", jump, "NOP", ".L_x_9:", "EXIT"))
        assert Alike(flow, set()).decides(7) == same, jump
    assert not Alike(flow, set()).decides(0), "no jump"
