"""Extra work: each kind by its mark in the machine code, and by no other."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ikp.core.code_facts import CodeFacts, RangeFacts, parse_facts
from ikp.core.excess_facts import ExtraWork
from ikp.inspection._accesses import Accesses
from ikp.inspection._extra import Extra
from ikp.inspection._serves import Serves
from ikp.inspection._work import Often
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.dataflow.lane_state import Shape
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins

PARAMETERS = {0x210: 0x1000_0000, 0x214: 0, 0x218: 0x2000_0000, 0x21C: 0}
SIZES = Shape((256, 1, 1), (64, 1, 1), 4, 8, 15)
THREAD = "S2R R0, SR_TID.X"


def extra(
    *lines: str, fails: frozenset[int] = frozenset(), ours: frozenset[int] = frozenset()
) -> Mapping[str, ExtraWork]:
    """Return the extra work of all instructions of some code, each executed once."""
    flow = Flow(sass(*lines, "EXIT"))
    accesses = Accesses(flow, SIZES, 0x210, PARAMETERS, ours)
    every = {at: Often(1.0) for at in range(len(flow.code.instructions))}
    return Extra(flow, accesses.values, accesses.sectors, fails, ours).of(every)


def count(kind: str, *lines: str) -> float:
    found = extra(*lines).get(kind)
    return found.count if found else 0.0


def loop(*body: str, before: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return a loop with some code in it."""
    ends = ("IADD3 R60, R60, 0x1, RZ", "ISETP.NE.AND P6, PT, R60, 0x40, PT", "@P6 BRA `(.L_x_0)")
    return (THREAD, *before, "MOV R60, RZ", ".L_x_0:", *body, *ends)


STORED = "STG.E desc[UR4][R8.64], R3"


@pytest.mark.parametrize(
    ("lines", "pairs"),
    [
        (("FMUL R2, R4, R5", "FADD R3, R2, R6"), 1),
        (("DMUL R2, R4, R6", "DADD R2, R8, R2"), 1),
        (("HMUL2 R2, R4, R5", "HADD2 R3, R2, R6"), 1),
        (("FFMA R3, R4, R5, R6",), 0),
        (("FMUL R2, R4, R5", "FADD R3, R2, R6", "FADD R7, R2, R6"), 0),  # used twice
        (("FMUL R2, R4, R5", "FADD R3, |R2|, R6"), 0),
        (("@P0 FMUL R2, R2, 16777216", "FADD R3, R2, R6"), 0),
        (("FMUL R2, R4, R5", "FMUL R7, R4, R4", "FADD R3, R2, R7"), 1),  # one of both fuses
        (("FMUL R2, R4, R5", "FMUL R3, R2, R6"), 0),
    ],
)
def test_products_and_sums_that_are_not_fused(lines: tuple[str, ...], pairs: int) -> None:
    assert count("unfused", *lines) == pairs


SCALED = ("LDS R4, [R20]", "FMUL R5, R4, R30", "STS [R21], R5", "HMMA.16816.F32 R8, R12, R16, R8")


def test_operands_of_products_that_a_loop_scales() -> None:
    assert count("scaled", *loop(*SCALED)) == 1
    moved = ("LDG.E R30, desc[UR4][R40.64]", *SCALED)
    assert count("scaled", *loop(*moved)) == 0, "each iteration has a factor of its own"
    results = (*SCALED[:2], "FADD R6, R5, R6", *SCALED[3:])
    assert count("scaled", *loop(*results)) == 0, "no operand of a product"
    made = ("MUFU.EX2 R4, R20", *SCALED[1:])
    assert count("scaled", *loop(*made)) == 0, "not as it was loaded"
    assert count("scaled", *SCALED) == 0, "in no loop"


def test_conversions_go_with_the_factor() -> None:
    body = (
        *("LDS R4, [R20]", "HADD2.F32 R5, -RZ, R4.H0_H0", "FMUL R6, R5, UR9"),
        *("F2FP.F16.F32.PACK_AB R7, R6, R6", "STS [R21], R7", "HMMA.16816.F32 R8, R12, R16, R8"),
    )
    found = extra(*loop(*body))["scaled"]
    assert (found.count, found.parts) == (3, 1)


