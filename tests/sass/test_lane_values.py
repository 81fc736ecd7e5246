"""Addresses by lane, computed from machine code: what requests need of memory, and why."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ikp.core.code_facts import AccessFacts
from ikp.inspection._accesses import Accesses
from ikp.inspection._halo import halo
from ikp.inspection._work import (
    Divergence,
    Often,
    chasing_loads,
    constants_apart,
    polls,
    sums,
    times_apart,
)
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.dataflow.idioms import slow_paths
from ikp.sass.dataflow.lane_state import DATA, GUESSED, LANE, LaunchValues, Shape, Value
from ikp.sass.dataflow.lane_values import LaneValues, _met
from ikp.sass.disassembly.listing import Instruction, Line, parse

pytestmark = pytest.mark.any_pins

SHAPE = Shape((256, 1, 1), (1024, 1, 1), 4, 8)
INDEX = """
S2R R0, SR_TID.X
S2UR UR4, SR_CTAID.X
LDC R7, c[0x0][RZ]
IMAD R7, R7, UR4, R0
LDC.64 R2, c[0x0][0x210]
"""
"""R7: the thread's index in the grid. R2 and R3: a pointer."""
SHARED = """
S2R R7, SR_TID.X
S2UR UR5, SR_CgaCtaId
UMOV UR4, 0x400
ULEA UR4, UR5, UR4, 0x18
"""


def flow(text: str) -> Flow:
    """Return the flow of instructions, and labels, a line each."""
    lines, address = ["//--------------------- .text.k --------------------------"], 0
    for line in text.strip().splitlines():
        if line.endswith(":"):
            lines.append(line)
            continue
        lines.append(f"        /*{address:04x}*/                   {line} ;")
        address += 16
    (code,) = parse("\n".join([*lines, f"        /*{address:04x}*/                   EXIT ;", ""]))
    return Flow(code)


def accesses(text: str, shape: Shape = SHAPE) -> list[AccessFacts]:
    made = flow(text)
    every = dict.fromkeys(range(len(made.code.instructions)), Often(1.0))
    return list(Accesses(made, shape, 0x210).of(every))


@pytest.mark.parametrize(
    ("stride", "width", "sectors", "least"),
    [(4, "", 4, 4), (32, "", 32, 4), (64, "", 32, 4), (16, ".128", 16, 16), (2, ".U16", 2, 2)],
)
def test_sectors_are_those_that_lanes_touch(
    stride: int, width: str, sectors: int, least: int
) -> None:
    text = f"{INDEX}IMAD.WIDE R2, R7, {stride:#x}, R2\nSTG.E{width} desc[UR4][R2.64], R9"
    (one,) = accesses(text)
    assert (one.cost, one.least) == (sectors, least)
    assert "b" in one.depends and "l" in one.depends and one.blocks_share == 0


def test_a_stride_that_a_parameter_says_is_assumed() -> None:
    text = f"{INDEX}IMAD R7, R7, c[0x0][0x21c], RZ\nIMAD.WIDE R2, R7, 0x4, R2\n"
    (one,) = accesses(f"{text}LDG.E R9, desc[UR4][R2.64]")
    assert one.cost == 32 and "p" in one.depends


def test_the_offset_of_a_row_is_not_that_of_a_neighbour() -> None:
    (one,) = accesses(f"{INDEX}IMAD.WIDE R2, R0, 0x4, R2\nLDG.E R9, desc[UR4][R2.64+0x10]")
    assert one.cost == 5, "lanes start in the middle of a sector"
    assert "b" not in one.depends and one.blocks_share == pytest.approx(0.875)


@pytest.mark.parametrize(("row", "cycles"), [(0x80, 32), (0x84, 1), (0x88, 2)])
def test_lanes_of_a_bank_take_a_cycle_each(row: int, cycles: int) -> None:
    (one,) = accesses(f"{SHARED}IMAD R5, R7, {row:#x}, RZ\nSTS [R5+UR4], R0")
    assert (one.unit, one.cost, one.least) == ("store.shared.4", cycles, 1)


