"""Findings on accesses whose addresses only a further run has recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ikp.analysis.explain.verdict import Finding
from ikp.core.code_facts import RECORDED, SCATTERED
from tests.analysis.explain import test_counted
from tests.analysis.explain.test_counted import access

pytestmark = pytest.mark.any_pins
LOOKED_UP: dict[str, Any] = {"addresses": None, "depends": "ld" + RECORDED}


def found(unit: str, name: str, **recorded: Any) -> Finding | None:
    return test_counted.found(access(unit, **(LOOKED_UP | recorded)), name)


def test_a_look_ups_sectors_are_those_that_were_recorded() -> None:
    one = found("load.global.4", "uncoalesced", cost=32.0, least=4.0)
    assert one is not None and "in 32 sectors a request" in one.title
    assert "as recorded (--probe addresses)" in one.rationale
    assert found("load.global.4", "uncoalesced", cost=4.0, least=4.0) is None


def test_where_data_place_each_lane_no_layout_is_accused() -> None:
    scattered = {"depends": "ld" + RECORDED + SCATTERED, "least": 4.0}
    placed = found("load.global.4", "uncoalesced", cost=32.0, least=4.0)
    one = found("load.global.4", "uncoalesced", cost=32.0, **scattered)
    assert placed is not None and placed.confidence == "likely"
    assert one is not None and one.confidence == "possible"


@pytest.mark.parametrize(("cost", "is_told"), [(3.5, False), (16.0, True)])
def test_lanes_that_meet_in_a_bank_by_chance_are_no_conflict(cost: float, is_told: bool) -> None:
    scattered = {"depends": "ld" + RECORDED + SCATTERED, "least": 1.0}
    assert (found("load.shared.4", "bank-conflicts", cost=cost, **scattered) is not None) == is_told


def test_memorys_roof_is_without_gathers_as_other_blocks_may_be_at_the_same_addresses() -> None:

    def roofs(depends: str) -> set[str]:
        loads = access("load.global.4", depends=depends)
        few = replace(loads, accesses=(replace(loads.accesses[0], count=4.0),))
        return {one.name for one in test_counted.verdict(few).roofs}

    assert "DRAM" in roofs("lwbi") and "DRAM" not in roofs("lwbid" + RECORDED)


def test_lanes_without_an_element_are_recorded_too() -> None:
    one = found("load.global.4", "idle-threads", lanes=7.0)
    assert one is not None and "of a warp's 32 lanes 7 load" in one.title
    assert one.confidence == "likely" and one.bound_share <= 1 - 7 / 32
    assert found("load.global.4", "idle-threads") is None


def test_bank_conflicts_of_data_are_recorded_too() -> None:
    assert found("load.shared.4", "bank-conflicts", cost=32.0, least=1.0) is not None
    assert found("load.shared.4", "bank-conflicts", cost=1.0, least=1.0) is None
