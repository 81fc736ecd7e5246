"""Totals: what a warp summed up is what its records would have said, and losses are told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ikp
from ikp.core import abi
from ikp.core.abi import ClockKind, Kind, Option, PayloadType
from ikp.core.decoding.decode import decode
from ikp.core.rows import MOST_TICKS, make_totals
from ikp.core.trace import Trace
from ikp.errors import DecodeError, UsageError
from tests.host import Host
from tests.segments import LAUNCH, Device, Launch, Record, Segment, Sm, Warp, nbytes
from tests.totals import SummingSegment, Totals, gemm, recorded, totals_of

REGIONS = st.one_of(st.integers(0, 3), st.integers(0, abi.REGION_MASK))


@st.composite
def works(draw: st.DrawFn) -> Warp:
    """Return a warp with ranges that may overlap, and instants."""
    init = draw(st.integers(0, 10**6))
    spans = st.tuples(st.integers(0, 10**9), st.none() | st.integers(0, 2**31 - 2), REGIONS)
    records = [
        Record(init + at, None if lasts is None else init + at + lasts, region)
        for at, lasts, region in draw(st.lists(spans, max_size=12))
    ]
    last = max([init, *(record.last for record in records)])
    finish = last + draw(st.integers(0, 10**6)) if draw(st.booleans()) else None
    return Warp(records, init, finish, draw(st.integers(0, 2)))


def found(trace: Trace, slot: int) -> Totals:
    """Return a slot's totals, by kind and region id."""
    rows = trace.totals
    return {
        (Kind(int(rows.kind[i])), trace.regions[rows.region[i]].id): (
            int(rows.count[i]),
            int(rows.ticks[i]),
        )
        for i in np.flatnonzero(rows.slot == slot).tolist()
    }


@given(
    st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 1)), works(), min_size=1),
    st.integers(1, 12),
)
def test_every_warp_comes_back_with_its_totals(
    warps: dict[tuple[int, int], Warp], room: int
) -> None:
    launch = Launch(warps, grid=(3, 1, 1), block=(64, 1, 1))
    segment = SummingSegment(nbytes(launch.slots, room), Device({1: Sm(hz=1_500_000_000)}))
    segment.run(launch)
    trace = decode([segment.source()])
    assert not len(trace.events)
    (told,) = trace.launches
    assert told.mode == "totals"
    truths = [totals_of(segment.device, work) for _, work in sorted(warps.items())]
    attempted = 0
    for slot, (truth, (_, work)) in enumerate(zip(truths, sorted(warps.items()), strict=True)):
        written = truth if work.finish is not None else {}
        attempted += len(written)
        assert found(trace, slot) == dict(sorted(written.items())[:room])
        assert trace.slots.attempted[slot] == len(written)
    assert told.attempted == attempted
    assert told.kept == len(trace.totals) == told.attempted - told.dropped
    assert told.unfinished == sum(work.finish is None for work in warps.values())


def test_times_have_the_rate_of_the_warp_itself() -> None:
    warps = {
        (0, 0): Warp([Record(0, 1000, 1), Record(5000, 5500, 1)], finish=10_000_000),
        (1, 0): Warp([Record(0, 1000, 1)], finish=10_000_000, sm=1),
    }
    launch = Launch(warps, grid=(2, 1, 1))
    segment = SummingSegment(nbytes(2, 4), Device({1: Sm(hz=1_900_000_000)}))
    segment.run(launch)
    totals = decode([segment.source()]).totals
    assert totals.ticks.tolist() == [3000, 1900]
    # SMs whose clocks differ by 5 % are placed apart.
    assert totals.total_ns.tolist() == [1500, 1000]


@pytest.mark.parametrize("clock", [ClockKind.GLOBALTIMER, ClockKind.HOST])
def test_ticks_of_a_timer_are_nanoseconds(clock: ClockKind) -> None:
    ranges = [Record(0, 1000, 1)] * 3
    totals = recorded({(0, 0): Warp(ranges, finish=10_000)}, clock=clock).totals
    assert (totals.ticks == totals.total_ns).all() and len(totals) == 1


