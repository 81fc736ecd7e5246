"""Reading, following and classing machine code, on texts as nvdisasm writes them."""

from __future__ import annotations

import pytest

from ikp.inspection._find_records import Found, find
from ikp.inspection._flow import Flow
from ikp.inspection._opcodes import Work, work_of
from ikp.inspection._origins import Tracer
from ikp.inspection._sass import Code, Instruction, Line, parse
from ikp.inspection._values import CLOCK, OTHER, Definition, Origin, definitions

pytestmark = pytest.mark.any_pins

HEAD = """\t.target\tsm_90a

//--------------------- .text.k --------------------------
k:
.text.k:
"""


def sass(*lines: str) -> Code:
    """Return code from lines like ``"@P0 BRA `(.L_x_1)"``; one ending in a colon is a label."""
    text, address = HEAD, 0
    for line in lines:
        if line.endswith(":") or line.startswith("//"):
            text += f"{line}\n"
        else:
            text += f"        /*{address:04x}*/                   {line} ;\n"
            address += 16
    (code,) = parse(text)
    return code


def one(text: str) -> Instruction:
    return sass(text).instructions[0]


def test_an_instruction_has_its_parts() -> None:
    found = one("@!P1 STG.E.128 desc[UR14][R98.64+0x10], R16.reuse")
    assert (found.guard, found.opcode, found.op) == ("!P1", "STG.E.128", "STG")
    assert found.operands == ("desc[UR14][R98.64+0x10]", "R16")
    assert found.text == "@!P1 STG.E.128 desc[UR14][R98.64+0x10], R16"


def test_lines_of_inlined_functions_are_a_chain() -> None:
    code = sass(
        '//## File "k.py", line 35 inlined at "k.py", line 66',
        '//## File "k.py", line 66',
        "EXIT",
        '//## File "k.py", line 14',
        "EXIT",
        "EXIT",
    )
    assert [i.lines for i in code.instructions] == [
        (Line("k.py", 35), Line("k.py", 66)), (Line("k.py", 14),), (Line("k.py", 14),),
    ]  # fmt: skip


def test_branches_go_where_their_guards_say() -> None:
    flow = Flow(
        sass("@!P0 BRA `(.L_x_1)", "NOP", "BRA.U !UP1, `(.L_x_1)", "@P2 EXIT", ".L_x_1:", "EXIT")
    )
    assert {(e.source, e.guard) for e in flow.before[4]} == {(0, "!P0"), (2, "!UP1"), (3, "!P2")}
    assert [(e.source, e.guard) for e in flow.before[1]] == [(0, "P0")]
    assert [(e.source, e.guard) for e in flow.before[3]] == [(2, "UP1")]


def test_threads_that_meet_go_on_where_the_barrier_was_set() -> None:
    flow = Flow(
        sass(
            "BSSY B0, `(.L_x_2)",
            "@P0 BRA `(.L_x_1)",
            "NOP",
            ".L_x_1:",
            "BSYNC B0",
            "NOP",
            ".L_x_2:",
            "EXIT",
        )
    )
    assert flow.after[3] == [5]


def test_a_barrier_that_serves_again_leads_to_its_own_place_each_time() -> None:
    flow = Flow(
        sass(
            "BSSY B0, `(.L_x_1)", "BSYNC B0", ".L_x_1:",
            "BSSY B0, `(.L_x_2)", "BSYNC B0", ".L_x_2:", "EXIT",
        )
    )  # fmt: skip
    assert (flow.after[1], flow.after[3]) == ([2], [4])


def test_an_indirect_branch_goes_to_what_it_lists_or_to_what_nothing_else_names() -> None:
    listed = 'BRX R4 -0x10 (*"BRANCH_TARGETS .L_x_1,.L_x_2"*)'
    for branch in (listed, "BRX R4 -0x10"):
        flow = Flow(sass(branch, ".L_x_1:", "EXIT", ".L_x_2:", "EXIT"))
        assert flow.after[0] == [1, 2]


