"""Findings on accesses whose addresses only a further run has recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ikp.analysis.explain.verdict import Finding
from ikp.core.code_facts import FACTS, CodeFacts
from ikp.core.run_figures import ADDRESSES, AccessFigures, AddressFigures
from tests.analysis.explain.launches import Scene, Warp
from tests.analysis.explain.test_counted import BLOCKS, STEPS, TOOK, WARPS, access

pytestmark = pytest.mark.any_pins
LOOKED_UP: dict[str, Any] = {"cost": None, "least": None, "addresses": None, "depends": "ld"}


def figures(unit: str, line: str = "/elsewhere/k.py:7", **more: float) -> AccessFigures:
    kind, space, width = unit.split(".")
    known: dict[str, Any] = {"active": 32.0, "cost": 4.0, "least": 4.0, "same_address": 1.0}
    return AccessFigures(
        *("X", line, "step", space, kind, int(width), 640, 0, 20), **(known | more)
    )


def found(unit: str, name: str, *recorded: AccessFigures, **facts: Any) -> Finding | None:
    scene = Scene()
    ranges = [("step", TOOK * i, TOOK * (i + 1)) for i in range(STEPS)]
    for block in range(BLOCKS):
        scene.add(*(Warp(block, w, block, 0, TOOK * STEPS, ranges) for w in range(WARPS)))
    code = CodeFacts("sm_90a", 64, 0, ranges={"step": access(unit, **(LOOKED_UP | facts))})
    said = {f"{FACTS}kernel": code.text()}
    said[f"{ADDRESSES}kernel"] = AddressFigures(4, 132, 32, "equal", (), recorded).text()
    trace = replace(scene.trace(device="NVIDIA H200"), provenance=said)
    return next((one for one in trace.explain().every if one.id == name), None)


def test_a_look_ups_sectors_are_those_that_were_recorded() -> None:
    unit = "load.global.4"
    one = found(unit, "uncoalesced", figures(unit, cost=30.0), figures(unit, cost=34.0))
    assert one is not None and "in 32 sectors a request" in one.title
    assert "as recorded (--probe addresses)" in one.rationale
    assert found(unit, "uncoalesced", figures(unit)) is None
    assert found(unit, "uncoalesced", figures(unit, "k.py:8", cost=32.0)) is None
    assert found(unit, "uncoalesced", figures("load.global.8", cost=32.0)) is None


def test_lanes_without_an_element_are_recorded_too() -> None:
    unit = "load.global.4"
    one = found(unit, "idle-threads", figures(unit, active=7.0))
    assert one is not None and "of a warp's 32 lanes 7 load" in one.title
    assert one.confidence == "likely" and one.bound_share <= 1 - 7 / 32
    assert found(unit, "idle-threads", figures(unit)) is None
    assert found(unit, "idle-threads", figures(unit, active=7.0), cost=4.0, least=4.0) is None


def test_what_the_machine_code_says_stays() -> None:
    unit = "load.global.4"
    known = {"cost": 4.0, "least": 4.0}
    assert found(unit, "uncoalesced", figures(unit, cost=32.0), **known) is None
    one = found(unit, "uncoalesced", figures(unit), cost=32.0, least=4.0)
    assert one is not None and "from the machine code" in one.rationale


def test_bank_conflicts_of_data_are_recorded_too() -> None:
    unit = "load.shared.4"
    assert found(unit, "bank-conflicts", figures(unit, cost=32.0, least=1.0)) is not None
    assert found(unit, "bank-conflicts", figures(unit, cost=1.0, least=1.0)) is None
