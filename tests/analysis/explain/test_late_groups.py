"""Who is late in a pipeline: the producer, the consumer, or the copies between them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ikp.analysis.explain.verdict import Finding, Verdict
from ikp.core.code_facts import FACTS, CodeFacts, RangeFacts
from tests.analysis.explain.launches import Range, Scene, Warp

pytestmark = pytest.mark.any_pins


def pipeline(
    produce: int,
    flight: int,
    consume: int,
    stages: int,
    steps: int = 100,
    payloads: bool = True,
    look_up: int = 0,
    apart: int = 0,
    facts: CodeFacts | None = None,
) -> Verdict:
    """Run a ring: a producer that takes so long for each copy, which is in flight for so long.

    Before a copy it does something else for ``look_up``. Memory brings two copies no less than
    ``apart`` one after the other, but for every seventh, which comes with the one before it.
    """
    free, ready = [0] * steps, [0] * steps
    producer, consumer = list[Range](), list[Range]()
    now, used = 0, 0
    for k in range(steps):
        mark = (k,) if payloads else ()
        room = free[k - stages] if k >= stages else 0
        if look_up:
            producer.append(("find", now, now + look_up, *mark))
            now += look_up
        producer.append(("empty", now, max(now, room) + 1, *mark))
        begin = max(now, room) + 1
        producer.append(("copy", begin, begin + produce, *mark))
        now = begin + produce
        ready[k] = max(now + flight, ready[k - 1] + apart * (k % 7 > 0) if k else 0)
        consumer.append(("full", used, max(used, ready[k]) + 1, *mark))
        used = max(used, ready[k]) + 1
        consumer.append(("add", used, used + consume, *mark))
        used += consume
        free[k] = used
    scene = Scene()
    for block in range(8):
        scene.add(
            Warp(block, 0, block, 0, used, consumer, "adds"),
            Warp(block, 1, block, 0, used, producer, "loads"),
        )
    known = {f"{FACTS}kernel": facts.text()} if facts else {}
    return replace(scene.trace(), provenance=known).explain()


def first(verdict: Verdict) -> Finding:
    assert verdict.every, str(verdict)
    return verdict.every[0]


def busy(issue: int) -> Finding:
    """Return what is found of a slow consumer whose instructions take so many of 2,000 cycles."""
    code = CodeFacts("sm_90a", 64, ranges={"add": RangeFacts("compute", 0, 0, 0, issue)})
    return first(pipeline(produce=300, flight=100, consume=1000, stages=4, facts=code))


def duration(**how: int) -> int:
    launch = pipeline(**how).launch
    assert launch is not None
    return launch.duration_ns


def test_a_producer_that_is_always_busy_is_late() -> None:
    slow = {"produce": 1000, "flight": 100, "consume": 300, "stages": 4}
    found = first(pipeline(**slow))
    assert found.id == "late-producer" and found.confidence == "measured"
    assert set(found.where.roles) == {"adds", "loads"} and "full" in found.where.regions
    gain = 1 - duration(**{**slow, "produce": 100}) / duration(**slow)
    assert found.bound_share == pytest.approx(gain, abs=0.05)


def test_a_consumer_that_is_always_busy_is_late() -> None:
    slow = {"produce": 300, "flight": 100, "consume": 1000, "stages": 4}
    found = first(pipeline(**slow))
    assert found.id == "late-consumer" and "empty" in found.where.regions
    gain = 1 - duration(**{**slow, "consume": 100}) / duration(**slow)
    assert found.bound_share == pytest.approx(gain, abs=0.05)


def test_a_consumer_that_its_instructions_keep_busy_is_not_told_to_have_more_warps() -> None:
    full, waits = busy(1900), busy(500)
    assert (full.id, full.confidence) == ("late-consumer", "possible") and "95 %" in full.rationale
    assert "fewer instructions" in full.suggestion
    assert (waits.id, waits.confidence) == (
        "late-consumer",
        "likely",
    ) and "more warps" in waits.suggestion
    assert full.bound_share == waits.bound_share


def test_a_busy_producer_is_late_however_long_its_copies_fly() -> None:
    slow = {"produce": 100, "flight": 400, "consume": 400, "stages": 4, "look_up": 900}
    found = first(pipeline(**slow))  # most of each wait is for a copy in flight, begun in it
    assert found.id == "late-producer" and "most of it in find" in found.title
    gain = 1 - duration(**{**slow, "look_up": 1}) / duration(**slow)
    assert found.bound_share == pytest.approx(gain, abs=0.05)


def test_copies_that_queue_for_memory_need_no_more_stages() -> None:
    slow = {"produce": 50, "flight": 800, "consume": 200, "stages": 6, "apart": 700}
    (found,) = pipeline(**slow).every
    assert found.id == "queued-copies" and found.confidence == "possible"
    assert duration(**{**slow, "stages": 12}) == pytest.approx(duration(**slow), rel=0.02)
    gain = 1 - duration(**{**slow, "apart": 0}) / duration(**slow)
    assert found.bound_share >= gain


def test_copies_that_stages_cannot_hide_are_too_few_stages() -> None:
    few = {"produce": 50, "flight": 2000, "consume": 500, "stages": 3}
    found = first(pipeline(**few))
    assert found.id == "few-stages" and found.where.roles == ("adds", "loads")
    assert "with 4 copies under way at once in place of 3" in found.what_if
    gain = 1 - duration(**{**few, "stages": 4}) / duration(**few)
    assert found.bound_share == pytest.approx(gain, abs=0.05)
    assert [f.id for f in pipeline(**{**few, "stages": 6}).every] != ["few-stages"]


def test_a_ring_that_keeps_up_has_no_finding_of_copies() -> None:
    verdict = pipeline(produce=480, flight=100, consume=500, stages=4)
    assert [f.id for f in verdict.every] == []


def test_what_was_joined_is_told() -> None:
    verdict = pipeline(produce=1000, flight=100, consume=300, stages=4)
    assert verdict.connected[0] == "full with copy by payloads: 800 of 800"


def test_without_payloads_the_busiest_group_is_a_guess_and_said_to_be_one() -> None:
    verdict = pipeline(produce=1000, flight=100, consume=300, stages=4, payloads=False)
    assert first(verdict).id == "late-producer" and first(verdict).confidence == "likely"
    assert verdict.connected == ()
    assert any("payload" in one.rationale for one in verdict.unknown)


def test_one_warp_that_stores_is_no_role_of_its_own() -> None:
    scene = Scene()
    for block in range(4):
        turns = [("wait for x @k.py:1", 100 * i, 100 * i + 60) for i in range(10)]
        scene.add(*(Warp(block, w, block, 0, 1010, turns) for w in range(1, 4)))
        scene.add(Warp(block, 0, block, 0, 1010, [*turns, ("store", 1000, 1010)]))
    verdict = scene.trace().explain()
    assert [one.by for one in verdict.groups] == ["all"]
    assert {one.id for one in verdict.every} == {"exposed-load"}


def test_blocks_with_other_data_hold_no_other_roles() -> None:
    """All warps of a block have the loop, or none; what one warp stores tells two of them apart."""
    scene = Scene()
    for block in range(8):
        turns = [("dot", 100 * i, 100 * i + 60) for i in range(10 * (block % 4))]
        for w in range(4):
            stores = [("store", 5000, 6000)] if w == 0 else []
            scene.add(Warp(block, w, block, 0, 6000, [*turns, ("norm", 4000, 4900), *stores]))
    kinds = scene.trace().explain().groups
    assert len(kinds) == 2 and {one.by for one in kinds} == {"ranges"}
    assert {one.warps for one in kinds} == {8, 24}


def test_warps_of_a_block_that_data_left_without_work_are_no_pipeline() -> None:
    """One warp of eight goes round, and the others wait at the block's barrier: nobody is fed."""
    scene = Scene()
    for block in range(132):
        for warp in range(8):
            works = [("iteration @k.cu:55", 0, 9_500), ("barrier @k.cu:85", 9_500, 10_000)]
            waits = [("load @k.cu:34", 0, 100), ("barrier @k.cu:85", 100, 10_000)]
            scene.add(Warp(block, warp, block, 0, 10_000, waits if warp else works))
    said = scene.trace().explain()
    assert not {one.id for one in said.every} & {"late-consumer", "late-producer"}
