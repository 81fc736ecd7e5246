"""The effect of one instruction on the registers of all threads, beside plain numbers of Python."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from ikp.sass.dataflow.lane_effects import execute
from ikp.sass.dataflow.lane_state import (
    ASSUMED,
    BLOCK,
    DATA,
    LANE,
    WARP,
    LaunchValues,
    Shape,
    Threads,
    Value,
)
from ikp.sass.disassembly.effects import effects
from tests.sass.texts import one

pytestmark = pytest.mark.any_pins

WORD = 0xFFFFFFFF
LAUNCH = LaunchValues(Shape((128, 1, 1), (2, 1, 1), warps=4, blocks=1), {0x210: 0x1234})
EDGES = (0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 0x7F80, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, WORD)
_DRAWN = random.Random(0)
TRIPLES = [
    *_DRAWN.sample([*product(EDGES, repeat=3)], 96),
    *(tuple(_DRAWN.getrandbits(32) for _ in range(3)) for _ in range(32)),
]
"""Of each thread, R1, R2 and R3."""
R1, R2, R3 = (np.array(each, np.int64) for each in zip(*TRIPLES, strict=True))
COUNTS = np.array([each % 70 for each in range(128)], np.int64)
P0 = np.array([each % 3 == 0 for each in range(128)], np.int64)
P1 = np.array([each % 5 < 2 for each in range(128)], np.int64)


def after(text: str, **more: Value) -> dict[str, Value]:
    """Return the registers behind an instruction, that changed."""
    before = {
        "R1": Value(R1[np.newaxis], LANE),
        "R2": Value(R2[np.newaxis], WARP),
        "R3": Value(R3[np.newaxis], BLOCK),
        "R4": Value(COUNTS[np.newaxis], LANE),
        "P0": Value(P0[np.newaxis], DATA),
        "P1": Value(P1[np.newaxis], LANE),
        "R9": Value(None, DATA),
        **more,
    }
    threads, each = Threads(LAUNCH, dict(before)), one(text)
    execute(threads, each, effects(each))
    return {name: value for name, value in threads.state.items() if value is not before.get(name)}


def bits(text: str, name: str = "R0") -> list[int]:
    """Return a register behind an instruction, of each thread."""
    found = after(text)[name].bits
    assert found is not None, "not evaluated"
    return [int(each) for each in np.broadcast_to(found, (1, 128))[0]]


def signed(value: int) -> int:
    return value - (value >> 31 << 32)


def by_thread(rule: Callable[[int, int, int], int]) -> list[int]:
    """Return what a rule makes of R1, R2 and R3 in each thread, as 32 bits."""
    return [rule(*each) & WORD for each in TRIPLES]


ARITHMETIC: dict[str, Callable[[int, int, int], int]] = {
    "MOV R0, R1": lambda a, b, c: a,
    "MOV R0, -0x3": lambda a, b, c: -3,
    "IADD3 R0, R1, R2, R3": lambda a, b, c: a + b + c,
    "IADD3 R0, R1, -R2, RZ": lambda a, b, c: a - b,
    "IADD3 R0, ~R1, R2, RZ": lambda a, b, c: ~a + b,
    "IADD3 R0, |R1|, R2, RZ": lambda a, b, c: abs(signed(a)) + b,
    "VIADD R0, R1, 0xffffffff": lambda a, b, c: a - 1,
    "IMAD R0, R1, R2, R3": lambda a, b, c: a * b + c,
    "IMAD.MOV.U32 R0, RZ, RZ, R2": lambda a, b, c: b,
    "IMAD.HI R0, R1, R2, RZ": lambda a, b, c: signed(a) * signed(b) >> 32,
    "IMAD.HI.U32 R0, R1, 0x3, RZ": lambda a, b, c: a * 3 >> 32,
    "LEA R0, R1, R2, 0x4": lambda a, b, c: (a << 4) + b,
    "LEA.HI R0, R1, R2, R3, 0x4": lambda a, b, c: ((c << 32 | a) << 4 >> 32) + b,
    "LEA.HI.SX32 R0, R1, R2, 0x1c": lambda a, b, c: (signed(a) << 28 >> 32) + b,
    "IMNMX R0, R1, R2, PT": lambda a, b, c: min(signed(a), signed(b)),
    "IMNMX R0, R1, R2, !PT": lambda a, b, c: max(signed(a), signed(b)),
    "IMNMX.U32 R0, R1, R2, PT": lambda a, b, c: min(a, b),
    "VIMNMX.U32 R0, R1, R2, !PT": lambda a, b, c: max(a, b),
    "VIADDMNMX R0, R1, R2, R3, PT": lambda a, b, c: min(signed((a + b) & WORD), signed(c)),
    "VIADDMNMX.U32 R0, R1, R2, R3, !PT": lambda a, b, c: max((a + b) & WORD, c),
    "IABS R0, R1": lambda a, b, c: abs(signed(a)),
}


@pytest.mark.parametrize("text", ARITHMETIC)
def test_arithmetic_is_that_of_each_thread(text: str) -> None:
    assert bits(text) == by_thread(ARITHMETIC[text])


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("IMAD.WIDE R6, R1, R2, RZ", lambda a, b: signed(a) * signed(b)),
        ("IMAD.WIDE.U32 R6, R1, R2, RZ", lambda a, b: a * b),
        ("IMAD.WIDE R6, R1, 0x4, R2", lambda a, b: signed(a) * 4 + b),
    ],
)
def test_a_wide_product_has_two_words(text: str, rule: Callable[[int, int], int]) -> None:
    made = after(text, R3=Value(0 * R3[np.newaxis], 0))
    low, high = (made[name].bits for name in ("R6", "R7"))
    assert low is not None and high is not None
    wide = [rule(a, b) & (1 << 64) - 1 for a, b, _ in TRIPLES]
    # numpy's product of two large unsigned words wraps, as the 64 bits do
    assert [int(h) << 32 | int(w) for w, h in zip(low[0], high[0], strict=True)] == wide


def test_a_sum_has_a_carry_and_takes_one() -> None:
    assert bits("IADD3 R0, P2, R1, R2, RZ", "P2") == [a + b >> 32 for a, b, _ in TRIPLES]
    carried = [a + b + int(p) & WORD for (a, b, _), p in zip(TRIPLES, P0, strict=True)]
    assert bits("IADD3.X R0, R1, R2, RZ, P0, !PT") == carried
    assert bits("LEA R0, P2, R1, R2, 0x4", "P2") == [
        ((a << 4) & WORD) + b >> 32 for a, b, _ in TRIPLES
    ]
    high = [((c << 32 | a) << 4 >> 32 & WORD) + b for a, b, c in TRIPLES]
    assert bits("LEA.HI.X R0, R1, R2, R3, 0x4, P0") == [
        each + int(p) & WORD for each, p in zip(high, P0, strict=True)
    ]
    product = [a * b + c + int(p) & WORD for (a, b, c), p in zip(TRIPLES, P0, strict=True)]
    assert bits("IMAD.X R0, R1, R2, R3, P0") == product
    assert bits("IMAD.X R0, R1, R2, R3") == by_thread(lambda a, b, c: a * b + c)


SHIFTS: dict[str, Callable[[int, int, int], int]] = {
    "SHF.L.U32 R0, R1, R4, RZ": lambda a, n, c: a << n if n < 32 else 0,
    "SHF.L.U64.HI R0, R1, R4, R3": lambda a, n, c: (c << 32 | a) << min(n, 63) >> 32,
    "SHF.R.U32 R0, R1, R4, RZ": lambda a, n, c: a >> min(n, 32),
    "SHF.R.U32.HI R0, RZ, R4, R3": lambda a, n, c: c >> min(n, 32),
    "SHF.R.S32.HI R0, RZ, R4, R3": lambda a, n, c: signed(c) >> min(n, 32),
    "SHF.R.U64 R0, R1, R4, R3": lambda a, n, c: (c << 32 | a) >> min(n, 63),
    "SHF.R.S64 R0, R1, R4, R3": lambda a, n, c: (signed(c) << 32 | a) >> min(n, 63),
}


@pytest.mark.parametrize("text", SHIFTS)
def test_a_shift_by_more_than_its_width_is_clamped(text: str) -> None:
    expected = [
        SHIFTS[text](a, int(n), c) & WORD for (a, _, c), n in zip(TRIPLES, COUNTS, strict=True)
    ]
    assert bits(text) == expected


@pytest.mark.parametrize("table", [0x80, 0xC0, 0xFC, 0x3C, 0x96, 0xF8, 0x01, 0xE4])
def test_bitwise_functions_are_by_their_table(table: int) -> None:
    def each(a: int, b: int, c: int) -> int:
        places = range(32)
        digits = [(a >> n & 1) << 2 | (b >> n & 1) << 1 | c >> n & 1 for n in places]
        return sum((table >> digit & 1) << n for n, digit in zip(places, digits, strict=True))

    assert bits(f"LOP3.LUT R0, R1, R2, R3, {table:#x}, !PT") == by_thread(each)
    tested = f"LOP3.LUT P2, RZ, R1, R2, R3, {table:#x}, !PT"
    assert bits(tested, "P2") == [int(bool(one)) for one in by_thread(each)]
    both = f"PLOP3.LUT P2, PT, P0, P1, PT, {table:#x}, 0x0"
    numbers = zip(P0, P1, strict=True)
    assert bits(both, "P2") == [table >> (int(p) << 2 | int(q) << 1 | 1) & 1 for p, q in numbers]


COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_are_signed_or_not_and_join_a_predicate(name: str) -> None:
    holds = COMPARISONS[name]
    by_sign = [holds(signed(a), signed(b)) for a, b, _ in TRIPLES]
    plain = [holds(a, b) for a, b, _ in TRIPLES]
    assert bits(f"ISETP.{name}.AND P2, PT, R1, R2, PT", "P2") == by_sign
    assert bits(f"ISETP.{name}.U32.AND P2, PT, R1, R2, PT", "P2") == plain
    both = [one and bool(p) for one, p in zip(plain, P0, strict=True)]
    assert bits(f"ISETP.{name}.U32.AND P2, PT, R1, R2, P0", "P2") == both
    either = [one or not p for one, p in zip(plain, P0, strict=True)]
    assert bits(f"ISETP.{name}.U32.OR P2, PT, R1, R2, !P0", "P2") == either


def test_a_comparison_of_64_bits_takes_that_of_the_low_words_where_high_ones_are_equal() -> None:
    expected = [
        bool(p) if a == b else signed(a) < signed(b)
        for (a, b, _), p in zip(TRIPLES, P0, strict=True)
    ]
    assert bits("ISETP.LT.AND.EX P2, PT, R1, R2, PT, P0", "P2") == expected


def test_a_selection_takes_the_first_where_its_predicate_holds() -> None:
    expected = [a if p else b for (a, b, _), p in zip(TRIPLES, P0, strict=True)]
    assert bits("SEL R0, R1, R2, P0") == expected
    assert bits("@P0 MOV R2, R1", "R2") == expected
    assert bits("@!P0 MOV R1, R2", "R1") == expected


@pytest.mark.parametrize("selector", [0x3210, 0x7654, 0x5410, 0x0123, 0x8888, 0xBA98, 0xFEDC])
def test_a_permutation_takes_bytes_or_their_signs(selector: int) -> None:
    def each(a: int, b: int, _: int) -> int:
        both = (a | b << 32).to_bytes(8, "little")
        digits = [selector >> 4 * place & 15 for place in range(4)]
        return int.from_bytes(
            bytes(both[n & 7] >> 7 and 255 if n & 8 else both[n & 7] for n in digits), "little"
        )

    assert bits(f"PRMT R0, R1, {selector:#x}, R2") == by_thread(each)
    assert after(f"PRMT.F4E R0, R1, {selector:#x}, R2")["R0"].bits is None


@pytest.mark.parametrize("count", [0, 1, 8, 31, 32])
def test_the_lowest_bits_are_extended(count: int) -> None:
    def each(a: int, _: int, __: int) -> int:
        low = a & (1 << count) - 1
        return low - (1 << count) if count and low >> count - 1 else low

    assert bits(f"SGXT R0, R1, {count:#x}") == by_thread(each)
    assert bits(f"SGXT.U32 R0, R1, {count:#x}") == by_thread(lambda a, b, c: a & (1 << count) - 1)


def test_the_value_of_one_lane_is_in_all_of_its_warp() -> None:
    warps = [number // 32 * 32 for number in range(128)]
    assert bits("SHFL.IDX PT, R0, R1, 0x5, 0x1f") == [int(R1[w + 5]) for w in warps]
    assert bits("R2UR UR0, R1", "UR0") == [int(R1[w]) for w in warps]
    assert after("SHFL.IDX PT, R0, R1, R4, 0x1f")["R0"].bits is None, "each lane asks another"
    assert after("SHFL.UP PT, R0, R1, 0x1, RZ")["R0"].bits is None
    assert not after("R2UR UR0, R1")["UR0"].depends & LANE
    assert bits("ELECT P2, URZ, PT", "P2") == [number % 32 == 0 for number in range(128)]


TEXTS = {
    "MOV R0, R9": DATA,
    "IADD3 R0, R1, R2, R3": LANE | WARP | BLOCK,
    "IADD3.X R0, R1, R1, RZ, P0, !PT": LANE | DATA,
    "IMAD R0, R1, R2, R9": LANE | WARP | DATA,
    "IMAD.X R0, R1, R1, R1, P0": LANE | DATA,
    "LEA R0, R9, R2, 0x4": WARP | DATA,
    "LEA.HI.X R0, R1, R1, R1, 0x4, P0": LANE | DATA,
    "SHF.R.U32.HI R0, RZ, R9, R2": WARP | DATA,
    "LOP3.LUT R0, R9, R2, R3, 0xc0, !PT": DATA | WARP | BLOCK,
    "SEL R0, R2, R3, P0": WARP | BLOCK | DATA,
    "IMNMX R0, R9, R2, PT": DATA | WARP,
    "PRMT R0, R9, 0x3210, R2": DATA | WARP,
    "SGXT R0, R9, 0x8": DATA,
    "IABS R0, R9": DATA,
    "FADD R0, R1, R2": LANE | WARP,
    "LDG.E R0, desc[UR4][R2.64]": WARP | BLOCK | DATA,
    "REDUX.SUM R0, R2": WARP | DATA,
    "SHFL.BFLY PT, R0, R2, 0x1, 0x1f": WARP | DATA | LANE,
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_result_depends_on_what_its_operands_do(text: str) -> None:
    known = Value(0 * R1, 0)
    assert after(text, UR4=known)["R0"].depends == TEXTS[text]


@pytest.mark.parametrize(
    "text",
    [
        *("MOV R0, R9", "IADD3 R0, R9, R2, R3", "IMAD R0, R1, R2, R9", "LEA R0, R9, R2, 0x4"),
        *("SHF.R.U32.HI R0, RZ, R9, R2", "LOP3.LUT R0, R9, R2, R3, 0xc0, !PT", "IABS R0, R9"),
        *("SEL R0, R2, R9, P0", "IMNMX R0, R9, R2, PT", "SGXT R0, R9, 0x8"),
    ],
)
def test_what_is_made_of_an_unknown_value_is_unknown(text: str) -> None:
    assert after(text)["R0"].bits is None


def test_predicates_that_are_not_evaluated_are_unknown() -> None:
    made = after("ISETP.LT.AND P2, P3, R1, R2, PT")
    assert made["P3"] == Value(None, LANE | WARP)
    made = after("PLOP3.LUT P2, P3, P0, P1, PT, 0x80, 0x8")
    assert made["P3"] == Value(None, LANE | DATA)
    assert after("ISETP.LT.AND P2, PT, R9, R2, PT")["P2"] == Value(None, DATA | WARP)


def test_constants_are_of_the_first_bank_and_assumed_where_no_launch_gives_them() -> None:
    made = after("LDC.128 R4, c[0x0][0x210]")
    assert [made[f"R{n}"].depends for n in range(4, 8)] == [ASSUMED] * 4
    first = made["R4"].bits
    assert first is not None and set(first.ravel().tolist()) == {0x1234}
    assert after("LDC R0, c[0x0][0x210]")["R0"].depends == 0
    assert {*after("LDC.64 R4, c[0x0][0x210]")} == {"R4", "R5"}
    assert after("LDC R0, c[0x3][0x210]")["R0"].bits is None
    assert bits("UMOV UR4, c[0x0][0x210]", "UR4") == [0x1234] * 128
    pair = after("UMOV.64 UR4, c[0x0][0xc]")
    assert [int(value.bits[0, 0]) for value in pair.values() if value.bits is not None] == [2, 1]


FLOATS: dict[str, Callable[[int], float]] = {
    "I2F.U32.RP R0, R1": lambda a: a,
    "I2F.RP R0, R1": signed,
    "MUFU.RCP R0, R1": lambda a: 1 / struct.unpack("<f", struct.pack("<I", a))[0],
}


@pytest.mark.parametrize("text", FLOATS)
def test_floats_of_which_divisions_are_made_are_near_the_true_ones(text: str) -> None:
    made = np.array(bits(text)).astype(np.uint32).view(np.float32)
    normal = (R1 > 0x00800000) & (R1 < 0x7E800000) if "MUFU" in text else R1 >= 0
    expected = [FLOATS[text](int(a)) for a in R1[normal]]
    assert made[normal] == pytest.approx(expected, rel=1e-6)


def test_floats_are_cut_to_integers() -> None:
    whole = np.array([0.0, 1.5, -1.5, 3e9, -2.5e9, np.nan, 7.99, 5e9] * 16, np.float32)
    value = Value(whole.view(np.uint32).astype(np.int64)[np.newaxis], 0)
    made = after("F2I.FTZ.U32.TRUNC.NTZ R0, R5", R5=value)["R0"].bits
    least, most = 1 << 31, WORD
    assert made is not None
    assert made[0, :8].tolist() == [0, 1, WORD, 3_000_000_000, least, 0, 7, most]


@pytest.mark.parametrize("text", ["MUFU.SQRT R0, R1", "I2F.F64 R4, R1", "MUFU.RCP64H R0, R1"])
def test_other_functions_of_floats_are_not_evaluated(text: str) -> None:
    (value, *_) = after(text).values()
    assert value.bits is None and value.depends & LANE


SPECIAL = {
    "S2R R0, SR_TID.X": LANE | WARP,
    "S2R R0, SR_TID.Y": WARP,
    "S2R R0, SR_LANEID": LANE,
    "S2R R0, SR_CTAID.X": BLOCK,
    "S2R R0, SR_CTAID.Y": 0,
    "S2UR UR0, SR_CTAID.X": BLOCK,
    "S2UR UR0, SR_CgaCtaId": 0,
    "CS2R.32 R0, SRZ": 0,
}


@pytest.mark.parametrize("text", SPECIAL)
def test_a_special_register_depends_on_what_it_numbers(text: str) -> None:
    (made,) = after(text).values()
    assert made.bits is not None and made.depends == SPECIAL[text]


def test_a_special_register_may_be_a_pair_or_unknown() -> None:
    assert {name: value.depends for name, value in after("CS2R R4, SRZ").items()} == {
        "R4": 0,
        "R5": 0,
    }
    assert after("S2R R0, SR_SMID")["R0"].bits is None


def test_a_comparison_that_is_not_known_is_not_evaluated() -> None:
    made = after("ISETP.ODD.AND P2, PT, R1, R2, P0")
    assert made == {"P2": Value(None, LANE | WARP | DATA)}


def test_a_zero_register_keeps_its_value() -> None:
    for text in ("MOV RZ, R1", "IADD3 RZ, P2, R1, R2, RZ", "R2UR URZ, R1"):
        assert not {"RZ", "URZ", "R255"} & {*after(text)}


@pytest.mark.parametrize(
    "text",
    ["VIADDMNMX.U16x2 R0, R1, R2, R3, PT", "VIADDMNMX.RELU R0, R1, R2, R3, PT"],
)
def test_a_form_that_is_not_known_makes_no_known_value(text: str) -> None:
    assert after(text)["R0"].bits is None


def test_a_table_of_three_inputs_needs_no_predicate_behind_it() -> None:
    (with_one,) = after("LOP3.LUT R0, R1, R2, R3, 0x96, !PT").values()
    (without,) = after("LOP3.LUT R0, R1, R2, R3, 0x96").values()
    assert with_one.bits is not None and without.bits is not None
    assert (with_one.bits == without.bits).all() and with_one.depends == without.depends
