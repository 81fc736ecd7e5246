"""Findings on calls, ordered and zeroed loads, and on what each block does anew: by their marks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ikp.analysis.explain.verdict import Finding
from ikp.core.code_facts import FACTS, CodeFacts, RangeFacts, parse_facts
from ikp.core.excess_facts import ExtraWork
from tests.analysis.explain.launches import Scene, Warp
from tests.analysis.explain.test_counted import access, found

pytestmark = pytest.mark.any_pins
PLACE = "/src/k.py:7"


def with_extra(facts: RangeFacts, kind: str, count: float, parts: float = 1.0) -> RangeFacts:
    return replace(
        facts,
        extra={kind: ExtraWork(count, parts, PLACE)},
        serves={"arithmetic": 100, "addresses": 100},
    )


def is_likely(one: Finding | None) -> bool:
    return one is not None and one.confidence == "likely" and one.where.lines == (PLACE,)


def test_calls_are_found_where_they_are_many() -> None:
    busy = RangeFacts("compute", mix={"fma": (100, 0, 0), "call": (4, 0, 0)})
    assert is_likely(found(with_extra(busy, "called", 4), "calls"))
    assert found(with_extra(busy, "called", 0.2), "calls") is None, "of a large function"
    assert found(busy, "calls") is None, "slow paths of divisions"


def test_loads_behind_stores_are_found_by_their_wait() -> None:
    loads = access("load.global.4")
    assert is_likely(found(with_extra(loads, "behind stores", 60), "ordered-loads"))
    assert found(with_extra(loads, "behind stores", 10), "ordered-loads") is None, "one in ten"
    computes = replace(loads, activity="compute")
    assert found(with_extra(computes, "behind stores", 60), "ordered-loads") is None


def test_one_load_an_iteration_is_found_by_its_wait_where_memory_is_idle() -> None:
    few = replace(access("load.global.4").accesses[0], count=4)
    loads = replace(access("load.global.4"), mix={"load.global.4": (4, 0, 0)}, accesses=(few,))
    one = found(with_extra(loads, "lone", 4), "lone-loads")
    assert is_likely(one) and one is not None and one.bound_share <= 0.75
    assert found(with_extra(loads, "lone", 2), "lone-loads") is None, "a rest of a few"
    unknown = replace(few, cost=None, least=None, depends="ld")
    somewhere = replace(loads, accesses=(unknown,))
    assert found(with_extra(somewhere, "lone", 4), "lone-loads") is None, "memory may be busy"
    busy = replace(loads, mix={"load.global.4": (4, 0, 0), "fma": (9000, 0, 0)})
    assert found(with_extra(busy, "lone", 4), "lone-loads") is None


def test_loads_of_what_is_multiplied_by_zero_are_found_by_their_bytes() -> None:
    loads = access("load.global.4")
    one = found(with_extra(loads, "times zero", 8, parts=4), "zeroed-loads")
    assert is_likely(one)
    assert found(loads, "zeroed-loads") is None


def test_sums_over_lanes_that_only_add_up_are_a_cause() -> None:
    mix = {"fma": (900, 0, 0), "shuffle": (50, 0, 0)}
    facts = RangeFacts("compute", mix=mix)
    assert found(facts, "shuffles") is None, "few, and needed for all that is seen"
    one = found(with_extra(facts, "lane sums", 50), "shuffles")
    assert one is not None and one.confidence == "likely"
    many = RangeFacts("compute", mix={**mix, "shuffle": (300, 0, 0)})
    exchanged = found(many, "shuffles")
    assert exchanged is not None and exchanged.confidence == "possible", "a sort exchanges, too"


def test_a_halo_is_found_where_it_is_most_of_what_is_loaded() -> None:
    loads = access("load.global.4", in_loop=False, depends="lwb")
    one = found(loads, "halo", halo=0.6)
    assert is_likely(one) and one is not None and one.bound_share <= 0.6
    assert found(loads, "halo", halo=0.2) is None
    loop = access("load.global.4")
    assert found(loop, "halo", halo=0.6) is None, "another loop's loads are most"
    products = replace(loads, products=1e6)
    assert found(products, "halo", halo=0.6) is None, "operands of products are shared"


@pytest.mark.parametrize(("depends", "waves", "expected"), [("lwi", 8, True), ("lwi", 2, False),
                                                            ("lwbi", 8, False)])  # fmt: skip
def test_a_set_up_that_no_block_changes(depends: str, waves: int, expected: bool) -> None:
    fills = access("store.shared.16", cost=4.0, least=4.0, depends="lwi")
    table = access("load.global.16", cost=16.0, least=16.0, depends=depends).accesses
    facts = replace(fills, accesses=(*fills.accesses, *table))
    code = CodeFacts("sm_90a", 64, 0, ranges={"step": facts}, kernel="kernel")
    scene = Scene()
    for block in range(132 * waves):
        begin = block // 132 * 2000
        ranges = [("step", begin, begin + 2000)]
        scene.add(*(Warp(block, w, block % 132, begin, begin + 2000, ranges) for w in range(4)))
    trace = scene.trace(device="NVIDIA H200")
    said = replace(trace, provenance={f"{FACTS}kernel": code.text()}).explain()
    one = next((one for one in said.findings if one.id == "repeated-setup"), None)
    assert is_likely(one) == expected
    assert one is None or one.bound_share <= 7 / 8 * 0.5 * one.number.value, "others hide half"


def test_operands_that_several_blocks_load_for_few_operations() -> None:
    shared = access("load.global.16", cost=16.0, least=16.0, blocks_share=0.875)
    one = found(shared, "same-operands")
    assert is_likely(one) and one is not None and one.bound_share <= 0.875
    used = replace(shared, mix={**shared.mix, "fma": (20_000, 0, 0)})
    assert found(used, "same-operands") is None, "each is used often"
    assert found(access("load.global.16", cost=16.0, least=16.0), "same-operands") is None
    assert found(replace(shared, products=1e6), "same-operands") is None


def test_further_facts_go_through_a_trace() -> None:
    facts = CodeFacts("sm_90a", halo=0.5, ahead=0.0)
    assert parse_facts(facts.text()) == facts
    assert parse_facts(CodeFacts("sm_90a").text()) == CodeFacts("sm_90a")