def test_wide_accesses_take_their_lanes_in_parts() -> None:
    (one,) = accesses(f"{SHARED}IMAD.SHL.U32 R5, R7, 0x10, RZ\nLDS.128 R8, [R5+UR4]")
    assert (one.cost, one.least) == (4, 4)


def test_an_atomic_on_one_address_depends_on_no_lane_and_no_block() -> None:
    (one,) = accesses(f"{INDEX}REDG.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR6][R2.64], R9")
    assert one.addresses == 1 and not {*"lwbd"} & {*one.depends}
    (other,) = accesses(
        f"{INDEX}IMAD.WIDE R4, R7, 0x4, R2\nLDG.E R5, desc[UR4][R4.64]\n"
        "IMAD.WIDE R2, R5, 0x4, R2\nREDG.E.ADD.S32.STRONG.GPU desc[UR6][R2.64], R9"
    )[1:]
    assert other.addresses is None and {*"ld"} <= {*other.depends}


LOOP = """
IMAD.MOV.U32 R6, RZ, RZ, RZ
.L_x_0:
{load}
IADD3 R6, R6, 0x1, RZ
ISETP.GE.AND P0, PT, R6, {until}, PT
@!P0 BRA `(.L_x_0)
"""


def test_a_load_that_no_iteration_moves_depends_on_none() -> None:
    fixed = f"{INDEX}IMAD.WIDE R2, R7, 0x4, R2" + LOOP.format(
        load="LDG.E R9, desc[UR4][R2.64]", until="c[0x0][0x21c]"
    )
    (one,) = accesses(fixed)
    assert one.in_loop and "i" not in one.depends
    moved = fixed.replace("IADD3 R6", "IADD3 R2, P1, R2, 0x80, RZ\nIADD3 R6")
    assert "i" in accesses(moved)[0].depends


def test_lanes_part_where_their_data_says_how_often_a_loop_runs() -> None:
    by_data = f"{INDEX}IMAD.WIDE R2, R7, 0x4, R2\nLDG.E R8, desc[UR4][R2.64]" + LOOP.format(
        load="FFMA R9, R9, R9, R9", until="R8"
    )
    by_number = by_data.replace("R6, R8", "R6, c[0x0][0x21c]")
    for text, parted in ((by_data, True), (by_number, False)):
        made = flow(text)
        values = Accesses(made, SHAPE, 0x210).values
        ffma = next(at for at, one in enumerate(made.code.instructions) if one.op == "FFMA")
        assert (ffma in Divergence(made, values).apart) == parted


def test_carries_reach_the_high_halves_of_addresses() -> None:
    text = (
        f"{INDEX}IADD3 R4, P0, R2, -0x1, RZ\nIADD3.X R5, R3, -0x1, RZ, P0, !PT\n"
        "LDG.E.U8 R9, desc[UR4][R4.64]"
    )
    made = flow(text)
    at = next(n for n, one in enumerate(made.code.instructions) if one.op == "LDG")
    values = Accesses(made, SHAPE, 0x210).values
    pointer = values.launch.constant(0x210)[0] | values.launch.constant(0x214)[0] << 32
    bits = values.address(at).bits
    assert bits is not None and bits[0] == pointer - 1