def test_products_with_ones() -> None:
    ones = ("MOV R12, 0x3c003c00", "MOV R13, 0x3c003c00")
    assert count("ones", *ones, "HMMA.16816.F32 R8, R12, R16, R8") == 1
    assert count("ones", *ones, "HMMA.16816.F32 R8, R20, R12, R8") == 1
    assert count("ones", *ones, "HMMA.16816.F32 R12, R20, R16, R12") == 0, "a sum begins so"
    assert count("ones", "MOV R12, 0x40004000", "HMMA.16816.F32 R8, R12, R16, R8") == 0


def test_products_of_groups_with_ones_in_shared_memory() -> None:
    groups = (
        "HGMMA.64x64x16.F32 R24, R4, gdesc[UR8], R24",
        "HGMMA.64x16x16.F32 R4, R8, gdesc[UR4], R4",
    )
    ones = ("MOV R12, 0x3c003c00", "STS [R20], R12")
    assert count("ones", *ones, *groups) == 1
    assert count("ones", "MOV R12, RZ", "STS [R20], R12", *groups) == 0
    assert count("ones", *ones, groups[1]) == 0, "all products are as narrow"


CHECK = (
    *("LDG.E R2, desc[UR4][R8.64]", "ISETP.GE.AND P0, PT, R2, UR6, PT", "@!P0 BRA `(.L_x_1)"),
    *("MOV R4, 0x0", "CALL.ABS.NOINC R4", ".L_x_1:", "FADD R3, R2, R3"),
)


def test_what_only_a_check_needs() -> None:
    found = extra(*CHECK, fails=frozenset({4}))["checks"]
    assert (found.count, found.parts) == (2, 1), "the load is used otherwise, too"
    assert "checks" not in extra(*CHECK), "a call of something else"


def philox(results: int) -> list[str]:
    """Return ten rounds, of whose last one some words are stored."""
    lines = []
    for number in range(10):
        first = 10 if number % 2 else 14
        lines += [
            "IMAD.WIDE.U32 R2, R6, -0x2daee0ad, RZ",
            "IMAD.WIDE.U32 R4, R8, -0x326172a9, RZ",
            f"LOP3.LUT R6, R5, UR{first}, R9, 0x96, !PT",
            f"LOP3.LUT R8, R3, UR{first + 1}, R7, 0x96, !PT",
            "MOV R7, R4",
            "MOV R9, R2",
        ]
    return [*lines, *(f"STG.E desc[UR4][R20.64], R{6 + n}" for n in range(results))]


def test_words_of_philox_that_nothing_uses() -> None:
    assert count("random", *philox(1)) > 40
    assert count("random", *philox(4)) == 0
    assert count("random", "IMAD R2, R3, 0x5bd1e995, RZ") == 0, "another hash"


DECODE = (
    "LDG.E R2, desc[UR4][R8.64]",
    "SHF.R.U32.HI R4, RZ, 0x3, R2",
    "LOP3.LUT R5, R4, 0xf, RZ, 0xc0, !PT",
    "LOP3.LUT R6, R2, 0x7, RZ, 0xc0, !PT",
    "LEA R7, R5, R6, 0x3",
    "FMUL R3, R7, R10",
    "STG.E desc[UR4][R8.64], R3",
)


def test_numbers_that_integer_instructions_make() -> None:
    found = extra(*DECODE)["unpacked"]
    assert (found.count, found.parts) == (4, 1)
    few = (DECODE[0], "PRMT R7, R2, 0x7770, RZ", "FMUL R3, R7, R10", STORED)
    assert count("unpacked", *few) == 0
    address = (*DECODE[:5], "LDG.E R3, desc[UR4][R7.64]", STORED)
    assert count("unpacked", *address) == 0, "an address is no number"
    index = (*DECODE[:5], "IMAD R10, R7, R11, RZ", "LDG.E R3, desc[UR4][R10.64]", STORED)
    assert count("unpacked", *index) == 0, "nor what an address is made of"
    mixed = (DECODE[0], "IMAD.WIDE.U32 R4, R2, -0x2daee0ad, RZ", *DECODE[2:])
    assert count("unpacked", *mixed) == 0, "random numbers are made, and not taken apart"


ACCUMULATED = ("LDS R4, [R20]", "LDG.E R5, desc[UR4][R8.64]", "FADD R4, R4, R5", "STS [R20], R4")