def test_a_sum_has_more_than_32_bits() -> None:
    second = 10**9
    ranges = [Record(second * i, second * (i + 1), 1) for i in range(20)]
    totals = recorded({(0, 0): Warp(ranges, finish=20 * second)}).totals
    assert totals.ticks.tolist() == [40 * second]
    assert totals.total_ns.tolist() == [20 * second]


def test_a_second_finish_adds_to_the_first() -> None:
    segment = SummingSegment(nbytes(1, 4))
    segment.run(Launch({(0, 0): Warp([Record(0, 10, 5)], finish=100)}))
    tag = abi.tag(Kind.RANGE_TOTAL, PayloadType.NONE, 5)
    for at, word in enumerate((tag, 7, 0, 2)):
        segment.poke(segment.record_at(0, 1) + 4 * at, word)
    segment.poke(segment.slot_at(0) + 48, 2)  # attempted
    totals = decode([segment.source()]).totals
    assert (totals.count.tolist(), totals.ticks.tolist()) == ([3], [27])


def test_warps_that_never_finish_have_none_and_the_trace_says_so() -> None:
    trace = recorded({(0, 0): Warp([Record(0, 10, 1)], finish=None), (1, 0): Warp()})
    (launch,) = trace.launches
    assert not len(trace.totals)
    assert "1 warp never reached finish: their totals are lost" in launch.notes
    assert "their totals are lost" in str(trace.stats())


def test_totals_of_an_earlier_launch_are_not_taken_for_an_unfinished_warps() -> None:
    segment = SummingSegment(nbytes(1, 4))
    segment.run(Launch({(0, 0): Warp([Record(0, 10, 1)])}))
    segment.run(Launch({(0, 0): Warp([Record(0, 10, 1)], finish=None)}, grid_id=78))
    trace = decode([segment.source()])
    assert not len(trace.totals)
    assert trace.launches[0].relaunches == 1


def test_what_is_dropped_is_counted_and_the_size_told_holds_it() -> None:
    warps = {(0, 0): Warp([Record(i, i + 5, i) for i in range(20)])}
    trace = recorded(warps, room=8)
    (launch,) = trace.launches
    assert (launch.attempted, launch.kept, launch.dropped) == (20, 8, 12)
    assert "12 totals dropped" in launch.notes[0]
    segment = SummingSegment(launch.needed_bytes)
    segment.run(Launch(warps))
    assert decode([segment.source()]).dropped == 0


@pytest.mark.parametrize(
    ("words", "sound"),
    [
        ((Kind.RANGE_TOTAL, 10, 0, 1), True),
        ((Kind.RANGE_TOTAL, 2**32 - 1, 0, 1), True),
        ((Kind.RANGE_TOTAL, 0, 1, 1), False),  # a range of 2**32 ticks
        ((Kind.RANGE_TOTAL, 0, 1, 2), True),
        ((Kind.RANGE_TOTAL, 0, 0, 0), False),  # of nothing
        ((Kind.RANGE_TOTAL, 0, 1 << 30, 2**32 - 1), False),
        ((Kind.INSTANT_TOTAL, 0, 0, 1), True),
        ((Kind.INSTANT_TOTAL, 1, 0, 1), False),
        ((Kind.INSTANT_TOTAL, 0, 0, 0), False),
        ((Kind.RANGE, 1, 2, 0), False),
        ((Kind.INSTANT, 1, 1, 0), False),
        ((7, 1, 1, 1), False),
    ],
)
def test_what_no_kernel_can_have_written_is_left_out(
    words: tuple[int, int, int, int], sound: bool
) -> None:
    segment = SummingSegment(nbytes(1, 4))
    segment.run(Launch({(0, 0): Warp([Record(0, 10, 1)])}))
    kind, *rest = words
    for at, word in enumerate((kind << 29 | 1, *rest)):
        segment.poke(segment.record_at(0, 0) + 4 * at, word)
    trace = decode([segment.source()])
    assert len(trace.totals) == sound and not len(trace.events)
    assert any("corrupt" in note for note in trace.launches[0].notes) is not sound


