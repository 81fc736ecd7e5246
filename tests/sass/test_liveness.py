"""What is live before each instruction, beside nvdisasm's answer and that of a walk."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.disassembly.effects import EVERYTHING, R, bit
from tests.kept import kept
from tests.sass import life_ranges
from tests.sass.compiled import CASES, code, machine
from tests.sass.texts import names, sass
from tests.sass.walk import clobbers

pytestmark = pytest.mark.any_pins

ANY = (
    *("MOV R4, R5", "@P0 MOV R4, R6", "IADD3 R5, R4, R6, RZ", "@!P1 MOV R6, 0x1", "MOV R5, 0x2"),
    *("ISETP.GE.AND P0, PT, R4, R5, PT", "ISETP.NE.AND P1, PT, R6, RZ, P0", "STS [R4], R6"),
    *("@P0 BRA TARGET", "@!P1 BRA TARGET", "@P1 EXIT", "NOP", "BRA TARGET"),
)
LINES = (
    "MOV R4, 0x1",
    ".L_x_1:",
    "IADD3 R4, R4, 0x1, RZ",
    "ISETP.GE.AND P0, PT, R4, R5, PT",
    "@!P0 BRA `(.L_x_1)",
    "STG.E desc[UR4][R2.64], R4",
    "EXIT",
)


def live(*lines: str) -> list[list[str]]:
    return [names(each & ~(1 << bit("R1"))) for each in Liveness(Flow(sass(*lines))).own]


def test_a_value_is_live_from_its_definition_to_its_last_use() -> None:
    around = ["R2", "R3", "R5", "UR4", "UR5"]
    assert live(*LINES) == [
        around,
        ["R2", "R3", "R4", "R5", "UR4", "UR5"],
        ["R2", "R3", "R4", "R5", "UR4", "UR5"],
        ["R2", "R3", "R4", "R5", "P0", "UR4", "UR5"],
        ["R2", "R3", "R4", "UR4", "UR5"],
        [],
    ]


def test_a_definition_under_a_guard_leaves_the_old_value_alive() -> None:
    assert live("@P0 MOV R4, 0x1", "STS [R5], R4", "EXIT")[0] == ["R4", "R5", "P0"]


def test_a_definition_under_a_guard_leaves_it_alive_before_its_block_too() -> None:
    found = live(
        "MOV R4, 0x2",
        "NOP",
        ".L_x_1:",
        "@P0 MOV R4, 0x1",
        "ISETP.GE.AND P1, PT, R6, R7, PT",
        "@P1 BRA `(.L_x_1)",
        "STS [R5], R4",
        "EXIT",
    )
    assert "R4" not in found[0] and "R4" in found[1]


def test_a_definition_ends_a_life_before_its_block_too() -> None:
    found = live("@P0 BRA `(.L_x_1)", "NOP", ".L_x_1:", "MOV R4, R5", "STS [R4], R4", "EXIT")
    assert found[:2] == [["R5", "P0"], ["R5"]]
    again = live("NOP", ".L_x_1:", "MOV R4, R5", "STS [R4], R4", "@P0 BRA `(.L_x_1)", "EXIT")
    assert not any("R4" in each for each in (again[0], again[1], again[3]))


@given(st.lists(st.sampled_from(ANY), min_size=4, max_size=14), st.sets(st.integers(0, 13)))
def test_random_code_is_live_where_a_walk_finds_a_reader(lines: list[str], at: set[int]) -> None:
    marked = [
        part
        for n, each in enumerate(lines)
        for part in ([f".L_x_{n}:"] if n in at else []) + [each]
    ]
    targets = [each[:-1] for each in marked if each.endswith(":")] or ["none"]
    text = [
        each.replace("TARGET", f"`({targets[n % len(targets)]})") if targets != ["none"] else each
        for n, each in enumerate(marked)
        if targets != ["none"] or "TARGET" not in each
    ]
    flow = Flow(sass(*text, "EXIT"))
    for index, found in enumerate(Liveness(flow).own):
        for name in ("R4", "R5", "R6", "P0", "P1"):
            assert found >> bit(name) & 1 == clobbers(flow, index, bit(name)), (index, name)


def test_a_function_reads_for_its_callers() -> None:
    found = live(
        "MOV R4, 0x1", "CALL.REL.NOINC `(.L_x_1)", "STS [R5], R6", "EXIT",
        ".L_x_1:", "MOV R6, R7", "RET.REL.NODEC R4 `(k)",
    )  # fmt: skip
    assert "R7" in found[0] and "R4" not in found[0]


def test_a_function_that_is_not_here_may_read_everything() -> None:
    found = Liveness(Flow(sass("CALL.ABS.NOINC `(malloc)", "EXIT"))).own
    assert found[0] == EVERYTHING


def test_a_function_that_is_not_here_takes_arguments_alone_where_a_trap_follows() -> None:
    def before(*lines: str) -> int:
        return Liveness(Flow(sass("CALL.ABS.NOINC `(fail)", *lines, "EXIT"))).own[0]

    arguments = before("BPT.TRAP 0x1")
    assert arguments >> bit("R31") & 1 and not arguments >> bit("R32") & 1
    assert before("MOV R4, R5", "IADD3 R4, R4, 0x1, RZ", "BPT.TRAP 0x1") == arguments
    assert before(*["NOP"] * 7, "BPT.TRAP 0x1") == arguments
    everything = before("NOP")
    assert everything == before("FADD R4, R4, R4", "BPT.TRAP 0x1") != arguments
    assert before("@P0 BPT.TRAP 0x1") == before(*["NOP"] * 8, "BPT.TRAP 0x1") == everything


def test_life_ranges_are_read_by_their_columns() -> None:
    text = """\