def test_sums_in_memory() -> None:
    assert count("in memory", *loop(*ACCUMULATED)) == 2
    moves = (*ACCUMULATED, "IADD3 R20, R20, 0x4, RZ")
    assert count("in memory", *loop(*moves)) == 0
    elsewhere = (*ACCUMULATED[:3], "STS [R22], R4")
    assert count("in memory", *loop(*elsewhere)) == 0
    replaced = (ACCUMULATED[0], ACCUMULATED[1], "STS [R20], R5")
    assert count("in memory", *loop(*replaced)) == 0
    reduced = (*ACCUMULATED, "BAR.SYNC.DEFER_BLOCKING 0x0")
    assert count("in memory", *loop(*reduced)) == 0, "another thread may have stored it"


def test_loads_past_the_first_cache() -> None:
    load = "LDG.E.STRONG.SYS R4, desc[UR4][R2.64]"
    assert count("uncached", load, "FADD R3, R4, R4") == 1
    assert count("uncached", "LDG.E R4, desc[UR4][R2.64]") == 0
    waits = (".L_x_0:", load, "ISETP.NE.AND P0, PT, R4, R10, PT", "@P0 BRA `(.L_x_0)")
    assert count("uncached", *waits) == 0, "it waits for another thread"


def staged(place: str, *more: str) -> tuple[str, ...]:
    store = ("IMAD.SHL.U32 R20, R0, 0x4, RZ", "STS [R20], R4", "BAR.SYNC.DEFER_BLOCKING 0x0")
    return (THREAD, *store, place, *more, "LDS R6, [R21]", STORED)


def test_shared_memory_of_one_thread_each() -> None:
    assert count("private", *staged("MOV R21, R20")) == 2
    assert count("private", *staged("IADD3 R21, R20, 0x4, RZ")) == 0, "the next thread's"
    both = ("LDS R7, [R20+0x80]",)
    assert count("private", *staged("MOV R21, R20", *both)) == 0
    assert count("private", *staged("MOV R21, RZ")) == 0, "one for all"


ELEMENT = ("LDC.64 R30, c[0x0][0x210]", "IMAD.WIDE R32, R0, 0x4, R30")


def test_lanes_that_calculate_the_same() -> None:
    same = loop("LDG.E R4, desc[UR4][R30.64]", "FADD R5, R4, R5", before=(ELEMENT[0], "MOV R5, RZ"))
    assert count("alike", *same) == 1
    own = loop("LDG.E R4, desc[UR4][R32.64]", "FADD R5, R4, R5", before=(*ELEMENT, "MOV R5, RZ"))
    assert count("alike", *own) == 0
    product = loop("HMMA.16816.F32 R4, R12, R16, RZ", "FADD R5, R4, R5", before=("MOV R5, RZ",))
    assert count("alike", *product) == 0, "each lane has other elements of it"
    shuffled = loop("SHFL.BFLY PT, R4, R5, 0x1, 0x1f", "FADD R5, R4, R5", before=("MOV R5, RZ",))
    assert count("alike", *shuffled) == 0


@pytest.mark.parametrize(("other", "alike"), [("0x40", 1), ("R9", 0)])
def test_an_address_under_a_guard_of_the_lane_may_not_be_one_for_all(
    other: str, alike: float
) -> None:
    given = ("ISETP.GT.AND P0, PT, R0, 0x7, PT", "MOV R8, 0x40", f"@P0 MOV R8, {other}")
    lines = loop("LDS R4, [R8]", "FADD R5, R4, R5", before=(*given, "MOV R5, RZ"))
    assert count("alike", *lines) == alike


OF_THE_WARP = ("SHF.R.U32.HI R8, RZ, 0x5, R0", "IMAD.SHL.U32 R8, R8, 0x4, RZ")