def test_a_division_by_a_parameter_is_evaluated() -> None:
    """The block's row and column, as compilers divide by numbers that they don't know."""
    text = """
S2R R0, SR_CTAID.X
LDC R5, c[0x0][0x21c]
I2F.U32.RP R4, R5
MUFU.RCP R4, R4
IADD3 R2, R4, 0xffffffe, RZ
F2I.FTZ.U32.TRUNC.NTZ R3, R2
IMAD.MOV.U32 R2, RZ, RZ, RZ
IADD3 R7, RZ, -R3, RZ
IMAD R7, R7, R5, RZ
IMAD.HI.U32 R3, R3, R7, R2
IMAD.HI.U32 R3, R3, R0, RZ
IADD3 R6, -R3, RZ, RZ
IMAD R6, R5, R6, R0
ISETP.GE.U32.AND P0, PT, R6, R5, PT
@P0 IADD3 R3, R3, 0x1, RZ
LDC.64 R8, c[0x0][0x210]
IMAD.WIDE.U32 R8, R3, 0x4, R8
LDG.E R9, desc[UR4][R8.64]
"""
    made = flow(text)
    at = next(n for n, one in enumerate(made.code.instructions) if one.op == "LDG")
    values = Accesses(made, Shape((32, 1, 1), (64, 1, 1), 1, 8), 0x210).values
    values.launch.parameters[0x21C] = 3  # type: ignore[index]
    bits = values.address(at).bits
    assert bits is not None
    rows = (bits.reshape(8, 32)[:, 0] - bits[0]) // 4
    assert rows.tolist() == [number // 3 for number in range(8)]


def loop_of(text: str) -> tuple[Flow, LaneValues]:
    made = flow(text)
    return made, Accesses(made, SHAPE, 0x210, {0x21C: 100, 0x220: 7}).values


@pytest.mark.parametrize(
    ("first", "step", "compare", "jump", "trips"),
    [
        ("RZ", "0x1", "GE.AND", "@!P0", 100),  # for (i = 0; i < 100; i++)
        ("RZ", "0x20", "GE.AND", "@!P0", 4),  # steps of 32
        ("RZ", "0x1", "NE.AND", "@P0", 100),
        ("0x64", "0x1", "GE.AND", "@!P0", 1),  # a body that is tested at its end runs once
        ("R0", "0x80", "GE.AND", "@!P0", 1),  # a thread's first index; steps of a block
    ],
)
def test_trips_of_a_loop_by_its_comparison(
    first: str, step: str, compare: str, jump: str, trips: float
) -> None:
    made, values = loop_of(
        f"S2R R0, SR_TID.X\nMOV R6, {first}\n.L_x_0:\nFFMA R9, R9, R9, R9\n"
        f"IADD3 R6, R6, {step}, RZ\nISETP.{compare} P0, PT, R6, c[0x0][0x21c], PT\n"
        f"{jump} BRA `(.L_x_0)"
    )
    (loop,) = made.loops
    assert values.trips(loop.header) == trips


def test_a_loop_that_loaded_data_ends_has_no_known_trips() -> None:
    made, values = loop_of(
        f"{INDEX}LDG.E R8, desc[UR4][R2.64]\nMOV R6, RZ\n.L_x_0:\nIADD3 R6, R6, 0x1, RZ\n"
        "ISETP.GE.AND P0, PT, R6, R8, PT\n@!P0 BRA `(.L_x_0)"
    )
    assert values.trips(made.loops[0].header) is None


def test_a_condition_on_the_threads_number_says_which_warps_execute() -> None:
    """``if (threadIdx.x == 0) atomicAdd(...)``, and what follows for all of them."""
    text = (
        f"{INDEX}ISETP.NE.AND P0, PT, R0, RZ, PT\n@P0 BRA `(.L_x_0)\n"
        "REDG.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR6][R2.64], R9\n.L_x_0:\n"
        "STG.E desc[UR4][R2.64], R9"
    )
    made = flow(text)
    values = Accesses(made, SHAPE, 0x210).values
    ats = {one.op: at for at, one in enumerate(made.code.instructions)}
    assert values.warps(ats["REDG"]) == 1 / SHAPE.warps and not values.is_guessed(ats["REDG"])
    assert values.active(ats["REDG"]).sum() == SHAPE.blocks
    assert values.warps(ats["STG"]) == 1 and not values.is_guessed(ats["STG"])


def test_a_condition_on_data_is_not_known() -> None:
    text = (
        f"{INDEX}LDG.E R8, desc[UR4][R2.64]\nISETP.NE.AND P0, PT, R8, RZ, PT\n@P0 BRA `(.L_x_0)\n"
        "STG.E desc[UR4][R2.64], R9\n.L_x_0:\nSTG.E desc[UR4][R2.64+0x4], R9"
    )
    made = flow(text)
    values = Accesses(made, SHAPE, 0x210).values
    inside, behind = (at for at, one in enumerate(made.code.instructions) if one.op == "STG")
    assert values.is_guessed(inside) and not values.is_guessed(behind)


def test_threads_that_have_left_the_kernel_execute_nothing() -> None:
    made, values = loop_of(
        f"{INDEX}ISETP.GE.AND P0, PT, R7, c[0x0][0x21c], PT\n@P0 EXIT\nSTG.E desc[UR4][R2.64], R9"
    )
    store = next(at for at, one in enumerate(made.code.instructions) if one.op == "STG")
    assert values.active(store).sum() == 100


def test_the_number_of_a_block_in_its_cluster_is_one_register() -> None:
    (one,) = accesses(
        "S2UR UR6, SR_CTAID.X\nS2UR UR5, SR_CgaCtaId\nLDC.64 R2, c[0x0][0x210]\n"
        "IMAD.WIDE.U32 R2, R2, UR6, R2\nLDG.E R9, desc[UR4][R2.64]"
    )
    assert "b" in one.depends, "UR6 is still the block's number"


SPIN = f"""{INDEX}
.L_x_0:
LDG.E.STRONG.GPU R8, desc[UR4][R2.64]
{{more}}
ISETP.NE.AND P0, PT, R8, R7, PT
@P0 BRA `(.L_x_0)
"""


@pytest.mark.parametrize(
    ("more", "polled"),
    [
        ("NANOSLEEP 0x20", True),
        ("FFMA R9, R9, R9, R9", False),  # it works meanwhile
        ("IADD3 R2, P1, R2, 0x80, RZ", False),  # it walks through memory
    ],
)
def test_a_loop_that_only_asks_again_polls(more: str, polled: bool) -> None:
    made = flow(SPIN.format(more=more))
    values = Accesses(made, SHAPE, 0x210).values
    every = range(len(made.code.instructions))
    text = polls(Flow(replace(made.code, instructions=lined(made))), values, every)
    assert bool(text) == polled


def lined(made: Flow) -> tuple[Instruction, ...]:
    """Return the instructions, each with a source line."""
    line = (Line("/src/lock.cu", 26),)
    return tuple(
        Instruction(one.address, one.guard, one.opcode, one.rest, line)
        for one in made.code.instructions
    )


def test_a_uniform_register_gets_the_value_of_the_first_lane() -> None:
    """The pointer moves by four bytes for each number before it: by none, from a sector's start."""
    text = f"{INDEX}R2UR UR6, R0\nIMAD.WIDE R2, UR6, 0x4, R2\nIMAD.WIDE R2, R0, 0x4, R2\n"
    (one,) = accesses(f"{text}LDG.E R9, desc[UR4][R2.64]")
    assert one.cost == 4, "another lane's number leads into the middle of a sector"


def test_sizes_of_a_launch_are_known_constants_and_others_are_assumed() -> None:
    launched = LaunchValues(Shape((256, 2, 3), (1024, 5, 6), 4, 8), {0x210: 77})
    sizes = [launched.constant(offset) for offset in range(0, 24, 4)]
    assert sizes == [(each, False) for each in (256, 2, 3, 1024, 5, 6)]
    assert launched.constant(0x210) == (77, False)
    assert launched.constant(0x218)[1]


def test_a_loop_over_64_bits_compares_both_words() -> None:
    text = (
        "MOV R6, {}\nMOV R7, RZ\n.L_x_0:\nFFMA R9, R9, R9, R9\n"
        "IADD3 R6, P1, R6, 0x10, RZ\nIADD3.X R7, RZ, R7, RZ, P1, !PT\n"
        "ISETP.GE.U32.AND P0, PT, R6, 0x64, PT\n"
        "ISETP.GE.AND.EX P0, PT, R7, {}, PT, P0\n@!P0 BRA `(.L_x_0)"
    )
    made, values = loop_of(text.format("0x4", "RZ"))
    assert values.trips(made.loops[0].header) == 6
    made, values = loop_of(text.format("0xffffffc4", "0x1"))
    assert values.trips(made.loops[0].header) == 10, "past the end of the low word"
    made, values = loop_of(text.format("0x4", "RZ").replace("R7, RZ, PT, P0", "R7, RZ, PT, P2"))
    assert values.trips(made.loops[0].header) is None, "of the low words, no comparison is known"


def test_an_address_that_is_not_known_in_the_next_iteration_moves() -> None:
    text = f"{INDEX}.L_x_0:\nLDG.E R8, desc[UR4][R2.64]\n{{}}\n@P0 BRA `(.L_x_0)"
    for change, moves in {
        "NOP": False,
        "IADD3 R2, P1, R2, 0x80, RZ": True,
        "MOV R2, R8": True,
        "IADD3 R2, P1, R2, RZ, RZ": False,
    }.items():
        made, values = loop_of(text.format(change))
        at = next(n for n, one in enumerate(made.code.instructions) if one.op == "LDG")
        assert values.moves(at, made.loops[0].header) == moves, change


def test_requests_of_one_line_bring_a_sector_once() -> None:
    """Lanes at every other 16 bytes: the next request asks for what lies between."""
    text = f"{INDEX}IMAD.WIDE R2, R7, 0x20, R2\n"
    first, second = (f"LDG.E.128 R8, desc[UR4][R2.64{at}]\n" for at in ("", "+0x10"))
    made = flow(text + first + second)
    made = Flow(replace(made.code, instructions=lined(made)))
    every = dict.fromkeys(range(len(made.code.instructions)), Often(1.0))
    (both,) = Accesses(made, SHAPE, 0x210).of(every)
    assert (both.count, both.cost, both.least, both.together) == (2, 32, 16, 16)
    (one,) = accesses(text + first)
    assert (one.cost, one.together) == (32, 32)


@pytest.mark.parametrize(("beyond", "align"), [("", 16), ("+0x2", 2), ("+0x8", 8)])
def test_what_first_addresses_are_a_multiple_of(beyond: str, align: int) -> None:
    (one,) = accesses(f"{INDEX}IMAD.WIDE R2, R7, 0x2, R2\nLDG.E.U16 R8, desc[UR4][R2.64{beyond}]")
    assert one.align == align


@pytest.mark.parametrize(
    ("stored", "order", "back"),
    [("", "STG LDG", True), ("+0x100000", "STG LDG", False), ("", "LDG STG", False)],
)
def test_loads_of_what_the_block_has_stored(stored: str, order: str, back: bool) -> None:
    """Another width has other lanes: the sectors are the same. A load before a store is none."""
    each = {
        "STG": f"STG.E desc[UR4][R2.64{stored}], R9",
        "LDG": "LDG.E.64 R8, desc[UR4][R2.64]",
    }
    text = f"{INDEX}IMAD.WIDE R2, R7, 0x8, R2\n" + "\n".join(each[op] for op in order.split())
    load = next(one for one in accesses(text) if one.unit.startswith("load"))
    assert ("s" in load.depends) == back


def test_stores_of_a_way_that_leaves_the_kernel_are_loaded_by_nothing() -> None:
    text = (
        f"{INDEX}IMAD.WIDE R2, R7, 0x8, R2\n@P0 BRA `(.L_x_1)\nSTG.E desc[UR4][R2.64], R9\n"
        "{}EXIT\n.L_x_1:\nLDG.E.64 R8, desc[UR4][R2.64]\nSTG.E desc[UR4][R2.64], R8"
    )
    for leaves, back in ("", False), ("@P1 BRA `(.L_x_1)\n", True):
        load = next(one for one in accesses(text.format(leaves)) if one.unit.startswith("load"))
        assert ("s" in load.depends) == back


def test_requests_for_members_of_a_structure_bring_a_sector_once() -> None:
    text = f"{INDEX}IMAD.WIDE R2, R7, 0xc, R2\n"
    members = [f"LDG.E R8, desc[UR4][R2.64{at}]\n" for at in ("", "+0x4", "+0x8")]
    made = flow(text + "".join(members))
    each = [
        replace(one, lines=(Line("a.py", at),)) for at, one in enumerate(made.code.instructions)
    ]
    made = Flow(replace(made.code, instructions=tuple(each)))
    every = dict.fromkeys(range(len(each)), Often(1.0))
    found = Accesses(made, SHAPE, 0x210).of(every)
    assert [(one.cost, one.together) for one in found] == [(12, 4)] * 3


@pytest.mark.parametrize(
    ("edges", "part"),
    [
        (("", "+0x80", "+0x100"), 0.58),  # ten sectors of blocks of four, in eight of them
        (("",), 0.0),
        (("", "+0x10000"), 0.0),  # far away
    ],
)
def test_what_neighbouring_blocks_load_too(edges: tuple[str, ...], part: float) -> None:
    """A block of 32 lanes has 128 bytes of its own, and those of the blocks beside."""
    first = "S2R R0, SR_TID.X\nS2R R1, SR_CTAID.X\nIMAD R7, R1, 0x20, R0\n"
    loads = "".join(f"LDG.E R8, desc[UR4][R2.64{at}]\n" for at in edges)
    text = f"{first}LDC.64 R2, c[0x0][0x210]\nIMAD.WIDE R2, R7, 0x4, R2\n{loads}"
    shape = Shape((32, 1, 1), (64, 1, 1), 1, 8, 6, 4)
    assert halo(Accesses(flow(text), shape, 0x210).values) == pytest.approx(part, abs=0.01)
    weights = f"{first}LDC.64 R2, c[0x0][0x210]\nIMAD.WIDE R2, R0, 0x4, R2\n{loads}"
    assert not halo(Accesses(flow(weights), shape, 0x210).values), "the same in all blocks"


def test_one_thread_asks_for_all_through_shared_memory() -> None:
    """As Triton's atomic operations on a scalar do: HFMA2 makes a constant, and no product."""
    text = (
        f"{INDEX}.L_x_0:\nHFMA2.MMA R8, -RZ, RZ, 0, 0\n"
        "ATOMG.E.CAS.STRONG.GPU PT, R8, [R2], R8, R9\n"
        "STS [UR4], R8\nBAR.SYNC.DEFER_BLOCKING 0x0\nLDS R9, [UR4]\n"
        "ISETP.NE.U32.AND P2, PT, R9, 0x1, PT\n@!P2 BRA `(.L_x_0)"
    )
    made = flow(text)
    values = Accesses(made, SHAPE, 0x210).values
    every = range(len(made.code.instructions))
    seen = Flow(replace(made.code, instructions=lined(made)))
    assert polls(seen, values, every)
    recorded = flow(text.replace("LDS R9", "STG.E desc[UR4][R2.64], R9\nLDS R9"))
    seen = Flow(replace(recorded.code, instructions=lined(recorded)))
    store = next(at for at, one in enumerate(seen.code.instructions) if one.op == "STG")
    assert not polls(seen, values, every)
    assert polls(seen, values, every, {store}), "the store of a record"


@pytest.mark.parametrize(
    ("compare", "apart"),
    [
        ("FSETP.LT.AND P0, PT, R8, 4, PT", True),
        ("ISETP.LT.AND P0, PT, R7, c[0x0][0x21c], PT", False),
    ],
)
def test_lanes_that_go_round_as_often_as_their_own_numbers_say(compare: str, apart: bool) -> None:
    """A loop from the lane's number on, in steps of a warp, ends for all lanes at about once."""
    body = "FFMA R8, R8, R8, R9\nIADD3 R7, R7, 0x20, RZ"
    made, values = loop_of(
        f"{INDEX}I2FP.F32.S32 R8, R7\n.L_x_0:\n{body}\n{compare}\n@P0 BRA `(.L_x_0)"
    )
    found = {made.code.instructions[at].op for at in Divergence(made, values).apart}
    assert ("FFMA" in found) == apart


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        (("FFMA R4, R5, R6, R4",), 1),  # onto its own target
        (("FFMA R4, R5, R6, R7", "FFMA R8, R9, R10, R4"), 1),  # onto another sum
        (("FFMA R4, R5, R6, R7", "FFMA R8, R4, R10, R11"), 0),  # a polynomial
        (("FMUL R4, R5, R6", "FFMA R4, R5, R5, R4"), 0),  # a square: the length of a vector
    ],
)
def test_multiply_adds_that_sum_up_products(chain: tuple[str, ...], expected: int) -> None:
    made = flow("\n".join(chain))
    every = dict.fromkeys(range(len(made.code.instructions)), Often(1.0))
    assert sums(made, every) == expected


