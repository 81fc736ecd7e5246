"""What is read of nvdisasm's text."""

from __future__ import annotations

import pytest

from ikp.sass.disassembly.listing import Line, split
from tests.sass.texts import one, sass

pytestmark = pytest.mark.any_pins


def test_an_instruction_has_its_parts() -> None:
    found = one("@!P1 STG.E.128 desc[UR14][R98.64+0x10], R16.reuse")
    assert (found.guard, found.opcode, found.op) == ("!P1", "STG.E.128", "STG")
    assert found.operands == ("desc[UR14][R98.64+0x10]", "R16")
    assert found.text == "@!P1 STG.E.128 desc[UR14][R98.64+0x10], R16"


def test_lines_of_inlined_functions_are_a_chain() -> None:
    code = sass(
        '//## File "k.py", line 35 inlined at "k.py", line 66',
        '//## File "k.py", line 66',
        "EXIT",
        '//## File "k.py", line 14',
        "EXIT",
        "EXIT",
    )
    assert [i.lines for i in code.instructions] == [
        (Line("k.py", 35), Line("k.py", 66)), (Line("k.py", 14),), (Line("k.py", 14),),
    ]  # fmt: skip


def test_control_bits_in_words_are_no_operands() -> None:
    """The disassembler of CUDA 12.8 prints them for sm_120."""
    stored = one("@P1 STG.E desc[UR20][R2.64+-0x50], R8                     &rd=0x5    ?trans2")
    assert stored.operands == ("desc[UR20][R2.64+-0x50]", "R8")
    assert one("NOP   &req={5,1}   ?trans1").operands == ()
    assert one("MOV R9, 0x1      ?WAIT6_END_GROUP").text == "MOV R9, 0x1"
    assert one("DEPBAR.LE SB0, 0x0 &req={2} ?WAIT4_END_GROUP").rest == "SB0, 0x0"


def test_operands_are_split_without_comments_and_reuse() -> None:
    assert split('R4 -0x10 (*"BRANCH_TARGETS .L_x_1,.L_x_2"*)') == ["R4 -0x10"]
    assert split("R4, R5.reuse, c[0x0][0x210], !P0") == ["R4", "R5", "c[0x0][0x210]", "!P0"]
    assert split("") == []