@pytest.mark.parametrize(
    ("given", "alike"),
    [
        (("@P0 MOV R8, R9",), 0),  # some lanes' number is not known
        (("@P1 IADD3 R8, R8, 0x80, RZ",), 0),  # nor which lanes add
        (("@P0 IADD3 R8, R8, 0x80, RZ",), 0),  # lanes 8 to 31
        (("@!P0 BRA `(.L_x_8)", "MOV R8, R9", ".L_x_8:"), 0),
        (("@!P1 BRA `(.L_x_8)", "IADD3 R8, R0, R8, RZ", ".L_x_8:"), 0),
        (("@P0 IADD3 R8, R8, RZ, RZ",), 1),  # whichever lanes
    ],
)
def test_lanes_that_may_have_another_address_do_not_have_one(
    given: tuple[str, ...], alike: float
) -> None:
    """The rule: an address that is known in some lanes alone says nothing of the others'."""
    before = ("ISETP.GT.AND P0, PT, R0, 0x7, PT", *OF_THE_WARP, *given, "MOV R5, RZ")
    assert count("alike", *loop("LDS R4, [R8]", "FADD R5, R4, R5", before=before)) == alike


def test_an_address_of_the_warp_is_one_for_its_lanes() -> None:
    warp = (*OF_THE_WARP, "MOV R5, RZ")
    assert count("alike", *loop("LDS R4, [R8]", "FADD R5, R4, R5", before=warp)) == 1


def back(*between: str, to: str = "R32") -> tuple[str, ...]:
    other = "IMAD.WIDE R34, R0, 0x8, R30"
    load = "LDG.E R4, desc[UR4][R32.64]"
    return (THREAD, *ELEMENT, other, load, *between, f"STG.E desc[UR4][{to}.64], R5")


def test_values_that_are_stored_where_they_were() -> None:
    assert count("written back", *back("FSEL R5, R4, RZ, P0")) == 2
    assert count("written back", *back("MOV R5, R4")) == 2
    assert count("written back", *back("FADD R5, R4, R4")) == 0
    assert count("written back", *back("FSEL R5, R4, RZ, P0", to="R34")) == 0
    asked = back("FSETP.GT.AND P0, PT, R4, RZ, PT", "FSEL R5, R4, RZ, P0")
    assert count("written back", *asked) == 0, "the value decides"


def test_values_that_change_threads_through_shared_memory() -> None:
    through = ("STS [R20], R4", "LDS R6, [R21]")
    assert count("written back", *back(*through, "SEL R5, R6, RZ, P0")) == 2
    assert count("written back", *back(*through, "MOV R5, R6")) == 0, "a permutation"


def chain(*body: str) -> ExtraWork | None:
    return extra(*loop(*body)).get("chain")


def test_sums_that_wait_for_each_other() -> None:
    found = chain("FADD R2, R2, R4", "FADD R2, R2, R5", "FADD R2, R2, R6")
    assert found is not None and (found.parts, found.count) == (3, 12)
    spread = chain("FADD R2, R2, R4", "FADD R3, R3, R5", "FADD R7, R7, R6")
    assert spread is not None and spread.parts == 1
    assert chain("FFMA R2, R2, R4, R5") is None, "a recurrence, whose order counts"
    assert chain("FADD R2, R4, R5") is None
    tree = chain("FADD R3, R4, R5", "FADD R6, R7, R8", "FADD R3, R3, R6", "FADD R2, R2, R3")
    assert tree is not None and tree.parts == 1


def search(step: str, compare: str = "ISETP.NE.AND P0, PT, R4, R10, PT") -> float:
    return count(
        "search",
        *("MOV R2, RZ", ".L_x_0:", step, "IMAD.WIDE R8, R2, 0x8, R30"),
        *("LDG.E R4, desc[UR4][R8.64]", compare, "@P0 BRA `(.L_x_0)"),
    )


def test_searches_that_go_on_by_a_constant() -> None:
    assert search("IADD3 R2, R2, 0x1, RZ") == 1
    assert search("SHF.R.U32.HI R2, RZ, 0x1, R2") == 0, "it halves"
    assert search("IADD3 R2, R2, R4, RZ") == 0, "a list"
    assert search("IADD3 R2, R2, 0x1, RZ", "ISETP.NE.AND P0, PT, R2, 0x40, PT") == 0


def test_instructions_of_records_are_no_extra_work() -> None:
    lines = ("FMUL R2, R4, R5", "FADD R3, R2, R6")
    assert "unfused" not in extra(*lines, ours=frozenset({0, 1}))


