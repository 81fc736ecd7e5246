"""Findings on work that results don't need, and on threads without work: by evidence alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ikp.analysis.explain.verdict import Finding
from ikp.core.code_facts import FACTS, CodeFacts, RangeFacts
from ikp.core.excess_facts import ExcessFacts
from tests.analysis.explain.launches import Scene, Warp
from tests.analysis.explain.test_counted import STEPS, access, found

pytestmark = pytest.mark.any_pins

PRODUCTS = RangeFacts(
    "mma", mix={"tensor.group.4": (10, 0, 0), "integer": (90, 0, 0)}, products=1e6
)


def excess(facts: RangeFacts, **more: Any) -> RangeFacts:
    return replace(facts, excess=ExcessFacts(**more))


def test_products_of_split_and_of_widened_operands() -> None:
    one = found(excess(PRODUCTS, split=48), "wide-operands")
    assert one is not None and "three parts" in one.title and "'tf32'" in one.suggestion
    one = found(excess(PRODUCTS, widened=32), "wide-operands")
    assert one is not None and "16 to 32 bits" in one.title and one.bound_share < 0.56
    assert found(excess(PRODUCTS, widened=0.5), "wide-operands") is None
    narrow = RangeFacts("mma", mix={"tensor.group.2": (10, 0, 0), "integer": (90, 0, 0)})
    assert found(excess(narrow, widened=32), "wide-operands") is None


def test_wide_numbers_that_are_only_compared() -> None:
    wide = {"cost": 32.0, "least": 32.0, "count": 2}
    one = found(loads("load.global.16", use="compared.8", **wide), "wide-data")
    assert one is not None and "compared with a constant" in one.title
    assert one.bound_share == pytest.approx(7 / 8, abs=0.06)
    assert found(loads("load.global.16", **wide), "wide-data") is None
    assert found(loads("load.global.1", use="compared.1", **wide), "wide-data") is None
    idle = {**wide, "count": 0.5}
    assert found(loads("load.global.16", use="compared.8", **idle), "wide-data") is None


def loads(unit: str, count: float = 100, **more: Any) -> RangeFacts:
    made = access(unit, **more)
    (one,) = made.accesses
    return replace(made, accesses=(replace(one, count=count),))


def test_iterations_that_a_mask_throws_away() -> None:
    busy = RangeFacts("mma", mix={"tensor.group.2": (10, 0, 0), "fma": (90, 0, 0)})
    one = found(excess(busy, useful=STEPS / 2), "masked-work")
    assert one is not None and one.bound_share == pytest.approx(0.5, abs=0.01)
    assert found(excess(busy, useful=0.9 * STEPS), "masked-work") is None
    assert found(busy, "masked-work") is None


def test_blocks_and_iterations_that_calculate_alike() -> None:
    alike = excess(access("load.global.4", blocks_share=0.9375), alone="/src/k.py:7")
    one = found(alike, "repeated-work")
    assert one is not None and "16 blocks each load" in one.title
    assert found(access("load.global.4", blocks_share=0.9375), "repeated-work") is None
    few = excess(access("load.global.4", blocks_share=0.5), alone="/src/k.py:7")
    assert found(few, "repeated-work") is None
    one = found(excess(access("load.global.4"), again="/src/k.py:7"), "repeated-work")
    assert one is not None and "outer loop" in one.title


def stores(depends: str = "lwb", **more: Any) -> Finding | None:
    facts = access("store.global.4", **{"depends": depends, "threads": 1.0, **more})
    return found(facts, "repeated-stores")


def test_stores_that_no_iteration_moves() -> None:
    one = stores()
    assert one is not None and "__restrict__" in one.suggestion
    assert stores("lwbi") is None and stores("lwbd") is None
    assert stores(in_loop=False) is None
    assert stores(threads=None) is None, "under a condition that data decide"


def test_threads_without_an_element_of_their_own() -> None:
    one = found(access("load.global.2", own=0.25), "idle-threads")
    assert one is not None and "no access has elements for more than 25 %" in one.title
    assert found(access("load.global.2", own=0.5), "idle-threads") is None
    assert found(access("load.global.2"), "idle-threads") is None, "not known"
    assert found(access("load.global.2", own=0.004, addresses=1), "idle-threads") is None


def blocks(
    took: int,
    ranges: int,
    threads: int = 128,
    *,
    stores: bool = True,
    all_store: bool = False,
    lost: int = 0,
    **more: Any,
) -> dict[str, Finding]:
    """Return the findings of many blocks, of which every eighth comes to code that stores.

    Those in the first ``lost`` eighths lose records.
    """
    scene = Scene()
    for block in range(1056):
        start = block // 132 * (took + 10)
        read = ("read", start + 1, start + took // 2)
        store = ("load", start + took // 2, start + took)
        work = [read, store] if block % 8 < ranges else [read]
        scene.add(*(Warp(block, w, block % 132, start, start + took, work) for w in range(4)))
    trace = scene.trace(device="NVIDIA H200", block=(threads, 1, 1))
    slots = trace.slots
    more_than_kept = slots.kept + (slots.block % 8 < lost)
    trace = replace(trace, slots=replace(slots, attempted=more_than_kept))
    made = replace(access("store.global.4" if stores else "load.global.4"), **more)
    ranges_of = {"load": made, "read": access("load.global.4")}
    if all_store:
        ranges_of["kernel"] = access("store.global.4")
    code = CodeFacts("sm_90a", 32, 0, ranges=ranges_of, kernel="kernel")
    said = replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain()
    return {one.id: one for one in said.every}


def test_blocks_that_do_nothing_but_end() -> None:
    one = blocks(1000, 1)["empty-blocks"]
    assert "88 % of 1,056 blocks" in one.title and one.bound_share == pytest.approx(0.88, abs=0.02)
    assert "empty-blocks" not in blocks(1000, 6)
    assert "empty-blocks" not in blocks(1000, 1, stores=False), "where results go is not known"


def test_blocks_that_lost_records_are_none_that_do_nothing() -> None:
    one = blocks(1000, 1, lost=1)["empty-blocks"]
    assert "88 % of 1,056 blocks" in one.title, "blocks that lost none say as much as before"
    assert "empty-blocks" not in blocks(1000, 1, lost=6), "what these did is not known"


def test_blocks_that_make_no_product_where_all_blocks_store() -> None:
    """A mask keeps their results back: the code that stores is that of each block."""
    products = {"mix": {"tensor.2": (8, 0, 0)}, "stores": False, "all_store": True}
    one = blocks(1000, 1, **products)["empty-blocks"]
    assert "make no product" in one.title and one.bound_share == pytest.approx(0.88, abs=0.02)
    assert "empty-blocks" not in blocks(1000, 6, **products)
    assert "empty-blocks" not in blocks(1000, 1, stores=False, all_store=True)


def test_lanes_that_do_not_exist() -> None:
    one = blocks(1000, 8, threads=80)["idle-threads"]
    assert "blocks have 80 threads: 48 of 128 lanes don't exist" in one.title
    assert "idle-threads" not in blocks(1000, 8, threads=112)


def test_more_blocks_than_a_device_can_start() -> None:
    one = blocks(55, 8)["small-blocks"]
    assert "1,056 blocks of 55 ns" in one.title and "block-switch" not in blocks(55, 8)
    assert "small-blocks" not in blocks(5000, 8)


def serial(waits: int, **more: Any) -> Finding | None:
    """Return the finding on blocks of which one warp works while the others wait."""
    scene = Scene()
    for block in range(264):
        for warp in range(8):
            step = [("sum", 0, 500)] if not warp else []
            wait = [("barrier @k.cu:9", 1000 - waits, 1000)] if warp else []
            scene.add(Warp(block, warp, block % 132, 0, 1000, [*step, *wait]))
    trace = scene.trace(device="NVIDIA H200")
    facts = RangeFacts("compute", mix={"fma": (300, 0, 0)}, excess=ExcessFacts(**more))
    barrier = RangeFacts("wait:barrier", mix={"barrier": (1, 0, 0)})
    ranges = {"sum": facts, "barrier @k.cu:9": barrier}
    code = CodeFacts("sm_90a", 32, 0, ranges=ranges, kernel="kernel")
    said = replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain()
    return next((one for one in said.every if one.id == "serial-thread"), None)


def test_one_thread_that_works_while_the_others_wait() -> None:
    one = serial(600, serial=1000, serial_threads=1, serial_line="/src/k.cu:7")
    assert one is not None and "one thread of each block's 256 executes 1,000" in one.title
    assert one.where.lines == ("/src/k.cu:7",)
    assert serial(50, serial=1000, serial_threads=1) is None, "nobody waits"
    assert serial(600, serial=10, serial_threads=1) is None


def test_atomics_that_are_loops_of_a_compare_and_swap() -> None:
    """They are a cause for the time of their code; others are not, where they are few."""
    made = access("atomic.global.4", depends="lwbd", cost=None, least=None)
    (one,) = made.accesses
    few = replace(made, accesses=(replace(one, count=0.01),), mix={"atomic.global.4": (0.01, 0, 0)})
    swapped = found(excess(few, swaps=1), "atomics")
    assert swapped is not None and "compare-and-swap" in swapped.title
    assert "atomicMax" in swapped.suggestion and swapped.confidence == "likely"
    other = found(few, "atomics")
    assert other is None or "compare-and-swap" not in other.title


def sums(bytes_of_a_sum: float, **more: Any) -> Finding | None:
    """Return the finding on sums of products whose operands come from shared memory."""
    fma = 100.0
    loads = fma * bytes_of_a_sum / 4
    mix = {"fma": (fma, 0, 0), "load.shared.4": (loads, 0, 0)}
    made = access("load.shared.4", **{"cost": 1.0, "least": 1.0, **more})
    (one,) = made.accesses
    facts = RangeFacts(
        "compute", mix=mix, accesses=(replace(one, count=loads),), sums=fma, products=None
    )
    return found(facts, "unstaged-loads")


def test_sums_of_few_results_for_each_operand() -> None:
    one = sums(4.0)
    assert one is not None and "each sum of products loads 4.0 bytes of shared memory" in one.title
    assert sums(1.0) is None, "8 x 8 results of each thread"
    assert sums(4.0, cost=4.0) is None, "bank conflicts are another cause"
