"""Numbers that fewer instructions could make: each kind by its mark, and by no other."""

from __future__ import annotations

import pytest

from tests.inspection.test_extra import PRODUCT, STORED, count, loop

pytestmark = pytest.mark.any_pins

DIVISION = (
    "MUFU.RCP R12, R11",
    "FCHK P0, R25, R11",
    "FFMA R13, -R11, R12, 1",
    "FFMA R12, R12, R13, R12",
    "FFMA R21, R25, R12, RZ",
    "@P0 BRA `(.L_x_1)",
    ".L_x_1:",
)
BELOW = "FSETP.GT.AND P1, PT, R21, c[0x0][0x218], PT"
KEPT = "SEL R3, R4, RZ, P1"


@pytest.mark.parametrize(
    ("then", "found"),
    [
        ((BELOW, KEPT), 6),  # the approximation, the check, its jump, three steps
        (("FMUL R22, R21, R21", BELOW.replace("R21", "R22"), KEPT), 7),
        ((BELOW, KEPT, "FADD R3, R21, R3"), 0),  # the quotient is a result, too
        (("FADD R3, R21, R3",), 0),
    ],
)
def test_divisions_whose_result_is_only_compared(then: tuple[str, ...], found: int) -> None:
    assert count("compared", *loop(*DIVISION, *then, STORED)) == found
    assert not count("compared", *DIVISION, *then, STORED), "once, in no loop"


CONVERTED = "I2FP.F32.S32 R41, R40"
SUMMED = "FFMA R3, R42, R31, R3"


@pytest.mark.parametrize(
    ("scaled", "found"),
    [
        ((CONVERTED, "FMUL R42, R41, R30", SUMMED), 3),
        (("FFMA R3, R40, R31, R3",), 1),
        (("LDG.E R30, desc[UR4][R10.64]", CONVERTED, "FMUL R42, R41, R30", SUMMED), 0),
        ((CONVERTED, "FMUL R42, R41, R30", "FFMA R3, R42, R31, R4"), 0),  # no sum of iterations
        (("FMUL R42, R50, R30", SUMMED), 0),  # of no product
        ((CONVERTED, "FMUL R42, R41, R30", SUMMED, "FMNMX R50, R3, R50, PT"), 0),  # used besides
    ],
)
def test_sums_of_products_times_factors_of_all_iterations(
    scaled: tuple[str, ...], found: int
) -> None:
    before = ("MOV R30, 0x40000000", "MOV R31, 0x40400000")
    assert count("scaled sums", *loop(PRODUCT, *scaled, before=before), STORED) == found


def pieces(*offsets: str, width: str = "U8", base: str = "R10") -> tuple[str, ...]:
    """Return loads of some offsets into registers from R20 on."""
    place = f"desc[UR4][{base}.64{{}}]"
    return tuple(
        f"LDG.E.{width} R{20 + n}, {place.format(each and f'+{each}')}"
        for n, each in enumerate(offsets)
    )


JOINED = ("PRMT R30, R21, 0x7604, R20", "PRMT R31, R23, 0x7604, R22", "PRMT R3, R31, 0x1054, R30")


@pytest.mark.parametrize(
    ("lines", "loads"),
    [
        ((*pieces("", "0x1", "0x2", "0x3"), *JOINED), 6),
        ((*pieces("0x6", "0x5", "0x7", "0x4"), *JOINED), 6),
        ((*pieces("", "0x2", width="U16"), "PRMT R3, R21, 0x5410, R20"), 3),
        ((*pieces("", "0x1", "0x8", "0x9"), *JOINED), 0),  # two and two, apart
        ((*pieces("", "0x1", "0x2", "0x3"), *JOINED, "I2F.U8 R40, R20"), 0),  # a number of its own
        ((*pieces("", "0x1"), *pieces("0x2", "0x3", base="R12"), *JOINED), 0),
    ],
)
def test_words_that_are_loaded_in_pieces(lines: tuple[str, ...], loads: int) -> None:
    assert count("pieces", *lines, STORED) == loads


NIBBLE = (
    "LDG.E R20, desc[UR4][R10.64]",
    "SHF.R.U32.HI R21, RZ, 0x4, R20",
    "LOP3.LUT R22, R21, 0xf, RZ, 0xc0, !PT",
    "VIADD R22, R22, 0xfffffff8",
)


def test_small_integers_that_are_converted_one_by_one() -> None:
    assert count("converted", *NIBBLE, "I2F.F16 R3, R22", STORED) == 4, "all but the load"
    assert not count("converted", *NIBBLE, "I2F.F64 R3, R22", STORED), "no 16 bits"
    wide = NIBBLE[2].replace("0xf", "0xffff")
    assert not count("converted", *NIBBLE[:2], wide, "I2F.F16 R3, R22", STORED)
    made = ("S2R R20, SR_TID.X", *NIBBLE[1:])
    assert not count("converted", *made, "I2F.F16 R3, R22", STORED), "a thread's own number"


def test_lengths_that_are_guarded_against_overflow() -> None:
    largest = ("FMNMX R55, |R26|, |R51|, !PT", "FMNMX R20, |R22|, R55, !PT")
    factor = ("LOP3.LUT R21, R20, 0xfe000000, RZ, 0xc0, !PT", "IADD3 R57, -R21, 0x7e800000, RZ")
    scaled = ("FMUL R56, R55, R57", "FMUL R58, R20, R57", "FFMA R3, R56, R56, R58")
    assert count("guarded", *largest, *factor, *scaled, STORED) == 6
    other = (factor[0], "IADD3 R57, -R21, 0x7f800000, RZ")
    assert not count("guarded", *largest, *other, *scaled, STORED)