def test_extra_work_goes_through_a_trace() -> None:
    made = {"checks": ExtraWork(2.0, 1.0, "k.cu:7")}
    code = CodeFacts(ranges={"r": RangeFacts("", mix={"fma": (1, 0, 0)}, extra=made)})
    read = parse_facts(code.text())
    assert read is not None and read.ranges["r"].extra == made
    assert parse_facts(code.text().replace("[2.0,1.0", "[-2.0,1.0")) is None


def test_calls_of_functions_of_the_source() -> None:
    assert count("called", "CALL.REL.NOINC `($k$_Z4pairff)", STORED) == 1
    assert not count("called", "CALL.REL.NOINC `($__internal_0_$__cuda_sm20_rcp_rn)", STORED)


def test_sleeps_of_a_loop() -> None:
    assert count("asleep", *loop("NANOSLEEP 0xfa0")) == 1
    assert not count("asleep", "NANOSLEEP 0xfa0")


COPY = ("LDG.E R20, desc[UR4][R10.64]", "FADD R3, R20, R20", STORED)


@pytest.mark.parametrize(
    ("body", "loads"),
    [
        (COPY * 3, 2),
        (COPY * 2, 0),  # an iteration and the next one: as in any loop
        (("LDG.E.CONSTANT R20, desc[UR4][R10.64]", *COPY[1:]) * 3, 0),
        ((*COPY, "BAR.SYNC.DEFER_BLOCKING 0x0") * 3, 0),
        (("LDG.E R10, desc[UR4][R12.64]", "MOV R11, RZ", *COPY) * 3, 2),  # the first load alone
        ((*COPY[:2],) * 3 + (STORED,), 0),
    ],
)
def test_loads_behind_stores_of_an_unrolled_loop(body: tuple[str, ...], loads: int) -> None:
    assert count("behind stores", *loop(*body)) == loads
    assert not count("behind stores", *body)  # in no loop


LOAD = "LDG.E.CONSTANT R20, desc[UR4][R10.64]"


@pytest.mark.parametrize(
    ("body", "loads"),
    [
        ((LOAD, "IADD3 R10, R10, 0x4, RZ", "FADD R3, R20, R20"), 1),
        ((LOAD, LOAD.replace("R20", "R21"), "FADD R3, R20, R21"), 0),  # two are under way
        ((LOAD, "FADD R3, R20, R20", STORED), 0),
        (("FADD R3, R20, R20", LOAD), 0),  # the next iteration's
        ((LOAD, "MOV R10, R20"), 0),  # where the next one is
        ((LOAD, "ISETP.NE.AND P5, PT, R20, RZ, PT", "@P5 BRA `(.L_x_9)"), 0),  # whether it is
        ((LOAD.replace(".CONSTANT", ".STRONG.SYS"), "FADD R3, R20, R20"), 0),
    ],
)
def test_loads_that_each_iteration_makes_one_of(body: tuple[str, ...], loads: int) -> None:
    assert count("lone", *loop(*body), ".L_x_9:", "EXIT") == loads
    assert not count("lone", *[one for one in body if "BRA" not in one])


PRODUCT = "HMMA.16816.F32 R40, R44, R48, RZ"


@pytest.mark.parametrize(
    ("sum_", "found"),
    [
        ("FADD R20, R40, R20", 1),
        ("FADD R20, R20, R40", 1),
        ("FADD R20, R40, R21", 0),  # to no sum of its own
        ("FFMA R20, R40, R22, R20", 0),  # with a factor
        ("FADD R20, R50, R20", 0),
    ],
)
def test_sums_of_what_products_have_summed_up(sum_: str, found: int) -> None:
    assert count("promoted", *loop(PRODUCT, sum_, STORED)) == found
    assert not count("promoted", PRODUCT, sum_)


LOADED = "LDG.E R20, desc[UR4][R10.64]"


