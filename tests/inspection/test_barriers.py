"""Barriers that order nothing, and those that some thread needs."""

from __future__ import annotations

import pytest

from ikp.inspection._barriers import has_own_shared, needless_barriers
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.lane_state import LaunchValues, Shape
from ikp.sass.dataflow.lane_values import LaneValues
from tests.sass.texts import sass

pytestmark = pytest.mark.any_pins

BARRIER = "BAR.SYNC.DEFER_BLOCKING 0x0"
STORE, LOAD = "STS [R1], R2", "LDS R3, [R4]"


def needless(*lines: str) -> list[int]:
    code = sass(*lines, "EXIT")
    every = (at for at, one in enumerate(code.instructions) if one.op == "BAR")
    found = needless_barriers(Flow(code))
    return [number for number, at in enumerate(every) if at in found]


@pytest.mark.parametrize(
    ("before", "behind", "expected"),
    [
        (STORE, LOAD, []),
        (LOAD, STORE, []),
        (STORE, STORE, []),
        (LOAD, LOAD, [0]),
        (STORE, "FADD R1, R2, R3", [0]),
        ("STG.E desc[UR4][R2.64], R9", "LDG.E R8, desc[UR4][R2.64]", []),
        ("STG.E desc[UR4][R2.64], R9", "LDG.E.CONSTANT R8, desc[UR4][R6.64]", [0]),
        (STORE, "LDG.E R8, desc[UR4][R2.64]", [0]),
        ("ATOMS.ADD R1, [R2], R3", LOAD, []),
        ("LD.E R1, [R2.64]", "ST.E [R2.64], R1", []),
        ("MEMBAR.SC.GPU", LOAD, []),
    ],
)
def test_a_barrier_orders_a_store_and_what_meets_it(
    before: str, behind: str, expected: list[int]
) -> None:
    assert needless(before, BARRIER, behind) == expected


def own_shared(*place: str, load: str = "LDS R3, [R5]", warps: int = 4) -> bool:
    lines = ("S2R R0, SR_TID.X", "IMAD.SHL.U32 R4, R0, 0x4, RZ", *place, "STS [R4], R2", load)
    shape = Shape((32 * warps, 1, 1), (8, 1, 1), warps, 2)
    return has_own_shared(LaneValues(Flow(sass(*lines, "EXIT")), LaunchValues(shape)))


def test_warps_with_shared_memory_of_their_own() -> None:
    """What another lane of the warp stored is at another word of the same 32."""
    mirrored = "LOP3.LUT R5, R4, 0x7c, RZ, 0x3c, !PT"
    assert own_shared(mirrored)
    assert not own_shared("IADD3 R5, R4, 0x80, RZ"), "the next warp's"
    assert not own_shared("MOV R5, RZ"), "one word for all"
    assert not own_shared("IADD3 R5, R4, R9, RZ"), "not known where"
    assert not own_shared(mirrored, load="LDSM.16.M88.4 R8, [R5]"), "eight lanes' rows"
    assert not own_shared(mirrored, warps=1)
    code = sass(STORE, BARRIER, LOAD, "EXIT")
    assert needless_barriers(Flow(code), own_shared=True)
    stored = sass("STG.E desc[UR4][R2.64], R9", BARRIER, "LDG.E R8, desc[UR4][R2.64]", "EXIT")
    assert not needless_barriers(Flow(stored), own_shared=True), "global memory is common"


def test_of_two_barriers_one_after_the_other_one_is_left() -> None:
    assert len(needless(STORE, BARRIER, BARRIER, LOAD)) == 1


def test_barriers_between_loads_alone_go_and_the_first_and_the_last_stay() -> None:
    loop = (".L_x_0:", STORE, BARRIER, LOAD, BARRIER, LOAD, BARRIER, "@P0 BRA `(.L_x_0)")
    assert needless(*loop) == [1]


@pytest.mark.parametrize("ours", [(), (0,), (0, 2)])
def test_a_loop_keeps_the_barrier_before_its_next_stores(ours: tuple[int, ...]) -> None:
    """Also where its accesses count as inserted: other blocks run a copy of the plain kernel."""
    loop = (".L_x_0:", STORE, BARRIER, LOAD, BARRIER, "@P0 BRA `(.L_x_0)", "EXIT")
    assert not needless_barriers(Flow(sass(*loop)), ours)
    twice = (".L_x_0:", STORE, BARRIER, LOAD, BARRIER, BARRIER, "@P0 BRA `(.L_x_0)", "EXIT")
    assert len(needless_barriers(Flow(sass(*twice)), ours)) == 1


def test_a_store_on_one_of_two_ways_counts() -> None:
    way = ("@P0 BRA `(.L_x_1)", STORE, ".L_x_1:", BARRIER, LOAD)
    assert needless(*way) == []


@pytest.mark.parametrize(
    "other", ["LDGSTS.E [R1], desc[UR4][R2.64]", "SYNCS.ARRIVE.TRANS64 RZ, [UR4], R1"]
)
def test_nothing_is_told_where_accesses_end_later(other: str) -> None:
    assert needless(LOAD, BARRIER, LOAD, other) == []


def test_a_barrier_of_some_warps_is_none_that_others_can_rely_on() -> None:
    some = "BAR.SYNC.DEFER_BLOCKING 0x1, 0x40"
    assert needless(STORE, some, BARRIER, LOAD) == []
