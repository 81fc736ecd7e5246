"""Blocks whose rows split warps, or of which one alone fits on an SM."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ikp.analysis.explain.verdict import Finding
from ikp.core.code_facts import FACTS, CodeFacts, RangeFacts
from tests.analysis.explain.launches import Scene, Warp
from tests.analysis.explain.test_counted import access

pytestmark = pytest.mark.any_pins


def findings(
    facts: RangeFacts,
    block: tuple[int, int, int],
    *,
    registers: int = 32,
    held: int = 1,
    backend: str = "driver",
    shared: int = 0,
    grid: int = 0,
) -> tuple[Finding, ...]:
    """Return the findings on blocks of a size, so many of which an SM holds at once."""
    warps = -(-block[0] * block[1] * block[2] // 32)
    scene = Scene()
    for each in range(grid or 132 * held * 3):
        start = 10_000 * (each // (132 * held))
        ranges = [("step", start, start + 10_000)]
        sm = each % 132
        scene.add(*(Warp(each, w, sm, start, start + 10_000, ranges) for w in range(warps)))
    code = CodeFacts("sm_90a", registers, shared, ranges={"step": facts}, kernel="kernel")
    trace = scene.trace(device="NVIDIA H200", backend=backend, block=block)
    return replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain().every


def found(facts: RangeFacts, block: tuple[int, int, int], **more: Any) -> Finding | None:
    some = (one for one in findings(facts, block, **more) if one.id == "block-shape")
    return next(some, None)


def loads(cost: float) -> RangeFacts:
    """Return the facts of a few loads that cost so many sectors a request, where four would do."""
    some = access("load.global.4", cost=cost, least=4.0)
    few = replace(some.accesses[0], count=10)
    return replace(some, mix={"load.global.4": (10, 0, 0), "integer": (50, 0, 0)}, accesses=(few,))


def test_rows_of_a_block_that_split_its_warps() -> None:
    split = loads(9.0)
    one = found(split, (10, 10, 5))
    assert one is not None and one.confidence == "likely" and "10 x 10 x 5" in one.title
    assert one.bound_share == pytest.approx(5 / 9, abs=0.01)
    assert found(split, (16, 16, 2)) is None, "half a warp is a row"
    assert found(split, (500, 1, 1)) is None, "a block of one row"
    assert found(loads(4.0), (10, 10, 5)) is None, "no more sectors than in a row"
    assert found(replace(split, activity="compute"), (10, 10, 5)) is None, "nobody waits for them"
    assert found(split, (10, 10, 5), backend="triton") is None, "its blocks have one side"


def test_one_block_that_fits_with_registers_to_spare() -> None:
    """48 registers: 32 warps in a block of 1,024 threads, and 40 in blocks of 256."""
    facts = loads(4.0)
    one = found(facts, (1024, 1, 1), registers=48)
    assert one is not None and "32 warps, and 40 in blocks of 256" in one.title
    assert one.bound_share == pytest.approx(0.2)
    assert found(facts, (1024, 1, 1), registers=64) is None, "no smaller block fits more warps"
    assert found(facts, (512, 1, 1), registers=48, held=2) is None, "two blocks: one may wait"
    assert found(replace(facts, activity="compute"), (1024, 1, 1), registers=48) is None


def test_blocks_without_shared_memory_do_not_lack_any() -> None:
    """320 blocks on 132 SMs: most SMs hold two at once, and the grid has no more for them."""
    facts = loads(4.0)
    few = findings(facts, (128, 1, 1), held=2, grid=320)
    assert not any("want of shared memory" in one.title for one in few)
    lacking = findings(facts, (128, 1, 1), held=2, shared=100 << 10)
    assert any("want of shared memory" in one.title for one in lacking)


def test_one_block_of_an_sm_by_shared_memory_hides_nothing() -> None:
    """A launch gives shared memory: with one block, barriers and switches leave the SM idle."""

    def lone(activity: str, held: int, shared: int) -> Finding | None:
        facts = replace(loads(4.0), activity=activity)
        some = findings(facts, (512, 1, 1), held=held, shared=shared)
        return next((one for one in some if one.id == "low-occupancy"), None)

    one = lone("wait:barrier", 1, 128 << 10)
    assert one is not None and one.confidence == "likely" and "at barriers" in one.title
    assert one.bound_share == pytest.approx(2 / 3), "four blocks by registers: one wave for three"
    assert lone("wait:barrier", 2, 100 << 10) is None, "the other block works meanwhile"
    busy = replace(loads(4.0), activity="compute", mix={"integer": (2000, 0, 0)})
    some = findings(busy, (512, 1, 1), held=1, shared=128 << 10)
    assert "low-occupancy" not in {one.id for one in some}, "nothing waits"
