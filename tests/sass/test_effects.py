"""What instructions read and write, widths included."""

from __future__ import annotations

import pytest

from ikp.sass.disassembly.effects import EVERYTHING, UNKNOWN, bit, effects
from tests.sass.texts import names, one

pytestmark = pytest.mark.any_pins


def spelled(text: str) -> list[str]:
    """``"R4-7 P0"``: the names."""
    found = []
    for part in text.split():
        name, _, last = part.partition("-")
        file, first = name.rstrip("0123456789"), int(name.lstrip("URP"))
        found += [f"{file}{n}" for n in range(first, int(last or first) + 1)]
    return sorted(found, key=bit)


@pytest.mark.parametrize(
    ("text", "reads", "kills"),
    [
        ("MOV R4, R5", "R5", "R4"),
        ("@P1 MOV R4, R5", "R5 P1", ""),
        ("@!PT LDS RZ, [RZ]", "", ""),
        ("IADD3 R97, P4, R97, R102, RZ", "R97 R102", "R97 P4"),
        ("IADD3.X R4, PT, PT, R5, R6, RZ, P1, !PT", "R5 R6 P1", "R4"),
        ("IMAD.X R92, R92, 0x1, R103, P4", "R92 R103 P4", "R92"),
        ("IMAD.WIDE R34, R2, 0x2, R38", "R2 R38-39", "R34-35"),
        ("IMAD.HI.U32 R5, R3, R4, R2", "R2-4", "R5"),
        ("ISETP.GE.AND P0, P1, R4, UR5, P2", "R4 P2 UR5", "P0 P1"),
        ("DSETP.GT.AND P0, PT, R2, R4, PT", "R2-5", "P0"),
        ("PLOP3.LUT P0, PT, P1, P2, P3, 0x80, 0x0", "P1 P2 P3", "P0"),
        ("PLOP3.LUT P0, P4, P1, P2, PT, 0x80, 0x0", "P1 P2", "P0 P4"),
        ("UPLOP3.LUT UP0, UPT, UP1, UP2, UPT, 0x80, 0x0", "UP1 UP2", "UP0"),
        ("SEL R1, R2, R3, !P0", "R2 R3 P0", "R1"),
        ("LOP3.LUT P0, RZ, R13, 0x1, RZ, 0xc0, !PT", "R13", "P0"),
        ("VOTE.ANY R4, PT, P0", "P0", "R4"),
        ("P2R R4, PR, RZ, 0x7f", "P0-6", "R4"),
        ("R2P PR, R4, 0x7f", "R4", ""),
        ("DFMA R4, R6, R8, R10", "R6-11", "R4-5"),
        ("LDG.E.128 R4, desc[UR4][R2.64+0x10]", "R2-3 UR4-5", "R4-7"),
        ("STG.E.64 desc[UR4][R2.64], R8", "R2-3 R8-9 UR4-5", ""),
        ("ATOMG.E.EXCH.STRONG.GPU PT, RZ, [R6], R9", "R6-7 R9", ""),
        ("LDSM.16.M88.4 R8, [R4+UR6]", "R4 UR6-7", "R8-11"),
        ("LDGSTS.E.BYPASS.128 [R47], desc[UR14][R24.64], P1", "R24-25 R47 P1 UR14-15", ""),
        ("HMMA.16816.F32 R4, R8, R12, R4", "R4-11 R12-13", "R4-7"),
        ("HGMMA.64x128x16.F32 R24, gdesc[UR8].tnspB, R24", "R24-87 UR8-11", "R24-87"),
        ("HGMMA.64x64x16.F32 R24, R4, gdesc[UR8], R24, gsb0", "R4-7 R24-55 UR8-11", "R24-55"),
        ("HGMMA.64x64x16.F32 R24, gdesc[UR8], RZ, !UPT", "UR8-11", "R24-55"),
        ("IGMMA.SP.64x64x64.S8.S8 R24, gdesc[UR8], R24, R3", "R3 R24-55 UR8-11", "R24-55"),
        ("HGMMA.SP.64x16x32.F32 R24, R4, gdesc[UR8], R24, R3", "R3-7 R24-31 UR8-11", "R24-31"),
        ("DMMA.8x8x4 R12, R4, R6, R8", "R4-11", "R12-15"),
        ("DMMA.16x8x4 R16, R4, R2, R8", "R2-15", "R16-23"),
        ("DMMA.16x8x8 R16, R8, -R4, R16", "R4-23", "R16-23"),
        ("DMMA.16x8x16 R8, R16, R32, RZ", "R16-39", "R8-15"),
        ("I2IP.S8.S32.SAT R4, R5, R6, R7", "R5-7", "R4"),
        ("F2IP.S8.F32.NTZ R4, R5, R6, R7", "R5-7", "R4"),
        ("UBMSK UR12, UR11, UR10", "UR10-11", "UR12"),
        ("USETSHMSZ 0x3900", "", ""),
        ("TLD.LZ RZ, R20, R23, UR4, 0x0, 1D, 0x1", "R23-26 UR4-5", "R20"),
        ("CS2R R4, SRZ", "", "R4-5"),
        ("CS2R.32 R4, SR_CLOCKLO", "", "R4"),
        ("SHFL.BFLY PT, R4, R5, 0x1, 0x1f", "R5", "R4"),
        ("R2UR UR6, R2", "R2", "UR6"),
        ("RET.REL.NODEC R4 `(k)", "R4-5", ""),
        ("HMMA.16816.F16 R4, R8, R12, R14", "R8-15", "R4-5"),
        ("HMMA.1688.F16 R4, R8, R12, R14", "R8-15", "R4-5"),
        ("HMMA.1688.F32 R4, R8, R10, R4", "R4-10", "R4-7"),
        ("HMMA.1688.F32.BF16 R4, R8, R10, R12", "R8-10 R12-15", "R4-7"),
        ("HMMA.1688.F32.TF32 R4, R8, R12, R16", "R8-13 R16-19", "R4-7"),
        ("HMMA.1684.F32.TF32 R4, R8, R12, R16", "R8-13 R16-19", "R4-7"),
        ("HMMA.884.F32 R4, R20, R40, R60", "R20-27 R40-47 R60-67", "R4"),
        ("IMMA.16832.S8.S8 R4, R8, R12, R16", "R8-13 R16-19", "R4-7"),
        ("QMMA.16832.F32.E4M3.E4M3 R4, R8, R12, R16", "R8-13 R16-19", "R4-7"),
        ("QMMA.16832.F16.E4M3.E4M3 R4, R8, R12, R16", "R8-13 R16-19", "R4-5"),
        ("HGMMA.64x128x16.F16 R24, gdesc[UR8], R24", "R24-55 UR8-11", "R24-55"),
        ("LDG.E.ENL2.256 R4, R8, desc[UR4][R2.64]", "R2-3 UR4-5", "R4-7 R8-11"),
        ("LDS.128 R4, [R2]", "R2", "R4-7"),
        ("STS.64 [R2], R8", "R2 R8-9", ""),
        ("LDSM.16.M88 R8, [R4]", "R4", "R8"),
        ("LDSM.16.M88.2 R8, [R4]", "R4", "R8-9"),
        ("STSM.16.M88.4 [R4], R8", "R4 R8-11", ""),
        ("STSM.16.MT88.2 [R4], R8", "R4 R8-9", ""),
        ("STSM.16.M88 [R4], R8", "R4 R8", ""),
        ("LDTM.x8 R4, tmem[UR4]", "UR4-5", "R4-11"),
        ("LDTM.16dp256bit.x2 R4, tmem[UR4]", "UR4-5", "R4-11"),
        ("LDTM.16dp32bit_t0_t15.x4 R4, tmem[UR4]", "UR4-5", ""),
        ("STTM.x4 tmem[UR4], R8", "R8-11 UR4-5", ""),
        ("DADD R4, R6, R8", "R6-9", "R4-5"),
        ("DSETP.GT.AND P0, P1, R4, R6, P2", "R4-7 P2", "P0 P1"),
        ("IMAD.WIDE.U32 R4, R2, R3, RZ", "R2-3", "R4-5"),
        ("IMAD R4, R2, R3, R6", "R2-3 R6", "R4"),
        ("UIMAD.WIDE UR4, UR6, UR7, UR8", "UR6-9", "UR4-5"),
        ("F2F.F64.F32 R4, R6", "R6-7", "R4"),
        ("I2F.U64 R4, R6", "R6-7", "R4"),
        ("F2I.TRUNC R4, R6", "R6", "R4"),
        ("ATOMS.CAS R4, [R6], R8, R9", "R6 R8-9", "R4"),
        ("ATOMG.E.CAS.64.STRONG.GPU PT, R4, [R6], R8, R10", "R6-11", "R4-5"),
        ("REDG.E.ADD.STRONG.GPU desc[UR4][R2.64], R8", "R2-3 R8-11 UR4-5", ""),
        ("UTMALDG.2D [UR8], [UR4], desc[UR16]", "UR4-24", ""),
    ],
)
def test_what_an_instruction_reads_and_defines(text: str, reads: str, kills: str) -> None:
    made = effects(one(text))
    assert names(made.reads) == spelled(reads)
    assert names(made.kills) == spelled(kills)
    assert made.kills & ~made.writes == 0


