"""What is free: dead, nothing under way to or from it, and scoreboards that nobody holds."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from ikp.sass.control_flow.flow import Flow
from ikp.sass.control_flow.graph import Graph
from ikp.sass.dataflow.free_registers import FreeRegisters
from ikp.sass.dataflow.hazards import _entering
from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.disassembly.effects import R, bit
from ikp.sass.disassembly.listing import Code, parse
from tests.sass.compiled import CASES, machine
from tests.sass.texts import HEAD, names
from tests.sass.walk import clobbers

pytestmark = pytest.mark.any_pins


def controlled(*lines: tuple[str, int | None, int | None, int]) -> Code:
    """Return code from (text, write scoreboard, read scoreboard, wait mask)."""
    text, address = HEAD, 0
    for line, writes, reads, waits in lines:
        if line.endswith(":"):
            text += f"{line}\n"
            continue
        fields = (7 if writes is None else writes, 7 if reads is None else reads)
        high = 15 << 41 | fields[0] << 46 | fields[1] << 49 | waits << 52
        text += f"        /*{address:04x}*/   {line} ;   /* 0x{0:016x} */\n"
        text += f"                    /* 0x{high:016x} */\n"
        address += 16
    (code,) = parse(text)
    return code


def room(*lines: tuple[str, int | None, int | None, int]) -> FreeRegisters:
    return FreeRegisters(Liveness(Flow(controlled(*lines))))


def late(made: FreeRegisters) -> list[list[str]]:
    """Return what is unsafe before each instruction, though nobody may need it."""
    table = made.flight.table
    return [names(sum(1 << int(n) for n in np.flatnonzero(row))) for row in table]


def test_a_load_that_nobody_needs_still_writes_its_register() -> None:
    made = room(
        ("LDG.E R4, desc[UR4][R2.64]", 2, None, 0),
        ("NOP", None, None, 0),
        ("NOP", None, None, 0),
        ("NOP", None, None, 0),
        ("NOP", None, None, 4),
        ("NOP", None, None, 0),
        ("EXIT", None, None, 0),
    )
    assert [("R4" in each) for each in late(made)] == [False, *[True] * 4, False, False]
    assert not clobbers(made.liveness.flow, 1, bit("R4"))
    assert 4 not in made.at(3).registers and 4 in made.at(5).registers
    assert made.at(3).scoreboards == (0, 1, 3, 4, 5) and 2 in made.at(5).scoreboards


def test_a_store_that_was_issued_still_reads_its_registers() -> None:
    made = room(
        ("STG.E.64 desc[UR4][R2.64], R6", None, 1, 0),
        ("NOP", None, None, 0),
        ("NOP", None, None, 2),
        ("EXIT", None, None, 0),
    )
    assert {"R2", "R3", "R6", "R7"} <= set(late(made)[1])
    assert late(made)[3] == []


def test_a_copys_predicate_is_read_when_it_issues() -> None:
    """Of 1,600 copies of libraries, a third have theirs overwritten in the next cycle."""
    copy = "LDGSTS.E.BYPASS.128 [R9+0x4400], desc[UR10][R4.64], P0"
    made = room(
        (copy, None, 3, 0),
        ("NOP", None, None, 0),
        ("NOP", None, None, 8),
        ("EXIT", None, None, 0),
    )
    assert {"R4", "R5", "R9"} <= set(late(made)[1]) and not late(made)[3]
    assert "P0" not in late(made)[1] and 0 in made.at(1).predicates


def test_what_a_loop_leaves_under_way_is_so_at_its_top() -> None:
    made = room(
        ("MOV R9, R9", None, None, 0),
        (".L_x_1:", None, None, 0),
        ("NOP", None, None, 0),
        ("LDG.E R4, desc[UR4][R2.64]", 0, None, 0),
        ("@P0 BRA `(.L_x_1)", None, None, 0),
        ("EXIT", None, None, 0),
    )
    assert "R4" in late(made)[1]
    assert "R4" not in late(made)[0]


def test_a_products_registers_are_its_own_until_all_are_waited_for() -> None:
    product = "HGMMA.64x8x16.F32 R24, R4, gdesc[UR8], R24, gsb0"
    made = room(
        (product, None, None, 0),
        ("WARPGROUP.DEPBAR.LE gsb0, 0x1", None, None, 0),
        ("NOP", None, None, 0),
        ("WARPGROUP.DEPBAR.LE gsb0, 0x0", None, None, 0),
        ("NOP", None, None, 0),
        ("EXIT", None, None, 0),
    )
    own = {"R4", "R5", "R6", "R7", "R24", "R25", "R26", "R27"}
    assert [own <= set(each) for each in late(made)] == [False, True, True, True, False, False]


def test_a_products_registers_are_its_own_from_the_arrival_on() -> None:
    """To write R25 behind it, though the product only overwrites that, changed its result."""
    made = room(
        ("NOP", None, None, 0),
        ("WARPGROUP.ARRIVE", None, None, 0),
        ("NOP", None, None, 0),
        ("HGMMA.64x8x16.F32 R24, R4, gdesc[UR8], RZ, !UPT", None, None, 0),
        ("UIADD3 UR8, UR8, 0x2, URZ", None, None, 0),
        ("HGMMA.64x8x16.F32 R32, R4, gdesc[UR8], RZ, !UPT, gsb0", None, None, 0),
        ("WARPGROUP.DEPBAR.LE gsb0, 0x0", None, None, 0),
        ("NOP", None, None, 0),
        ("EXIT", None, None, 0),
    )
    for register in (4, 25, 33):
        free = [register in made.at(at).registers for at in (1, 2, 4, 8)]
        assert free == [register != 4, False, False, True]


def test_a_shuffle_reads_its_operand_when_its_turn_comes() -> None:
    """One of flash-linear-attention's kernels was wrong where R9 was taken for free."""
    made = room(
        ("SHFL.IDX PT, R12, R9, R90, 0x1f", None, None, 0),
        *[("NOP", None, None, 0)] * 4,
        ("SHFL.IDX PT, R37, R11, R80, 0x1f", 2, 1, 0),
        ("NOP", None, None, 0),
        ("NOP", None, None, 2),
        ("EXIT", None, None, 0),
    )
    assert [9 in made.at(at).registers for at in (0, 1, 4, 6, 8)] == [
        False,
        False,
        False,
        False,
        True,
    ]


