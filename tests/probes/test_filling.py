"""Records in parts, among instructions of the kernel that run while they would be held back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ikp.core.regions import region_id
from ikp.inspection._find_records import find
from ikp.probes.code.range_code import end, keep, range_tag, start, wait
from ikp.probes.code.reserved_registers import Frame, Gathered, Scratch
from ikp.probes.made_patch import Patch
from ikp.probes.patch import patch
from ikp.probes.placement.emission import fillers
from ikp.sass.assembly.assembler import PT, assemble, spread
from ikp.sass.cubins.instruction import BYTES
from ikp.sass.disassembly.effects import bit
from tests.sass.compiled import code
from tests.sass.readback import code_of
from tests.sass.test_room import room

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]

FRAME = Frame(4, 6, 7, 8, 9, 10, (11, 12, 13), warps=8)
SCRATCH = Scratch(4, 6, 8, predicate=0, scoreboard=0)
KERNELS = ("matmul", "attention", "rms_norm", "gathered")
_TIMES = {"CS2R": 8, "R2UR": 13, "UIADD3": 8, "ISETP": 6}
"""Cycles until a result can be read; 6 for others."""
_CHAIN = ("UIMAD", "ULEA", "ULOP3", "UISETP", "USEL")
"""What the uniform datapath computes is there for itself after 4."""
_TO_GUARD = 7
_NAMED = re.compile(r"\bU?[RP]\d+\b")


def stalls(words: list[int]) -> list[int]:
    return [word >> 105 & 15 for word in words]


def test_what_is_held_back_stands_behind_what_others_do() -> None:
    steps = end(FRAME, SCRATCH, range_tag(5), (14, False))
    alone = assemble(steps, 0, "RP")
    parts = spread(steps, 0, [4] * 9, "RP")
    assert [word & ~(15 << 105) & ~(1 << 109) for _, words in parts for word in words] == [
        word & ~(15 << 105) & ~(1 << 109) for word in alone
    ]
    assert [passed for passed, _ in parts] == [0, 1, 3]
    assert sum(stalls(alone)) == 23
    assert sum(stall for _, words in parts for stall in stalls(words)) == 11


def test_no_clock_is_read_later_than_it_was_to_be() -> None:
    steps = [*start(6), *keep(14, 6), *end(FRAME, SCRATCH, range_tag(5), (14, False))]
    first, *_ = spread(steps, 0, [15] * 9, "RP")
    assert sum(word & 0xFFF == 0x805 for word in first[1]) == 2


def test_a_wait_is_over_when_all_but_its_end_and_its_store_is_done() -> None:
    words = assemble(wait(FRAME, SCRATCH, range_tag(5), 0b100), 0, "RP")
    ends = next(at for at, word in enumerate(words) if word >> 116 & 0b100)
    assert words[ends] & 0xFFF == 0x805 and len(words) - ends == 2
    assert sum(stalls(words)) == 23
    assert sum(stalls(words[ends:])) < 14


def test_a_saved_predicate_waits_for_no_store() -> None:
    scratch = Scratch(4, 6, 8, predicate=0, scoreboard=0, saved=11)
    words = assemble(end(FRAME, scratch, range_tag(5), (14, False)), 0, "RP")
    assert not any(word >> 116 & 1 for word in words)


def test_no_load_begins_in_a_run_into_what_its_store_of_many_records_reads() -> None:
    """The fourth register of a row may be the kernel's, but not on its way."""
    loads = [(f"LDG.E R{n}, desc[UR4][R2.64]", 0, None, 0) for n in (20, 11, 21)]
    made = room(*loads, ("EXIT", None, None, 0))
    gathered = Gathered(8, (4, 5), 6, None)
    last = Scratch(12, 13, 0, 2, 1, near=True, gathered=gathered)
    found = [
        len(fillers(made, 0, 3, each, True, 0)) for each in (last, replace(last, predicate=PT))
    ]
    assert found == [1, 3]


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("@P2 MOV R20, R21", 0),  # it is needed up to there
        ("ISETP.NE.AND P2, PT, R20, RZ, PT", 1),
        ("@P3 MOV R20, R21", 3),
        ("MOV R6, R21", 1),
        ("MOV R20, R6", 0),
        ("MOV R14, R21", 1),
    ],
)
def test_no_instruction_runs_within_a_probe_that_uses_its_registers(text: str, runs: int) -> None:
    """Its words, its predicate, and the start that it is made of."""
    lines = [(each, None, None, 0) for each in ("NOP", text, "NOP", "EXIT")]
    scratch = Scratch(4, 6, 8, predicate=2, scoreboard=0)
    assert len(fillers(room(*lines), 0, 3, scratch, True, 1 << bit("R14"))) == runs


@pytest.fixture(scope="module", params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> tuple[Patch, str]:
    made = code(request.param).compiled
    return patch(made.asm["cubin"], made.name, detail="ops", ptx=made.asm["ptx"]), made.name


def test_every_record_has_the_clocks_and_the_tag_of_its_range(kernel: tuple[Patch, str]) -> None:
    patched, name = kernel
    found = find(code_of(patched.cubin, name).flow)
    assert not found.unresolved
    wanted = {range_tag(region_id(each)) for each in patched.names if each != name}
    assert {record.tag for record in found.records} >= wanted
    read = {
        each for record in found.records for span in record.spans for each in (span.start, span.end)
    }
    assert read == set(found.clocks)


def test_nothing_is_read_before_it_is_there(kernel: tuple[Patch, str]) -> None:
    patched, name = kernel
    liveness = code_of(patched.cubin, name)
    instructions, cycles = liveness.flow.code.instructions, liveness.flow.code.controls.stalls
    ours = {at // BYTES for first, last in patched.ours for at in range(first, last, BYTES)}
    apart = 0
    for block in liveness.flow.graph.blocks:
        now, due, chained = 0, dict[int, int](), dict[int, int]()
        for at in range(block.first, block.end):
            each, effects = instructions[at], liveness.effects[at]
            if at in ours and each.op not in ("RED", "REDG"):  # taken to read more than it does
                for one in _bits(effects.reads):
                    later = _TO_GUARD if each.guard and one == bit(each.guard.lstrip("!")) else 0
                    there = chained if each.op in _CHAIN and one in due else due
                    assert there.get(one, 0) + later * (one in due) <= now, (at, each.text)
            for one in _bits(effects.kills):
                due.pop(one, None)
                if at in ours and each.op not in ("S2R", "S2UR", "LDC", "ULDC", "LDCU"):
                    due[one] = now + _TIMES.get(each.op, 6)
                    chained[one] = due[one] - 2 * (each.op in _CHAIN)
            apart += at in ours and each.op in ("STG", "LOP3") and at - 1 not in ours
            now += max(int(cycles[at]), 1)
    assert apart, "no part of a record stands apart: nothing is tested"


def _bits(members: int) -> Iterator[int]:
    while members:
        one = members & -members
        members ^= one
        yield one.bit_length() - 1
