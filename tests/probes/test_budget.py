"""What recording is expected to cost, and what is left out where that is too much."""

from __future__ import annotations

import pytest

from ikp.probes.patch import patch
from ikp.probes.points.budget import RECORD_CYCLES, Budget, Pace
from ikp.probes.points.probe_points import Level, ProbeRegions
from ikp.sass.control_flow.flow import Flow
from ikp.unedited.plan import plan
from tests.sass.compiled import code, machine

pytestmark = [pytest.mark.compiled, pytest.mark.any_pins]


def places(name: str, *lines: str) -> ProbeRegions:
    chosen = plan(lines=lines, level="machine").lines
    return ProbeRegions(machine(name).flow, code(name).ptx, chosen)


def budget(name: str, most: float, warps: int = 16, lines: tuple[str, ...] = ()) -> Budget:
    found = places(name, *lines)
    return Budget(found, Pace.of(found, warps), most)


def test_a_pipelined_product_takes_what_tensor_cores_take() -> None:
    """Two blocks of 8 warps on an SM, 128 x 128 x 64 each: 2,048 products in a cycle."""
    found = places("matmul")
    (loop,) = found.flow.bodies
    assert Pace.of(found, 16).iteration_cycles(loop) == 2 * 128 * 128 * 64 / 2048
    assert Pace.of(found, 8).iteration_cycles(loop) == pytest.approx(512, abs=60)


def test_a_load_that_waits_for_a_load_takes_two_of_them() -> None:
    found = places("gathered")
    for loop in found.flow.bodies:
        assert 2 * 500 < Pace.of(found, 4).iteration_cycles(loop) < 2 * 500 + 100


def test_nothing_is_left_out_where_there_is_room() -> None:
    wanted = places("matmul").at(Level.LOOPS)
    kept, told = budget("matmul", 1.05).keep(wanted)
    assert kept == wanted
    assert told == (
        f"a block with records is expected to take {1 + RECORD_CYCLES / 1024:.3f} times as long, "
        "entry and exit aside"
    )


def test_the_finest_is_left_out_first_and_told() -> None:
    chosen = budget("matmul", 1.05)
    wanted = chosen.places.at(Level.OPS)
    kept, told = chosen.keep(wanted)
    assert chosen.expected(kept) <= 1.05 < chosen.expected(wanted)
    gone = [place for place in wanted if place not in kept]
    in_loop = [place for place in kept if place.end and chosen._loop(place) is not None]
    assert min(p.level for p in gone) >= max(p.level for p in in_loop)
    assert "(1.188 with all marks)" in told and all(place.name in told for place in gone)
    kinds = [place.kind for place in kept]
    assert "kernel" in kinds and "loop" in kinds and kinds.count("store") == 1  # outside loops


def test_of_one_level_the_shortest_is_left_out_first() -> None:
    wanted = (chosen := budget("matmul", 1.05)).places.at(Level.OPS)
    kept, _ = budget("matmul", chosen.expected(wanted) - 1e-6).keep(wanted)
    (gone,) = (place for place in wanted if place not in kept)
    (loop,) = chosen.places.flow.bodies
    regions = chosen.places.regions
    sizes = {
        place: len(regions.inside(place.start, place.ends, place.within))
        for place in wanted
        if place.ends and chosen._loop(place) == loop and place.level == gone.level
    }
    assert sizes[gone] == min(sizes.values()) < max(sizes.values())


def test_chosen_lines_outlast_the_rest() -> None:
    chosen = budget("matmul", 1.03, lines=("kernels.py:19",))
    kept, _ = chosen.keep(chosen.places.at(Level.OPS))
    in_loop = [place.kind for place in kept if place.end and chosen._loop(place) is not None]
    assert in_loop == ["lines"]


def test_code_without_a_loop_is_one_turn() -> None:
    from tests.sass.texts import sass

    found = ProbeRegions(
        Flow(sass("LDG.E R4, desc[UR4][R2.64]", "STG.E desc[UR4][R2.64], R4", "EXIT"))
    )
    chosen = Budget(found, Pace.of(found, 4), 1.05)
    kept, _ = chosen.keep(found.all)
    assert [place.kind for place in kept] == ["kernel"]


def test_a_patch_is_within_its_budget_and_says_so() -> None:
    made = code("attention").compiled
    whole, tight = (
        patch(made.asm["cubin"], made.name, detail="ops", ptx=made.asm["ptx"], max_overhead=most)
        for most in (9.0, 1.02)
    )
    assert {*tight.names} < {*whole.names}
    assert (
        "Left out to stay within 1.02: " in tight.messages[0]
        and "Left out" not in whole.messages[0]
    )
