"""What the machine code says of ranges: what they are, what they need, what SMs have room for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ikp.analysis.explain.activity import Activity, of_region
from ikp.analysis.explain.verdict import Verdict
from ikp.core.code_facts import FACTS, CodeFacts, RangeFacts
from tests.analysis.explain.launches import Range, Scene, Warp
from tests.others import without_records

pytestmark = pytest.mark.any_pins


@pytest.mark.parametrize(
    ("name", "activity", "by"),
    [
        ("wgmma x4 @matmul.py:93", "mma", "mark"),
        ("wgmma wait @matmul.py:93", "wait:mma", "mark"),
        ("tcgen05 wait @k.py:3", "wait:mma", "mark"),
        ("cp.async x8 @matmul.py:91", "copy", "mark"),
        ("cp.async wait @matmul.py:91+92", "wait:copy", "mark"),
        ("TMA load @k.py:7", "copy", "mark"),
        ("TMA store x2 @k.py:7", "store", "mark"),
        ("TMA store wait @k.py:7", "wait:copy", "mark"),
        ("mbarrier wait @k.py:7", "wait:barrier", "mark"),
        ("barrier @k.py:7", "wait:barrier", "mark"),
        ("wait for b_g @chunk.py:31 chunk_h() < forward():88", "wait:memory", "mark"),
        ("iteration @k.py:16", "around", "mark"),
        ("for k iteration @matmul.py:88", "around", "mark"),
        ("while rounds < 3 @unedited.py:64", "around", "mark"),
        ("tl.load @matmul.py:91", "load", "mark"),
        ("tl.store @matmul.py:91 (3)", "store", "mark"),
        ("tl.dot @matmul.py:93", "mma", "mark"),
        ("warp_group_dot_wait @matmul.py:93", "wait:mma", "mark"),
        ("async_copy_global_to_local @matmul.py:91", "copy", "mark"),
        ("async_wait @matmul.py:91", "wait:copy", "mark"),
        ("dot: issue to wait @matmul.py:93", "mma", "mark"),
        ("load: wait @matmul.py:91", "wait:memory", "mark"),
        ("attention", "around", "mark"),
        ("wait full", "wait:copy", "name"),
        ("wait WGMMA", "wait:mma", "name"),
        ("issue WGMMA", "mma", "name"),
        ("issueTMA", "copy", "name"),
        ("full", "wait:copy", "name"),
        ("empty", "wait:barrier", "name"),
        ("softmax", "compute", "name"),
        ("region 7", "unknown", ""),
        ("фаза", "unknown", ""),
    ],
)
def test_what_a_name_says(name: str, activity: str, by: str) -> None:
    found = of_region(name, None, frozenset(["attention"]))
    assert (found.activity.value, found.by) == (activity, by)


def test_machine_code_goes_before_names() -> None:
    found = of_region("load", RangeFacts("wait:copy"), frozenset())
    assert found.activity is Activity.WAIT_COPY and found.by == "machine code"


def explained(scene: Scene, facts: CodeFacts, **changes: object) -> Verdict:
    trace = scene.trace(**changes)
    return replace(trace, provenance={f"{FACTS}kernel": facts.text()}).explain()


def turns(took: int, count: int = 50, warps: int = 8, blocks: int = 4) -> Scene:
    scene = Scene()
    for block in range(blocks):
        ranges = [("exchange", i * took, (i + 1) * took) for i in range(count)]
        scene.add(*(Warp(block, w, block, 0, count * took, ranges) for w in range(warps)))
    return scene


def test_accesses_that_take_far_longer_than_shared_memory_needs_conflict() -> None:
    facts = CodeFacts("sm_90a", 64, None, False, {"exchange": RangeFacts("compute", 0, 0, 64, 70)})
    (found,) = explained(turns(5000), facts).every  # 10,000 cycles; 8 warps need 512
    assert found.id == "bank-conflicts"
    assert found.bound_share == pytest.approx(1 - 512 / 10_000)
    assert explained(turns(500), facts).every == ()
    busy = CodeFacts("sm_90a", 64, None, False, {"exchange": RangeFacts("compute", 0, 0, 64, 4000)})
    assert explained(turns(5000), busy).every == ()  # arithmetic takes that long


def test_a_range_around_others_is_not_taken_for_its_accesses() -> None:
    ranges: list[Range] = [("kernel", 0, 100_000)]
    ranges += [("wait", 1000 * i, 1000 * i + 900) for i in range(100)]
    scene = Scene()
    for block in range(4):
        scene.add(*(Warp(block, w, block, 0, 100_000, ranges) for w in range(8)))
    kernel = RangeFacts("compute", 0, 0, 64, 300)
    facts = CodeFacts("sm_90a", 64, ranges={"kernel": kernel})
    assert "bank-conflicts" not in {one.id for one in explained(scene, facts).every}
    alone = [("kernel", 0, 100_000)]
    scene = Scene()
    for block in range(4):
        scene.add(*(Warp(block, w, block, 0, 100_000, alone) for w in range(8)))
    assert "bank-conflicts" in {one.id for one in explained(scene, facts).every}


def test_time_beside_accesses_that_conflict_counts_as_theirs() -> None:
    ranges = list[Range]()
    for i in range(50):  # a queue shows before the range, and behind it
        ranges.append(("exchange", 6000 * i + 400, 6000 * i + 5400))
        ranges.append(("mix", 6000 * i + 5600, 6000 * i + 6000))
    scene = Scene()
    for block in range(4):
        scene.add(*(Warp(block, w, block, 0, 50 * 6000, ranges) for w in range(8)))
    exchange = RangeFacts("compute", 0, 0, 64, 70)
    (found,) = explained(scene, CodeFacts("sm_90a", 64, ranges={"exchange": exchange})).every
    told = 5600 - 400 / 50  # what is before a warp's first range is nobody's
    assert found.bound_share == pytest.approx(told / 6000 * (1 - 512 / 10_000))


def test_narrow_loads_and_who_waits_for_them() -> None:
    scene = Scene()
    each = [r for i in range(20) for r in (("read", 1000 * i, 1000 * i + 200),
                                             ("mix", 1000 * i + 200, 1000 * i + 1000))]  # fmt: skip
    scene.add(*(Warp(block, 0, block, 0, 20_000, each) for block in range(4)))
    read = RangeFacts("load", 0, 2048, 0, 60, 4)
    mix = RangeFacts("compute", 0, 0, 0, 640, None, ("read",))
    facts = CodeFacts("sm_90a", 58, None, False, {"read": read, "mix": mix})
    (found,) = explained(scene, facts).every
    assert found.id == "narrow-loads" and "mix waits for" in found.title
    assert found.bound_share == pytest.approx(0.2 + 0.8 * (1 - 640 / 4 / 1600))
    wide = CodeFacts(
        "sm_90a", 58, None, False, {"read": replace(read, lane_bytes=None), "mix": mix}
    )
    assert explained(scene, wide).every == ()


def test_registers_that_leave_room_for_few_warps() -> None:
    scene = Scene()
    for block in range(132 * 6):
        begin = block // (132 * 2) * 10_000
        ranges = [("walk", begin, begin + 10_000)]
        scene.add(*(Warp(block, w, block % 132, begin, begin + 10_000, ranges) for w in range(4)))
    facts = CodeFacts("sm_90a", 200, None, False, {"walk": RangeFacts("load")})
    verdict = explained(scene, facts, device="NVIDIA H200")
    found = verdict.every[0]
    assert found.id == "low-occupancy" and "registers" in found.title
    assert found.bound_share == pytest.approx(1 - 1 / 3)  # all six blocks of an SM at once
    assert "1 wave of blocks in place of 3" in found.what_if
    hardware = verdict.hardware
    assert hardware is not None and hardware.limited_by == "registers"
    assert (hardware.warps_at_once, hardware.warps_possible, hardware.registers) == (8, 64, 200)


@pytest.mark.parametrize(
    ("registers", "shared", "sure"), [(200, None, "possible"), (32, 100 << 10, "likely")]
)
def test_registers_are_what_the_code_needs_unless_warps_do_nothing_but_wait(
    registers: int, shared: int | None, sure: str
) -> None:
    """Shared memory is a launch's to give."""
    scene = Scene()
    for block in range(132 * 6):
        begin = block // (132 * 2) * 10_000
        ranges = [("walk", begin, begin + 7_000), ("mix", begin + 7_000, begin + 10_000)]
        scene.add(*(Warp(block, w, block % 132, begin, begin + 10_000, ranges) for w in range(4)))
    code = {"walk": RangeFacts("load"), "mix": RangeFacts("compute")}
    facts = CodeFacts("sm_90a", registers, shared, False, code)
    verdict = explained(scene, facts, device="NVIDIA H200")
    found = next(one for one in verdict.every if one.id == "low-occupancy")
    assert found.confidence == sure


