"""Faults that are put into patched kernels are all found, and none where there is none.

Of many places for one fault, some spread over the kernel have it; all with
``HYPOTHESIS_PROFILE=thorough``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from ikp.sass.cubins.cubin import Cubin
from ikp.sass.dataflow.hazards import ScoreboardHazards
from ikp.sass.disassembly.effects import effects
from ikp.sass.disassembly.listing import parse
from ikp.verifier.verify import VerifyError, verify
from tests.probes.test_gathering import LOADS
from tests.products import spread
from tests.sass.assembled import cubin
from tests.verifier.cases import BYTES, CASES, Case, all_collective, case, flipped, made

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

HGMMA_RR, LOP3 = 0xDF0, 0x212
EXIT, BRA, BSSY, CALL, RET, LEPC, WARPSYNC, BRXU, MOV = (
    *(0x94D, 0x947, 0x945, 0x944, 0x950, 0x94E, 0x348, 0x958, 0x802),
)
STG, CS2R, NOP = 0x986, 0x805, 0x000FC000000000000000000000007918
_BEHIND = {BSSY: 32, LEPC: 28}
"""Where a distance of 16 bytes is, of those whose distances are counted in bytes."""


@pytest.mark.parametrize("name", CASES)
def test_a_patch_is_verified(name: str) -> None:
    assert case(name).faults == []


def test_an_error_says_what_is_wrong_and_where() -> None:
    one = case("loop")
    wrong = one.with_word(one.originals[3], one.words[one.originals[3]] ^ 1 << 16)
    with pytest.raises(VerifyError, match=r"loop failed its verification.*instruction 3, '"):
        verify(wrong.plain, wrong.patched, wrong.text, wrong.declared)


def _farther(word: int) -> int:
    """Return an instruction that leads one instruction farther."""
    if (word & 0xFFF) in _BEHIND:
        return word + (BYTES << (32 if word & 0xFFF == BSSY else 24))
    return word + (BYTES // 4 << 34) if word >> 34 & 0x3FFFFFF8 != 0x3FFFFFF8 else word - (4 << 34)


@pytest.mark.parametrize(
    ("name", "opcode"),
    [
        ("loop", BRA), ("TMA", BRA), ("TMA", BSSY), ("divides", CALL), ("divides", RET),
        ("vote", WARPSYNC), ("chooses", BRXU), ("sample", BRA), ("calls", CALL),
    ],
)  # fmt: skip
def test_a_wrong_displacement_is_found(name: str, opcode: int) -> None:
    one = case(name)
    found = one.having(opcode)
    assert found
    for place in spread(found, 12):
        assert one.with_word(place, _farther(one.words[place])).faults, place


def test_a_collective_of_all_that_leads_elsewhere_is_found() -> None:
    one = all_collective()
    places = one.having(0x948)
    collectives = [n for n in places if one.words[n] >> 86 & 1]
    assert collectives and not one.faults
    for place in collectives:
        wrong = one.with_word(place, _farther(one.words[place]))
        assert any("WARPSYNC.COLLECTIVE.ALL" in each for each in wrong.faults)


def test_an_address_to_return_to_that_is_not_moved_is_found() -> None:
    one = case("divides")
    behind = {
        int(n + 1) * BYTES
        for n in range(len(one.originals))
        if one.words[one.originals[n]] & 0xFFF == CALL
    }
    old = Cubin.read(one.plain).kernel("divides").words
    moves = [
        (place, int(word[0]) | int(word[1]) << 64)
        for place, word in zip(one.originals, old, strict=True)
        if int(word[0]) & 0xFFF == MOV and int(word[0]) >> 32 in behind
    ]
    assert moves
    for place, word in moves:
        assert one.with_word(place, word).faults


@pytest.mark.parametrize("name", CASES)
def test_a_changed_original_instruction_is_found(name: str) -> None:
    one = case(name)
    for place in spread(one.originals, 9):
        for bit in (12, 16, 24, 32, 65, 105, 116):  # guard, registers, stall, what it waits for
            assert one.with_word(place, one.words[place] ^ 1 << bit).faults, (place, bit)


@pytest.mark.parametrize("name", CASES)
def test_a_dropped_instruction_and_two_swapped_are_found(name: str) -> None:
    one = case(name)
    some = spread(one.originals, 12)
    for first, second in pairwise(some):
        if one.words[first] != NOP:
            assert one.with_word(first, NOP).faults
        if one.words[first] != one.words[second]:
            swapped = one.with_word(first, one.words[second])
            assert swapped.with_word(second, one.words[first]).faults


@pytest.mark.parametrize("name", CASES)
def test_a_flipped_register_of_an_address_is_found(name: str) -> None:
    """The pair that names where a store goes, and what says what global memory is."""
    one = case(name)
    stores = [n for n in one.ours if one.words[n] & 0xFFF == STG]
    assert stores
    for place in spread(stores, 10):
        word = one.words[place]
        assert one.with_word(place, word ^ 32 << 64).faults, place
        if word >> 90 & 1:
            assert one.with_word(place, word ^ 2 << 24).faults, place


@pytest.mark.parametrize(("name", "least"), [("loop", 0.7), ("divides", 0.7), ("vote", 0.7)])
def test_a_flipped_register_of_an_inserted_instruction_is_found(name: str, least: float) -> None:
    """One that changes which number a record says, or which slot, is no fault of the program's."""
    one = case(name)
    wrong = spread([*flipped(one, 16), *flipped(one, 24), *flipped(one, 32)], 120)
    found = sum(bool(each.faults) for each in wrong)
    assert len(wrong) > 60 and found >= least * len(wrong)


