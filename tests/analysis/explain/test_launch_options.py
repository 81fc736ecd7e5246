"""What a launch's options cost: threads of a block, blocks of a grid, warps and size of a tile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ikp.analysis.explain.verdict import Finding
from ikp.core.code_facts import FACTS, AccessFacts, CodeFacts, LoopFacts, RangeFacts
from tests.analysis.explain.launches import Scene, Warp
from tests.analysis.explain.test_counted import access

pytestmark = pytest.mark.any_pins

SMS = 132
QUIET = RangeFacts("compute", mix={"fma": (100, 0, 0)})
"""Work that takes a small part of any unit: a hundred instructions in a microsecond of a warp."""
INSIDE = LoopFacts("/src/k.py:9", 2, {"store.global.4": 1})
AROUND = LoopFacts("/src/k.py:7", 1, {"integer": 3})


def findings(
    facts: RangeFacts,
    *,
    warps: int = 1,
    held: int = 32,
    waves: int = 3,
    steps: int = 1,
    backend: str = "driver",
    registers: int = 32,
    loops: tuple[LoopFacts, ...] = (),
    shared: int = 0,
) -> dict[str, Finding]:
    """Return the findings on blocks of so many warps, that many of which an SM holds at once."""
    scene, name = Scene(), "iteration @k.py:7"
    for each in range(SMS * held * waves):
        start = 1000 * steps * (each // (SMS * held))
        ranges = [(name, start + 1000 * n, start + 1000 * n + 1000) for n in range(steps)]
        end = start + 1000 * steps
        scene.add(*(Warp(each, w, each % SMS, start, end, ranges) for w in range(warps)))
    code = CodeFacts(
        "sm_90a", registers, shared, ranges={name: facts, "kernel": RangeFacts("")}, loops=loops,
        kernel="kernel",
    )  # fmt: skip
    trace = scene.trace(device="NVIDIA H200", backend=backend)
    said = replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain()
    return {one.id: one for one in reversed(said.findings)}


def test_blocks_of_one_warp_fill_half_of_an_sm_whatever_ranges_say_of_waits() -> None:
    for activity in ("compute", "load", "wait:memory"):
        one = findings(replace(QUIET, activity=activity)).get("low-occupancy")
        assert one is not None and one.confidence == "likely" and "CTA slots" in one.title
        assert one.bound_share == pytest.approx(0.5, abs=0.02), "twice as many have room"
        assert "larger blocks" in one.suggestion
    busy = replace(QUIET, mix={"fma": (180, 0, 0)})  # 32 warps' are 72 % of the slots to issue
    assert "low-occupancy" not in findings(busy)
    assert "low-occupancy" not in findings(QUIET, warps=2), "the SM is full"


def test_shared_memory_of_a_block_leaves_few_warps_whatever_ranges_say_of_waits() -> None:
    accesses = replace(QUIET, mix={"fma": (100, 0, 0), "load.shared.4": (4, 0, 0)})
    for activity in ("compute", "load"):
        facts = replace(accesses, activity=activity)
        one = findings(facts, warps=4, held=4, shared=50 << 10).get("low-occupancy")
        assert one is not None and one.confidence == "likely" and "shared memory" in one.title
        assert one.bound_share >= 0.3, "half of what four times the warps win, at least"
    products = replace(accesses, mix={"fma": (100, 0, 0), "tensor.group.2": (1, 0, 0)})
    assert "low-occupancy" not in findings(products, warps=4, held=4, shared=50 << 10)


def test_blocks_that_make_pieces_one_after_another_can_be_more() -> None:
    def found(facts: RangeFacts = QUIET, *loops: LoopFacts, **more: Any) -> Finding | None:
        options = {"warps": 4, "held": 1, "waves": 1, "steps": 8} | more
        return findings(facts, loops=loops, **options).get("few-blocks")

    one = found(QUIET, AROUND, INSIDE)
    assert one is not None and "8 pieces" in one.title and "4 of 64 warps" in one.title
    assert one.confidence == "likely" and one.bound_share == pytest.approx(1 - 4 / 64, abs=0.02)
    assert found(QUIET, AROUND, INSIDE, held=8) is None, "half of the SM is used"
    assert found(QUIET, AROUND, INSIDE, steps=2) is None, "of few pieces there is none to give"
    assert found(QUIET, AROUND) is None, "no loop in another one makes results"
    sums = [access(f"{kind}.global.4").accesses[0] for kind in ("load", "store")]
    added = replace(QUIET, accesses=tuple(replace(each, keys=(7,), count=1) for each in sums))
    assert found(added, AROUND, INSIDE) is None, "each piece adds to what the one before stored"


def test_a_tile_of_one_warp_takes_its_registers() -> None:
    def found(**more: Any) -> Finding | None:
        options = {"backend": "triton", "held": 8, "registers": 255, "steps": 8} | more
        return findings(QUIET, **options).get("few-warps")

    one = found()
    assert one is not None and one.confidence == "likely" and "num_warps" in one.suggestion
    assert one.bound_share == pytest.approx(1 - 8 / 64, abs=0.02)
    assert found(backend="driver") is None, "threads of CUDA hold what they hold in any block"
    assert found(warps=4, held=2) is not None, "four warps share it, and still need all registers"
    assert found(warps=4, held=2, registers=200) is None, "fewer may take as long"
    assert found(warps=8, held=1) is None


def narrow(**more: Any) -> RangeFacts:
    one = access("load.global.2", **({"cost": 2.0, "least": 2.0} | more))
    return replace(one, accesses=(replace(one.accesses[0], count=4),), mix={"integer": (9, 0, 0)})


def test_tiles_of_a_number_for_each_lane_are_small() -> None:
    def found(facts: RangeFacts, **more: Any) -> Finding | None:
        options = {"backend": "triton", "warps": 2, "steps": 4} | more
        return findings(facts, **options).get("small-tiles")

    one = found(narrow())
    assert one is not None and "2 bytes of a tile" in one.title and "16 times" in one.title
    assert "128 bytes of a block" in one.title and "8 times as large" in one.suggestion
    many = findings(narrow(), backend="triton", warps=16, held=4, steps=4)["many-warps"]
    assert many.suggestion.startswith("fewer warps"), "the tile is as small, for more of them"
    assert found(narrow(), steps=1) is None, "four times are no loop to shorten"
    assert found(narrow(cost=8.0)) is None, "lanes lie apart: a layout, and not a tile"
    assert found(narrow(addresses=1, cost=1.0)) is None, "one number for all lanes"
    assert found(narrow(), backend="driver") is None, "no launch's option"


SPILLS = {"fma": (100, 0, 0), "load.local.4": (10, 0, 0), "store.local.4": (10, 0, 0)}
OF_PRODUCTS = LoopFacts("/src/k.py:7", 1, {"tensor.group.2": 4, "store.local.4": 10})


def spills(registers: int, *loops: LoopFacts, warps: int = 8, results: float = 16) -> Finding:
    """Return the finding on registers that spill; with so many stores of 16 bytes by a thread."""
    store = AccessFacts("store.global.16", results, "/src/k.py:9", 16.0, 16.0, 32, "lwb")
    facts = RangeFacts("compute", mix=SPILLS, accesses=(store,))
    return findings(facts, held=1, warps=warps, registers=registers, loops=loops)["local-memory"]


@pytest.mark.parametrize(
    ("registers", "warps", "why", "change"),
    [
        (64, 8, "as many as 4 blocks of 256 threads", "lift the limit"),
        (128, 16, "blocks of 512 threads leave each 128", "smaller blocks"),
        (255, 8, "", "more warps for the tile"),
        (32, 2, "registers spill to local memory: ", "more warps for the tile"),
    ],
)
def test_the_change_for_spills_follows_from_what_limits_registers(
    registers: int, warps: int, why: str, change: str
) -> None:
    one = spills(registers, warps=warps)
    assert why in one.title and one.suggestion.startswith(change)


def test_sums_that_fit_spill_by_the_form_of_their_loop() -> None:
    assert "results take half" in spills(255, OF_PRODUCTS).title
    assert spills(255, OF_PRODUCTS).suggestion.startswith("a loop that keeps one copy")
    softmax = replace(OF_PRODUCTS, mix={**OF_PRODUCTS.mix, "xu": 64})
    loads = replace(OF_PRODUCTS, mix={"tensor.group.2": 4, "load.local.4": 10})
    for other in (spills(255, OF_PRODUCTS, results=32), spills(255, softmax), spills(255, loads)):
        assert other.suggestion.startswith("more warps"), "results, or others, need registers"
