"""What is copied of a launch that is over: all that it wrote, which is zero again behind it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.core import abi
from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.segment import Segment, Spec
from ikp.session import lifting
from ikp.session.lifting import Lifted, lift, lift_all
from ikp.session.storage import HostStorage
from tests import segments as model
from tests.core.decoding.checks import assert_same
from tests.core.decoding.test_dense import densely
from tests.fuzz.segments import mutated, subjects
from tests.others import SEVENTH, chosen_blocks
from tests.session.test_readback import on_device, outcome

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.any_pins

STORAGE = HostStorage()


@pytest.fixture(params=["even", "uneven"])
def copied(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have even a few records copied in runs."""
    if request.param != "even":
        monkeypatch.setattr(lifting, "_FEW", 0)


def lifted(segment: Segment) -> Lifted | None:
    """Lift a segment, and zero it again; it must be empty then."""
    found = lift(STORAGE, segment)
    if found is None:
        return None
    STORAGE.clear(segment.data, found[1])
    assert not segment.data.any(), "a launch that gets this memory would find it in use"
    return found[0]


def check(whole: SegmentSource, *, stays: bool = False) -> Lifted | None:
    segment = on_device(whole)
    segment.data = segment.data.clone()
    found = lifted(segment)
    assert (found is None) == stays
    if found is not None:
        source = found.source(segment)
        assert source.nbytes == whole.nbytes
        assert_same(outcome(whole), outcome(source))
    return found


def settled(source: SegmentSource, launch: model.Launch) -> SegmentSource:
    return replace(source, clock=launch.clock, overflow=launch.overflow)


@pytest.mark.usefixtures("copied")
def test_finished_launches_of_all_kinds_decode_as_before() -> None:
    wholes = [one.source for one in subjects()]
    came = [whole for whole in wholes if not isinstance(outcome(whole), str)]
    done = [lifted(on_device(whole)) for whole in came]
    assert sum(each is not None for each in done) > 5
    for whole in came:
        segment = on_device(whole)
        if (found := lifted(on_device(whole))) is not None:
            assert_same(outcome(whole), outcome(found.source(segment)))


@pytest.mark.usefixtures("copied")
def test_what_is_broken_stays_or_is_told_as_it_was() -> None:
    random, stayed = Random(3), 0
    for _ in range(300):
        subject, data = mutated(random)
        if len(data) < abi.MIN_SEGMENT_BYTES:  # no buffer is smaller
            continue
        whole = replace(subject.source, data=np.frombuffer(data, np.uint8))
        segment = on_device(whole)
        found = lift(STORAGE, segment)
        stayed += found is None
        expected = outcome(whole)
        if found is not None and not isinstance(expected, str):
            assert_same(expected, outcome(found[0].source(segment)))
    assert 50 < stayed < 290


records = st.integers(0, 9)


@given(
    counts=st.lists(records, min_size=1, max_size=24),
    clock=st.sampled_from([ClockKind.CYCLES, ClockKind.CYCLES64]),
    overflow=st.sampled_from(OverflowMode),
    few=st.sampled_from([0, 4096]),
)
def test_slots_with_any_counts(
    counts: list[int], clock: ClockKind, overflow: OverflowMode, few: int
) -> None:
    warps = {
        (block, 0): model.Warp([model.Record(10 * i, 10 * i + 5) for i in range(count)])
        for block, count in enumerate(counts)
    }
    launch = model.Launch(warps, (len(counts), 1, 1), (32, 1, 1), clock, overflow)
    size = abi.segment_bytes(len(counts), 4, overflow, clock)
    segment = model.Segment(size)
    segment.run(launch)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lifting, "_FEW", few)
        check(settled(segment.source(), launch))


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize("together", [1, 2, 4])
@pytest.mark.parametrize("late", [False, True])
def test_records_in_rows(together: int, late: bool) -> None:
    work = [model.Record(10 * i, 10 * i + 5) for i in range(9)]
    warps = {(b, w): model.Warp(work[: 3 * b + w]) for b in range(3) for w in range(4)}
    if late:
        warps[1, 2] = replace(warps[1, 2], finish=None)
    launch = model.Launch(warps, (3, 1, 1), (128, 1, 1))
    segment = model.Segment(model.nbytes(launch.slots, 7))
    segment.run(launch)
    check(settled(densely(segment, launch, 7, together), launch), stays=late)


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize("late", [None, (1, 1), (7, 0)])
def test_headers_of_others(late: tuple[int, int] | None) -> None:
    work = [model.Record(10 * i, 10 * i + 5) for i in range(9)]
    warps = {(b, w): model.Warp(work[: b + w]) for b in range(9) for w in range(2)}
    if late is not None:
        warps[late] = replace(warps[late], finish=None)
    launch = model.Launch(warps, (9, 1, 1), (64, 1, 1))
    check(
        settled(chosen_blocks(launch, SEVENTH, 9, model.Device()), launch), stays=late is not None
    )