def test_an_epilogue_that_lanes_run_apart_does_not_outweigh_the_main_loop() -> None:
    every: Any = SimpleNamespace(apart=frozenset(range(100)))
    epilogue: Any = SimpleNamespace(apart=frozenset(range(20, 100)))
    how_often = {at: Often(1, looped=at < 20, maybe=at >= 60) for at in range(100)}
    assert times_apart(every, how_often) == 20
    assert times_apart(epilogue, how_often) == 0
    assert times_apart(epilogue, {at: Often(1) for at in range(100)}) == 80, "no loops"


@pytest.mark.parametrize(("limit", "rare"), [("105615", True), ("2", False)])
def test_the_slow_path_of_a_sine_is_taken_for_rare(limit: str, rare: bool) -> None:
    """Large arguments are reduced by a loop with an array in local memory, which hardly runs."""
    made = flow(
        f"FSETP.GE.AND P0, PT, |R0|, {limit}, PT\n@!P0 BRA `(.L_x_1)\n"
        "STL [R1], R5\nLDL R6, [R1]\n.L_x_1:\nFMUL R0, R6, R6"
    )
    blocks = [made.graph.blocks[one] for one in slow_paths(made)]
    found = {made.code.instructions[at].op for one in blocks for at in range(one.first, one.end)}
    assert found == ({"STL", "LDL"} if rare else set())