//--------------------- .text.k --------------------------
                              // |                GPR  | PRED  | UGPR | UPRED |
                              // |     00000000001111  |       |      |       |
                              // |   # 01234567890123  | # 01  | # 0  | # 0   |
k:                            // |                     |       |      |       |
        /*0000*/    MOV R1 ;  // |   1  ^  : v       x | 1  v  |      | 1 :   |
        /*0010*/    EXIT ;    // |   1  :              |       | 1 v  |       |
        /*0020*/    NOP ;
"""
    made = life_ranges.read(text)["k"]
    assert [np.flatnonzero(row).tolist() for row in made] == [
        [bit("R4"), bit("R6"), bit("P1"), bit("UP0")],
        [bit("R1"), bit("UR0")],
    ]


@pytest.mark.parametrize("columns", ["01234567890124", "0123456789 123"])
def test_columns_that_are_not_understood_are_no_answer(columns: str) -> None:
    text = f"""\
//--------------------- .text.k --------------------------
                              // |                GPR  |
                              // |   # {columns}  |
        /*0000*/    MOV R1 ;  // |   1  ^  : v         |
"""
    assert life_ranges.read(text) == {}


HOPPER = [name for name in CASES if "sm_" not in name]


def life_ranges_of(name: str) -> life_ranges.Ranges:
    """Return what nvdisasm says of a case."""
    cubin = code(name).compiled.asm["cubin"]
    text = kept("life ranges", cubin, lambda: life_ranges.printed(cubin))
    (found,) = life_ranges.read(text).values()
    return found


@pytest.mark.compiled
@pytest.mark.parametrize("name", HOPPER)
def test_the_text_never_misses_what_nvdisasm_calls_live(name: str) -> None:
    """Registers that carry over calls aside, of which these kernels have none."""
    found, ranges = machine(name), life_ranges_of(name)
    printed = [frozenset(np.flatnonzero(row).tolist()) for row in ranges]
    order = {at for b in found.flow.graph.order for at in _within(found.flow, b)}
    for at, said in enumerate(printed):
        mine = {n for n in said if found.own[at] >> n & 1}
        assert at not in order or said == mine, found.flow.code.instructions[at].text


@pytest.mark.compiled
@pytest.mark.parametrize("name", CASES)
def test_a_walk_of_every_path_agrees_that_the_dead_are_dead(name: str) -> None:
    found = machine(name)
    dead = np.argwhere(~found.table[:, R.columns])
    for at, register in random.Random(name).sample(dead.tolist(), 50):
        assert not clobbers(found.flow, at, register)


@pytest.mark.compiled
def test_little_more_is_taken_to_be_live_than_nvdisasm_says() -> None:
    found, ranges = machine("attention"), life_ranges_of("attention")
    extra = found.table[: len(ranges), R.columns] & ~ranges[:, R.columns]
    assert extra.mean(0)[2:].sum() < 2


def _within(flow: Flow, block: int) -> range:
    return range(flow.graph.blocks[block].first, flow.graph.blocks[block].end)
