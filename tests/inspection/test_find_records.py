"""Records are found in machine code, and values followed back, on texts as nvdisasm writes them."""

from __future__ import annotations

import pytest

from ikp.inspection._find_records import find
from ikp.inspection._origins import Tracer
from ikp.inspection._record import FoundRecords
from ikp.sass.control_flow.flow import Flow
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins


def records(*lines: str) -> FoundRecords:
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


def test_a_slots_header_is_no_part_of_another_blocks_record() -> None:
    """The address of both is R2 and a number, of which one is that of what a record's words take
    behind the times: one of flash-linear-attention's seemed to have a range that holds nothing.
    """
    pieces = ("@!P1 STG.E.64 desc[UR4][R2.64+0x20], R4", "@!P1 STG.E desc[UR4][R2.64+0x28], R6")
    record = ("CS2R.32 R5, SR_CLOCKLO", "FADD R9, R9, R9", "CS2R.32 R6, SR_CLOCKLO", TAG, *pieces)
    clocks = ("CS2R R4, SR_GLOBALTIMERLO", "CS2R R6, SR_CLOCKLO")
    header = (*clocks, "MOV R2, R10", "@!P1 STG.E.128 desc[UR4][R2.64+0x10], R4", "EXIT")
    found = records(*record, "@P0 BRA `(.L_x_1)", *header, ".L_x_1:", "EXIT")
    assert [(s.start, s.end) for each in found.records for s in each.spans] == [(0, 2)]
    assert found.clocks == (0, 2)


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