@pytest.mark.parametrize(
    ("between", "chased"),
    [
        ("", True),
        ("IMAD.WIDE R4, R0, 0x8, R2\n", False),
        ("@!P0 IMAD.WIDE R4, R0, 0x8, R2\n", False),
    ],
)
def test_a_load_whose_address_it_has_loaded_is_chased(between: str, chased: bool) -> None:
    text = (
        f"LDC.64 R4, c[0x0][0x210]\n.L_x_0:\n{between}LDG.E.64 R4, desc[UR4][R4.64]\n"
        "ISETP.NE.AND P0, PT, R4, RZ, PT\n@P0 BRA `(.L_x_0)"
    )
    made = flow(text)
    assert bool(chasing_loads(DefUse(made))) == chased


def test_what_another_way_writes_chases_no_pointer() -> None:
    made = flow(
        ".L_x_0:\nIMAD.WIDE R4, R0, 0x8, R2\n@P1 BRA `(.L_x_2)\nMOV R4, R8\nMOV R5, R9\n"
        "STG.E desc[UR4][R4.64], R0\nBRA `(.L_x_3)\n.L_x_2:\nLDG.E.64 R8, desc[UR4][R4.64]\n"
        ".L_x_3:\nISETP.NE.AND P0, PT, R0, RZ, PT\n@P0 BRA `(.L_x_0)"
    )
    assert not chasing_loads(DefUse(made))