def test_what_may_be_written_is_at_least_what_a_guard_or_a_mask_lets_through() -> None:
    assert names(effects(one("@P1 LDG.E.64 R4, desc[UR4][R2.64]")).writes) == ["R4", "R5"]
    assert names(effects(one("R2P PR, R4, 0x7f")).writes) == [f"P{n}" for n in range(7)]


def test_what_may_be_written_is_as_wide_as_types_and_vectors_allow() -> None:
    for text, written in {
        "F2F.F64.F32 R4, R6": "R4-5",
        "F2F.F32.F16 R4, R6": "R4",
        "HMMA.884.F32 R4, R20, R40, R60": "R4-11",
        "HMMA.16816.F16 R4, R8, R12, R14": "R4-5",
        "HMMA.16816.F32 R4, R8, R12, R4": "R4-7",
        "DMMA.16x8x4 R16, R4, R2, R8": "R16-23",
        "HGMMA.64x16x16.F32 R24, gdesc[UR8], R24": "R24-31",
        "IMAD.WIDE R34, R2, 0x2, R38": "R34-35",
        "LDTM.16dp32bit_t0_t15.x4 R4, tmem[UR4]": "R4-7",
        "ATOMG.E.ADD.STRONG.GPU PT, R4, [R6], R9": "R4-7",
        "ATOMG.E.EXCH.STRONG.GPU PT, R4, [R6], R9": "R4",
        "ATOMS.ADD R4, [R6], R9": "R4",
        "LDG.E.ENL2.256 R4, R8, desc[UR4][R2.64]": "R4-11",
        "TLD.LZ R4, R20, R23, UR4, 0x0, 1D, 0x1": "R4-5 R20-21",
    }.items():
        assert names(effects(one(text)).writes) == spelled(written), text


def test_a_shift_writes_one_register_whatever_it_shifts() -> None:
    """The counter of a loop was in R101, behind R100: it seemed to differ between threads."""
    for text in ("SHF.R.U32.HI R100, RZ, 0x4, R96", "SHF.L.U64.HI R100, R2, 0x4, R3"):
        assert names(effects(one(text)).writes) == ["R100"]


def test_an_opcode_that_is_not_known_needs_everything() -> None:
    assert effects(one("FROBNICATE R1, R2")) is UNKNOWN
    assert UNKNOWN.reads == EVERYTHING
