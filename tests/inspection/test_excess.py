"""What code does more often, or wider, than its results need: each by its mark, and by no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from ikp.core.code_facts import AccessFacts
from ikp.core.excess_facts import NO_EXCESS, ExcessFacts
from ikp.inspection._accesses import Accesses
from ikp.inspection._excess import Excess
from ikp.inspection._serves import Serves, Uses
from ikp.inspection._work import Often
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.dataflow.lane_state import Shape
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins

THREAD, BLOCK = "S2R R0, SR_TID.X", "S2R R1, SR_CTAID.X"
PARAMETERS = {0x210: 0x1000_0000, 0x214: 0, 0x218: 0x2000_0000, 0x21C: 0}
SIZES = Shape((256, 1, 1), (64, 1, 1), 4, 8, 15)


def flow_of(*lines: str) -> Flow:
    return Flow(sass(*lines, "EXIT"))


def excess(
    *lines: str, shape: Shape = SIZES, often: Mapping[int, Often] | None = None
) -> ExcessFacts:
    """Return the excess work of all instructions of some code, each executed once."""
    flow = flow_of(*lines)
    accesses = Accesses(flow, shape, 0x210, PARAMETERS)
    each = often or {at: Often(1.0) for at in range(len(flow.code.instructions))}
    results = Serves(DefUse(flow)).results
    return Excess(flow, accesses.values, accesses.whole, results=results).of(each)


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("HADD2.F32 R1, -RZ, R2.H0_H0", (0, 1, 0)),
        ("IMAD.U32 R1, R2, 0x10000, RZ", (0, 1, 0)),
        ("LOP3.LUT R1, R2, 0xffff0000, RZ, 0xc0, !PT", (0, 1, 0)),
        ("IMAD.U32 R1, R2, 0x4, RZ", (0, 0, 0)),
        ("HADD2 R1, R2, R3", (0, 0, 0)),
        ("LOP3.LUT R1, R2, 0xffffe000, RZ, 0xc0, !PT", (0, 0, 1)),
        ("ATOMG.E.CAS.STRONG.GPU PT, R1, [R2], R4, R5", (1, 0, 0)),
        ("ATOM.E.CAS.64.STRONG.GPU PT, R2, [R2], R4, R6", (1, 0, 0)),
        ("ATOMG.E.ADD.STRONG.GPU PT, R1, [R2], R4", (0, 0, 0)),
    ],
)
def test_marks_of_single_instructions(line: str, counts: tuple[int, int, int]) -> None:
    found = excess(line)
    assert (found.swaps, found.widened, found.split) == counts


def alone(condition: str) -> tuple[str, ...]:
    """Return code of a sum behind a condition on the thread's number."""
    return (
        *(THREAD, condition, "@P0 BRA `(.L_x_1)", "MOV R2, 0x0"),
        *(".L_x_0:", "LDS R3, [R2]", "FADD R4, R4, R3", "IADD3 R2, R2, 0x4, RZ"),
        *("ISETP.NE.AND P1, PT, R2, 0x400, PT", "@P1 BRA `(.L_x_0)", ".L_x_1:"),
        "BAR.SYNC.DEFER_BLOCKING 0x0",
    )


def test_code_of_one_thread_and_of_one_warp() -> None:
    one = excess(*alone("ISETP.NE.AND P0, PT, R0, RZ, PT"))
    assert (one.serial_threads, one.serial) == (1, 6)
    warp = excess(*alone("ISETP.GT.U32.AND P0, PT, R0, 0x1f, PT"))
    assert warp.serial_threads == 32
    half = excess(*alone("ISETP.GT.U32.AND P0, PT, R0, 0x7f, PT"))
    assert half.serial == 0 and half.serial_threads == 0
    small = Shape((32, 1, 1), (64, 1, 1), 1, 8)
    assert excess(*alone("ISETP.NE.AND P0, PT, R0, RZ, PT"), shape=small).serial == 0


def masked(column: str, select: str = "FSEL R9, R8, -INF, P0", start: str = "0x0") -> list[str]:
    """Return a loop over columns of tiles of 64, from which a block's rows keep some."""
    tile = [
        line
        for number in range(4)
        for line in (
            f"IADD3 R4, R3, {16 * number}, RZ",
            f"ISETP.GE.AND P0, PT, {column}, PT",
            select,
        )
    ]
    return [
        *(BLOCK, "IMAD.SHL.U32 R2, R1, 0x40, RZ", "IADD3 R2, R2, 0x3f, RZ"),
        *(f"MOV R3, {start}", ".L_x_0:", *tile, "IADD3 R3, R3, 0x40, RZ"),
        *("ISETP.NE.AND P1, PT, R3, 0x1000, PT", "@P1 BRA `(.L_x_0)"),
    ]


