"""What kinds of work instructions do."""

from __future__ import annotations

import pytest

from ikp.sass.disassembly.opcodes import Work, work_of
from tests.sass.texts import one

pytestmark = pytest.mark.any_pins


@pytest.mark.parametrize(
    ("text", "work"),
    [
        ("HMMA.16816.F32 R4, R8, R12, R4", Work.TENSOR),
        ("HGMMA.64x128x16.F32 R24, gdesc[UR4], R24, gsb0", Work.TENSOR),
        ("UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], UP0", Work.TENSOR),
        ("UTCQMMA.2CTA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11]", Work.TENSOR),
        ("LDGSTS.E.BYPASS.128 [R23], desc[UR14][R96.64], !P0", Work.COPY),
        ("UTMALDG.2D [UR8], [UR4], desc[UR6]", Work.COPY),
        ("UBLKCP.S.G [UR4], [UR6], UR8", Work.COPY),
        ("LDG.E R4, desc[UR4][R2.64]", Work.LOAD),
        ("LDGDEPBAR", Work.SIGNAL),
        ("WARPGROUP.ARRIVE", Work.SIGNAL),
        ("WARPGROUP.DEPBAR.LE gsb0, 0x1", Work.WAIT),
        ("DEPBAR.LE SB0, 0x2", Work.WAIT),
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R2], R3", Work.WAIT),
        ("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R2], RZ", Work.SIGNAL),
        ("BAR.SYNC.DEFER_BLOCKING 0x0", Work.BARRIER),
        ("@!PT LDS RZ, [RZ]", Work.NOTHING),
        ("HFMA2.MMA R1, -RZ, RZ, 0, 0", Work.INTEGER),
        ("HFMA2.MMA R1, R2, R3, R4", Work.FLOAT),
        ("FROBNICATE R1", Work.OTHER),
    ],
)
def test_what_an_instruction_is_for(text: str, work: Work) -> None:
    assert work_of(one(text)) is work
