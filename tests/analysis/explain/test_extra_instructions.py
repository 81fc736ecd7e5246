"""Findings on extra instructions and serial code: each by its counts, and not where roofs hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ikp.analysis.explain.findings.kinds_of_instructions import KINDS
from ikp.analysis.explain.verdict import Finding
from ikp.core.code_facts import FACTS, CodeFacts, RangeFacts
from ikp.core.excess_facts import ExtraWork
from ikp.core.run_figures import CARVE_OUT
from tests.analysis.explain.launches import Scene, Warp
from tests.analysis.explain.test_counted import STEPS, TOOK, access, found, verdict

pytestmark = pytest.mark.any_pins

BUSY = RangeFacts(
    "compute",
    mix={"fma": (60, 0, 0), "integer": (40, 0, 0)},
    serves={"arithmetic": 60, "addresses": 40},
)
CYCLES = 2 * TOOK


def extra(kind: str, count: float, parts: float = 1.0, facts: RangeFacts = BUSY) -> RangeFacts:
    return replace(facts, extra={kind: ExtraWork(count, parts, "/src/k.cu:7")})


def test_a_scalar_that_each_lane_makes_for_a_row_is_no_cause() -> None:
    """Though code with little else takes all of the time, as it waits."""
    rows, rest = extra("alike", 15), replace(BUSY, serves={"arithmetic": 1e5})
    assert found(rows, "alike-lanes") is not None
    assert found(rows, "alike-lanes", kernel=rest) is None


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_found_by_its_count(kind: str) -> None:
    facts = replace(BUSY, mix={**BUSY.mix, "tensor.2": (100, 0, 0)}) if kind == "ones" else BUSY
    one = found(extra(kind, 50, parts=5, facts=facts), KINDS[kind].name)
    assert one is not None and one.confidence == "likely" and one.where.lines == ("/src/k.cu:7",)
    assert one.bound_share <= 0.51 * KINDS[kind].times, "half of the instructions"
    assert found(BUSY, KINDS[kind].name) is None
    most = KINDS[kind].most
    assert (found(extra(kind, 50, facts=facts), KINDS[kind].name) is None) == (most < 50)
    assert found(extra(kind, 1, facts=facts), KINDS[kind].name) is None, "one in a hundred"


def test_numbers_of_a_few_bits_take_some_instructions_each() -> None:
    """A shift, a mask, a conversion and an offset: no other code takes fewer for each."""
    assert found(extra("unpacked", 50, parts=12.5), "unpacked-numbers") is None
    assert found(extra("unpacked", 50, parts=8), "unpacked-numbers") is not None


def test_memory_at_its_rate_leaves_nothing_for_fewer_instructions() -> None:
    moved = access("load.global.16", cost=16.0, least=16.0)
    (one,) = moved.accesses
    full = replace(moved, accesses=(replace(one, count=4.1),))
    assert found(extra("unfused", 75, facts=full), "unfused-sums") is None


def test_fewer_instructions_leave_room_in_the_unit_that_makes_them() -> None:
    """At 80 % of the integer units' rate, 42 % fewer instructions win as much of the time."""
    full = RangeFacts("compute", mix={"integer": (200, 0, 0)}, serves={"arithmetic": 200})
    one = found(extra("random", 120, parts=4, facts=full), "unused-random-numbers")
    assert one is not None and one.bound_share == pytest.approx(0.42, abs=0.01)


def sums(cycles: float, additions: float) -> Finding | None:
    return found(extra("chain", cycles, additions), "serial-sums")


def test_sums_that_take_the_time_of_their_range() -> None:
    one = sums(0.9 * CYCLES, 100)
    assert one is not None and "90 % of the time" in one.title
    assert one.bound_share == pytest.approx(0.9 * 0.75, abs=0.01)
    assert sums(0.3 * CYCLES, 100) is None, "something else takes the time"
    assert sums(0.9 * CYCLES, 2) is None, "too few to make beside each other"


def search(steps: float) -> Finding | None:
    return found(extra("search", steps / STEPS), "linear-search")


def test_searches_of_many_steps() -> None:
    one = search(40)
    assert one is not None and "40 steps" in one.title
    assert search(4) is None


def test_sums_in_memory() -> None:
    passes = {"load.global.8": (1, 0, 0), "store.global.8": (1, 0, 0)}
    facts = replace(BUSY, mix={**BUSY.mix, **passes})
    one = found(extra("in memory", 2, 1, facts), "repeated-stores")
    assert one is not None and "keeps a sum in memory" in one.title
    assert one.bound_share < 0.2, "a hundred other instructions take their part of the time"
    assert found(extra("in memory", 2 / STEPS, 1 / STEPS, facts), "repeated-stores") is None, "once"


def test_values_that_are_written_back() -> None:
    both = access("store.global.4")
    lines = tuple(replace(each, line="/src/k.cu:7") for each in both.accesses)
    both = replace(both, accesses=lines)
    one = found(extra("written back", 2, 1, both), "unchanged-values")
    assert one is not None and "100 % of all bytes" in one.title
    assert found(both, "unchanged-values") is None