@pytest.mark.parametrize(("limit", "apart"), [("105615", False), ("2", True)])
def test_the_slow_path_of_a_sine_is_no_divergence(limit: str, apart: bool) -> None:
    work = "FMUL R6, R6, R6\n" * 16
    made, values = loop_of(
        f"{INDEX}IMAD.WIDE R4, R7, 0x4, R2\nLDG.E R5, desc[UR4][R4.64]\n"
        f"FSETP.GE.AND P0, PT, |R5|, {limit}, PT\n@!P0 BRA `(.L_x_1)\n{work}.L_x_1:\nSTG.E "
        "desc[UR4][R4.64], R6"
    )
    found = {made.code.instructions[at].op for at in Divergence(made, values).apart}
    assert ("FMUL" in found) == apart


@pytest.mark.parametrize(("moves", "again"), [("R11", True), ("R10", False)])
def test_an_outer_loop_that_stays_at_its_addresses_makes_accesses_again(
    moves: str, again: bool
) -> None:
    """The address moves with the inner loop's count, R11, and with what ``moves`` counts."""
    (one,) = accesses(
        f"{INDEX}MOV R10, RZ\n.L_x_0:\nMOV R11, RZ\n.L_x_1:\nIADD3 R12, R11, {moves}, R7\n"
        "IMAD.WIDE R4, R12, 0x4, R2\nLDG.E R9, desc[UR4][R4.64]\nIADD3 R11, R11, 0x20, RZ\n"
        "ISETP.GE.AND P0, PT, R11, 0x200, PT\n@!P0 BRA `(.L_x_1)\nIADD3 R10, R10, 0x200, RZ\n"
        "ISETP.GE.AND P1, PT, R10, 0x800, PT\n@!P1 BRA `(.L_x_0)"
    )
    assert "i" in one.depends and ("o" in one.depends) == again