@pytest.mark.parametrize("name", ["loop", "TMA", "sample", "chosen"])
def test_a_clock_in_the_place_of_an_address_is_found(name: str) -> None:
    """A frame's register that a clock is read into before it names where the header goes."""
    one = case(name)
    for place in spread([n for n in one.ours if one.words[n] & 0xFFF == STG], 12):
        word = one.words[place]
        described = word >> 90 & 1
        before = [n for n in one.ours if n < place and one.words[n] & 0xFFF == CS2R][-1]
        if described:
            own = word >> 24 & 0xFF
            clock = one.words[before] & ~(0xFF << 16) | own << 16
            assert one.with_word(place - 1, clock & ~(0x3F << 116)).faults


@pytest.mark.parametrize("name", CASES)
def test_a_clock_in_a_register_that_the_kernel_needs_is_found(name: str) -> None:
    """As by a liveness that takes a guarded write for a sure one."""
    one, tried = case(name), 0
    code = next(each for each in parse(one.text) if each.name == one.declared.kernel)
    numbers = {place: number for number, place in enumerate(one.originals)}
    for place in spread([n for n in one.ours if one.words[n] & 0xFFF == CS2R], 16):
        behind = next((n for n in range(place, len(one.words)) if n in numbers), None)
        reads = 0 if behind is None else effects(code.instructions[numbers[behind]]).reads
        needed = reads % (1 << 255)
        if needed and behind is not None and numbers[behind]:
            own = needed.bit_length() - 1
            tried += 1
            assert one.with_word(place, one.words[place] & ~(0xFF << 16) | own << 16).faults, place
    assert tried or name in ("divides", "chooses", "calls", "loop", "vote")


def test_more_registers_than_a_block_can_have_are_found() -> None:
    """They are handed out by eight: 928 threads can have 64 each, and not 68."""
    text = ".visible .entry k(.param .u64 p) .reqntid 928 { ret; }"
    one = made(cubin(text, "sm_90a"), "k", detail="kernel", argue=True)
    assert not one.faults
    own = Cubin.read(one.patched).kernel("k")
    at, data = one.section(".nv.info")
    here = data.index(struct.pack("<II", own.symbol, own.registers)) + 4
    for count in (64, 68):
        wrong = one.with_bytes(at + here, struct.pack("<I", count)).declaring(registers=count)
        assert bool(wrong.faults) == (count > 64), wrong.faults


def test_a_store_by_no_guard_and_a_flipped_guard_are_found() -> None:
    one = case("TMA")
    for place in spread([n for n in one.ours if one.words[n] & 0xFFF == STG], 10):
        assert one.with_word(place, one.words[place] | 7 << 12).faults
        assert one.with_word(place, one.words[place] ^ 1 << 15).faults


def test_a_store_that_no_scoreboard_tells_of_is_found() -> None:
    one = case("TMA")
    for place in spread([n for n in one.ours if one.words[n] & 0xFFF == STG], 10):
        found = one.with_word(place, one.words[place] | 7 << 113).faults
        assert any(each.endswith("has no scoreboard") for each in found)


def test_a_store_that_reads_what_a_load_has_yet_to_write_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also in the last register of four, which no record needs."""
    monkeypatch.setattr(ScoreboardHazards, "late", lambda *_: 0)
    found = made(cubin(LOADS, "sm_90a"), "k", detail="ops").faults
    assert found and all(each.endswith("which is in flight") for each in found)


def test_original_code_that_uses_what_a_store_is_yet_to_read_is_found() -> None:
    """The store's scoreboard is one that the original code does not wait for."""
    one = case("chosen")
    found = list[str]()
    for place in [n for n in one.ours if one.words[n] & 0xFFF == STG]:
        for board in {*range(6)} - {one.words[place] >> 113 & 7}:
            found += one.with_word(place, one.words[place] & ~(7 << 113) | board << 113).faults
    assert any(each.startswith("instruction") and "in flight" in each for each in found)