def shared(size: int, **mix: Any) -> Finding | None:
    facts = RangeFacts("load", mix={"load.global.4": (4, 0, 0), **mix})
    return found(facts, "unused-shared-memory", shared=size)


def test_shared_memory_that_nothing_accesses() -> None:
    one = shared(100 << 10)
    assert one is not None and "100 KiB" in one.title
    assert one.bound_share == pytest.approx(1 - 2 / 4), "registers and warps leave room for four"
    assert shared(1 << 10) is None
    assert shared(100 << 10, **{"store.shared.4": (1, 0, 0)}) is None
    assert shared(100 << 10, **{"copy.bulk": (1, 0, 0)}) is None


def products(warps: int, **more: Any) -> Finding | None:
    """Return the finding on products of single warps, that take half of tensor cores' rate."""
    scene = Scene()
    for block in range(264):
        each = [("mma", 0, 1000)]
        scene.add(*(Warp(block, w, block % 132, 0, 1000, each) for w in range(warps)))
    trace = scene.trace(device="NVIDIA H200", **more)
    flop = 0.5 * 132 * 4096 * 2000 / (264 * warps)
    facts = RangeFacts("mma", mix={"tensor.2": (64, 0, 0)}, products=flop)
    code = CodeFacts("sm_90a", 64, 0, ranges={"mma": facts}, kernel="kernel")
    said = replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain()
    return next((one for one in said.every if one.id == "single-warp-products"), None)


def test_products_of_single_warps() -> None:
    two = products(2)
    assert two is not None and "need four warps" in two.title
    assert two.bound_share == pytest.approx(0.38)
    four = products(4)
    assert four is not None and "tiles of 64 rows" in four.title
    assert products(4, backend="cuda") is None, "in other languages they may be meant"


def carved(percent: str, waits: int = 800, taken: int = 0) -> Finding | None:
    scene = Scene()
    for block in range(132):
        each = [("wait for load @k.cu:7", 0, waits)]
        scene.add(*(Warp(block, w, block, 0, 1000, each) for w in range(8)))
    uses = {"store.shared.4": (1, 0, 0)} if taken else {}
    facts = RangeFacts("wait:memory", mix={"load.global.4": (4, 0, 0), **uses})
    ranges = {"wait for load @k.cu:7": facts}
    code = CodeFacts("sm_90a", 64, taken, ranges=ranges, kernel="kernel")
    trace = scene.trace(device="NVIDIA H200")
    given = {f"{CARVE_OUT}kernel": percent} if percent else {}
    said = replace(trace, provenance={f"{FACTS}kernel": code.text(), **given}).explain()
    return next((one for one in said.every if one.id == "unused-shared-memory"), None)


def test_a_carve_out_that_no_block_takes() -> None:
    one = carved("100")
    assert one is not None and "sets 100 % of L1 aside" in one.title
    assert carved("") is None and carved("10") is None
    assert carved("100", waits=100) is None, "loads take no time"
    assert carved("100", taken=200 << 10) is None


def test_the_verdict_says_what_instructions_serve() -> None:
    facts = replace(BUSY, serves={"arithmetic": 60, "addresses": 30, "memory": 10})
    said = verdict(facts).serves
    assert [(one.what, one.share) for one in said] == [
        *(("arithmetic", 0.6), ("addresses", 0.3), ("memory", 0.1)),
    ]
    assert verdict(replace(BUSY, serves={})).serves == ()


def uncached(count: float, depends: str = "lb", waits: str = "load") -> Finding | None:
    made = access("load.global.4", depends=depends)
    facts = replace(made, extra={"uncached": ExtraWork(count, count, "/src/k.py:7")})
    return found(replace(facts, activity=waits), "uncached-loads")


def test_loads_that_pass_the_first_cache_by() -> None:
    one = uncached(100)
    assert one is not None and "loads past L1" in one.title
    assert uncached(10) is None, "one load in ten"
    assert uncached(100, "lwbi") is None, "each byte once"


def test_arithmetic_that_is_the_same_takes_no_more_than_its_part_of_the_issue_slots() -> None:
    """A launch that waits for memory hides it."""
    busy = replace(BUSY, mix={"fma": (120, 0, 0), "integer": (80, 0, 0)})
    one, idle = (found(extra("uniform", 50, 5, f), "uniform-arithmetic") for f in (busy, BUSY))
    assert one is not None and idle is not None
    assert one.bound_share == pytest.approx(2 * idle.bound_share, abs=0.01)


def test_sums_that_all_lanes_do_alike_are_a_cause_at_the_roof_of_what_they_load() -> None:
    """Each lane loads an element of its own then: L1 is asked for a thirty-second."""
    one = access("load.shared.4", cost=1.0, least=1.0, addresses=1, depends="i").accesses[0]
    full = replace(
        BUSY, mix={**BUSY.mix, "load.shared.4": (119, 0, 0)}, accesses=(replace(one, count=119),)
    )
    assert found(extra("alike", 50, facts=full), "alike-lanes") is not None
    own = replace(full, accesses=(replace(full.accesses[0], addresses=32),))
    assert found(extra("alike", 50, facts=own), "alike-lanes") is None