def test_a_scoreboard_that_is_counted_is_never_to_be_shared() -> None:
    made = room(
        ("LDGDEPBAR", 0, None, 0),
        ("DEPBAR.LE SB0, 0x2", None, None, 0),
        ("DEPBAR.LE SB0, 0x0", None, None, 0),
        ("EXIT", None, None, 0),
    )
    assert made.flight.counted == {0}
    assert made.flight.taken[:, 0].tolist() == [False, True, True, False]
    assert 0 not in made.at(3).scoreboards


def test_a_wait_for_all_to_end_counts_none_of_them() -> None:
    made = room(
        ("DEPBAR {5,4,3,2,1,0}", None, None, 0),
        ("UTMACMDFLUSH", None, 4, 0),
        ("UTMACMDFLUSH", None, 0, 0),
        ("DEPBAR.LE SB0, 0x0", None, None, 0),
        ("EXIT", None, None, 0x10),
    )
    assert made.flight.counted == {0}
    assert [4 in made.at(at).scoreboards for at in (0, 3)] == [True, False]


def test_a_count_of_nothing_leaves_the_scoreboard_free() -> None:
    made = room(
        ("DEPBAR.LE SB1, 0x36", None, None, 0),
        ("UTCATOMSWS.FIND_AND_SET.ALIGN UP0, UR4, UR7", 1, None, 0),
        ("IMAD.U32 R0, RZ, RZ, UR4", None, None, 2),
        ("EXIT", None, None, 0),
    )
    assert not made.flight.counted
    assert [1 in made.at(at).scoreboards for at in range(4)] == [True, True, False, True]


def test_what_was_just_written_may_not_be_there_yet() -> None:
    """The pair's high half is dead, and yet it comes a few cycles after the instruction."""
    made = room(
        ("IMAD.WIDE R4, R2, R3, R6", None, None, 0),
        ("MOV R8, R4", None, None, 0),
        ("NOP", None, None, 0),
        ("STS [R9], R8", None, None, 0),
        ("EXIT", None, None, 0),
    )
    assert 5 not in made.at(1).registers and 5 in made.at(3).registers


