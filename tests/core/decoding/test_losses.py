"""What did not fit, what never finished, what was overwritten: told, and told right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.core import abi
from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.decoding.decode import decode
from ikp.core.trace import Trace
from tests.core.decoding.checks import assert_consistent, assert_holds
from tests.products import pairwise
from tests.segments import Device, Launch, Record, Segment, Sm, Truth, Warp, nbytes

STOP, RING = OverflowMode.STOP, OverflowMode.WRAP
CLOCK_TURN = 2**31
"""Nanoseconds in which the low 32 bits of a 2 GHz clock come round."""


def steps(count: int, begin: int = 100, gap: int = 10) -> list[Record]:
    """Return ``count`` numbered ranges, one after the other."""
    return [
        Record(at, at + gap // 2, 1, np.uint32(i))
        for i, at in enumerate(range(begin, begin + count * gap, gap))
    ]


def launch_of(counts: Sequence[int], finish: int | None = 10**7, **options: object) -> Launch:
    """Return a launch in which block ``i`` records ``counts[i]`` ranges."""
    warps = {(b, 0): Warp(steps(n), init=b, finish=finish) for b, n in enumerate(counts)}
    return Launch(warps, grid=(len(counts), 1, 1), **options)  # type: ignore[arg-type]


def run(launch: Launch, records: int) -> tuple[Trace, Truth]:
    segment = Segment(nbytes(launch.slots, records))
    truth = segment.run(launch)
    return decode([segment.source()]), truth


@pytest.mark.parametrize("overflow", [STOP, RING])
@pytest.mark.parametrize("attempted", [0, 1, 7, 8, 9, 15, 16, 17, 24, 1000])
def test_counts_of_warps_that_finished_are_exact(attempted: int, overflow: OverflowMode) -> None:
    trace, truth = run(launch_of([attempted, 3], overflow=overflow), 8)
    assert_holds(trace, truth)
    (launch,) = trace.launches
    dropped = max(0, attempted - 8)
    assert (launch.attempted, launch.dropped) == (attempted + 3, dropped)
    assert trace.dropped == dropped
    mine = trace.payload[trace.events.slot == 0].tolist()
    assert mine == list(range(attempted))[: 8 if overflow is STOP else None][-8:]
    if not dropped:
        assert (launch.needed_bytes, launch.notes) == (0, ())
        return
    which = "latest" if overflow is STOP else "oldest"
    (note,) = launch.notes
    assert note == (
        f"{dropped} records dropped (the {which} of each full slot); "
        f"prof.buffer('k', size={launch.needed_bytes}) would have held all"
    )


@pytest.mark.parametrize("overflow", [STOP, RING])
@pytest.mark.parametrize("counts", [(9,), (8, 9), (1000, 0, 3), (100,) * 7])
def test_the_proposed_size_is_enough_and_no_more(
    counts: tuple[int, ...], overflow: OverflowMode
) -> None:
    launch = launch_of(counts, overflow=overflow)
    trace, _ = run(launch, 8)
    needed = trace.launches[0].needed_bytes
    for size, enough in ((needed, True), (needed - abi.ALIGNMENT, False)):
        segment = Segment(size)
        segment.run(launch)
        again = decode([segment.source()]).launches[0]
        assert (again.dropped == 0) is (again.needed_bytes == 0) is enough


def test_a_size_beyond_the_largest_buffer_is_not_proposed() -> None:
    segment = Segment(nbytes(1, 2))
    segment.run(launch_of([3]))
    segment.poke(segment.slot_at(0) + 48, 2**28)
    (launch,) = decode([segment.source()]).launches
    assert launch.dropped == 2**28 - 2
    assert launch.needed_bytes == nbytes(1, 2**28) > abi.MAX_SEGMENT_BYTES
    assert "size=" not in launch.notes[0]
    assert f"{launch.needed_bytes} bytes, more than a buffer can have" in launch.notes[0]


@pytest.mark.parametrize("clock", [ClockKind.CYCLES, ClockKind.GLOBALTIMER])
@pytest.mark.parametrize("overflow", [STOP, RING])
@pytest.mark.parametrize("attempted", [0, 1, 7, 8, 9, 15, 16, 17, 1000])
def test_warps_that_never_finished_keep_their_records(
    attempted: int, overflow: OverflowMode, clock: ClockKind
) -> None:
    launch = launch_of([attempted, 2], finish=None, overflow=overflow, clock=clock)
    trace, truth = run(launch, 8)
    assert_holds(trace, truth)
    (found,) = trace.launches
    assert found.unfinished == 2
    full = attempted >= 8
    assert found.notes[-2 if clock is ClockKind.CYCLES else -1] == (
        "2 warps never reached finish: their counts are read from the records"
        + (", and 1 of them are full, so more may be lost" if full else "")
    )
    # How many are lost can't be known: twice the size is the next try.
    expected = abi.segment_bytes(2, 16, overflow) if full else 0
    assert found.needed_bytes == expected


def test_one_warp_that_exits_early_leaves_the_others_exact() -> None:
    launch = launch_of([5, 12, 3], overflow=STOP)
    launch = replace(
        launch, warps={**launch.warps, (2, 0): replace(launch.warps[2, 0], finish=None)}
    )
    trace, truth = run(launch, 8)
    assert_holds(trace, truth)
    (found,) = trace.launches
    assert (found.attempted, found.kept, found.unfinished) == (20, 16, 1)
    assert trace.slots.finished.tolist() == [True, True, False]
    assert len(found.notes) == 2


@pytest.mark.parametrize(
    ("count", "begin", "gap"),
    [
        (20, 100, 10),
        (13, 5 * CLOCK_TURN - 80, 10),  # the clock comes round within what the ring holds
        (13, 3 * CLOCK_TURN // 4, 10),  # a long wait before the first record
        (9, 100, CLOCK_TURN // 10),  # what the ring holds spans most of a turn
        (8, 3 * CLOCK_TURN // 4, 10),  # just full
    ],
)
def test_a_full_ring_that_never_finished_is_in_order(count: int, begin: int, gap: int) -> None:
    records = steps(count, begin, gap)
    trace, _ = run(Launch({(0, 0): Warp(records, finish=None)}, overflow=RING), 8)
    assert trace.payload.tolist() == list(range(count))[-8:]
    assert trace.events.ticks.tolist() == [gap // 2 * 2] * 8
    assert_consistent(trace)


PAUSES = st.integers(CLOCK_TURN // 4, CLOCK_TURN // 2 - 3 * 10**7)
"""Waits of a quarter of a turn and more: what takes half of one is a step back in time."""


def paused(count: int, at: int, pause: int) -> Warp:
    """Return a warp that never finished, with a pause before record ``at`` of ``count``."""
    before, after = steps(count)[:at], steps(count, begin=100 + pause)[at:]
    return Warp(before + after, finish=None)


@given(st.integers(9, 24), st.integers(0, 24), PAUSES)
def test_a_pause_is_not_taken_for_the_seam_of_a_ring(count: int, at: int, pause: int) -> None:
    trace, _ = run(Launch({(0, 0): paused(count, at, pause)}, overflow=RING), 8)
    assert trace.payload.tolist() == list(range(count))[-8:]
    assert_consistent(trace)


OLD, NEW = 1, 2  # grid ids
MAY_SHOW_OTHERS = "warps that never reached finish may show some of theirs"
RELAUNCHED = "1 earlier launches wrote to this buffer; only the last is kept"


def relaunched(
    old: Launch, new: Launch, records: int = 8, device: Device | None = None
) -> tuple[Trace, Truth]:
    segment = Segment(nbytes(max(old.slots, new.slots), records), device)
    segment.run(replace(old, grid_id=OLD))
    truth = segment.run(replace(new, grid_id=NEW))
    return decode([segment.source()]), truth


def later(launch: Launch, ns: int, **changes: object) -> Launch:
    """Return the same launch, ``ns`` later."""
    return replace(
        launch,
        warps={
            at: replace(
                warp,
                init=warp.init + ns,
                finish=warp.finish and warp.finish + ns,
                records=[
                    replace(r, start=r.start + ns, end=r.end and r.end + ns) for r in warp.records
                ],
                **changes,  # type: ignore[arg-type]
            )
            for at, warp in launch.warps.items()
        },
    )


@pytest.mark.parametrize("overflow", [STOP, RING])
@pytest.mark.parametrize("new", [0, 1, 5, 8, 20])
def test_of_two_launches_into_one_buffer_the_last_remains(new: int, overflow: OverflowMode) -> None:
    trace, truth = relaunched(
        launch_of([30, 30], overflow=overflow),
        later(launch_of([new, 4], overflow=overflow), 2 * 10**7),
    )
    assert_holds(trace, truth)
    (launch,) = trace.launches
    assert launch.relaunches == 1
    assert launch.notes[-1] == RELAUNCHED


BEHIND, AHEAD = 1, 2
"""An SM whose counter stands behind that of SM 0 by a quarter of a second, and one ahead of it."""
COUNTERS = Device({0: Sm(10**12), BEHIND: Sm(10**12 - 5 * 10**8), AHEAD: Sm(10**12 + 5 * 10**8)})


@pytest.mark.parametrize(
    ("clock", "new", "old", "overflow", "apart", "sm"),
    pairwise(
        [ClockKind.CYCLES, ClockKind.GLOBALTIMER],
        [0, 1, 5, 8, 11, 16],
        [3, 8, 13],
        [STOP, RING],
        [2 * 10**7, CLOCK_TURN // 3, 10 * CLOCK_TURN + 12345],
        [0, AHEAD],
    ),
)
def test_records_of_an_earlier_launch_are_not_taken_for_those_of_an_unfinished_one(
    clock: ClockKind, new: int, old: int, overflow: OverflowMode, apart: int, sm: int
) -> None:
    before = launch_of([old, old], finish=None, overflow=overflow, clock=clock)
    after = launch_of([new, 2], finish=None, overflow=overflow, clock=clock)
    after = later(after, apart, sm=sm)
    trace, truth = relaunched(before, after, device=COUNTERS)
    assert_holds(trace, truth)


@given(st.integers(1, 8), st.integers(0, 8), PAUSES, st.sampled_from([STOP, RING]))
def test_a_pause_is_not_taken_for_the_end_of_what_an_unfinished_warp_recorded(
    count: int, at: int, pause: int, overflow: OverflowMode
) -> None:
    before = launch_of([8], finish=None, overflow=overflow)
    after = later(Launch({(0, 0): paused(count, at, pause)}, overflow=overflow), 2 * 10**7)
    trace, truth = relaunched(before, after)
    assert_holds(trace, truth)


@pytest.mark.parametrize("overflow", [STOP, RING])
def test_where_clocks_can_not_tell_whose_records_these_are_the_trace_says_so(
    overflow: OverflowMode,
) -> None:
    before = launch_of([6], finish=None, overflow=overflow)
    after = later(launch_of([2], finish=None, overflow=overflow), 2 * 10**7, sm=BEHIND)
    trace, truth = relaunched(before, after, device=COUNTERS)
    assert_consistent(trace)
    assert trace.payload.tolist()[:2] == [0, 1], "none of its own is lost"
    assert any(MAY_SHOW_OTHERS in note for note in trace.launches[0].notes)
    finished = replace(after.warps[0, 0], finish=4 * 10**7)
    trace, truth = relaunched(before, replace(after, warps={(0, 0): finished}), device=COUNTERS)
    assert_holds(trace, truth)
    assert not any(MAY_SHOW_OTHERS in note for note in trace.launches[0].notes)


def test_a_smaller_launch_into_a_used_buffer_sees_none_of_the_larger_one() -> None:
    trace, truth = relaunched(launch_of([8] * 16), later(launch_of([3, 30]), 2 * 10**7))
    assert_holds(trace, truth)


def test_slots_that_only_an_earlier_launch_used_are_left_out() -> None:
    new = later(launch_of([3, 3, 3, 3]), 2 * 10**7)
    new = replace(new, warps={at: new.warps[at] for at in ((0, 0), (3, 0))})
    trace, truth = relaunched(launch_of([8, 8, 8, 8]), new)
    assert_holds(trace, truth)
    (launch,) = trace.launches
    assert launch.notes == (
        "2 slots skipped: their headers are corrupt or of an earlier launch",
        RELAUNCHED,
    )


LONG = "ran longer than the 32-bit clock's 2.15 s"


@pytest.mark.parametrize("overflow", [STOP, RING])
@pytest.mark.parametrize("finish", [40 * CLOCK_TURN, None])
def test_the_clock_may_come_round_many_times_between_init_and_finish(
    overflow: OverflowMode, finish: int | None
) -> None:
    # Gaps just shorter than a turn, so that nearly every record stands on another one.
    records = steps(30, begin=5, gap=CLOCK_TURN - 7)
    launch = Launch({(0, 0): Warp(records, finish=finish)}, overflow=overflow)
    trace, truth = run(launch, 32)
    assert_holds(trace, truth, within_ns=2)
    assert any(LONG in note for note in trace.launches[0].notes)


def test_a_ring_that_lost_whole_turns_is_placed_by_finish() -> None:
    records = steps(1000, gap=CLOCK_TURN // 3)
    finish = records[-1].last + CLOCK_TURN - 10
    trace, truth = run(Launch({(0, 0): Warp(records, finish=finish)}, overflow=RING), 8)
    assert_holds(trace, truth, within_ns=2)
    assert LONG in trace.launches[0].notes[-1]


def test_what_a_full_slot_kept_stays_where_it_was_however_long_the_warp_ran() -> None:
    records = steps(20, gap=CLOCK_TURN // 3)
    trace, truth = run(Launch({(0, 0): Warp(records, finish=records[-1].last)}), 2)
    assert_holds(trace, truth)


def test_a_range_longer_than_a_turn_is_told() -> None:
    records = [Record(100, 100 + CLOCK_TURN + 50)]
    trace, _ = run(Launch({(0, 0): Warp(records, finish=CLOCK_TURN + 1000)}), 2)
    assert trace.events.ticks.tolist() == [2 * 50]
    (note,) = trace.launches[0].notes
    assert note.startswith(f"1 warp {LONG}")
    assert "shown short by a multiple" in note


def test_warps_just_shorter_than_a_turn_are_not_told() -> None:
    finish = CLOCK_TURN - 1
    trace, truth = run(Launch({(0, 0): Warp([Record(1, finish - 1)], finish=finish)}), 2)
    assert_holds(trace, truth)
    assert trace.launches[0].notes == ()


def test_one_anchor_per_sm_is_told() -> None:
    segment = Segment(nbytes(2, 8))
    truth = segment.run(launch_of([3, 3], finish=None))
    assert_holds(decode([segment.source()]), truth)
    for hz, told in (
        (2e9, "2.00 GHz is taken, as the device advertises"),
        (0.0, "1.50 GHz is taken, which is a guess"),
    ):
        (launch,) = decode([segment.source(clock_rate_hz=hz)]).launches
        assert launch.clock.rate == "nominal"
        assert launch.notes[-1].endswith(told)
