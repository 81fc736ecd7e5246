"""Lanes hold all of a launch's time, and blocks that leave them empty are found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.analysis.explain.lane_time import lane_time
from ikp.trace import Trace
from tests.analysis.explain.launches import Scene, Warp
from tests.others import without_records

pytestmark = pytest.mark.any_pins


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(0, 50)),
        min_size=1,
        max_size=30,
    )
)
def test_the_parts_of_lanes_add_up_to_the_launch(blocks: list[tuple[int, int, int]]) -> None:
    sm, start, took = (np.array(column, np.int64) for column in zip(*blocks, strict=True))
    start -= start.min()
    end = start + took
    found = lane_time(sm, start, end, int(end.max()))
    assert found.busy + found.start + found.switch + found.end == found.count * found.duration
    assert found.busy == took.sum()


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(0, 50)),
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 6),
)
def test_an_sm_has_no_more_slots_than_room(blocks: list[tuple[int, int, int]], room: int) -> None:
    sm, start, took = (np.array(column, np.int64) for column in zip(*blocks, strict=True))
    start -= start.min()
    end = start + took
    duration = int(end.max())
    found = lane_time(sm, start, end, duration, room)
    assert found.lanes.max() <= room
    assert found.busy + found.start + found.switch + found.end == found.count * duration
    assert min(found.start, found.switch, found.end) >= 0
    if (lane_time(sm, start, end, duration).lanes <= room).all():
        assert found.busy == took.sum()


def test_blocks_that_start_where_warps_have_ended_leave_no_slot_empty() -> None:
    """Three warps of each block end early, and the next block starts on their places: 28 blocks of
    four warps were seen on an SM that has room for 16.
    """
    scene = Scene()
    for block in range(64):
        for sm in range(2):
            begin = block * 250
            for warp in range(4):
                took = 6_000 if warp == 0 else 1_000
                scene.add(Warp(block * 2 + sm, warp, sm, begin, begin + took))
    verdict = scene.trace(device="NVIDIA H200").explain()
    assert verdict.lanes is not None
    assert verdict.lanes.blocks_at_once == 16  # 24 blocks of four warps seem to be on each SM
    assert verdict.lanes.switch_share == 0.0
    assert "block-switch" not in [one.id for one in verdict.every]


def ids(scene: Scene, **changes: object) -> list[str]:
    return [one.id for one in scene.trace(**changes).explain().every]


def waves(blocks: int, sms: int = 8, took: int = 10_000) -> Scene:
    """Return blocks of equal length, one at a time on each SM."""
    scene = Scene()
    for block in range(blocks):
        begin = block // sms * took
        scene.add(Warp(block, 0, block % sms, begin, begin + took))
    return scene


def test_a_last_wave_that_is_not_full_is_a_tail() -> None:
    verdict = waves(17).trace().explain()
    (tail,) = verdict.every
    assert tail.id == "tail" and tail.where.count == 1
    assert tail.bound_ns == pytest.approx(7 * 10_000 / 8)
    assert verdict.lanes is not None and verdict.lanes.waves == pytest.approx(17 / 8)


def test_full_waves_are_none() -> None:
    assert ids(waves(16)) == []


def sampled(scene: Scene, step: int = 4) -> Trace:
    trace = scene.trace()
    return without_records(trace, {(0, one.block) for one in scene.warps if one.block % step})


def test_blocks_without_records_make_waves_as_those_with_them() -> None:
    whole, some = waves(17).trace().explain(), sampled(waves(17)).explain()
    assert some.lanes == whole.lanes and some.every == whole.every
    text, before = str(some), str(whole)
    assert "\n  ranges of 5 of 17 blocks\n" in text and "ranges of" not in before
    assert text.splitlines()[1] == before.splitlines()[1]
    rationale = "5 of 17 warps recorded, and of all blocks it is known when they ran."
    assert rationale in [one.rationale for one in some.unknown]


@pytest.mark.parametrize("times", [100, 130])
def test_what_recording_takes_of_a_few_blocks_is_no_imbalance(times: int) -> None:
    """They end later, and so does the launch; that the others are done before is no news."""
    scene = Scene()
    for block in range(32):
        took = (100 if block % 4 else times) * 100
        scene.add(Warp(block, 0, block, 0, took, [("dot", 0, took)]))
    assert [one.id for one in sampled(scene).explain().every] == []
    assert ([one.id for one in scene.trace().explain().every] == []) == (times == 100)


def test_a_block_that_is_far_longer_is_found_whether_or_not_it_recorded() -> None:
    for slow in (8, 9):
        scene = Scene()
        for block in range(32):
            took = 30_000 if block == slow else 10_000 if block % 4 else 12_000
            scene.add(Warp(block, 0, block, 0, took, [("dot", 0, took)]))
        (found,) = sampled(scene).explain().every
        assert found.id == "slow-sm" and found.where.warps[0] == (slow, 0)


def test_a_launch_lasts_to_the_end_of_its_last_warp() -> None:
    scene = Scene().add(Warp(0, 0, 0, 10, 20), Warp(1, 0, 1, 0, 50))
    trace = without_records(scene.trace(), {(0, 1)})
    assert trace.explain().launch.duration_ns == 50  # type: ignore[union-attr]
    assert "50 ns from start to end" in repr(trace)
    (row,) = trace.stats().evidence
    assert (row.duration_ns, row.warps, row.residence_ns) == (50, 1, 10)
    assert without_records(trace, {(0, 0)}).explain().launch is None


def test_an_sm_all_of_whose_blocks_are_slow_is_found() -> None:
    scene = Scene()
    for sm in range(12):
        took = 16_000 if sm == 5 else 10_000
        scene.add(*(Warp(3 * sm + i, 0, sm, i * took, (i + 1) * took) for i in range(3)))
    (slow,) = scene.trace().explain().every
    assert slow.id == "slow-sm" and slow.where.sms == (5,) and slow.confidence == "measured"
    assert slow.bound_ns == 3 * 6_000


def unequal(turns: list[int]) -> Scene:
    """Return a block on each SM, of so many turns."""
    scene = Scene()
    for block, count in enumerate(turns):
        ranges = [("dot", i * 1000, i * 1000 + 900) for i in range(count)]
        scene.add(Warp(block, 0, block, 0, count * 1000, ranges))
    return scene


def test_blocks_that_do_more_are_an_imbalance() -> None:
    (found,) = unequal([10, 20, 30, 40, 10, 20, 30, 40]).trace().explain().every
    assert found.id == "imbalance" and found.confidence == "measured"
    assert found.where.warps[0][0] in (3, 7) and "how many ranges" in found.rationale
    assert found.bound_ns == pytest.approx(15_000)
    assert found.suggestion.startswith(
        "the long blocks start no later"
    )  # each has an SM of its own


def test_what_blocks_times_show_is_as_sure_where_records_were_lost() -> None:
    """When each block began and ended is kept, however few of its ranges."""
    lossy = unequal([10, 20, 30, 40, 10, 20, 30, 40]).trace(attempted=400, kept=200)
    (found,) = lossy.explain().findings
    assert found.id == "imbalance" and found.confidence == "measured"
    assert found.rationale.startswith("50 % of the records were lost")


def test_a_long_block_that_ends_last_is_no_tail_though_a_wave_is_not_full() -> None:
    scene, free = Scene(), [0] * 8
    for block in range(17):  # the first SM gets a third one; the long one ends behind it
        sm, count = block % 8, 25 if block == 5 else 10
        ranges = [("dot", free[sm] + i * 1000, free[sm] + i * 1000 + 900) for i in range(count)]
        scene.add(Warp(block, 0, sm, free[sm], free[sm] + count * 1000, ranges))
        free[sm] += count * 1000
    assert free[0] == 30_000 and max(free) == free[5] == 35_000
    (found,) = scene.trace().explain().every
    assert found.id == "slow-block" and found.where.warps[0][0] == 5


def test_uneven_blocks_are_no_tail_though_the_last_sm_had_more_of_them() -> None:
    scene, free = Scene(), [0, 0, 0, 0]
    for block, count in enumerate([10, 10, 30, 30, 10, 30, 40, 10]):  # to whom is free first
        at = min(free)
        sm = free.index(at)
        ranges = [("dot", at + i * 1000, at + i * 1000 + 900) for i in range(count)]
        scene.add(Warp(block, 0, sm, at, at + count * 1000, ranges))
        free[sm] = at + count * 1000
    assert free == [60_000, 40_000, 40_000, 30_000], "the first had three, and most had two"
    (found,) = scene.trace().explain().every
    assert found.id == "imbalance" and found.confidence == "measured"


@pytest.mark.parametrize(("turns", "told"), [((10, 40), "start the long"), ((40, 10), "the long")])
def test_an_order_of_blocks_is_advised_where_long_ones_start_late(
    turns: tuple[int, int], told: str
) -> None:
    scene, block = Scene(), 0
    for sm in range(4):
        at = 0
        for count in turns if sm % 2 else (10, 10):
            ranges = [("dot", at + i * 1000, at + i * 1000 + 900) for i in range(count)]
            scene.add(Warp(block, 0, sm, at, at + count * 1000, ranges))
            at, block = at + count * 1000, block + 1
    (found,) = scene.trace().explain().every
    assert found.id == "imbalance" and found.suggestion.startswith(told)


@pytest.mark.parametrize(
    ("first", "confidence"),
    [([40, 10, 10, 40, 10, 30], "possible"), ([40, 40, 40, 40, 40, 40], "measured")],
)
def test_what_long_blocks_leave_in_any_order_is_a_symptom(
    first: list[int], confidence: str
) -> None:
    """With several blocks for each CTA slot, the last ones end anywhere within the longest."""
    scene, block = Scene(), 0
    for sm in range(4):
        at = 0
        for count in [40, 10, 10, 40, 10, 10] if sm else first:
            ranges = [("dot", at + i * 1000, at + i * 1000 + 900) for i in range(count)]
            scene.add(Warp(block, 0, sm, at, at + count * 1000, ranges))
            at, block = at + count * 1000, block + 1
    found = next(one for one in scene.trace().explain().every if one.bound_ns > 10_000)
    assert (found.id, found.confidence) == ("imbalance", confidence)


def test_many_blocks_that_differ_for_no_known_reason_are_a_symptom() -> None:
    """Each has as much to do, and takes longer for it."""
    scene = Scene()
    for block, slower in enumerate([1, 2, 3, 4] * 8):
        step = 1000 * slower
        ranges = [("dot", i * step, i * step + 900) for i in range(10)]
        scene.add(Warp(block, 0, block, 0, 10 * step, ranges))
    (found,) = scene.trace().explain().every
    assert (found.id, found.confidence) == ("imbalance", "possible")


def test_one_block_that_does_more_is_a_slow_block() -> None:
    (found,) = unequal([10] * 30 + [40]).trace().explain().every
    assert found.id == "slow-block" and found.where.warps[0] == (30, 0)
    assert found.bound_ns == pytest.approx(30 * 30_000 / 31)


def test_blocks_that_did_not_record_leave_nothing_to_say_of_lanes() -> None:
    verdict = waves(17).trace(grid=(40, 1, 1)).explain()
    assert verdict.every == () and verdict.lanes is None
    assert any("other warps" in one.what for one in verdict.unknown)
    assert "  17 of 40 blocks of 1 warp on 8 SMs\n" in str(verdict)
