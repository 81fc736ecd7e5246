"""Counted requests of sampled warps say how often loops go round whose end the data decide."""

from __future__ import annotations

import json

import pytest
import triton
import triton.language as tl

from ikp.core.code_facts import RECORDED, SCATTERED, CodeFacts
from ikp.core.run_figures import AccessFigures, AddressFigures
from ikp.inspection._executed import Executed, figures_by_place
from ikp.inspection.summary_of_code import code_facts
from ikp.plugins import Image
from ikp.probes.access_probes import patch_accesses
from ikp.probes.kept_code import MACHINE_MARK
from ikp.probes.patch import patch
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.lane_state import LaunchValues, Shape
from ikp.sass.dataflow.lane_values import LaneValues
from tests.backends.sass import compile_kernel
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins

WARPS = 8


def access(text: str, times: float, *, dropped: int = 0, **more: object) -> AccessFigures:
    """Return the figures of an access that each sampled warp executed so often, all lanes."""
    lanes = round(times * WARPS * 32)
    known = {"active": 32.0, "cost": 20.0, "least": 4.0, "same_address": 1.0, "reuse": 4.0, **more}
    return AccessFigures(
        *(text, "k.py:1", "", "global", "load", 4, lanes, dropped, (lanes - dropped) // 32),
        **known,  # type: ignore[arg-type]
    )


def figures(*accesses: AccessFigures) -> AddressFigures:
    return AddressFigures(4, 64, WARPS, "equal", (), accesses)


OUTER, INNER = "LDG.E R6, desc[UR4][R2.64]", "LDG.E R7, desc[UR4][R4.64]"
RARE, LAST = "LDG.E R8, desc[UR4][R4.64+0x8]", "LDG.E R9, desc[UR4][R2.64+0x8]"
NEST = (
    *("S2R R0, SR_TID.X", ".L_x_0:", OUTER, ".L_x_1:", INNER, "@P1 BRA `(.L_x_2)"),
    *(RARE, ".L_x_2:", "ISETP.NE.AND P0, PT, R7, R6, PT", "@P0 BRA `(.L_x_1)"),
    *("ISETP.NE.AND P2, PT, R6, RZ, PT", "@P2 BRA `(.L_x_0)", LAST, "EXIT"),
)


def executed(*accesses: AccessFigures) -> tuple[Flow, Executed]:
    flow = Flow(sass(*NEST))
    values = LaneValues(flow, LaunchValues(Shape((128, 1, 1), (8, 1, 1), 4, 8), {}, 0x210))
    made = figures(*accesses)
    return flow, Executed(flow, values, figures_by_place(flow, made, ()), made.warps)


def place(flow: Flow, text: str) -> int:
    return next(at for at, each in enumerate(flow.code.instructions) if each.text == text)


def test_trips_of_a_loop_are_those_of_its_accesses_for_each_turn_of_the_one_around() -> None:
    flow, found = executed(access(OUTER, 3), access(INNER, 12), access(RARE, 1.5))
    outer, inner = flow.loops_around(place(flow, INNER))
    assert (found.trips(outer), found.trips(inner)) == (3.0, 4.0)
    assert found.part(place(flow, RARE), inner) == pytest.approx(1.5 / 12)
    assert found.part(inner.header, inner) == 1.0
    assert found.part(place(flow, "@P0 BRA `(.L_x_1)"), inner) == 1.0, "each turn comes there"


def test_a_loop_that_holds_others_alone_is_gone_round_once_at_least() -> None:
    flow, found = executed(access(INNER, 12))
    outer, inner = flow.loops_around(place(flow, INNER))
    assert (found.trips(outer), found.trips(inner)) == (1.0, 12.0)
    assert not found.is_counted(outer) and found.is_counted(inner)


def test_nothing_is_known_without_figures_or_where_some_of_a_text_have_none() -> None:
    flow, found = executed(access(LAST, 1))
    assert [found.trips(each) for each in flow.loops_around(place(flow, INNER))] == [None, None]
    twice = Flow(sass(OUTER, OUTER, INNER, "EXIT"))
    made = figures(access(OUTER, 3), access(INNER, 12))
    assert {*figures_by_place(twice, made, ())} == {2}
    assert {*figures_by_place(twice, made, (0,))} == {1, 2}, "records' own are none of the kernel"


def test_requests_without_room_count_as_the_others() -> None:
    assert access(INNER, 10, dropped=5 * WARPS * 32).executions == pytest.approx(10 * WARPS)
    assert access(INNER, 0).executions == 0


@triton.jit
def gathers(x, index, count, out):
    """Sum elements that data choose, as many as data say."""
    at = tl.arange(0, 128)
    acc = tl.zeros((128,), tl.float32)
    for i in range(tl.load(count + tl.program_id(0))):
        acc += tl.load(x + tl.load(index + i * 128 + at))
    tl.store(out + tl.program_id(0) * 128 + at, acc)


def facts(*, trips: float | None) -> CodeFacts:
    types = {"x": "*fp32", "index": "*i32", "count": "*i32", "out": "*fp32"}
    made = compile_kernel(gathers, types, None, {}, 90, divisible=True)
    cubin, ptx = made.compiled.asm["cubin"], made.compiled.asm["ptx"]
    patched = patch(cubin, "gathers", ptx=ptx, detail="kernel", untested=True)
    said = json.dumps({"names": patched.names, "ours": patched.ours})
    image = Image(patched.cubin, f"{ptx}\n{MACHINE_MARK} {said}\n", "")
    grid, block = (64, 1, 1), (128, 1, 1)
    sites = patch_accesses(cubin, "gathers", grid, block).sites
    looped = {site.text for site in sites if site.access.kind == "load"}
    recorded = figures(*(access(site.text, trips or 0) for site in sites if site.text in looped))
    shape = Shape(block, grid, 4, 32, 15, 16)
    (found,) = code_facts(image, shape, None if trips is None else recorded).values()
    return found


@pytest.mark.compiled
def test_a_loop_that_data_end_is_counted_with_figures() -> None:
    """Its instructions are executed so often, and its gathers cost what was recorded."""
    (plain,), (counted,) = (facts(trips=each).ranges.values() for each in (None, 12.0))
    unit = "load.global.4"
    assert plain.mix[unit][2] and not any(looped for _, _, looped in counted.mix.values())
    once, maybe, _ = counted.mix[unit]
    assert once + maybe >= 11.0 * plain.mix[unit][2]
    gather = next(one for one in counted.accesses if RECORDED in one.depends)
    assert gather.together == 20.0 / 4, "a block asks for each sector four times"
    assert SCATTERED in gather.depends, "its lanes are at no equal distances"
    assert gather.cost == 20.0 and gather.least == 4.0 and gather.count >= 12.0
    assert all(RECORDED not in one.depends for one in plain.accesses)


@pytest.mark.compiled
def test_a_loop_that_no_sampled_warp_came_to_is_counted_as_none() -> None:
    (found,) = facts(trips=0.0).ranges.values()
    assert not any(looped for _, _, looped in found.mix.values())