@pytest.mark.parametrize(
    ("lines", "loads"),
    [
        ((LOADED, "FMUL R21, R20, c[0x0][0x214]"), 1),
        ((LOADED, "FFMA R21, R20, c[0x0][0x214], R22"), 1),
        (("ULDC UR9, c[0x0][0x214]", LOADED, "FMUL R21, R20, UR9"), 1),
        ((LOADED, "HADD2.F32 R20, -RZ, R20.H0_H0", "FMUL R21, R20, c[0x0][0x214]"), 1),
        ((LOADED, "FMUL R21, R20, c[0x0][0x210]"), 0),  # not zero
        ((LOADED, "FMUL R21, R20, c[0x0][0x240]"), 0),  # not known
        ((LOADED, "FMUL R21, R20, c[0x0][0x214]", "FADD R22, R20, R21"), 0),  # used besides
    ],
)
def test_loads_of_what_a_parameter_multiplies_by_zero(lines: tuple[str, ...], loads: int) -> None:
    found = extra(*lines, STORED).get("times zero")
    assert (found.parts if found else 0) == loads


def test_all_sums_of_an_iteration_are_promoted() -> None:
    """A product of two steps: the second one's sum goes on from the first one's."""
    second = (PRODUCT.replace("R40", "R52"), "FADD R20, R52, R20")
    assert count("promoted", *loop(PRODUCT, "FADD R20, R40, R20", *second, STORED)) == 2


STEP, WAIT = "HMMA.16816.F32 R8, R40, R44, R8", "BAR.SYNC.DEFER_BLOCKING 0x0"


@pytest.mark.parametrize(
    ("body", "steps"),
    [
        ((WAIT, STEP), 1),
        ((WAIT, STEP, STEP.replace("R8", "R12")), 2),  # two sums, of one step each
        ((WAIT, STEP, STEP), 0),
        ((STEP,), 0),  # nothing goes with it
    ],
)
def test_products_with_one_step_of_each_sum_between_waits(
    body: tuple[str, ...], steps: int
) -> None:
    assert count("single steps", *loop(*body)) == steps


BROUGHT, PUT = "LDG.E.128 R40, desc[UR4][R50.64]", "STS.128 [R52], R40"


@pytest.mark.parametrize(
    ("body", "loads"),
    [
        ((BROUGHT, PUT, WAIT, STEP), 1),
        ((BROUGHT, WAIT, STEP.replace("R40", "R20"), PUT), 0),  # a product is made meanwhile
        ((BROUGHT, PUT, "LDGSTS.E.128 [R54], desc[UR4][R56.64]", WAIT, STEP), 0),
        ((BROUGHT, PUT, WAIT), 0),
        ((BROUGHT.replace(".128", ""), PUT, WAIT, STEP), 0),  # a scale
    ],
)
def test_loads_that_are_used_before_the_next_product(body: tuple[str, ...], loads: int) -> None:
    assert count("unpipelined", *loop(*body)) == loads


def test_local_memory_is_each_threads_own() -> None:
    """One address of local memory is another place for each thread, and another number."""
    store, sums = "STL [R1], R0", "FFMA R20, R21, R21, R20"
    assert count("alike", *loop("LDL R21, [R1]", sums, before=(store,))) == 0
    assert count("alike", *loop("LDC R21, c[0x3][0x10]", sums)) == 1


def lane_sum(op: str, last: str, shuffled: str = "R20") -> tuple[str, ...]:
    shuffle = f"SHFL.BFLY PT, R21, {shuffled}, 0x1, 0x1f"
    return loop(LOADED, shuffle, f"{op} R22, R20, R21", last)


@pytest.mark.parametrize(
    ("lines", "shuffles"),
    [
        (lane_sum("FADD", "FADD R30, R22, R30"), 1),
        (lane_sum("FMNMX", "FMNMX R30, R22, R30, !PT"), 1),
        (lane_sum("FADD", "FADD R30, R22, R31"), 0),  # no sum of the iterations
        (lane_sum("FMNMX", "FADD R30, R22, R30"), 0),  # sums of maxima
        (lane_sum("FADD", "FFMA R30, R30, R33, R22"), 0),  # the sum changes by a factor, too
        ((*lane_sum("FADD", "FADD R30, R22, R30")[:-3], "MUFU.EX2 R34, R30", *loop()[-3:]), 0),
    ],
)
def test_lanes_that_sum_up_in_each_iteration(lines: tuple[str, ...], shuffles: int) -> None:
    assert count("lane sums", *lines, STORED) == shuffles


def serves(*lines: str) -> Mapping[str, float]:
    flow = Flow(sass(*lines, "EXIT"))
    return Serves(DefUse(flow)).of({at: Often(1.0) for at in range(len(flow.code.instructions))})