def test_loops_nest() -> None:
    flow = Flow(
        sass(".L_x_1:", "NOP", ".L_x_2:", "NOP", "@P0 BRA `(.L_x_2)", "@P1 BRA `(.L_x_1)", "EXIT")
    )
    assert [(loop.header, sorted(loop.body)) for loop in flow.loops] == [
        (0, [0, 1, 2, 3]), (1, [1, 2]),
    ]  # fmt: skip
    assert flow.loop_of(2) == flow.loops[1]
    assert flow.loop_of(4) is None


CONSTANT = Origin.CONSTANT


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CS2R.32 R9, SR_CLOCKLO", {"R9": CLOCK}),
        ("CS2R R8, SR_CLOCKLO", {"R8": CLOCK, "R9": OTHER}),
        ("S2UR UR4, SR_CLOCKLO", {"UR4": CLOCK}),
        ("CS2R.32 R9, SR_GLOBALTIMERLO", {"R9": CLOCK}),
        ("S2R R9, SR_TID.X", {"R9": OTHER}),
        ("MOV R1, R2", {"R1": Definition(Origin.COPY, ("R2",))}),
        ("IMAD.MOV.U32 R1, RZ, RZ, R2", {"R1": Definition(Origin.COPY, ("R2",))}),
        ("IMAD.U32 R1, RZ, RZ, UR5", {"R1": Definition(Origin.COPY, ("UR5",))}),
        ("R2UR UR6, R2", {"UR6": Definition(Origin.COPY, ("R2",))}),
        ("SEL R1, R2, R3, !P0", {"R1": Definition(Origin.COPY, ("R2", "R3"))}),
        ("IMAD.MOV.U32 R1, RZ, RZ, 0x37471e1e", {"R1": Definition(CONSTANT, value=0x37471E1E)}),
        ("HFMA2.MMA R1, -RZ, RZ, 1.875, 0", {"R1": Definition(CONSTANT, value=0x3F800000)}),
        ("HFMA2 R1, -RZ, RZ, 0, 5.9604644775390625e-08", {"R1": Definition(CONSTANT, value=1)}),
        ("CS2R R4, SRZ", {f"R{n}": Definition(CONSTANT) for n in (4, 5)}),
        ("MOV R1, c[0x0][0x28]", {"R1": OTHER}),
        ("IMAD R1, R2, R3, R4", {"R1": OTHER}),
        ("IMAD.WIDE.U32 R2, R10, R11, RZ", {"R2": OTHER, "R3": OTHER}),
        ("LDG.E.128 R4, desc[UR4][R2.64]", {f"R{n}": OTHER for n in range(4, 8)}),
        ("STL [R1+0x8], R7", {"[R1+0x8]": Definition(Origin.COPY, ("R7",))}),
        ("LDL.64 R6, [R1]", {"R6": Definition(Origin.COPY, ("[R1+0x0]",)),
                             "R7": Definition(Origin.COPY, ("[R1+0x4]",))}),
        ("LOP3.LUT P0, R26, R13, RZ, R0, 0xfa, !PT", {"R26": OTHER}),
        ("ISETP.GE.U32.AND P1, PT, R9, R8, PT", {}),
        ("STG.E.128 desc[UR4][R2.64], R4", {}),
        ("@!PT LDS RZ, [RZ]", {}),
        ("BAR.SYNC R3, R4", {}),
    ],
)  # fmt: skip
def test_what_an_instruction_defines(text: str, expected: dict[str, Definition]) -> None:
    assert definitions(one(text)) == expected


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


def records(*lines: str) -> Found:
    return find(Flow(sass(*lines)))


TAG = "MOV R4, 0x20000005"
STORE = "@!P1 STG.E.128 desc[UR4][R2.64], R4"


def test_a_record_is_a_tag_and_two_clock_reads() -> None:
    found = records(
        "CS2R.32 R5, SR_CLOCKLO", "FADD R9, R9, R9", "CS2R.32 R6, SR_CLOCKLO", TAG, STORE, "EXIT"
    )
    (record,) = found.records
    (span,) = record.spans
    assert (record.tag, span.start, span.end, span.contents) == (0x20000005, 0, 2, (1,))


