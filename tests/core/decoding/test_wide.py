"""Records of 64-bit clocks: ranges far longer than 32 bits count come back exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.core import abi
from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from tests.core.decoding.checks import assert_consistent, assert_holds
from tests.segments import EPOCH, Device, Launch, Record, Segment, Sm, Warp, nbytes

WIDE = pytest.mark.parametrize("clock", [ClockKind.CYCLES64, ClockKind.GLOBALTIMER64])
HOURS = 2**43
"""In nanoseconds, two and a half; 32 bits of a 2 GHz clock come round four thousand times."""


@st.composite
def warps(draw: st.DrawFn, sms: int) -> Warp:
    """Return a warp with ranges and instants of any length and order of starts."""
    now = init = draw(st.integers(0, 10**6))
    records = []
    for _ in range(draw(st.integers(0, 12))):
        now += draw(st.one_of(st.integers(0, 50), st.integers(0, HOURS)))
        start = draw(st.one_of(st.none(), st.integers(init, now)))
        records.append(Record(now) if start is None else Record(start, now, 3, np.uint32(7)))
    return Warp(records, init, now + draw(st.integers(0, HOURS)), draw(st.integers(0, sms - 1)))


@st.composite
def launches(draw: st.DrawFn) -> tuple[Device, Launch, int]:
    device = Device({sm: Sm(origin=draw(st.integers(0, 2**55))) for sm in range(2)})
    count = draw(st.integers(1, 4))
    launch = Launch(
        {(block, 0): draw(warps(2)) for block in range(count)},
        grid=(count, 1, 1),
        clock=draw(st.sampled_from([ClockKind.CYCLES64, ClockKind.GLOBALTIMER64])),
        overflow=draw(st.sampled_from(OverflowMode)),
    )
    return device, launch, draw(st.integers(2, 20))


@given(launches())
def test_what_ran_comes_back_however_long_it_took(made: tuple[Device, Launch, int]) -> None:
    device, launch, records = made
    segment = Segment(nbytes(launch.slots, records, record_bytes=32), device)
    truth = segment.run(launch)
    trace = decode([segment.source()])
    assert_holds(trace, truth, within_ns=2)
    (found,) = trace.launches
    assert found.clock.bits == 64
    assert found.clock.kind == launch.clock.unit.name.lower()
    assert not any("longer than" in note for note in found.notes)
    if found.needed_bytes:
        assert truth.most > truth.capacity
        again = Segment(found.needed_bytes, device)
        assert again.run(launch).most <= again.run(launch).capacity


@given(launches())
def test_warps_that_never_finished_keep_what_they_have(made: tuple[Device, Launch, int]) -> None:
    device, launch, records = made
    warps = {at: Warp(w.records, w.init, None, w.sm) for at, w in launch.warps.items()}
    launch = Launch(warps, launch.grid, launch.block, launch.clock, launch.overflow)
    segment = Segment(nbytes(launch.slots, records, record_bytes=32), device)
    truth = segment.run(launch)
    trace = decode([segment.source()])
    assert_consistent(trace)
    if launch.overflow is OverflowMode.STREAM:  # its oldest record may be half overwritten
        return
    # Unlike with 32 bits, also a full ring says when its records were made.
    assert trace.events.ticks.tolist() == [event.ticks for event in truth.events] or any(
        len({record.last for record in warp.records}) < len(warp.records)
        for warp in warps.values()  # of records that end together, no ring says which is the first
    )


@WIDE
def test_one_range_of_an_hour_is_an_hour(clock: ClockKind) -> None:
    hour = 3600 * 10**9
    segment = Segment(nbytes(1, 2, record_bytes=32))
    segment.run(Launch({(0, 0): Warp([Record(5, 5 + hour)], finish=hour + 9)}, clock=clock))
    trace = decode([segment.source()])
    assert (trace.events.end_ns - trace.events.start_ns).tolist() == [hour]
    assert trace.events.start_ns.tolist() == [EPOCH + 5]
    assert trace.launches[0].notes == ()


def test_with_32_bits_the_same_range_is_told_and_what_helps() -> None:
    segment = Segment(nbytes(1, 2))
    segment.run(Launch({(0, 0): Warp([Record(5, 5 + 10**10)], finish=10**10 + 9)}))
    note = decode([segment.source()]).launches[0].notes[0]
    assert "ikp.profile(clock='cycles64') records all 64 bits" in note
    segment = Segment(nbytes(1, 2))
    warps = {(0, 0): Warp([Record(5, 5 + 10**10)], finish=10**10 + 9)}
    segment.run(Launch(warps, clock=ClockKind.GLOBALTIMER))
    assert "clock='globaltimer64'" in decode([segment.source()]).launches[0].notes[0]


@WIDE
@pytest.mark.parametrize("word", [4, 12])
def test_times_that_no_device_shows_are_skipped_and_told(clock: ClockKind, word: int) -> None:
    segment = Segment(nbytes(1, 3, record_bytes=32))
    segment.run(Launch({(0, 0): Warp([Record(5, 9), Record(20, 30), Record(40)])}, clock=clock))
    at = segment.slot_at(0) + 64 + 32
    segment.poke(at + word, 2**32 - 1)
    trace = decode([segment.source()])
    assert trace.events.ticks.tolist() == ([8, 0] if clock is ClockKind.CYCLES64 else [4, 0])
    assert any(note.startswith("1 corrupt records skipped") for note in trace.launches[0].notes)


@given(st.binary(min_size=128, max_size=128), st.sampled_from(list(ClockKind)[3:]))
def test_any_bytes_in_the_records_do_no_harm(noise: bytes, clock: ClockKind) -> None:
    segment = Segment(nbytes(1, 4, record_bytes=32))
    segment.run(Launch({(0, 0): Warp([Record(5, 9)] * 4)}, clock=clock))
    data = segment.data[:192] + noise
    assert_consistent(decode([SegmentSource("k", np.frombuffer(bytes(data), np.uint8))]))


def test_a_buffer_too_small_for_one_long_record_proposes_a_size_that_holds_some() -> None:
    launch = Launch({(0, 0): Warp([Record(5, 9)])}, clock=ClockKind.CYCLES64)
    segment = Segment(nbytes(1, 1, record_bytes=16))
    segment.run(launch)
    (found,) = decode([segment.source()]).launches
    assert "are too small for 1 warp" in found.notes[0]
    assert found.needed_bytes == abi.segment_bytes(1, 64, clock=ClockKind.CYCLES64)
    segment = Segment(found.needed_bytes)
    assert decode([segment.source()]).launches == ()
    assert segment.run(launch).capacity == 64