def test_what_instructions_serve() -> None:
    found = serves(
        *("S2R R0, SR_TID.X", "IMAD.WIDE R2, R0, 0x4, R8", "LDG.E R4, desc[UR4][R2.64]"),
        *("I2F R5, R4", "FADD R6, R5, R5", "MOV R7, R6", "ISETP.NE.AND P0, PT, R0, RZ, PT"),
        "@P0 STG.E desc[UR4][R2.64], R7",
    )
    assert found == {
        "addresses": 2,  # the thread's number is for a condition, too
        "memory": 2,
        "conversions": 1,
        "arithmetic": 1,
        "moves": 1,
        "conditions": 2,  # with the end
    }


def test_what_a_result_needs_is_for_it_whatever_else_needs_it() -> None:
    found = serves("FADD R2, R3, R4", "FSETP.GT.AND P0, PT, R2, RZ, PT", "@P0 EXIT", STORED)
    assert found["conditions"] == 4 and "arithmetic" not in found
    both = serves("FADD R3, R3, R4", "FSETP.GT.AND P0, PT, R3, RZ, PT", "@P0 EXIT", STORED)
    assert both["arithmetic"] == 1 and both["conditions"] == 3


STILL, USED = "LDS R20, [R21]", "STG.E desc[UR4][R8.64], R24"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ((STILL, "MUFU.RSQ R23, R20", "FMUL R24, R23, R30", USED), 2),
        (("LDS R20, [R60]", "MUFU.RSQ R23, R20", "FMUL R24, R23, R30", USED), 0),  # moves
        ((STILL, "STS [R22], R24", "MUFU.RSQ R23, R20", "FMUL R24, R23, R30", USED), 0),
        ((STILL, "FADD R24, R24, R20", USED), 0),  # a sum
        (("MUFU.RSQ R23, R20", "FMUL R24, R23, R30", USED), 0),  # a compiler moves it itself
    ],
)
def test_arithmetic_that_no_iteration_changes(body: tuple[str, ...], found: int) -> None:
    assert count("invariant", *loop(*body)) == found
    assert not count("invariant", *body), "in no loop"


SAME = ("LDG.E R20, desc[UR4][R10.64]", "MUFU.SQRT R21, R20", "FMUL R24, R21, R21", USED)
POSE = ("MOV R10, c[0x0][0x210]", "MOV R11, c[0x0][0x214]")


def test_arithmetic_that_all_threads_do_alike() -> None:
    assert count("uniform", *POSE, *SAME) == 2
    own = ("S2R R10, SR_TID.X", POSE[1])
    assert count("uniform", *own, *SAME) == 0, "each thread loads a number of its own"
    assert count("uniform", *POSE, *SAME[:2], "FMUL R24, R21, R60", USED) == 2, "a parameter's"
    read = ("S2R R30, SR_CTAID.X", "I2FP.F32.U32 R31, R30")
    assert count("uniform", *POSE, *read, *SAME[:2], "FMUL R24, R21, R31", USED) == 1
    assert count("uniform", *POSE, *loop(*SAME[:2], "FADD R24, R24, R21", USED)) == 1, "not sums"


def test_reads_of_the_clock_in_loops() -> None:
    timed = ("CS2R R20, SR_CLOCKLO", "IADD3 R22, R20, R22, RZ", "FADD R3, R3, R4")
    assert count("clocks", *loop(*timed)) == 2
    assert not count("clocks", *timed), "once"
    assert not count("clocks", *loop("CS2R R20, SRZ", *timed[1:])), "a zero"


def test_swaps_on_shared_memory_with_the_loop_around_them() -> None:
    swap = ("LDS R20, [R21]", "FADD R22, R20, R23", "ATOMS.CAST.SPIN R22, [R21], R20, R22")
    assert count("swaps", *loop(*swap)) == len(swap) + 3
    assert not count("swaps", *loop("ATOMS.ADD RZ, [R21], R20")), "of integers"


VOTE = "BAR.RED.OR.DEFER_BLOCKING 0x0, P1"


def test_votes_of_a_block_on_what_no_data_decides() -> None:
    known = ("ISETP.LT.AND P1, PT, R0, c[0x0][0x218], PT", VOTE)
    assert count("block votes", *loop(*known)) == 1
    asked = ("LDG.E R20, desc[UR4][R10.64]", "ISETP.LT.AND P1, PT, R20, RZ, PT", VOTE)
    assert not count("block votes", *loop(*asked)), "the data decide"
    assert not count("block votes", *known), "once"