def test_a_start_that_goes_through_the_stack_and_a_uniform_register() -> None:
    found = records(
        "S2UR UR7, SR_CLOCKLO", "MOV R8, UR7", "STL [R1+0x8], R8", "FADD R8, R9, R9",
        "CS2R.32 R6, SR_CLOCKLO", TAG, "LDL R5, [R1+0x8]", STORE, "EXIT",
    )  # fmt: skip
    assert [(s.start, s.end, s.contents) for s in found.records[0].spans] == [(0, 4, (1, 2, 3))]


def test_init_and_finish_are_no_records() -> None:
    anchor = ("CS2R R4, SR_GLOBALTIMERLO", "CS2R R6, SR_CLOCKLO", STORE, "EXIT")
    assert records(*anchor).records == ()


def test_a_users_store_of_a_clock_is_no_record() -> None:
    assert records("MOV R4, 0x7", "CS2R.32 R6, SR_CLOCKLO", STORE, "EXIT").records == ()


def test_a_start_that_is_not_found_is_told() -> None:
    found = records("IMAD R5, R9, R9, R9", "CS2R.32 R6, SR_CLOCKLO", TAG, STORE, "EXIT")
    assert (found.records, found.unresolved) == ((), (3,))


def test_a_definition_under_the_guard_of_the_way_hides_what_was_before() -> None:
    """The clock read of the other range (0) reaches the store only where P0 does not hold."""
    found = records(
        "CS2R.32 R5, SR_CLOCKLO", "@P0 CS2R.32 R5, SR_CLOCKLO", "@!P0 BRA `(.L_x_1)",
        "CS2R.32 R6, SR_CLOCKLO", TAG, STORE, ".L_x_1:", "EXIT",
    )  # fmt: skip
    assert [span.start for span in found.records[0].spans] == [1]


def test_a_guard_that_changes_in_between_tells_nothing() -> None:
    found = records(
        "CS2R.32 R5, SR_CLOCKLO", "@P0 CS2R.32 R5, SR_CLOCKLO", "ISETP.NE.AND P0, PT, R9, RZ, PT",
        "@!P0 BRA `(.L_x_1)", "CS2R.32 R6, SR_CLOCKLO", TAG, STORE, ".L_x_1:", "EXIT",
    )  # fmt: skip
    assert [span.start for span in found.records[0].spans] == [0, 1]


def test_a_tag_made_at_run_time_is_none() -> None:
    found = records(
        "CS2R.32 R5, SR_CLOCKLO", "CS2R.32 R6, SR_CLOCKLO",
        "LOP3.LUT R4, R9, 0x3ffffff, R10, 0xea, !PT", STORE, "EXIT",
    )  # fmt: skip
    assert [record.tag for record in found.records] == [None]


def test_a_token_that_crosses_iterations_holds_the_whole_way_around() -> None:
    found = records(
        "CS2R.32 R8, SR_CLOCKLO",  # 0: the first flight takes off
        ".L_x_1:",
        "MOV R5, R8",
        "FADD R9, R9, R9",
        "CS2R.32 R8, SR_CLOCKLO",  # 3: the next one
        "CS2R.32 R6, SR_CLOCKLO",  # 4: this one lands
        TAG,
        STORE,
        "@P0 BRA `(.L_x_1)",
        "EXIT",
    )
    spans = {span.start: span.contents for span in found.records[0].spans}
    assert spans == {0: (1, 2, 3), 3: (1, 2, 3, 4, 5, 6, 7)}


def test_a_way_that_contradicts_itself_is_not_taken() -> None:
    flow = Flow(
        sass(
            "MOV R1, 0x1",
            "@P0 MOV R1, 0x2",
            "@P0 BRA `(.L_x_1)",
            "EXIT",
            ".L_x_1:",
            "STG.E desc[UR4][R2.64], R1",
            "EXIT",
        )
    )
    assert Tracer(flow).origins(4, ("R1",)).found == {(1,)}