@pytest.mark.parametrize(("register", "times"), [("R7", 1.0), ("R8", 0.0)])
def test_constants_at_addresses_of_the_lanes_are_counted(register: str, times: float) -> None:
    made, values = loop_of(f"{INDEX}LDC R8, c[0x0][0x21c]\nLDC R9, c[0x3][{register}]")
    every = dict.fromkeys(range(len(made.code.instructions)), Often(1.0))
    assert constants_apart(made, values, every) == times


def test_a_way_that_no_thread_takes_leaves_addresses_known() -> None:
    """A division of 64 bits: the call where a high word is not zero, and else a way of 32 bits."""
    ways = """
    ISETP.NE.U32.AND P0, PT, R9, RZ, PT
    @P0 BRA `(.L_x_1)
    IMAD.MOV.U32 R8, RZ, RZ, R7
    BRA `(.L_x_2)
    .L_x_1:
    LDG.E R8, desc[UR4][R2.64]
    .L_x_2:
    IMAD.WIDE R4, R8, 0x4, R2
    LDG.E R6, desc[UR4][R4.64]
    """
    zero, taken = (f"{INDEX}\nMOV R9, {high}\n{ways}" for high in ("RZ", "0x1"))
    for text, known in ((zero, True), (taken, False)):
        code = flow("\n".join(line.strip() for line in text.strip().splitlines()))
        values = LaneValues(code, LaunchValues(SHAPE, {0x210: 0x1000_0000, 0x214: 0}))
        last = max(code.code.of("LDG"))
        assert (values.address(last).bits is not None) == known
        assert bool(values.address(last).depends & DATA) != known


