"""What makes a verdict less sure: memory at its rate, neighbours on the SM, what recording took."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ikp.analysis.explain.verdict import Finding, Verdict
from ikp.analysis.perturbation import RECORD_CYCLES
from ikp.core.code_facts import FACTS, AccessFacts, CodeFacts, RangeFacts
from ikp.core.run_figures import CARVE_OUT
from tests.analysis.explain.launches import Range, Scene, Warp

pytestmark = pytest.mark.any_pins


def explained(
    scene: Scene, ranges: dict[str, RangeFacts] | None = None, **changes: object
) -> Verdict:
    trace = scene.trace(device="NVIDIA H200", **changes)
    said = {f"{FACTS}kernel": CodeFacts("sm_90a", 64, ranges=ranges).text()} if ranges else {}
    return replace(trace, provenance=said).explain()


def found(verdict: Verdict, name: str) -> Finding:
    return next(one for one in verdict.every if one.id == name)


def waiting(name: str, share: float, *before: Range, warps: int = 2) -> Scene:
    """Return warps that wait for a share of 10 us, after some ranges."""
    scene = Scene()
    for block in range(132):
        ranges = [*before, (name, 1000, 1000 + int(10_000 * share))]
        scene.add(*(Warp(block, w, block, 0, 10_000, ranges) for w in range(warps)))
    return scene


@pytest.mark.parametrize(("size", "confidence"), [(64_000, "likely"), (128_000, "possible")])
def test_a_wait_for_memory_at_its_rate_is_no_sure_cause(size: int, confidence: str) -> None:
    scene = waiting("wait for x @k.py:2", 0.5, ("load @k.py:1", 0, 100))
    ranges = {
        "load @k.py:1": RangeFacts("load", 0, size),
        "wait for x @k.py:2": RangeFacts("", 0, 0),
    }
    one = found(explained(scene, ranges), "exposed-load")  # 264 warps in 10 us, of 4,800 GB/s
    assert one.confidence == confidence and one.bound_share == pytest.approx(0.5)
    assert ("memory is asked for 70 % of its rate" in one.title) == (confidence == "possible")


@pytest.mark.parametrize(("cost", "confidence"), [(4.0, "likely"), (None, "possible")])
def test_a_wait_for_loads_of_unknown_addresses_is_no_sure_cause(
    cost: float | None, confidence: str
) -> None:
    """What such loads ask of memory is not counted: it may be at its rate."""
    scene = waiting("wait for x @k.py:2", 0.5, ("load @k.py:1", 0, 100))
    one = AccessFacts("load.global.4", 1, "k.py:1", cost, cost, 32, "lwb")
    mix = {"load.global.4": (1.0, 0.0, 0.0)}
    ranges = {
        "load @k.py:1": RangeFacts("load", mix=mix, accesses=(one,)),
        "wait for x @k.py:2": RangeFacts(""),
    }
    assert found(explained(scene, ranges), "exposed-load").confidence == confidence


@pytest.mark.parametrize(
    ("turns", "wait", "other", "bound"),
    [(10, 300, 0, 0.6), (10, 300, 200, 0.4), (10, 50, 0, 0.05), (1, 300, 0, 0.03)],
)
def test_a_pipeline_frees_all_beside_products_and_no_wait_before_their_loop(
    turns: int, wait: int, other: int, bound: float
) -> None:
    """Products take 40 % of ten turns; warps wait for loads in each turn, or once.

    What they calculate beside takes as long with a pipeline.
    """
    scene = Scene()
    for block in range(132):
        ranges: list[Range] = []
        for turn in range(10):
            at = 1000 * turn
            if turn < turns:
                ranges.append(("wait for x @k.py:2", at, at + wait))
            if other:
                ranges.append(("exp @k.py:4", at + 400, at + 400 + other))
            ranges.append(("dot @k.py:3", at + 600, at + 1000))
        scene.add(Warp(block, 0, block, 0, 10_000, ranges))
    one = found(explained(scene), "exposed-load")
    assert one.bound_share == pytest.approx(bound)


def test_a_wait_before_the_loop_of_products_has_its_own_bound() -> None:
    """It takes a fifth of the time, once; products come in each of eight turns behind it."""
    scene = Scene()
    for block in range(132):
        ranges: list[Range] = [("wait for x @k.py:2", 0, 2000)]
        ranges += [("dot @k.py:3", 1000 * turn + 600, 1000 * turn + 1000) for turn in range(2, 10)]
        scene.add(Warp(block, 0, block, 0, 10_000, ranges))
    assert found(explained(scene), "exposed-load").bound_share == pytest.approx(0.2)


def behind_copies(came: int, over: int, apart: int) -> Scene:
    """Return two warps that wait for copies up to ``came`` in each of ten turns, then in a barrier.

    The first leaves it at ``over``, the second ``apart`` behind.
    """
    scene = Scene()
    for w in range(2):
        ranges: list[Range] = []
        for at in range(0, 10_000, 1000):
            ranges += [
                ("cp.async @k.py:1", at, at + 10),
                ("cp.async wait @k.py:1", at + 10, at + came),
                ("barrier @k.py:1", at + came, at + over + apart * w),
            ]
        scene.add(Warp(0, w, 0, 0, 10_000, ranges))
    return scene


def test_a_blocks_barrier_is_no_wait_for_copies_that_had_come() -> None:
    """Its warps come together, and leave one by one: nobody is late, nor are copies."""
    verdict = explained(behind_copies(20, 320, 200))
    assert found(verdict, "barriers").confidence == "possible"
    assert "late-copy" not in {one.id for one in verdict.every}


def test_a_barrier_behind_copies_that_are_late_is_theirs() -> None:
    ids = [one.id for one in explained(behind_copies(400, 500, 100)).every]
    assert ids.count("late-copy") == 2 and "barriers" not in ids


@pytest.mark.parametrize(("at_once", "confidence"), [(1, "measured"), (2, "possible")])
def test_time_between_blocks_is_lost_for_sure_where_no_other_block_is(
    at_once: int, confidence: str
) -> None:
    scene, block = Scene(), 0
    for sm in range(4):
        for start in (0, 1200, 2400):
            for _ in range(at_once):
                scene.add(Warp(block, 0, sm, start, start + 1000, [("mix", start, start + 1000)]))
                block += 1
    one = found(explained(scene), "block-switch")
    assert one.confidence == confidence
    times = 2 * 4 * at_once
    title = f"200 ns pass between consecutive blocks of a CTA slot, {times} times"
    assert (one.title, one.where.count) == (title, times)


def test_what_recording_took_is_told() -> None:
    quiet = explained(waiting("wait for x @k.py:2", 0.5), attempted=264)
    assert quiet.launch is not None
    assert quiet.launch.recording_share_at_most == pytest.approx(RECORD_CYCLES[32] * 0.5 / 10_000)
    assert "recording took" not in str(quiet)
    loud = Scene()
    ranges = [("mix", 100 * i, 100 * i + 50) for i in range(100)]
    loud.add(Warp(0, 0, 0, 0, 10_000, ranges))
    verdict = explained(loud, attempted=100)
    assert verdict.launch is not None
    most = 100 * RECORD_CYCLES[32] * 0.5 / 10_000
    assert verdict.launch.recording_share_at_most == pytest.approx(most)
    assert "recording took up to 47 %" in str(verdict)
    assert any("--detail waits" in one.mark for one in verdict.unknown)


def test_copies_that_take_long_to_issue() -> None:
    name = "cp.async x12 @k.py:9"
    scene = Scene()
    for block in range(4):
        ranges: list[Range] = [(name, 1000 * i, 1000 * i + 350) for i in range(10)]
        scene.add(*(Warp(block, w, block, 0, 10_000, ranges) for w in range(8)))
    copies = {name: RangeFacts("copy", 0, 6144, 0, 41)}
    one = found(explained(scene, copies), "copy-issue")
    assert one.confidence == "possible" and one.bound_share == pytest.approx(0.35)
    assert "700 cycles for 6,144 bytes" in one.title
    engine = {name: RangeFacts("copy", 0, None, 0, 41)}
    assert "copy-issue" not in {each.id for each in explained(scene, engine).every}


def test_a_grid_that_leaves_sms_next_to_empty() -> None:
    norm = {"norm": RangeFacts("compute", 0, 0, 0, 400)}
    one = found(explained(waiting("norm", 0.9, warps=4), norm), "few-warps")
    assert one.confidence == "possible" and one.bound_share == pytest.approx(1 - 4 / 64)
    for ranges, warps in ((norm, 8), ({"norm": RangeFacts("mma", 1024, 0, 0, 400)}, 4)):
        verdict = explained(waiting("norm", 0.9, warps=warps), ranges)
        assert "few-warps" not in {each.id for each in verdict.every}


@pytest.mark.parametrize(("share", "is_cause"), [(0.95, True), (0.6, False)])
def test_too_few_warps_are_a_cause_where_they_do_nothing_but_wait(
    share: float, is_cause: bool
) -> None:
    """Then twice as many hide half of it at best: no more is promised."""
    loads = {"load @k.py:1": RangeFacts("load", 0, 512, 0, 40, mix={"load.global.4": (4, 0, 0)})}
    verdict = explained(waiting("load @k.py:1", share, warps=4), loads)
    one = found(verdict, "few-warps")
    assert (one.id in {each.id for each in verdict.findings}) == is_cause
    assert one.confidence == ("likely" if is_cause else "possible")
    if is_cause:
        assert one.bound_share == pytest.approx(share / 2, abs=0.01)


@pytest.mark.parametrize("carve_out", ["0", ""])
def test_shared_memory_that_the_code_declares_limits_an_sm_as_a_launchs_does(
    carve_out: str,
) -> None:
    """One block of eight runs on each SM: there is room for 23, were no carve-out in the way."""
    scene = Scene()
    for block in range(132 * 8):
        begin = block // 132 * 10_000
        ranges = [("load @k.py:1", begin, begin + 9_900)]
        scene.add(Warp(block, 0, block % 132, begin, begin + 10_000, ranges))
    loads = {"load @k.py:1": RangeFacts("load", 0, 512, 0, 40, mix={"load.global.4": (4, 0, 0)})}
    code = CodeFacts("sm_90a", 32, 0, ranges=loads, static_shared=9728)
    said = {f"{FACTS}kernel": code.text(), f"{CARVE_OUT}kernel": carve_out}
    verdict = replace(scene.trace(device="NVIDIA H200"), provenance=said).explain()
    one = found(verdict, "low-occupancy")
    assert "for want of shared memory" in one.title and one in verdict.findings
    assert ("a carve-out leaves 0 % of L1" in one.title) == bool(carve_out)
    assert ("to the driver" in one.suggestion) == bool(carve_out)
    assert "few-warps" not in {each.id for each in verdict.every}


@pytest.mark.parametrize(("plain", "at_most"), [(96, 20), (128, None), (None, None)])
def test_registers_are_the_plain_kernels_and_those_of_its_copy_are_told(
    plain: int | None, at_most: int | None
) -> None:
    """With 128 an SM has room for four blocks of four warps, with 96 for five."""
    scene = Scene()
    for block in range(132 * 8):
        begin = block // (132 * 4) * 10_000
        ranges = [("load @k.py:1", begin, begin + 9_000)]
        warps = [Warp(block, w, block % 132, begin, begin + 10_000, ranges) for w in range(4)]
        scene.add(*warps)
    facts = CodeFacts("sm_90a", 128, ranges={}, plain_registers=plain)
    trace = scene.trace(device="NVIDIA H200")
    verdict = replace(trace, provenance={f"{FACTS}kernel": facts.text()}).explain()
    it = verdict.hardware
    assert it is not None and (it.warps_at_once, it.registers) == (16, plain or 128)
    assert it.registers_recorded == (128 if plain == 96 else None)
    assert it.warps_at_once_plain == at_most
    assert it.limited_by == ("recording" if at_most else "registers")
    told = "96 for each thread, and 128 in the copy with records" in str(verdict)
    assert told == (plain == 96)
    unknown = [one.rationale for one in verdict.unknown if "without recording" in one.what]
    assert bool(unknown) == bool(at_most) and all("room for 16" in one for one in unknown)
    assert ("low-occupancy" in {one.id for one in verdict.every}) == (at_most is None)
