"""Who is late in a pipeline: the producer, the consumer, or the copies between them."""

from __future__ import annotations

import pytest

from ikp.analysis.explain.verdict import Finding, Verdict
from tests.analysis.explain.launches import Range, Scene, Warp

pytestmark = pytest.mark.any_pins


def pipeline(
    produce: int, flight: int, consume: int, stages: int, steps: int = 100, payloads: bool = True
) -> Verdict:
    """Run a ring: a producer that takes so long for each copy, which is in flight for so long."""
    free, ready = [0] * steps, [0] * steps
    producer, consumer = list[Range](), list[Range]()
    now, used = 0, 0
    for k in range(steps):
        mark = (k,) if payloads else ()
        room = free[k - stages] if k >= stages else 0
        producer.append(("empty", now, max(now, room) + 1, *mark))
        begin = max(now, room) + 1
        producer.append(("copy", begin, begin + produce, *mark))
        now = begin + produce
        ready[k] = now + flight
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
    return scene.trace().explain()


def first(verdict: Verdict) -> Finding:
    assert verdict.findings, str(verdict)
    return verdict.findings[0]


def duration(**how: int) -> int:
    launch = pipeline(**how).launch
    assert launch is not None
    return launch.duration_ns


def test_a_producer_that_is_always_busy_is_late() -> None:
    slow = {"produce": 1000, "flight": 100, "consume": 300, "stages": 4}
    found = first(pipeline(**slow))
    assert found.id == "late-producer" and found.sure == "measured"
    assert set(found.where.roles) == {"adds", "loads"} and "full" in found.where.regions
    gain = 1 - duration(**{**slow, "produce": 100}) / duration(**slow)
    assert found.at_stake_share == pytest.approx(gain, abs=0.05)


def test_a_consumer_that_is_always_busy_is_late() -> None:
    slow = {"produce": 300, "flight": 100, "consume": 1000, "stages": 4}
    found = first(pipeline(**slow))
    assert found.id == "late-consumer" and "empty" in found.where.regions
    gain = 1 - duration(**{**slow, "consume": 100}) / duration(**slow)
    assert found.at_stake_share == pytest.approx(gain, abs=0.05)


def test_copies_that_stages_cannot_hide_are_too_few_stages() -> None:
    few = {"produce": 50, "flight": 2000, "consume": 500, "stages": 3}
    found = first(pipeline(**few))
    assert found.id == "few-stages" and found.where.roles == ("adds", "loads")
    assert "with 4 copies under way at once in place of 3" in found.what_if
    gain = 1 - duration(**{**few, "stages": 4}) / duration(**few)
    assert found.at_stake_share == pytest.approx(gain, abs=0.05)
    assert [f.id for f in pipeline(**{**few, "stages": 6}).findings] != ["few-stages"]


def test_a_ring_that_keeps_up_has_no_finding_of_copies() -> None:
    verdict = pipeline(produce=480, flight=100, consume=500, stages=4)
    assert [f.id for f in verdict.findings] == []


def test_what_was_joined_is_told() -> None:
    verdict = pipeline(produce=1000, flight=100, consume=300, stages=4)
    assert verdict.connected[0] == "full with copy by payloads: 800 of 800"


def test_without_payloads_the_busiest_group_is_a_guess_and_said_to_be_one() -> None:
    verdict = pipeline(produce=1000, flight=100, consume=300, stages=4, payloads=False)
    assert first(verdict).id == "late-producer" and first(verdict).sure == "likely"
    assert verdict.connected == ()
    assert any("payload" in one.because for one in verdict.unknown)