def test_what_nobody_wrote_to_is_neither_copied_nor_kept() -> None:
    work = [model.Record(10 * i, 10 * i + 5) for i in range(50)]
    warps = {(b, 0): model.Warp(work[: 1 + 49 * (b == 2)]) for b in range(4)}
    launch = model.Launch(warps, grid=(4, 1, 1))
    segment = model.Segment(model.nbytes(4, 10_000))
    segment.run(launch)
    found = check(settled(segment.source(), launch))
    assert found is not None
    assert found.nbytes < 4 * 52 * abi.RECORD_BYTES + 1024
    assert found.most == 50


def test_too_uneven_a_launch_stays_for_the_end() -> None:
    counts = [1 + 100 * (b % 2) for b in range(1000)]
    warps = {
        (b, 0): model.Warp([model.Record(10 * i, 10 * i + 5) for i in range(count)])
        for b, count in enumerate(counts)
    }
    launch = model.Launch(warps, (len(counts), 1, 1))
    segment = model.Segment(model.nbytes(launch.slots, 128))
    segment.run(launch)
    check(settled(segment.source(), launch), stays=True)


def test_a_buffer_that_was_launched_with_twice_is_zeroed_as_a_whole() -> None:
    segment = model.Segment(model.nbytes(8, 9))
    work = [model.Record(10 * i, 10 * i + 5) for i in range(9)]
    for blocks in (8, 2):
        launch = model.Launch({(b, 0): model.Warp(work) for b in range(blocks)}, (blocks, 1, 1))
        segment.run(launch)
    found = check(settled(segment.source(), launch))
    assert found is not None and not found.tail


def test_a_segment_that_no_kernel_wrote_to_has_no_launch() -> None:
    empty = Segment("k", torch.zeros(4096, dtype=torch.uint8), Spec(), "b", "cpu", 0.0)
    found = lifted(empty)
    assert found is not None and found.most is None
    assert found.source(empty).layout is None


def test_what_lies_behind_a_launch_is_told_and_zeroed() -> None:
    launch = model.Launch({(0, 0): model.Warp([model.Record(1, 2)])})
    segment = model.Segment(model.nbytes(1, 9) + 8)
    segment.run(launch)
    whole = settled(segment.source(), launch)
    data = np.array(whole.data)
    data[-1] = 7
    found = check(replace(whole, data=data))
    assert found is not None and found.tail


def test_segments_are_lifted_together_as_they_are_one_by_one() -> None:
    segments = [on_device(one.source) for one in subjects()]
    singly = [lift(STORAGE, each) for each in segments]
    together = lift_all(STORAGE, segments)
    assert 0 < sum(each is None for each in singly) < len(singly)
    assert [each is None for each in together] == [each is None for each in singly]
    for segment, one, other in zip(segments, singly, together, strict=True):
        if one is not None and other is not None:
            assert one[1] == other[1]
            assert_same(*(outcome(each[0].source(segment)) for each in (one, other)))
