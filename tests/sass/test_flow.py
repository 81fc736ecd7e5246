"""Where control goes, and the loops."""

from __future__ import annotations

import pytest

from ikp.sass.control_flow.flow import Flow, reconverging
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins


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
    assert flow.after(3) == [5]


def test_a_barrier_that_serves_again_leads_to_its_own_place_each_time() -> None:
    flow = Flow(
        sass(
            "BSSY B0, `(.L_x_1)", "BSYNC B0", ".L_x_1:",
            "BSSY B0, `(.L_x_2)", "BSYNC B0", ".L_x_2:", "EXIT",
        )
    )  # fmt: skip
    assert (flow.after(1), flow.after(3)) == ([2], [4])


def test_an_indirect_branch_goes_to_what_it_lists_or_to_what_nothing_else_names() -> None:
    listed = 'BRX R4 -0x10 (*"BRANCH_TARGETS .L_x_1,.L_x_2"*)'
    for branch in (listed, "BRX R4 -0x10"):
        flow = Flow(sass(branch, ".L_x_1:", "EXIT", ".L_x_2:", "EXIT"))
        assert flow.after(0) == [1, 2]


def test_loops_nest() -> None:
    flow = Flow(
        sass(".L_x_1:", "NOP", ".L_x_2:", "NOP", "@P0 BRA `(.L_x_2)", "@P1 BRA `(.L_x_1)", "EXIT")
    )
    assert [(loop.header, sorted(loop.body)) for loop in flow.loops] == [
        (0, [0, 1, 2, 3]), (1, [1, 2]),
    ]  # fmt: skip
    assert flow.loop_of(2) == flow.loops[1]
    assert flow.loop_of(4) is None


def test_a_barrier_that_was_kept_in_a_register_may_be_any() -> None:
    """BSYNC B0 ends what BSSY B1 began: torch's bitonic sorts do so, and computed wrong results."""
    lines = (
        *("BSSY B0, `(.L_x_1)", "BSYNC B0", ".L_x_1:"),
        *("BSSY B1, `(.L_x_2)", "BMOV.32.CLEAR R4, B1", "BMOV.32 B0, R4", "NOP", "BSYNC B0"),
        *(".L_x_2:", "EXIT"),
    )
    kept = Flow(sass(*lines)).graph.jumps.leaving
    assert kept[6] == [(7, "")] and kept[1] == [(2, "")]
    apart = Flow(sass(*lines[:-2], "NOP", *lines[-2:])).graph.jumps.leaving
    assert apart[6] == [(2, ""), (7, ""), (8, "")]
    without = [each for each in lines if "BMOV" not in each]
    assert Flow(sass(*without)).graph.jumps.leaving[4] == [(2, "")]


def test_threads_that_leave_an_inner_region_meet_at_the_outer_one() -> None:
    flow = Flow(
        sass(
            "BSSY B0, `(.L_x_2)",
            "BSSY B1, `(.L_x_1)",
            "@P0 BREAK B1",
            "@P0 BRA `(.L_x_2)",
            "@P1 BRA `(.L_x_1)",
            "MOV R4, 0x1",
            ".L_x_1:",
            "BSYNC B1",
            "MOV R5, 0x1",
            ".L_x_2:",
            "BSYNC B0",
            "BSSY B0, `(.L_x_3)",
            "@P2 BRA `(.L_x_3)",
            "MOV R6, 0x1",
            ".L_x_3:",
            "BSYNC B0",
            "EXIT",
        )
    )
    block = flow.graph.block
    outer, inner, later = reconverging(flow)
    assert block(5) in inner.blocks and inner.blocks <= outer.blocks
    assert block(8) not in inner.blocks | outer.blocks | later.blocks  # where the outer meets
    assert block(11) in later.blocks and not later.blocks & outer.blocks