def test_iterations_behind_a_triangular_mask() -> None:
    seen = [0, *(64 * part // 16 for part in range(1, 16))]  # blocks over the grid
    mean = sum(block + 1 for block in seen) / len(seen)
    assert excess(*masked("R2, R4")).useful == pytest.approx(mean, abs=0.01)
    other = masked("R2, R4", "FSEL R9, -INF, R8, !P0")
    assert excess(*other).useful == pytest.approx(mean, abs=0.01)
    hides = [line.replace("GE", "LT").replace("R8, -INF", "-INF, R8") for line in masked("R2, R4")]
    assert excess(*hides).useful == pytest.approx(mean, abs=0.01)


@pytest.mark.parametrize(
    "lines",
    [
        masked("R2, R4", "FSEL R9, R8, R7, P0"),  # no constant
        masked("R2, R4", "SEL R9, R8, RZ, P0"),  # the size of a copy
        masked("R7, R4"),  # against what is not known
        masked("0x800, R4"),  # a bound, the same in each block
        masked("R4, R2"),  # what is thrown away comes first
    ],
)
def test_other_conditions_are_no_such_mask(lines: list[str]) -> None:
    assert excess(*lines).useful == -1.0


def reduced(address: str, more: str = "FADD R8, R8, R6", given: str = "MOV R9, 0x1") -> list[str]:
    """Return a loop that loads and sums, from an address that a block or the loop may move."""
    return [
        *(THREAD, BLOCK, given, "MOV R5, 0x0", "ULDC.64 UR4, c[0x0][0x210]"),
        *("IMAD.SHL.U32 R10, R0, 0x4, RZ", address, "MOV R7, RZ", ".L_x_0:"),
        *("LDG.E R6, desc[UR6][R2.64]", more, "IADD3 R2, R2, 0x400, RZ"),
        *("IADD3 R5, R5, 0x1, RZ", "ISETP.NE.AND P1, PT, R5, 0x10, PT", "@P1 BRA `(.L_x_0)"),
    ]


SAME = "IADD3 R2, R10, c[0x0][0x210], RZ"


def test_a_loop_that_calculates_from_its_loads_alone() -> None:
    lines = ["MOV R3, RZ", *reduced(SAME)]
    assert excess(*lines).alone
    assert not excess(*lines[:-6], "FFMA R8, R6, R9, R8", *lines[-3:]).alone, "loads nothing"
    data = ["MOV R3, RZ", *reduced(SAME, "FFMA R8, R6, R9, R8", "LDG.E R9, desc[UR6][R12.64]")]
    assert not excess(*data).alone, "with a number that was loaded before"
    copies = ["MOV R3, RZ", *reduced(SAME, "STS [R20], R6")]
    assert not excess(*copies).alone, "it fills shared memory, and calculates nothing"
    sums = ["MOV R3, RZ", *reduced(SAME, "FFMA R8, R6, R9, R8"), "STG.E desc[UR6][R12.64], R8"]
    assert excess(*sums).alone
    block = reduced(SAME, "IMAD R8, R6, R9, R8", "IMAD R9, R1, 0x100, R0")
    assert not excess("MOV R3, RZ", *block, sums[-1]).alone, "with the block's number"
    stores = ["MOV R3, RZ", *reduced(SAME, "STG.E desc[UR6][R12.64], R6")]
    assert not excess(*stores).alone


def test_blocks_share_a_result_where_they_share_all_that_they_load() -> None:
    """Rows that some blocks share, and columns that others do, are a result of each block."""
    shape = replace(SIZES, grid=(8, 8, 1), blocks=8, rows=8)
    row, column = "S2R R1, SR_CTAID.Y", "S2R R20, SR_CTAID.X"
    sums = ("LDG.E R6, desc[UR6][R2.64]", "LDG.E R9, desc[UR6][R12.64]", "FFMA R8, R6, R9, R8")
    ends = ("IADD3 R5, R5, 0x1, RZ", "ISETP.NE.AND P1, PT, R5, 0x10, PT", "@P1 BRA `(.L_x_0)")

    def of(other: str) -> str:
        zeros = ("MOV R5, RZ", "MOV R3, RZ", "MOV R13, RZ")
        lines = (row, column, *zeros, "IMAD.SHL.U32 R2, R1, 0x1000, RZ")
        lines = (*lines, f"IMAD.SHL.U32 R12, {other}, 0x1000, RZ", ".L_x_0:", *sums, *ends)
        return excess(*lines, "STG.E desc[UR6][R14.64], R8", shape=shape).alone

    assert of("R1"), "rows alone"
    assert not of("R20"), "a row and a column"


def nested(step: str, store: str = "FADD R15, R8, R8") -> list[str]:
    """Return an outer loop around one that loads and sums."""
    inner = reduced(SAME)
    return [
        *("MOV R3, RZ", "MOV R14, 0x0", "MOV R11, 0x0", ".L_x_9:", *inner[:5], inner[5]),
        *("IADD3 R2, R10, c[0x0][0x210], R11", *inner[7:], step, store),
        *("IADD3 R14, R14, 0x1, RZ", "ISETP.NE.AND P2, PT, R14, 0x8, PT", "@P2 BRA `(.L_x_9)"),
    ]


def test_a_loop_that_an_outer_one_executes_alike() -> None:
    assert excess(*nested("FADD R12, R12, R8")).again
    assert not excess(*nested("IADD3 R11, R11, 0x4000, RZ")).again, "other addresses"
    assert not excess(*nested("FADD R12, R12, R8", "STG.E desc[UR6][R12.64], R8")).again


TESTED = ("ISETP.NE.AND P0, PT, R4, RZ, PT", "ISETP.NE.AND P1, PT, R5, RZ, PT")
REUSED = ("@P0 HADD2.F32 R4, -RZ, R9.H0_H0", "@P0 FMUL R8, R4, R9")
"""A register that is written anew where a guard holds, and read there."""


@pytest.mark.parametrize(
    ("behind", "use"),
    [
        (["ISETP.NE.AND P0, PT, R4, RZ, PT", "ISETP.NE.AND P1, PT, R5, RZ, PT"], "compared.4"),
        (
            ["ISETP.NE.U32.AND P0, PT, R4, 0x1, PT", "ISETP.NE.AND.EX P0, PT, R5, RZ, PT, P0"],
            "compared.8",
        ),
        (["F2FP.BF16.F32.PACK_AB R6, R5, R4"], "narrowed.4"),
        (["F2F.F32.F64 R6, R4"], "narrowed.8"),
        (["F2F.F32.F64 R6, R4", "DADD R8, R4, R4"], ""),
        (["ISETP.NE.AND P0, PT, R4, R9, PT", "ISETP.NE.AND P0, PT, R5, R9, PT"], ""),
        (["ISETP.NE.AND P0, PT, R4, RZ, PT", "IADD3 R6, R5, 0x1, RZ"], ""),
        (["MOV R4, RZ", "MOV R5, RZ", "FADD R6, R4, R5"], ""),
        (["F2FP.BF16.F32.PACK_AB R5, R5, R4", "FADD R6, R5, R5"], "narrowed.4"),
        (["F2FP.BF16.F32.PACK_AB R6, R5, R4", "PRMT R5, R7, 0x7632, R5"], "narrowed.4"),
        (["F2FP.BF16.F32.PACK_AB R6, R5, R4", "PRMT R8, R7, 0x7632, R5"], ""),
        ([*TESTED, *REUSED], "compared.4"),
        ([*TESTED, *REUSED[:-1], "FMUL R8, R4, R9"], ""),  # without the guard
        ([*TESTED, REUSED[0], "ISETP.NE.AND P0, PT, R9, RZ, PT", REUSED[1]], ""),  # another one
    ],
)
def test_what_becomes_of_loaded_numbers(behind: list[str], use: str) -> None:
    flow = flow_of("LDG.E.64 R4, desc[UR6][R2.64]", *behind)
    assert Uses(flow).of([0]) == use


def of_block(*lines: str) -> tuple[float | None, float | None]:
    flow = flow_of("MOV R3, RZ", THREAD, *lines)
    every = {at: Often(1.0) for at in range(len(flow.code.instructions))}
    (one,) = Accesses(flow, SIZES, 0x210, PARAMETERS).of(every)
    return one.threads, one.own


def test_how_many_threads_of_a_block_have_an_element_of_their_own() -> None:
    store = "STG.E desc[UR6][R2.64], R6"
    own = "IMAD.SHL.U32 R2, R0, 0x4, RZ"
    assert of_block(own, store) == (1.0, 1.0)
    wrapped = ("LOP3.LUT R0, R0, 0x3f, RZ, 0xc0, !PT", own)
    assert of_block(*wrapped, store) == (1.0, 0.25)
    few = "ISETP.GT.U32.AND P0, PT, R0, 0x1f, PT"
    assert of_block(own, few, f"@!P0 {store}") == (0.125, 0.125)
    assert of_block(own, "FSETP.GT.AND P0, PT, R9, RZ, PT", f"@P0 {store}") == (None, 1.0)


@pytest.mark.parametrize(
    ("trips", "times", "weight"),
    [
        ([], 1, 1),
        ([2.0, 3.0], 6, 6),
        ([None], 1, 8),
        ([None, None], 8, 64),  # the inner one goes round in each iteration of the outer one
        ([16.0, None], 16, 128),
        ([0.0, None], 1, 8),  # not in the first iteration
    ],
)
def test_loops_in_loops_go_round_more_often(
    trips: list[float | None], times: float, weight: float
) -> None:
    found = Often.in_loops(trips)
    assert (found.times, found.weight, found.looped) == (times, weight, None in trips)


@pytest.mark.parametrize("first", [0, 3])
def test_requests_are_those_of_the_first_blocks_that_make_any(first: int) -> None:
    """The first blocks of a grid may lie in the margin of the data, where all is masked off."""
    guard = ("S2R R1, SR_CTAID.X", f"ISETP.GE.U32.AND P0, PT, R1, {first:#x}, PT")
    place = ("IMAD R2, R1, 0x400, R0", "IMAD.WIDE R2, R2, 0x4, c[0x0][0x210]")
    flow = flow_of(THREAD, *guard, *place, "@P0 LDG.E R4, desc[UR6][R2.64]")
    every = {at: Often(1.0) for at in range(len(flow.code.instructions))}
    (one,) = Accesses(flow, SIZES, 0x210, PARAMETERS).of(every)
    assert (one.cost, one.least, one.together) == (4.0, 4.0, 4.0)


def atomic(*guard: str) -> AccessFacts:
    """Return the facts of an atomic on one address behind a guard in P0."""
    flow = flow_of("MOV R3, RZ", "MOV R2, RZ", THREAD, *guard, "@P0 ATOMG.E.ADD R5, [R2.64], R9")
    every = {at: Often(1.0) for at in range(len(flow.code.instructions))}
    (one,) = Accesses(flow, SIZES, 0x210, PARAMETERS).of(every)
    return one


def test_a_lane_that_a_warp_elects_operates_alone() -> None:
    """A compiler joins the atomics of a warp: its vote is not known, and one lane makes it."""
    vote = ("S2R R9, SR_LANEID", "VOTEU.ANY UR4, UPT, PT", "FLO.U32 R8, UR4")
    joined = atomic(*vote, "ISETP.EQ.U32.AND P0, PT, R8, R9, PT")
    assert (joined.lanes, joined.threads) == (1.0, pytest.approx(1 / 32, abs=1e-4))
    others = atomic(*vote, "ISETP.NE.U32.AND P0, PT, R8, R9, PT")
    assert (others.lanes, others.threads) == (32.0, None)
    data = atomic("FLO.U32 R8, R7", "ISETP.EQ.U32.AND P0, PT, R8, R9, PT")
    assert (data.lanes, data.threads) == (32.0, None), "of a number, and no vote"


def test_excess_reads_back_as_it_was() -> None:
    some = ExcessFacts(1.0, 2.0, 3.0, 64.0, 1, "k.cu:7", 4.5, "k.cu:8", "k.cu:9")
    assert ExcessFacts.of_json(some.to_json()) == some
    assert NO_EXCESS.to_json() == {} and ExcessFacts.of_json({}) == NO_EXCESS


@pytest.mark.parametrize("said", [{"swaps": "1"}, {"alone": 1}, {"useful": -2}, {"split": 1e30}])
def test_other_excess_is_refused(said: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(said))):
        ExcessFacts.of_json(said)