def test_a_record_in_a_register_that_a_product_has_yet_to_read_is_found() -> None:
    """A warpgroup's product reads registers until it ends: behind it none is needed any more."""
    one = case("products")
    (*_, last) = products = one.having(HGMMA_RR)
    operands = {one.words[each] >> 24 & 0xFF for each in products}
    clock = next(n for n in one.ours if n > last and one.words[n] & 0xFFF == CS2R)
    read = one.words[clock] >> 16 & 0xFF
    reads = next(
        n
        for n in one.ours
        if n > clock and one.words[n] & 0xFFF == LOP3 and _second(one, n) == read
    )
    assert len(operands) == len(products)
    for operand in operands:
        wrong = one.with_word(clock, one.words[clock] & ~(0xFF << 16) | operand << 16)
        wrong = wrong.with_word(reads, one.words[reads] & ~(0xFF << 32) | operand << 32)
        assert wrong.faults and all(each.endswith("in flight") for each in wrong.faults)


def _second(one: Case, place: int) -> int:
    """Return the register that an instruction's second operand is."""
    return one.words[place] >> 32 & 0xFF


@pytest.mark.parametrize("name", ["vote", "TMA"])
def test_a_read_of_a_register_that_no_inserted_instruction_has_set_is_found(name: str) -> None:
    """Such a record would say something else, and no other rule is broken."""
    one = case(name)
    wrong = [each.faults for each in spread([*flipped(one, 24), *flipped(one, 32)], 80)]
    alone = [each for each in wrong if len(each) == 1 and "no inserted one has set" in each[0]]
    assert alone


