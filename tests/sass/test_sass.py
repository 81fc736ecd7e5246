"""What is read of nvdisasm's text."""

from __future__ import annotations

import pytest

import ikp.sass
from ikp.sass.disassembly.listing import Code, Line, split
from ikp.sass.disassembly.opcodes import opcodes
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


def test_code_without_a_part_keeps_addresses_and_the_labels_outside_of_it() -> None:
    def own(code: Code) -> dict[str, int]:
        return {label: at for label, at in code.labels.items() if label.startswith(".L")}

    plain = sass("NOP", ".L_x_1:", "MOV R1, R2", ".L_x_2:", "MOV R3, R4", ".L_x_3:", "EXIT")
    left = plain.without(0x10, 0x30)
    assert [(each.address, each.op) for each in left.instructions] == [(0, "NOP"), (0x30, "EXIT")]
    assert own(left) == {".L_x_3": 1}
    assert own(plain.without(0, 0x10)) == {".L_x_1": 0, ".L_x_2": 1, ".L_x_3": 2}
    assert own(sass("NOP", ".L_x_1:", "EXIT", ".L_x_2:").without(0, 0x10)) == {
        ".L_x_1": 0,
        ".L_x_2": 1,
    }


def test_the_most_frequent_opcodes_come_first() -> None:
    made = sass("NOP", "MOV R1, R2", "MOV R2, R3", "FADD R1, R1, R1", "EXIT").instructions
    assert opcodes(made[:3]) == "2 MOV, 1 NOP"
    assert opcodes(made, most=1) == "2 MOV, 3 others"
    assert opcodes(made, most=4) == "2 MOV, 1 NOP, 1 FADD, 1 EXIT"
    assert opcodes([each for n in range(7) for each in sass(f"A{n} R1").instructions]).endswith(
        "1 A5, 1 others"
    )


def test_the_library_has_the_names_of_its_list_and_no_other() -> None:
    assert all(getattr(ikp.sass, name) is not None for name in ikp.sass.__all__)
    assert dir(ikp.sass) == sorted(ikp.sass.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ikp.sass.nothing  # noqa: B018
