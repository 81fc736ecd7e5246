"""The unit of an SM that executes an instruction, and the bytes that an access moves."""

from __future__ import annotations

import pytest

from ikp.sass.disassembly.opcodes import unit_of
from tests.sass.texts import one

pytestmark = pytest.mark.any_pins

UNITS = {
    "LDG.E R4, desc[UR4][R2.64]": "load.global.4",
    "LDG.E.64 R4, desc[UR4][R2.64]": "load.global.8",
    "LDG.E.128.CONSTANT R4, desc[UR4][R2.64]": "load.global.16",
    "LDG.E.U16 R4, desc[UR4][R2.64]": "load.global.2",
    "STG.E.S16 desc[UR4][R2.64], R4": "store.global.2",
    "STG.E.16 desc[UR4][R2.64], R4": "store.global.2",
    "LDG.E.U8 R4, desc[UR4][R2.64]": "load.global.1",
    "LDG.E.S8 R4, desc[UR4][R2.64]": "load.global.1",
    "STG.E.8 desc[UR4][R2.64], R4": "store.global.1",
    "LDL R4, [R1]": "load.local.4",
    "STL.64 [R1], R4": "store.local.8",
    "LDS.128 R4, [R2]": "load.shared.16",
    "STS [R2], R4": "store.shared.4",
    "LDSM.16.M88 R8, [R4]": "load.shared.4",
    "LDSM.16.M88.2 R8, [R4]": "load.shared.8",
    "LDSM.16.MT88.4 R8, [R4+UR6]": "load.shared.16",
    "STSM.16.M88.4 [R4], R8": "store.shared.16",
    "ATOMG.E.ADD.STRONG.GPU PT, R4, [R6], R9": "atomic.global.4",
    "REDG.E.ADD.64.STRONG.GPU desc[UR4][R2.64], R8": "atomic.global.8",
    "ATOMS.ADD R4, [R6], R9": "atomic.shared.4",
    "LDGSTS.E.BYPASS.128 [R23], desc[UR14][R96.64]": "copy.global.16",
    "LDGSTS.E.64 [R23], desc[UR14][R96.64]": "copy.global.8",
    "UTMALDG.2D [UR8], [UR4], desc[UR6]": "copy.bulk",
    "HMMA.16816.F32 R4, R8, R12, R4": "tensor.2",
    "HMMA.1688.F32.TF32 R4, R8, R12, R4": "tensor.4",
    "DMMA.8x8x4 R12, R4, R6, R8": "tensor.8",
    "IMMA.16832.S8.S8 R4, R8, R12, R4": "tensor.1",
    "QMMA.16832.F32.E4M3.E4M3 R4, R8, R12, R4": "tensor.1",
    "HGMMA.64x128x16.F32 R24, gdesc[UR4], R24, gsb0": "tensor.group.2",
    "HGMMA.64x128x8.F32.TF32 R24, gdesc[UR4], R24, gsb0": "tensor.group.4",
    "QGMMA.64x128x32.F32.E4M3.E4M3 R24, gdesc[UR4], R24, gsb0": "tensor.group.1",
    "IGMMA.64x64x32.S8.S8 R24, gdesc[UR8], R24": "tensor.group.1",
    "UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], UP0": "tensor.group.2",
    "UTCQMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], UP0": "tensor.group.1",
    "UTCIMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], UP0": "tensor.group.1",
    "I2F.U32.RP R4, R5": "convert",
    "F2I.F64.TRUNC R4, R6": "convert.64",
    "IMAD R4, R5, R6, R7": "product",
    "IMAD.WIDE R4, R5, R6, R8": "product",
    "IMAD.MOV.U32 R4, RZ, RZ, R5": "fma",
    "IMAD.SHL.U32 R4, R5, 0x4, RZ": "fma",
    "IMAD.IADD R4, R5, 0x1, R6": "fma",
    "FFMA R4, R5, R6, R7": "fma",
    "HFMA2 R4, R5, R6, R7": "half",
    "DFMA R4, R6, R8, R10": "fp64",
    "MUFU.RCP R4, R5": "xu",
    "FCHK P0, R4, R5": "divide",
    "IADD3 R4, R5, R6, RZ": "integer",
    "UIADD3 UR4, UR5, UR6, URZ": "uniform",
    "R2UR UR4, R5": "uniform",
    "SHFL.BFLY PT, R4, R5, 0x1, 0x1f": "shuffle",
    "BRA `(.L_x_1)": "branch",
    "CALL.REL.NOINC `(f)": "call",
    "BAR.SYNC.DEFER_BLOCKING 0x0": "barrier",
    "DEPBAR.LE SB0, 0x2": "wait",
    "MEMBAR.SC.GPU": "fence.gpu",
    "MEMBAR.ALL.CTA": "fence",
    "LDTM.x8 R4, tmem[UR4]": "tensor memory",
    "@!PT LDS RZ, [RZ]": "",
}


@pytest.mark.parametrize("text", UNITS)
def test_an_instruction_has_a_unit(text: str) -> None:
    assert unit_of(one(text)) == UNITS[text]