def test_a_later_store_tells_of_an_earlier_one() -> None:
    made = room(
        ("STG.E desc[UR4][R2.64], R4", None, None, 0),
        ("STS [R8], R9", None, 0, 0),
        ("NOP", None, None, 1),  # another queue
        ("@P0 STG.E desc[UR4][R2.64], R5", None, 1, 0),  # may be skipped
        ("NOP", None, None, 2),
        ("STG.E desc[UR4][R2.64], R6", None, 2, 0),
        ("NOP", None, None, 0),
        ("NOP", None, None, 4),
        ("EXIT", None, None, 0),
    )
    assert [4 in made.at(at).registers for at in range(9)] == [False] * 8 + [True]
    assert 4 in made.waited(6).registers and 4 not in made.waited(5).registers


def test_pairs_and_quads_are_aligned() -> None:
    made = room(("STS [R3], R9", None, None, 0), ("EXIT", None, None, 0))
    spare = replace(made, registers=13).through([0])
    assert spare.registers == (0, 2, 4, 5, 6, 7, 8, 10, 11, 12)
    assert (spare.pairs, spare.quads) == ((4, 6, 10), (4,))
    assert made.through([0]).registers == (0, 2, 4, 5, 6, 7, 8)


@pytest.mark.compiled
@pytest.mark.parametrize("name", CASES)
def test_what_is_free_is_dead_and_not_under_way(name: str) -> None:
    found = FreeRegisters(machine(name))
    assert not (found.free & found.liveness.table).any()
    assert not (found.free & found.flight.table).any()
    assert found.free[:, R.columns][:, : found.highest + 1].any()


@pytest.mark.compiled
def test_a_pipelined_loop_counts_the_scoreboard_of_its_copies() -> None:
    assert FreeRegisters(machine("matmul")).flight.counted == {0}


@pytest.mark.compiled
@pytest.mark.parametrize("name", CASES)
def test_whoever_reads_a_loads_result_has_waited_for_it(name: str) -> None:
    """So what the control bits say of who waits for whom is what the operands need."""
    flow, effects = machine(name).flow, machine(name).effects
    states = FreeRegisters(machine(name)).flight.states
    waits = flow.code.controls.waits.tolist()
    for at, effect in enumerate(effects):
        ready = [0 if waits[at] >> board & 1 else each for board, each in enumerate(states[at][:6])]
        for board, each in enumerate(ready):
            loads = each & effect.reads & ~found_as_source(machine(name), board)
            assert not loads, (flow.code.instructions[at].text, names(loads))


def found_as_source(found: Liveness, board: int) -> int:
    """Return what instructions that take a scoreboard for reading read: reading twice is fine."""
    reads = found.flow.code.controls.reads.tolist()
    sources = 0
    for at, effect in enumerate(found.effects):
        sources |= effect.reads if reads[at] == board else 0
    return sources


PRODUCT = "HMMA.16816.F32 R8, R16, R20, R8"
DOUBLES = "DMMA.16x8x16 R8, R16, R32, R8"
LATER = ("NOP", None, None, 0)  # 15 cycles
GOES = ("BRA `(.L_x_1)", None, None, 0)


def test_a_product_reads_for_some_cycles() -> None:
    soon = ("IADD3 R1, R1, R2, RZ", None, None, 0)
    made = room((PRODUCT, None, None, 0), soon, LATER, ("EXIT", None, None, 0))
    assert [bool(made.free[at][bit("R16")]) for at in (1, 3)] == [False, True]


@pytest.mark.parametrize(
    ("reads", "waits", "free"), [(None, 0, False), (2, 0, False), (2, 4, True)]
)
def test_when_a_product_of_doubles_has_read_its_scoreboard_alone_tells(
    reads: int | None, waits: int, free: bool
) -> None:
    product = (DOUBLES, None, reads, 0)
    made = room(product, *[LATER] * 20, ("NOP", None, None, waits), LATER, ("EXIT", None, None, 0))
    for register in ("R16", "R31", "R32", "R39"):
        assert bool(made.free[22][bit(register)]) is free


