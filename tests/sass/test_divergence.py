"""Where threads of a warp may be apart: between BSSY and BSYNC, and behind jumps without them."""

from __future__ import annotations

import pytest

from ikp.probes.points.sese_regions import Regions
from ikp.sass.control_flow.flow import Flow, reconverging
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins


def code(*lines: str) -> Flow:
    return Flow(sass(*lines, "EXIT"))


def named(flow: Flow, blocks: set[int]) -> set[str]:
    """Return the numbers of the registers that blocks add to."""
    every = flow.code.instructions
    return {
        each.operands[0][1:]
        for number in blocks
        for each in every[flow.graph.blocks[number].first : flow.graph.blocks[number].end]
        if each.op == "FADD"
    }


def add(number: int) -> str:
    return f"FADD R{number}, R{number}, R{number}"


def diamond(barrier: str, label: int, *inside: str, behind: int) -> tuple[str, ...]:
    """Return a part whose threads diverge, and meet again before the block ``behind``."""
    return (
        *(f"BSSY {barrier}, `(.L_x_{label})", f"@P0 BRA `(.L_x_{label + 1})", *inside),
        *(f".L_x_{label + 1}:", f"BSYNC {barrier}", f".L_x_{label}:", add(behind)),
    )


TWO = (*diamond("B0", 10, add(1), behind=2), *diamond("B0", 20, add(3), behind=4))


def test_threads_are_apart_until_they_meet() -> None:
    flow = code(*TWO)
    first, second = reconverging(flow)
    assert (named(flow, first.blocks), named(flow, second.blocks)) == ({"1"}, {"3"})
    assert named(flow, first.others) == {"1", "2"}, "others may have come to where they meet"


def test_threads_of_one_part_are_in_no_other() -> None:
    flow = code(*TWO)
    made = {
        frozenset(named(flow, {block})): named(flow, found)
        for block, found in Regions(flow).others.items()
        if named(flow, {block})
    }
    assert made == {frozenset("1"): {"1", "2"}, frozenset("3"): {"3", "4"}}


def test_of_two_barriers_each_ends_its_own_part() -> None:
    inner = diamond("B1", 30, add(5), behind=6)
    flow = code(*diamond("B0", 10, *inner, behind=2))
    outer, inside = reconverging(flow)
    assert named(flow, outer.blocks) == {"5", "6"}
    assert named(flow, inside.blocks) == {"5"}
    assert named(flow, inside.others) == {"5", "6"}


def test_threads_that_break_out_of_an_inner_part_meet_at_the_outer() -> None:
    inner = (
        *("BSSY B1, `(.L_x_30)", "@P1 BRA `(.L_x_10)", add(5)),
        *("BSYNC B1", ".L_x_30:", add(6)),
    )
    flow = code(*diamond("B0", 10, *inner, behind=2))
    assert named(flow, [*reconverging(flow)][1].blocks) == {"5"}, (
        "not behind where the outer ones meet"
    )


@pytest.mark.parametrize(
    ("lines", "apart"),
    [
        (("@P0 BRA `(.L_x_1)", add(1), "EXIT", ".L_x_1:", add(2)), {"1", "2"}),
        (("@P0 BRA `(.L_x_1)", add(1), ".L_x_1:", add(2)), set()),
        (("@P0 BRA `(.L_x_1)", "EXIT", ".L_x_1:", add(2)), set()),
        (("@P1 BRA `(.L_x_1)", add(1), "EXIT", ".L_x_1:", add(2)), set()),
    ],
    ids=["two ends", "they meet", "nothing to do", "uniform"],
)
def test_without_a_barrier_threads_stay_apart_while_both_have_work(
    lines: tuple[str, ...], apart: set[str]
) -> None:
    before = (
        "S2R R9, SR_TID.X",
        "ISETP.NE.AND P0, PT, R9, RZ, PT",
        "ISETP.NE.AND P1, PT, R8, RZ, PT",
    )
    flow = code(*before, *lines)
    assert named(flow, set(Regions(flow).divergent)) == apart
