"""Records that are stored at once, of a thread each, and what only looks like them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ikp.inspection._find_records import find
from ikp.inspection._record import FoundRecords
from ikp.probes.patch import patch
from ikp.probes.placement.record_batches import Gatherer
from ikp.sass.control_flow.flow import Flow
from ikp.sass.cubins.instruction import BYTES
from ikp.sass.disassembly.listing import Code, Instruction
from tests.sass.compiled import code
from tests.sass.readback import codes
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins

BYTES_OF_THREADS = (
    "S2R R9, SR_LANEID", "IMAD.SHL.U32 R8, R9, 0x8, RZ", "IMAD.MOV.U32 R10, RZ, RZ, 0x80",
    "SHF.L.U64.HI R11, R10, R8, RZ", "SHF.L.U32 R10, R10, R8, RZ",
)  # fmt: skip
MADE = (
    "CS2R.32 R20, SR_CLOCKLO", "R2UR UR7, R20",
    "CS2R.32 R21, SR_CLOCKLO", "FADD R30, R30, R30", "CS2R.32 R6, SR_CLOCKLO",
    "IMAD.MOV.U32 R4, RZ, RZ, 0x20000005", "IMAD.MOV.U32 R5, RZ, RZ, R21",
    "CS2R.32 R22, SR_CLOCKLO", "PRMT R23, R10, 0x9999, R11",  # a wait: one register, read twice
    "LOP3.LUT R4, R23, 0x20000006, R4, 0xca, !PT", "LOP3.LUT R5, R23, R22, R5, 0xca, !PT",
    "CS2R.32 R22, SR_CLOCKLO", "FMUL R30, R30, R30", "LOP3.LUT R6, R23, R22, R6, 0xca, !PT",
    "CS2R.32 R22, SR_CLOCKLO", "PRMT R23, R10, 0xaaaa, R11",
    "LOP3.LUT R4, R23, 0x20000007, R4, 0xca, !PT", "LOP3.LUT R5, R23, UR7, R5, 0xca, !PT",
    "LOP3.LUT R6, R23, R22, R6, 0xca, !PT",
    "@P0 STG.E.128 [R9.U32+UR40+0x80], R4",
)  # fmt: skip
TAGS = [0x20000005, 0x20000006, 0x20000007]
INSIDE = ((7, 9, (8,)), (12, 16, (13, 14, 15)), (5, 19, tuple(range(6, 19))))
STORE = len(BYTES_OF_THREADS) + len(MADE) - 1


def records(*lines: str) -> FoundRecords:
    return find(Flow(sass(*lines, "EXIT")))


def spans(found: FoundRecords) -> list[tuple[int, int, tuple[int, ...]]]:
    return [(s.start, s.end, s.contents) for record in found.records for s in record.spans]


def test_each_thread_has_the_tag_and_the_clock_reads_of_a_record() -> None:
    found = records(*BYTES_OF_THREADS, *MADE)
    assert [record.tag for record in found.records] == TAGS
    assert {record.stores for record in found.records} == {(STORE,)}
    assert tuple(spans(found)) == INSIDE
    assert not found.unresolved and len(found.clocks) == 6


@pytest.mark.parametrize("between", ["FADD R31, R31, R31", "FADD R10, R10, R10"])
def test_bytes_that_are_made_before_a_loop_are_those_as_long_as_nothing_else_makes_them(
    between: str,
) -> None:
    looped = (*BYTES_OF_THREADS, ".L_x_1:", *MADE, between, "@P1 BRA `(.L_x_1)")
    found = records(*looped)
    known = "R31" in between
    assert (tuple(spans(found)), found.unresolved) == ((INSIDE, ()) if known else ((), (STORE,)))


def test_bytes_that_are_not_made_on_every_way_are_none() -> None:
    found = records("@P1 BRA `(.L_x_1)", *BYTES_OF_THREADS, ".L_x_1:", *MADE)
    assert (found.records, found.unresolved) == ((), (STORE + 1,))


def test_a_start_of_before_a_loop_holds_all_turns_of_it() -> None:
    begun, loop = MADE[:2], MADE[2:]
    found = records(*BYTES_OF_THREADS, *begun, ".L_x_1:", *loop, "@P1 BRA `(.L_x_1)")
    assert spans(found)[2] == (5, 19, tuple(range(6, STORE + 2)))


WRONG = {
    "a byte that is another's": ("0xaaaa", "0x9999"),
    "a byte of a thread that stores nothing": ("0xaaaa", "0xdddd"),
    "a byte of a register that is zero": (
        "PRMT R23, R10, 0xaaaa, R11",
        "PRMT R23, R10, 0xcccc, RZ",
    ),
    "no sign": ("0xaaaa", "0x2222"),
    "different bytes": ("0xaaaa", "0xaaa9"),
    "bytes changed": ("PRMT R23, R10, 0xaaaa, R11", "PRMT R23, R11, 0xaaaa, R10"),
    "another function of three bits": ("R22, R5, 0xca", "R22, R5, 0xac"),
    "no tag": ("0x20000006", "0xffffffff"),
    "a tag that is none of a record": ("0x20000005", "0xffffffff"),
    "a start that is read behind its end": (
        "IMAD.MOV.U32 R5, RZ, RZ, R21",
        "CS2R.32 R5, SR_CLOCKLO",
    ),
    "a start that is no clock": ("R2UR UR7, R20", "R2UR UR7, R30"),
    "an end that is no clock": ("R23, R22, R6", "R23, R30, R6"),
    "a first end that is no clock": ("CS2R.32 R6, SR_CLOCKLO", "FADD R6, R6, R6"),
    "another's thread number": ("SR_LANEID", "SR_TID.X"),
    "bits apart by less than a byte": ("0x8, RZ", "0x4, RZ"),
    "a bit that is not the highest": ("0x80", "0x40"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_not_proven_to_be_a_threads_record_is_none(wrong: str) -> None:
    old, new = WRONG[wrong]
    lines = [each.replace(old, new) for each in (*BYTES_OF_THREADS, *MADE)]
    assert lines != [*BYTES_OF_THREADS, *MADE]
    found = records(*lines)
    assert (found.records, found.unresolved) == ((), (STORE,))


def test_what_is_chosen_by_masks_and_is_no_time_is_no_record() -> None:
    lines = [each.replace("CS2R.32", "FADD") for each in (*BYTES_OF_THREADS, *MADE)]
    found = records(*lines)
    assert (found.records, found.unresolved) == ((), ())


@pytest.fixture(scope="module")
def patched() -> tuple[Code, set[int]]:
    """Return a kernel with such a store, and the instructions in it that make what is stored."""
    made = code("gathered").compiled
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Gatherer, "is_worth", lambda self, gathered: True)
        put = patch(made.asm["cubin"], made.name, detail="ops", ptx=made.asm["ptx"])
    whole = codes(put.cubin)[made.name]
    ours = {at // BYTES for first, last in put.ours for at in range(first, last, BYTES)}
    return whole, {at for at in ours if _makes(whole.instructions[at])}


def _makes(each: Instruction) -> bool:
    chosen = each.op == "PRMT" or each.operands[-2:] == ("0xca", "!PT")
    shifted = each.opcode.startswith(("SHF.L.", "IMAD.SHL.")) or each.operands[-1:] == ("0x80",)
    return chosen or shifted or each.operands[-1:] == ("SR_LANEID",)


@pytest.mark.compiled
def test_no_word_of_what_makes_them_can_be_another(patched: tuple[Code, set[int]]) -> None:
    whole, makes = patched
    found = find(Flow(whole)).records
    stores = [each.store for each in found]
    (store,) = {at for at in stores if stores.count(at) > 1}
    makes = {at for at in makes if at < store}
    assert len(makes) > 15
    for at in makes:
        for each in _others(whole.instructions[at]):
            instructions = (*whole.instructions[:at], each, *whole.instructions[at + 1 :])
            now = find(Flow(replace(whole, instructions=instructions)))
            assert now.unresolved == (store,), each.text
            assert now.records == tuple(one for one in found if one.store != store), each.text


def _others(each: Instruction) -> Iterator[Instruction]:
    """Yield what differs from an instruction in one thing."""
    yield Instruction(each.address, "P0", each.opcode, each.rest)
    if ".MOV" not in each.opcode:  # a constant, however it is made
        yield Instruction(each.address, each.guard, f"{each.opcode}.X", each.rest)
    for number, operand in enumerate(each.operands):
        other = ", ".join((*each.operands[:number], _other(operand), *each.operands[number + 1 :]))
        yield Instruction(each.address, each.guard, each.opcode, other)


def _other(operand: str) -> str:
    """Return an operand that is not the same: of a tag, one that is none."""
    if operand.startswith("0x"):
        return hex(int(operand, 16) ^ 1) if len(operand) < len("0x10000000") else "0xffffffff"
    return {"!PT": "!P0", "SR_LANEID": "SR_TID.X"}.get(operand, "R250")