@pytest.mark.parametrize(
    ("lines", "at", "free"),
    [
        ([(PRODUCT, None, None, 0), LATER, LATER], 2, False),
        ([(PRODUCT, None, None, 0), *[LATER] * 6], 6, True),
        ([("IADD3 R8, R1, R2, RZ", None, None, 0), LATER, LATER], 2, True),
        ([(DOUBLES, None, None, 0), *[LATER] * 16], 16, False),
        ([(DOUBLES, 1, 2, 0), *[LATER] * 18], 18, False),
        ([(DOUBLES, 1, 2, 0), *[LATER] * 18, ("NOP", None, None, 6), LATER], 20, True),
        (
            [(PRODUCT, None, None, 0), ("BRA `(.L_x_1)", None, None, 0), (".L_x_1:", 0, 0, 0)],
            2,
            False,
        ),
    ],
)
def test_what_a_product_has_yet_to_write_is_not_free(lines, at: int, free: bool) -> None:
    made = room(*lines, ("EXIT", None, None, 0))
    assert bool(made.free[at][bit("R8")]) is free


def test_where_a_kernel_begins_no_thread_s_register_has_a_value() -> None:
    lines = [("@P0 MOV R4, RZ", None, None, 0), ("@P0 STG.E desc[UR8][R2.64], R4", None, None, 0)]
    made = room(*lines, ("EXIT", None, None, 0))
    assert not {2, 3, 4}.intersection(made.at(0).registers)
    assert {0, 2, 3, 4} <= set(made.entering.registers) and 1 not in made.entering.registers
    made.reserve([R.first + 0])
    assert 0 not in made.entering.registers
    again = room((".L_x_0:", None, None, 0), *lines, ("@P1 BRA `(.L_x_0)", None, None, 0))
    assert again.entering == again.at(0)


def test_of_a_part_what_lives_across_it_and_what_it_names_are_used() -> None:
    """R4 and UR8 live across it, and no instruction of it names them; R6 and UR10 are named."""
    plain: tuple[None, None, int] = (None, None, 0)
    made = room(
        ("MOV R4, 0x1", *plain),
        ("UMOV UR8, 0x1", *plain),
        *[("NOP", *plain)] * 20,
        ("MOV R6, 0x1", *plain),
        ("UMOV UR10, 0x1", *plain),
        *[("NOP", *plain)] * 20,
        ("IADD3 R9, R4, UR8, RZ", *plain),
        ("STS [R9], R9", *plain),
        ("EXIT", *plain),
    )
    part = made.within(frozenset(range(15, 40)))
    assert not {4, 6} & {*part.unused_own} and {5, 7, 8} <= {*part.unused_own}
    assert not {8, 10} & {*part.unused_uniform} and {9, 11} <= {*part.unused_uniform}
    assert not {4, 6, 9} & {*made.unused_own} and not {8, 10} & {*made.unused_uniform}


def test_the_first_register_is_unsafe_as_others_are() -> None:
    made = room(
        ("LDG.E R0, desc[UR4][R2.64]", 2, None, 0),
        *[("NOP", None, None, 0)] * 2,
        ("NOP", None, None, 4),
        *[("NOP", None, None, 0)] * 2,
        ("EXIT", None, None, 0),
    )
    assert ["R0" in each for each in late(made)] == [False, True, True, True, False, False, False]
    assert 0 not in made.at(2).registers and 0 in made.at(4).registers


def test_what_a_block_leaves_pending_is_so_in_the_next_ones_for_as_long() -> None:
    """For a single cycle, too; of two ways, for the longer one; around loops, until it is over."""
    graph = SimpleNamespace(after=[[1, 2], [2], [2, 3], []])
    own = [{0b01: 1, 0b10: 9}, {0b01: 3}, {}, {}]
    found = _entering(cast("Graph", graph), own, [4, 2, 5, 1])
    assert found == [{}, {0b01: 1, 0b10: 9}, {0b01: 3, 0b10: 9}, {0b10: 4}]