@pytest.mark.parametrize("name", ["loop", "TMA", "sample"])
def test_inserted_code_that_waits_for_nothing_is_found(name: str) -> None:
    one = case(name)
    wrong = one
    for place in one.ours:
        if one.words[place] >> 116 & 63:
            wrong = wrong.with_word(place, one.words[place] & ~(63 << 116))
    assert wrong.faults


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["cut", "stale", "another's", "a line gone"])
def test_a_text_that_is_not_the_kernels_is_found(name: str, kind: str) -> None:
    one = case(name)
    text = {
        "cut": lambda: one.text[: len(one.text) // 2],
        "stale": lambda: _stale(one.text),
        "another's": lambda: case("TMA" if name != "TMA" else "loop").text,
        "a line gone": lambda: re.sub(r" +/\*0030\*/.*\n.*\n", "", one.text, count=1),
    }[kind]()
    assert text != one.text
    assert replace(one, text=text).faults


def _stale(text: str) -> str:
    """Return a text of other code: a digit of a word differs."""
    at = text.index("/* 0x", text.index("/*0050*/")) + 6
    return f"{text[:at]}{'1' if text[at] != '1' else '2'}{text[at + 1 :]}"


# Fields of ELF's program headers, by their offsets, with a change of each
_SEGMENTS, _SEGMENT_BYTES = 0x20, 56
_FLAGS, _OFFSET, _FILE_SIZE, _MEMORY_SIZE, _ALIGNMENT = (
    (4, 1),
    (8, 16),
    (32, -1),
    (40, -1),
    (48, 8),
)


def _argument_earlier(one: Case) -> Case:
    return one.declaring(cell=one.declared.cell - 8)


def _first_argument(one: Case) -> Case:
    return one.declaring(cell=0x210, ordinal=0)


def _fewer_registers(one: Case) -> Case:
    return one.declaring(registers=one.declared.registers - 8)


def _registers_as_before(one: Case) -> Case:
    at, data = one.section(".nv.info")
    count = Cubin.read(one.plain).kernel(one.declared.kernel).registers
    own = Cubin.read(one.patched).kernel(one.declared.kernel)
    here = data.index(struct.pack("<II", own.symbol, own.registers))
    assert count != own.registers
    return one.with_bytes(at + here + 4, struct.pack("<I", count))


def _no_exit_listed(one: Case) -> Case:
    return one.with_bytes(one.attribute(0x1C) + 1, b"\x1d")


def _exit_elsewhere(one: Case) -> Case:
    at = one.attribute(0x1C) + 4
    return one.with_bytes(at, bytes([one.patched[at] ^ 0x10]))


def _parameters_end_elsewhere(one: Case) -> Case:
    at = one.attribute(0x19) + 2
    return one.with_bytes(at, struct.pack("<H", struct.unpack_from("<H", one.patched, at)[0] - 8))


def _other_shared_memory(one: Case) -> Case:
    at, data = one.section(f".nv.info.{one.declared.kernel}")
    here = data.index(b"\x03\x1b")  # MAXREG_COUNT
    return one.with_bytes(at + here + 2, b"\x01")


def _another_symbol(one: Case) -> Case:
    elf = Cubin.read(one.patched).elf
    symbols = next(each for each in elf.sections if each.kind == 2)
    last = symbols.offset + len(symbols.data) - 16
    return one.with_bytes(last, struct.pack("<Q", 0x77))


@pytest.mark.parametrize("name", ["TMA", "loop"])
@pytest.mark.parametrize("field", [_FILE_SIZE, _MEMORY_SIZE, _OFFSET, _ALIGNMENT, _FLAGS])
def test_a_segment_that_loads_something_else_is_found(name: str, field: tuple[int, int]) -> None:
    """The driver loads what segments name; sections that are right are not loaded for that."""
    one = case(name)
    (table,) = struct.unpack_from("<Q", one.patched, _SEGMENTS)
    elf = Cubin.read(one.patched).elf
    holding = [
        number
        for number, each in enumerate(elf.segments)
        if any(
            each.offset <= s.offset < each.offset + each.file_size for s in elf.sections if s.data
        )
    ]
    assert len(holding) > 1
    at, change = field
    for number in holding:
        place = table + number * _SEGMENT_BYTES + at
        (old,) = struct.unpack_from("<Q" if at != 4 else "<I", one.patched, place)
        new = struct.pack("<Q" if at != 4 else "<I", old + change)
        assert one.with_bytes(place, new).faults, number


def test_shared_memory_is_not_loaded_with_parameters_of_its_size() -> None:
    """A section without bytes begins where the next one does, whose segment may grow beyond it."""
    text = """.visible .entry k(.param .u64 p, .param .align 8 .b8 more[{0}]) {{
    .reg .u64 %rd<2>; .reg .u32 %r<3>; .shared .align 16 .b8 s[1024];
    ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; st.shared.u32 [s], %r1; bar.sync 0;
    ld.shared.u32 %r2, [s]; st.global.u32 [%rd1], %r2; ret; }}"""
    one = made(cubin(text.format(2048 - 0x210 - 24), "sm_90a"), "k", detail="kernel", argue=True)
    (bank,) = (each for each in Cubin.read(one.plain).elf.sections if "constant0" in each.name)
    (shared,) = (each for each in Cubin.read(one.plain).elf.sections if "shared.k" in each.name)
    assert len(bank.data) < shared.size <= len(bank.data) + one.declared.nbytes
    assert not one.faults


@pytest.mark.parametrize("name", ["TMA", "loop"])
@pytest.mark.parametrize(
    "fault",
    [
        _argument_earlier, _first_argument, _fewer_registers, _registers_as_before, _no_exit_listed,
        _exit_elsewhere, _parameters_end_elsewhere, _other_shared_memory, _another_symbol,
    ],
)  # fmt: skip
def test_a_file_that_says_something_else_is_found(name: str, fault: Callable[[Case], Case]) -> None:
    assert fault(case(name)).faults


def test_a_spare_argument_that_the_kernel_reads_is_found() -> None:
    one = case("spare")
    read_ones = one.declaring(cell=one.declared.cell - 16, ordinal=(one.declared.ordinal or 0) - 2)
    assert not one.faults and read_ones.faults


@pytest.mark.parametrize(
    "section", [".text.calls", ".nv.info.loop", ".nv.constant0.prints", ".nv.constant2.chooses"]
)
def test_a_byte_of_what_is_not_ikps_is_found(section: str) -> None:
    one = case("divides")
    at, data = one.section(section)
    for here in range(0, len(data), max(1, len(data) // 10)):
        assert one.with_bytes(at + here, bytes([data[here] ^ 1])).faults, here


def test_a_table_that_leads_elsewhere_is_found() -> None:
    one = case("chooses")
    at, data = one.section(".nv.constant2.chooses")
    for here in range(0, len(data), 4):
        (place,) = struct.unpack_from("<I", data, here)
        assert one.with_bytes(at + here, struct.pack("<I", place + BYTES)).faults


def test_what_is_cut_is_refused() -> None:
    one = case("TMA")
    for size in (0, 10, 64, 200, len(one.plain) // 2, len(one.plain) - 200):
        assert replace(one, patched=one.patched[:size]).faults
        assert replace(one, plain=one.plain[:size]).faults


_LDC, _ULDC, _LDCU = 0xB82, 0xAB9, 0x7AC


@pytest.mark.parametrize("name", CASES)
def test_constants_are_read_where_they_are_aligned(name: str) -> None:
    """The hardware reads words at multiples of their size alone."""
    one = case(name)
    loads = [one.words[n] for n in one.ours if one.words[n] & 0xFFF in (_LDC, _ULDC, _LDCU)]
    assert loads
    for word in loads:
        offset = word >> (37 if word & 0xFFF == _LDCU else 38) & 0xFFFF
        size = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 8, 6: 16}[word >> 73 & 7]
        assert offset % size == 0, hex(word)
