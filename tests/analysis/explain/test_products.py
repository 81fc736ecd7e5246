"""Products that nothing else overlaps, and warps that come to a barrier apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ikp.analysis.explain.verdict import Verdict
from ikp.core.code_facts import FACTS, CodeFacts, RangeFacts
from tests.analysis.explain.launches import Range, Scene, Warp
from tests.others import without_records

pytestmark = pytest.mark.any_pins


def steps(
    serial: bool, mma: int = 600, math: int = 400, turns: int = 50, left_out: int = 0, sms: int = 4
) -> Verdict:
    """Run products with arithmetic after each: after its wait, or while it is under way.

    Of the four blocks, the last ``left_out`` left no records.
    """
    now, ranges = 0, list[Range]()
    for k in range(turns):
        ranges.append(("mma", now, now + 10, k))
        if serial:
            ranges.append(("wait mma", now + 10, now + mma, k))
            ranges.append(("exp", now + mma, now + mma + math, k))
            now += mma + math
        else:
            ranges.append(("exp", now + 10, now + 10 + math, k))
            ranges.append(("wait mma", now + 10 + math, now + mma, k))
            now += mma
    scene = Scene()
    for block in range(4):
        scene.add(*(Warp(block, warp, block % sms, 0, now, ranges) for warp in range(4)))
    gone = {(0, block) for block in range(4 - left_out, 4)}
    return without_records(scene.trace(), gone).explain()


def test_what_overlaps_products_is_not_said_where_a_block_beside_left_no_records() -> None:
    alone = steps(serial=True, left_out=2)
    assert [one.id for one in alone.every] == ["serial-mma"]
    assert alone.hardware is not None and alone.hardware.tensor_busy_share is not None
    beside = steps(serial=True, left_out=2, sms=2)
    assert [one.id for one in beside.every] == []
    assert beside.hardware is not None and beside.hardware.tensor_busy_share is None


def test_arithmetic_behind_each_product_is_serial() -> None:
    found = steps(serial=True).every[0]
    assert found.id == "serial-mma" and found.where.regions == ("exp",)
    gain = 1 - 600 / 1000
    assert found.bound_share == pytest.approx(gain, abs=0.02)


def test_arithmetic_beside_products_is_not() -> None:
    assert steps(serial=False).every == ()


def tiles(teams: int, count: int = 12, mma: int = 800, finish: int = 400) -> Verdict:
    """Run tiles of eight products each, with a store behind: by one group of warps, or two."""
    scene = Scene()
    ends = [0] * teams
    free = 0
    ranges: list[list[Range]] = [[] for _ in range(teams)]
    for tile in range(count):
        team = tile % teams
        begin = max(ends[team], free)
        for k in range(8):
            at = begin + k * mma // 8
            ranges[team].append(("mma", at, at + mma // 8, 8 * tile + k))
        free = begin + mma
        ranges[team].append(("store", free, free + finish, tile))
        ends[team] = free + finish
    for block in range(4):
        for team in range(teams):
            scene.add(Warp(block, team, block, 0, max(ends), ranges[team], "math"))
    return scene.trace().explain()


def test_an_epilogue_that_nothing_overlaps() -> None:
    found = tiles(1).every[0]
    assert found.id == "epilogue" and found.where.regions == ("store",)
    assert found.bound_share == pytest.approx(11 / 36, abs=0.01)  # all but the last


def test_what_is_in_no_range_beside_an_epilogue_is_hidden_with_it() -> None:
    ranges = list[Range]()
    for tile in range(12):
        begin = 1200 * tile
        ranges += [("mma", begin + 100 * k, begin + 100 * k + 100, 8 * tile + k) for k in range(8)]
        ranges.append(("store", begin + 830, begin + 1130, tile))
    scene = Scene()
    for block in range(4):
        scene.add(Warp(block, 0, block, 0, 12 * 1200, ranges))
    found = scene.trace().explain().every[0]
    assert found.id == "epilogue"
    assert found.number.value == pytest.approx(11 * 300 / (12 * 1200))  # all but the last
    assert found.bound_share == pytest.approx(11 * 400 / (12 * 1200))


def test_an_epilogue_beside_another_groups_products_is_none() -> None:
    assert [f.id for f in tiles(2).every if f.bound_share > 0.05] == []


def phases(
    work: list[int], turns: int = 20, held: int = 1, facts: RangeFacts | None = None
) -> Verdict:
    """Run warps that work for so long each, then meet, again and again; SMs have some blocks.

    With facts, these are of the work, on an H200.
    """
    scene = Scene()
    for block in range(4 * held):
        for warp, took in enumerate(work):
            ranges = list[Range]()
            for k in range(turns):
                begin = k * (max(work) + 10)
                ranges.append(("row", begin, begin + took))
                ranges.append(("sync", begin + took, begin + max(work) + 10, k))
            scene.add(Warp(block, warp, block // held, 0, turns * (max(work) + 10), ranges))
    if facts is None:
        return scene.trace().explain()
    code = CodeFacts("sm_90a", ranges={"row": facts}).text()
    trace = scene.trace(device="NVIDIA H200")
    return replace(trace, provenance={f"{FACTS}kernel": code}).explain()


def test_warps_that_come_apart_are_a_skew() -> None:
    found = phases([310, 270, 230, 190, 150, 110, 70, 30]).every[0]
    assert found.id == "barrier-skew" and "warp 0" in found.title and "row" in found.title
    assert found.bound_share == pytest.approx(140 / 320, abs=0.01)


@pytest.mark.parametrize(("scale", "confidence"), [(1, "possible"), (10, "measured")])
def test_a_skew_of_less_than_a_microsecond_is_a_symptom(scale: int, confidence: str) -> None:
    """The rule: one warp that comes a little later makes a step that others need."""
    verdict = phases([310 * scale, *[30 * scale] * 7])
    (found,) = (each for each in verdict.every if each.id == "barrier-skew")
    assert found.confidence == confidence
    assert (found in verdict.findings) == (confidence == "measured")


@pytest.mark.parametrize(("others", "confidence"), [(300, "measured"), (2000, "possible")])
def test_blocks_that_mostly_wait_for_one_warp_hide_nothing(others: int, confidence: str) -> None:
    """Six blocks of an SM: where each waits for half of its time or more, all wait at times."""
    verdict = phases([4000, *[others] * 7], held=6)
    (found,) = (each for each in verdict.every if each.id == "barrier-skew")
    assert found.confidence == confidence


@pytest.mark.parametrize(
    ("instructions", "confidence"), [(10_000, "measured"), (40_000, "possible")]
)
def test_a_block_beside_another_makes_up_for_it_where_a_unit_is_busy(
    instructions: int, confidence: str
) -> None:
    """Two blocks of an SM, which take a sixth of the device's issue slots, or six tenths."""
    facts = RangeFacts("compute", mix={"fma": (instructions, 0, 0)})
    verdict = phases([4000, *[2000] * 7], held=2, facts=facts)
    (found,) = (each for each in verdict.every if each.id == "barrier-skew")
    assert found.confidence == confidence


def test_warps_that_come_together_are_none() -> None:
    assert phases([170] * 8).every == ()


def test_a_wait_for_others_is_no_meeting() -> None:
    scene = Scene()
    for block in range(4):
        for warp in range(4):
            ranges = [("wait full", k * 1000 + warp, k * 1000 + 900, k) for k in range(20)]
            scene.add(Warp(block, warp, block, 0, 20_000, ranges))
    assert [f.id for f in scene.trace().explain().every if f.id == "barrier-skew"] == []
