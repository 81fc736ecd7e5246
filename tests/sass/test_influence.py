"""How far a wrong value reaches, and what it could do there."""

from __future__ import annotations

import pytest

from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.influence import Influence
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins


def danger(*lines: str, spaces: str = "", source: int | None = 0) -> str:
    """Return why a wrong result of the first instruction, or wrong spaces, are unsafe."""
    found = Influence(Flow(sass(*lines, "EXIT")))
    sources = frozenset(() if source is None else (source,))
    return found.why_unsafe(sources, frozenset(spaces.split()))


USES = {
    "FADD R5, R4, R6": "",
    "STG.E desc[UR4][R2.64], R4": "",
    "LDG.E R5, desc[UR4][R4.64]": "address",
    "LDG.E R5, desc[UR4][R3.64]": "address",
    "LDG.E R5, desc[UR4][R5.64]": "",
    "STS [R4], R5": "address",
    "STS [R3], R5": "",
    "LDS R5, [R6+UR4]": "",
    "@P0 STS [R3], R5": "",
    "BRX R4 -0x10": "leads",
    "REDUX.SUM UR4, R4": "",
}


@pytest.mark.parametrize("text", USES)
def test_a_wrong_register_is_no_danger_until_it_is_an_address(text: str) -> None:
    why = danger("MOV R4, R9", text)
    assert (USES[text] in why) if USES[text] else why == "", why


def test_what_is_made_of_a_wrong_register_is_wrong_until_it_is_overwritten() -> None:
    last = "LDS R8, [R6]"
    assert danger("MOV R4, R9", "IADD3 R6, R4, R5, RZ", last)
    assert danger("MOV R4, R9", "FMUL R5, R4, R4", "F2I R6, R5", last)
    assert not danger("MOV R4, R9", "IADD3 R6, R4, R5, RZ", "MOV R6, R7", last)
    assert danger("MOV R4, R9", "IADD3 R6, R4, R5, RZ", "@P0 MOV R6, R7", last)
    assert not danger("MOV R4, R9", "IADD3 R6, R4, R5, RZ", last, source=None)
    loop = (".L_x_1:", last, "MOV R6, R4", "MOV R4, R9", "@P0 BRA `(.L_x_1)")
    assert danger(*loop, source=2), "from one iteration to the next"
    parted = ("MOV R6, R9", "@P0 BRA `(.L_x_1)", "MOV R6, R7", ".L_x_1:", last)
    assert danger(*parted), "one path is enough"


def test_an_access_s_predicate_and_its_uniform_registers_count() -> None:
    assert danger("ISETP.NE.AND P0, PT, R4, RZ, PT", "@P0 LDS R5, [R6]")
    assert danger("ISETP.NE.AND P0, PT, R4, RZ, PT", "@!P0 STG.E desc[UR4][R2.64], R5")
    assert not danger("ISETP.NE.AND P0, PT, R4, RZ, PT", "@P1 LDS R5, [R6]")
    assert danger("R2UR UR6, R4", "LDS R5, [R6+UR6]")
    assert not danger("R2UR UR7, R4", "LDS R5, [R6+UR6]"), "shared memory has 32 bits"
    assert danger("R2UR UR7, R4", "LDG.E R5, desc[UR4][R6.U32+UR6]")
    assert not danger("R2UR UR8, R4", "LDG.E R5, desc[UR4][R6.U32+UR6]")