def test_a_timeline_holds_no_totals() -> None:
    segment = Segment(nbytes(1, 4))
    segment.run(Launch({(0, 0): Warp([Record(0, 10, 1)])}))
    segment.poke(segment.record_at(0, 0), Kind.RANGE_TOTAL << 29 | 1)
    trace = decode([segment.source()])
    assert not len(trace.totals) and not len(trace.events)
    assert "1 corrupt records skipped" in trace.launches[0].notes[0]


@given(st.binary(min_size=64, max_size=64), st.integers(0, 9))
def test_garbage_in_a_slot_is_no_total_that_does_harm(garbage: bytes, attempted: int) -> None:
    segment = SummingSegment(nbytes(1, 4))
    segment.run(Launch({(0, 0): Warp([Record(0, 10, 1)])}))
    at = segment.record_at(0, 0)
    segment.data[at : at + 64] = garbage
    segment.poke(segment.slot_at(0) + 48, attempted)
    trace = decode([segment.source()])
    assert (trace.totals.count > 0).all()
    assert (trace.totals.ticks < MOST_TICKS).all() and (trace.totals.total_ns >= 0).all()
    assert trace.launches[0].kept <= 4


def test_a_kernel_that_can_not_keep_totals_is_told_of() -> None:
    segment = Segment(nbytes(1, 4))
    segment.run(Launch({(0, 0): Warp([Record(0, 10, 1)])}))
    trace = decode([segment.source(totals=True)])
    assert len(trace.events) == 1
    assert "can't keep totals" in trace.launches[0].notes[0]


@pytest.mark.parametrize("bit", [2, 64])
def test_options_that_do_not_exist_are_refused(bit: int) -> None:
    segment = SummingSegment(nbytes(1, 4))
    segment.run(Launch({(0, 0): Warp()}))
    segment.poke(LAUNCH["options"], Option.TOTALS | bit)
    with pytest.raises(DecodeError, match=f"options {4 + bit:#x}"):
        decode([segment.source()])


def test_rows_of_one_region_are_added_up() -> None:
    totals = make_totals(
        slot=[1, 0, 1, 1],
        region=[2, 2, 2, 2],
        kind=[1, 1, 1, 2],
        count=[3, 1, 4, 9],
        ticks=[30, 10, 40, 0],
        total_ns=[15, 5, 20, 0],
    )
    rows = zip(*(getattr(totals, name).tolist() for name in totals.__slots__), strict=True)
    assert list(rows) == [(0, 2, 1, 1, 10, 5), (1, 2, 1, 7, 70, 35), (1, 2, 2, 9, 0, 0)]


def test_statistics_are_those_of_the_timeline_but_for_percentiles() -> None:
    timeline, totals = gemm(timeline=True), gemm()
    for by in (None, "sm", "block", "warp", "role", "rank"):
        wanted = {(row.region, row.kind, row.group): row for row in timeline.stats(by)}
        rows = list(totals.stats(by))
        assert len(rows) == len(wanted)
        for row in rows:
            other = wanted[row.region, row.kind, row.group]
            same = ("launch", "launches", "count", "total_ns", "mean_ns", "share", "total_cycles")
            for name in (*same, "mean_cycles"):
                assert getattr(row, name) == pytest.approx(getattr(other, name)), name
            for name in ("p50_ns", "p99_ns", "min_ns", "max_ns", "self_ns", "p50_cycles"):
                assert getattr(row, name) is None
        assert all(one.in_no_range_ns is None for one in totals.stats(by).residence)
    text = str(totals.stats())
    (line,) = (line for line in text.split("\n") if " dot " in line)
    assert line.split()[1:] == ["256", "57.6", "%", "-", "230.40", "us", "900", "ns", *"-------"]
    assert "in no range" not in text  # nobody knows
    assert "12 totals, none dropped" in text


def test_a_session_asks_for_totals(host: Host) -> None:
    with ikp.profile(mode="totals") as prof:
        buffer = prof.buffer("k")
        assert buffer.spec.totals
        prof.discard(buffer)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "sum"}, "mode='sum' is unknown: use 'timeline' or 'totals'"),
        ({"mode": None}, "mode=None is unknown"),
        ({"mode": "totals", "overflow": "wrap"}, "nothing that overflow='wrap' could keep"),
    ],
)
def test_what_means_nothing_with_totals_is_refused(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        ikp.profile(**options)  # type: ignore[arg-type]
