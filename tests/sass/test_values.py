"""What instructions define."""

from __future__ import annotations

import pytest

from ikp.sass.disassembly.values import CLOCK, OTHER, Definition, ValueOrigin, definitions
from tests.sass.texts import one

pytestmark = pytest.mark.any_pins

CONSTANT = ValueOrigin.CONSTANT


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CS2R.32 R9, SR_CLOCKLO", {"R9": CLOCK}),
        ("CS2R R8, SR_CLOCKLO", {"R8": CLOCK, "R9": OTHER}),
        ("S2UR UR4, SR_CLOCKLO", {"UR4": CLOCK}),
        ("CS2R.32 R9, SR_GLOBALTIMERLO", {"R9": CLOCK}),
        ("S2R R9, SR_TID.X", {"R9": OTHER}),
        ("MOV R1, R2", {"R1": Definition(ValueOrigin.COPY, ("R2",))}),
        ("IMAD.MOV.U32 R1, RZ, RZ, R2", {"R1": Definition(ValueOrigin.COPY, ("R2",))}),
        ("IMAD.U32 R1, RZ, RZ, UR5", {"R1": Definition(ValueOrigin.COPY, ("UR5",))}),
        ("R2UR UR6, R2", {"UR6": Definition(ValueOrigin.COPY, ("R2",))}),
        ("SEL R1, R2, R3, !P0", {"R1": Definition(ValueOrigin.COPY, ("R2", "R3"))}),
        ("IMAD.MOV.U32 R1, RZ, RZ, 0x37471e1e", {"R1": Definition(CONSTANT, value=0x37471E1E)}),
        ("HFMA2.MMA R1, -RZ, RZ, 1.875, 0", {"R1": Definition(CONSTANT, value=0x3F800000)}),
        ("HFMA2 R1, -RZ, RZ, 0, 5.9604644775390625e-08", {"R1": Definition(CONSTANT, value=1)}),
        ("CS2R R4, SRZ", {f"R{n}": Definition(CONSTANT) for n in (4, 5)}),
        ("MOV R1, c[0x0][0x28]", {"R1": OTHER}),
        ("IMAD R1, R2, R3, R4", {"R1": OTHER}),
        ("IMAD.WIDE.U32 R2, R10, R11, RZ", {"R2": OTHER, "R3": OTHER}),
        ("LDG.E.128 R4, desc[UR4][R2.64]", {f"R{n}": OTHER for n in range(4, 8)}),
        ("LDSM.16.M88.4 R4, [R2]", {f"R{n}": OTHER for n in range(4, 8)}),
        ("HMMA.16816.F32 R4, R8, R10, R4", {f"R{n}": OTHER for n in range(4, 8)}),
        ("STL [R1+0x8], R7", {"[R1+0x8]": Definition(ValueOrigin.COPY, ("R7",))}),
        ("LDL.64 R6, [R1]", {"R6": Definition(ValueOrigin.COPY, ("[R1+0x0]",)),
                             "R7": Definition(ValueOrigin.COPY, ("[R1+0x4]",))}),
        ("LOP3.LUT P0, R26, R13, RZ, R0, 0xfa, !PT", {"R26": OTHER}),
        ("ISETP.GE.U32.AND P1, PT, R9, R8, PT", {}),
        ("STG.E.128 desc[UR4][R2.64], R4", {}),
        ("@!PT LDS RZ, [RZ]", {}),
        ("BAR.SYNC R3, R4", {}),
    ],
)  # fmt: skip
def test_what_an_instruction_defines(text: str, expected: dict[str, Definition]) -> None:
    assert definitions(one(text)) == expected