def test_flops_are_those_of_all_records_or_none() -> None:
    steps, blocks, warps = 16, 12, 4
    scene = Scene()
    for block in range(blocks):
        ranges = [("dot", 100 * i, 100 * i + 90) for i in range(steps)]
        scene.add(*(Warp(block, w, block, 0, 1600, ranges) for w in range(warps)))
    dot = RangeFacts("mma", 2 * 128 * 128 * 64 // warps)
    facts = CodeFacts("sm_90a", 168, None, True, {"dot": dot})
    m, n, k = 128 * 4, 128 * 3, 64 * steps  # twelve tiles
    whole = explained(scene, facts, device="NVIDIA H200").hardware
    assert whole is not None and whole.flop == 2 * m * n * k
    assert whole.tflops == pytest.approx(2 * m * n * k / 1600 / 1e3)
    assert whole.of_peak == pytest.approx(whole.tflops / (132 * 4096 * 2 / 1e3))
    for less in (
        explained(scene, replace(facts, all_products=False)),
        explained(scene, facts, grid=(40, 1, 1)),
        explained(scene, facts, attempted=10, kept=9),
    ):
        assert less.hardware is not None and less.hardware.flop is None


def test_of_a_sample_operations_and_bytes_are_scaled_to_all_blocks() -> None:
    scene = Scene()
    for block in range(12):
        scene.add(
            *(Warp(block, w, block, 0, 100, [("dot", 0, 90), ("read", 90, 95)]) for w in (0, 1))
        )
    ranges = {"dot": RangeFacts("mma", 1 << 20, 0), "read": RangeFacts("load", 0, 2048, 0, 60, 4)}
    facts = {f"{FACTS}kernel": CodeFacts("sm_90a", 168, None, True, ranges).text()}
    trace = replace(scene.trace(), provenance=facts)
    some = without_records(trace, {(0, block) for block in range(12) if block % 4})
    whole, sample = trace.explain().hardware, some.explain().hardware
    assert whole is not None and sample is not None and len(some.slots) == len(trace.slots) // 4
    assert sample.flop == whole.flop == 12 * 2 << 20
    assert sample.bytes == whole.bytes == 12 * 2 * 2048


def test_flops_of_a_launch_without_some_of_its_warps_are_not_told() -> None:
    """A Gluon kernel has warps beside those that it is launched with: they stand in for none."""
    scene = Scene()
    for block in range(4):
        scene.add(*(Warp(block, w, block, 0, 100, [("dot", 0, 90)]) for w in range(5)))
    facts = CodeFacts("sm_90a", 168, None, True, {"dot": RangeFacts("mma", 1 << 20)})

    def flop(**changes: Any) -> int | None:
        hardware = explained(scene, facts, warps_per_block=4, **changes).hardware
        assert hardware is not None
        return hardware.flop

    assert flop() == 4 * 5 << 20
    assert flop(grid=(5, 1, 1)) is None  # 20 warps recorded, of four blocks
    assert flop(unfinished=1) is None
    other = {**facts.ranges, "elsewhere": RangeFacts("mma", 1 << 20)}
    facts = replace(facts, ranges=other)
    assert flop() is None  # by warps that did not record
