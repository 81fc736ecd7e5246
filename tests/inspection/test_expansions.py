"""Slow functions in machine code: by the instructions that nothing else has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ikp.inspection._expansions import lines, own_line
from ikp.inspection._work import Often
from ikp.sass.control_flow.flow import Flow
from ikp.sass.disassembly.listing import Instruction, Line
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins

DIVISION = ("MUFU.RCP R1, R2", "FCHK P0, R3, R2", "FFMA R4, R1, R2, 1")
INTEGERS = ("I2F.U32.RP R1, R2", "MUFU.RCP R1, R1", "F2I.FTZ.U32.TRUNC.NTZ R1, R1")
POWER = ("I2FP.F32.S32 R1, R2", "FFMA R3, R3, R4, R5", "FRND R6, R3", "F2I.NTZ R7, R3")
WIDE = ("CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_s64)", "I2F.U32.RP R1, R2")


@pytest.mark.parametrize(
    ("text", "slow"),
    [
        (DIVISION, {"division": 1}),
        (("FSETP.GT.AND P1, PT, |R2|, 8.50705917302346158658e+37, PT",), {"division": 1}),  # Triton
        (INTEGERS, {"integer division": 1}),
        (POWER, {"power": 1}),
        ((*POWER[:3], "MUFU.EX2 R7, R3"), {"power": 1}),
        (POWER[1:], {}),  # an exponential alone
        (POWER[:3], {}),  # numbers that are rounded
        (WIDE, {"64-bit integer division": 1}),
        (
            ("CALL.REL.NOINC `($__internal_1_$__cuda_sm20_sqrt_rn_f32_slowpath)",),
            {"square root": 1},
        ),
        (("I2F.U32 R1, R2", "MUFU.RCP R1, R1"), {}),  # a conversion that rounds to nearest
    ],
)
def test_slow_functions_of_a_line(text: tuple[str, ...], slow: dict[str, float]) -> None:
    (found,) = of_lines({93: text})
    assert (found.line, found.count, found.slow) == ("/src/k.py:93", len(text), slow)


def test_the_lines_of_most_instructions_come_first() -> None:
    found = of_lines({number: POWER * number for number in range(1, 9)})
    assert [one.line for one in found] == [f"/src/k.py:{number}" for number in (8, 7, 6, 5, 4, 3)]


def of_lines(texts: dict[int, tuple[str, ...]]):
    code = sass(*(line for text in texts.values() for line in text))
    numbers = [number for number, text in texts.items() for _ in text]
    instructions = tuple(
        Instruction(one.address, one.guard, one.opcode, one.rest, (Line("/src/k.py", number),))
        for one, number in zip(code.instructions, numbers, strict=True)
    )
    every = dict.fromkeys(range(len(instructions)), Often(1.0))
    flow = Flow(replace(code, instructions=instructions))
    return lines(flow, every, lambda at: flow.code.instructions[at].op)


def test_what_a_line_does_is_kept() -> None:
    (found,) = of_lines({93: DIVISION})
    assert found.parts == {"MUFU": 1, "FCHK": 1, "FFMA": 1}


def test_a_function_of_the_same_file_has_its_own_line_and_one_of_a_header_its_calls() -> None:
    inlined = (Line("/usr/cuda_fp16.hpp", 7), Line("/src/k.py", 5), Line("/src/k.py", 93))
    (one,) = sass("FADD R1, R2, R3").instructions
    assert own_line(Instruction(0, "", one.opcode, one.rest, inlined)) == Line("/src/k.py", 5)