def test_where_ways_meet_each_thread_has_the_values_of_its_own() -> None:
    """A loop's first index that is 0 for some threads, and more for others: so are its trips."""
    text = """
    ISETP.GE.AND P0, PT, R0, 0x80, PT
    MOV R9, RZ
    @!P0 BRA `(.L_x_1)
    MOV R9, 0x30
    .L_x_1:
    .L_x_2:
    IADD3 R9, R9, 0x1, RZ
    ISETP.NE.AND P1, PT, R9, 0x40, PT
    @P1 BRA `(.L_x_2)
    STG.E desc[UR4][R2.64], R9
    """
    lines = [line.strip() for line in text.strip().splitlines()]
    code = flow("\n".join([*INDEX.strip().splitlines(), *lines]))
    shape = replace(SHAPE, warps=8)
    values = LaneValues(code, LaunchValues(shape, {0x210: 0x1000_0000, 0x214: 0}))
    (loop,) = code.loops
    assert values.trips(loop.header) == (0x40 + 0x10) / 2


def test_where_ways_meet_with_equal_values_none_is_guessed() -> None:
    """Of another number, it is known of no lane which it has."""
    lanes = np.arange(32, dtype=np.int64).reshape(1, 32)
    one, same, other = Value(lanes, LANE), Value(lanes + 0, LANE | DATA), Value(lanes + 1, LANE)
    assert _met([{"R4": one}, {"R4": same}])["R4"].depends == LANE | DATA
    assert _met([{"R4": one}, {"R4": other}])["R4"].depends == LANE | GUESSED
    unknown = Value(None, LANE)
    assert _met([{"R4": unknown}, {"R4": one}])["R4"].depends & GUESSED