REACHED = {
    ("STS [R7], R4", "LDS R6, [R7]"): True,
    ("STS [R7], R5", "LDS R6, [R7]"): False,
    ("STS [R7], R4", "LDL R6, [R7]"): False,
    ("STS [R7], R4", "LDG.E R6, desc[UR4][R2.64]"): False,
    ("STG.E desc[UR4][R2.64], R4", "LDG.E R6, desc[UR4][R2.64]"): True,
    ("STG.E desc[UR4][R2.64], R4", "LDG.E.CONSTANT R6, desc[UR4][R2.64]"): False,
    ("STG.E desc[UR4][R2.64], R4", "LD.E R6, desc[UR4][R2.64]"): True,
    ("STG.E desc[UR4][R2.64], R4", "LDS R6, [R7]"): False,
    ("ST.E desc[UR4][R2.64], R4", "LDS R6, [R7]"): True,
    ("ST.E desc[UR4][R2.64], R4", "LDL R6, [R7]"): True,
    ("STL [R7], R4", "LDL R6, [R7]"): True,
    ("ATOMS.ADD RZ, [R7], R4", "LDS R6, [R7]"): True,
    ("ATOMS.ADD RZ, [R7], R4", "ATOMS.ADD R6, [R7], R5"): True,
    ("LDGSTS.E [R7], desc[UR4][R2.64]", "LDS R6, [R7]"): False,
    ("STG.E desc[UR4][R2.64], R4", "LDGSTS.E [R7], desc[UR4][R2.64]", "LDS R6, [R7]"): True,
    ("STS [R7], R4", "HGMMA.64x64x16.F32 R6, gdesc[UR8], R6"): True,
    ("STG.E desc[UR4][R2.64], R4", "HGMMA.64x64x16.F32 R6, gdesc[UR8], R6"): False,
    ("STS [R7], R4", "UBLKCP.S.G [UR4], [UR6], UR8", "LDG.E R6, desc[UR4][R2.64]"): True,
    ("STL [R7], R4", "UBLKCP.S.G [UR4], [UR6], UR8", "LDG.E R6, desc[UR4][R2.64]"): False,
}


@pytest.mark.parametrize("lines", REACHED, ids=" / ".join)
def test_what_is_loaded_from_memory_that_a_wrong_value_is_stored_to_is_wrong(
    lines: tuple[str, ...],
) -> None:
    assert bool(danger("MOV R4, R9", *lines, "LDS R1, [R6]")) == REACHED[lines]


def test_spaces_may_be_wrong_from_the_beginning() -> None:
    for load, space in {
        "LDS R6, [R7]": "shared",
        "LDG.E R6, desc[UR4][R2.64]": "global",
        "LDL R6, [R7]": "local",
    }.items():
        for each in ("shared", "global", "local"):
            why = danger("NOP", load, "LDS R1, [R6]", spaces=each, source=None)
            assert bool(why) == (each == space)
    assert danger("NOP", "LD.E R6, desc[UR4][R2.64]", "LDS R1, [R6]", spaces="local", source=None)
    assert not danger("NOP", "LD.E R6, desc[UR4][R2.64]", "LDS R1, [R6]", source=None)


def test_the_trips_of_a_loop_and_who_comes_to_a_barrier_are_dangers() -> None:
    test = "ISETP.NE.AND P0, PT, R4, RZ, PT"
    loop = (".L_x_1:", "NOP", test, "@P0 BRA `(.L_x_1)")
    assert "how often" in danger(*loop, source=1)
    assert "how often" in danger(".L_x_1:", "NOP", test, "@P0 EXIT", "BRA `(.L_x_1)", source=1)
    assert not danger(
        *(".L_x_1:", test, "@P0 BRA `(.L_x_2)", "NOP", ".L_x_2:", "FADD R5, R5, R5"),
        *("ISETP.NE.AND P1, PT, R8, RZ, PT", "@P1 BRA `(.L_x_1)"),
    ), "a branch inside of a loop"
    skipped = (test, "@P0 BRA `(.L_x_1)", "FADD R5, R5, R5", ".L_x_1:", "NOP")
    assert not danger(*skipped)
    assert "barrier" in danger(*skipped, "BAR.SYNC 0x0")
    assert "barrier" in danger("MOV R4, R9", "BAR.SYNC R4")
    assert not danger("MOV R4, R9", "BAR.SYNC R5")
    assert "barrier" in danger(test, "@P0 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ")


def test_a_bulk_copy_s_operands_and_descriptors_in_wrong_memory_are_dangers() -> None:
    assert danger("R2UR UR8, R4", "UBLKCP.S.G [UR4], [UR6], UR8")
    assert not danger("R2UR UR30, R4", "UBLKCP.S.G [UR4], [UR6], UR8")
    load = "UTMALDG.2D [UR8], [UR4], desc[UR16]"
    assert "TMA" in danger("NOP", load, spaces="global", source=None)
    assert not danger("NOP", load, spaces="local", source=None)
    assert not danger("NOP", load, source=None)
