"""What a verdict says of a launch of which some blocks left nothing at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ikp.core.code_facts import FACTS, CodeFacts, RangeFacts
from ikp.trace import Trace
from tests.analysis.explain.launches import Scene, Warp

pytestmark = pytest.mark.any_pins
RANGES = {"dot": RangeFacts("mma", 1024, 0, 0, 40), "load": RangeFacts("load", 0, 1024)}


def launches(blocks: int, of: int, name: str, launches: int = 1) -> Trace:
    """Return launches of 132 SMs' first ``blocks`` blocks, which spend half their time in one."""
    scene = Scene()
    for number in range(launches):
        begin = 40_000 * number
        for block in range(blocks):
            ranges = [(name, begin, begin + 5_000)]
            warps = [
                Warp(block, w, block, begin, begin + 10_000, ranges, launch=number)
                for w in range(4)
            ]
            scene.add(*warps)
    made = scene.trace(device="NVIDIA H200", grid=(of, 1, 1))
    return replace(
        made, provenance={f"{FACTS}kernel": CodeFacts("sm_90a", 128, ranges=RANGES).text()}
    )


def test_tensor_cores_are_not_called_idle_where_neighbours_may_have_used_them() -> None:
    some, every = launches(12, 264, "dot").explain(), launches(132, 132, "dot").explain()
    assert some.hardware is not None and every.hardware is not None
    assert every.hardware.tensor_busy_share == pytest.approx(0.5)
    assert some.hardware.tensor_busy_share is None and some.hardware.copy_overlap_share is None
    assert "idle-tensor-cores" not in {one.id for one in some.every}


def test_warps_at_once_are_counted_or_not_told() -> None:
    some, every = launches(132, 1320, "load").explain(), launches(132, 132, "load").explain()
    assert some.hardware is not None and every.hardware is not None
    assert every.hardware.warps_at_once == 4
    assert some.hardware.warps_at_once is None and some.hardware.limited_by is None
    for one in some.every:
        if one.id == "low-occupancy":
            assert "holds" not in one.title and "perhaps fewer" in one.rationale


def test_time_between_launches_may_be_that_of_blocks_that_left_nothing() -> None:
    sure = [
        (one.confidence, "may fill the gaps" in one.rationale)
        for blocks in (12, 132)
        for one in launches(blocks, 132, "load", 6).explain().every
        if one.id == "launch-gaps"
    ]
    assert sure == [("possible", True), ("possible", False)]
    unknown = launches(12, 132, "load").explain().unknown
    assert any("may have taken longer" in one.rationale for one in unknown)


@pytest.mark.parametrize("graph", [False, True])
def test_launches_of_a_graph_are_not_to_be_put_into_one(graph: bool) -> None:
    made = launches(132, 132, "load", 6)
    if graph:
        named = [replace(one, replay="CUDA graph 1, replay 0, node 0") for one in made.launches]
        made = replace(made, launches=tuple(named))
    (found,) = [one for one in made.explain().every if one.id == "launch-gaps"]
    assert ("as a CUDA graph" in found.suggestion) != graph