TO_PRODUCT = "STS [R30], R22"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ((LOADED, "I2F.F16 R21, R20", "HMUL2 R22, R21, R25", TO_PRODUCT, PRODUCT), 2),
        ((LOADED, "I2F.F16 R44, R20", PRODUCT), 1),  # in registers
        ((LOADED, "STS [R30], R20", PRODUCT), 0),  # as they are
        ((PRODUCT, "FMUL R22, R40, R25", TO_PRODUCT), 0),  # what another product has made
        ((LOADED, "I2F.F16 R21, R20", "HMUL2 R22, R21, R25", TO_PRODUCT), 0),  # no product
    ],
)
def test_operands_that_are_worked_on_before_products(body: tuple[str, ...], found: int) -> None:
    assert count("reworked", *loop(*body)) == found


def test_integer_sums_of_products_with_their_selections_are_promoted() -> None:
    whole = PRODUCT.replace("HMMA.16816.F32", "IMMA.16832.S8.S8")
    body = (whole, "IADD3 R21, R40, R20, RZ", "SEL R20, R40, R21, P6")
    assert count("promoted", *loop(*body, STORED)) == 2
    first = (whole, "SEL R21, R20, RZ, P6", "IMAD.IADD R20, R21, 0x1, R40")
    assert count("promoted", *loop(*first, STORED)) == 2, "of the sum before"
    assert count("promoted", *loop(whole, "IMAD R20, R20, 0x2, R40", STORED)) == 0, "a factor"


LOGARITHMS = ("MUFU.LG2 R20, R30", "MUFU.LG2 R21, R31", "FADD R22, R20, R21", "MUFU.EX2 R23, R22")


def test_products_by_way_of_logarithms() -> None:
    assert count("logarithms", *loop(*LOGARITHMS)) == 2
    assert not count("logarithms", *LOGARITHMS), "once"
    power = ("MUFU.LG2 R20, R30", "FMUL R22, R20, R31", "MUFU.EX2 R23, R22")
    assert not count("logarithms", *loop(*power)), "a power"


def test_numbers_that_are_narrowed_and_widened_again() -> None:
    narrow = "F2FP.F16.F32.PACK_AB R20, RZ, R30"
    wide = "HADD2.F32 R21, -RZ, R20.H0_H0"
    assert count("to and fro", *loop(narrow, wide, "FADD R3, R3, R21")) == 2
    assert not count("to and fro", *loop(narrow, wide, "STG.E desc[UR4][R8.64], R20")), "stored"
    assert not count("to and fro", narrow, wide, "FADD R3, R3, R21"), "once"


def test_sums_that_carry_their_error_along() -> None:
    """Kahan's: y = x - c, t = s + y, c = (t - s) - y, s = t."""
    kahan = (
        "FADD R20, R30, -R22",
        "FADD R21, R3, R20",
        "FADD R23, R21, -R3",
        "FADD R22, R23, -R20",
    )
    moved = (*kahan, "MOV R3, R21")
    assert count("compensated", *loop(*moved, STORED)) >= 3
    assert not count("compensated", *loop("FADD R3, R3, R30", "FADD R5, R5, -R31", STORED))


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        (("LOP3.LUT R20, R0, 0x1, RZ, 0xc0, !PT", "ISETP.NE.AND P0, PT, R20, RZ, PT"), 2),
        (("LOP3.LUT R20, R0, 0x20, RZ, 0xc0, !PT", "ISETP.NE.AND P0, PT, R20, RZ, PT"), 0),  # warps
        (("LOP3.LUT R20, R0, 0x1f, RZ, 0xc0, !PT", "ISETP.NE.AND P0, PT, R20, RZ, PT"), 0),  # one
    ],
)
def test_code_that_half_of_a_warps_lanes_run(condition: tuple[str, ...], found: int) -> None:
    body = ("@P0 BRA `(.L_x_1)", "FMUL R3, R4, R5", "FADD R3, R3, R6", ".L_x_1:", STORED)
    assert count("split", THREAD, *condition, *body) == found
