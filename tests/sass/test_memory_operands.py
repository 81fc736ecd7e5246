"""The accesses of an instruction to memory, as its text says."""

from __future__ import annotations

import pytest

from ikp.sass.disassembly.memory_operands import Access, accesses
from tests.sass.texts import one

pytestmark = pytest.mark.any_pins


def access(text: str) -> Access:
    found = accesses(one(text))
    assert not isinstance(found, str), found
    (made,) = found
    return made


WIDTHS = {
    "LDG.E R4, desc[UR4][R2.64]": 4,
    "LDG.E.U8 R4, desc[UR4][R2.64]": 1,
    "LDG.E.S8.CONSTANT R4, desc[UR4][R2.64]": 1,
    "LDG.E.U16 R4, desc[UR4][R2.64]": 2,
    "LDG.E.S16 R4, desc[UR4][R2.64]": 2,
    "LDG.E.64.CONSTANT R4, desc[UR4][R2.64]": 8,
    "STG.E.128 desc[UR4][R2.64], R4": 16,
    "LDG.E.ENL2.256 R4, R8, desc[UR4][R2.64]": 32,
}


@pytest.mark.parametrize("text", WIDTHS)
def test_the_width_is_a_part_of_the_opcode(text: str) -> None:
    assert access(text).width == WIDTHS[text]


KINDS = {
    "LDG.E R4, desc[UR4][R2.64]": ("global", "load"),
    "LDGMC.E R4, desc[UR4][R2.64]": ("global", "load"),
    "STG.E desc[UR4][R2.64], R4": ("global", "store"),
    "ATOMG.E.ADD.STRONG.GPU PT, R4, desc[UR4][R2.64], R9": ("global", "atomic"),
    "RED.E.ADD.STRONG.GPU desc[UR4][R2.64], R9": ("global", "atomic"),
    "REDG.E.ADD.STRONG.GPU desc[UR4][R2.64], R9": ("global", "atomic"),
    "LDS R4, [R2]": ("shared", "load"),
    "LDSM.16.M88.4 R4, [R2]": ("shared", "load"),
    "STS [R2], R4": ("shared", "store"),
    "STSM.16.M88.4 [R2], R4": ("shared", "store"),
    "ATOMS.ADD R4, [R2], R9": ("shared", "atomic"),
    "LDL R4, [R2]": ("local", "load"),
    "STL [R2], R4": ("local", "store"),
    "LD.E R4, desc[UR4][R2.64]": ("generic", "load"),
    "ST.E desc[UR4][R2.64], R4": ("generic", "store"),
    "ATOM.E.ADD.STRONG.GPU PT, R4, desc[UR4][R2.64], R9": ("generic", "atomic"),
}


@pytest.mark.parametrize("text", KINDS)
def test_an_opcode_says_the_space_and_what_is_done(text: str) -> None:
    made = access(text)
    assert (made.space, made.kind) == KINDS[text]


ADDRESSES = {
    "LDG.E R4, desc[UR4][R2.64]": (2, True, None, 0),
    "LDG.E R4, desc[UR4][R2.64+0x10]": (2, True, None, 16),
    "LDG.E R4, desc[UR4][R2.64+-0x10]": (2, True, None, -16),
    "LDG.E R4, desc[UR4][R2.U32+UR6+0x4]": (2, False, 6, 4),
    "LDG.E R4, [R2]": (2, True, None, 0),
    "LDG R4, [R2]": (2, False, None, 0),
    "LDG.E R4, desc[UR4][UR6]": (None, True, 6, 0),
    "LDS R4, [R2]": (2, False, None, 0),
    "LDS R4, [R2+UR5+0x8]": (2, False, 5, 8),
    "LDS R4, [UR5]": (None, False, 5, 0),
    "LDS R4, [0x80]": (None, False, None, 128),
    "LDS R4, [RZ+0x80]": (None, False, None, 128),
}


@pytest.mark.parametrize("text", ADDRESSES)
def test_an_address_is_a_register_a_uniform_one_and_a_number(text: str) -> None:
    made = access(text)
    assert (made.own, made.wide, made.uniform, made.beyond) == ADDRESSES[text]


def test_of_matrices_the_first_lanes_name_rows() -> None:
    for suffix, lanes in {"": 8, ".2": 16, ".4": 32}.items():
        made = access(f"LDSM.16.M88{suffix} R4, [R2]")
        assert (made.lanes, made.width) == (lanes, 16)
        assert access(f"STSM.16.M88{suffix} [R2], R4").lanes == lanes
    assert access("LDS R4, [R2]").lanes == 32


def test_lanes_need_the_guard() -> None:
    assert access("LDS R4, [R2]").conditions == access("@PT LDS R4, [R2]").conditions == ()
    assert access("@P3 LDS R4, [R2]").conditions == ((3, False),)
    assert access("@!P2 LDS R4, [R2]").conditions == ((2, True),)
    assert accesses(one("@!PT LDS R4, [R2]")) == accesses(one("FADD R1, R1, R1")) == ()
    assert "guard" in str(accesses(one("@UP0 LDS R4, [R2]")))


def test_a_copy_has_an_access_of_each_space() -> None:
    made = accesses(one("@P1 LDGSTS.E.BYPASS.128 [R9+0x10], desc[UR4][R2.64+0x20], !P0"))
    assert made == (
        Access("global", "copy", 16, 32, 2, True, None, 32, ((1, False), (0, True))),
        Access("shared", "copy", 16, 32, 9, False, None, 16, ((1, False),)),
    )
    for text in ("LDGSTS.E [R9], desc[UR4][R2.64], UP0", "LDGSTS.E R9, desc[UR4][R2.64]"):
        assert isinstance(accesses(one(text)), str)


def test_an_address_that_is_not_understood_says_so() -> None:
    assert "not known" in str(accesses(one("LDS R4, [R2.X4]")))
    assert "not known" in str(accesses(one("LDS R4, R2")))
