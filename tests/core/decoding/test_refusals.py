"""Bytes that no kernel wrote: refused in words, or left out and counted; never garbage."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from ikp.core import abi
from ikp.core.abi import ClockKind, Kind, OverflowMode, PayloadType
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.objects import ranges
from ikp.core.segment import Selection
from ikp.errors import DecodeError
from tests.core.decoding.checks import assert_consistent, assert_holds
from tests.segments import LAUNCH, SLOT, Launch, Record, Segment, Truth, Warp, nbytes

STEPS = [Record(100 * i, 100 * i + 50, i, np.uint32(i)) for i in range(1, 6)]


def valid(
    overflow: OverflowMode = OverflowMode.STOP,
    clock: ClockKind = ClockKind.CYCLES,
    finish: int | None = 10_000,
) -> tuple[Segment, Truth]:
    """Return a segment of 6 blocks of 2 warps, four of which overflow."""
    warps = {
        (b, w): Warp(STEPS[: 1 + b], init=b, finish=finish and finish + b, sm=b % 2)
        for b in range(6)
        for w in range(2)
    }
    launch = Launch(warps, grid=(6, 1, 1), block=(64, 1, 1), overflow=overflow, clock=clock)
    segment = Segment(nbytes(12, 4))
    return segment, segment.run(launch)


def refused(data: bytes | bytearray, match: str) -> None:
    with pytest.raises(DecodeError, match=match) as caught:
        decode([SegmentSource("the label", np.frombuffer(bytes(data), np.uint8))])
    assert "'the label'" in str(caught.value)


def test_a_segment_cut_short_is_refused_wherever_it_is_cut() -> None:
    segment, truth = valid()
    assert_holds(decode([segment.source()]), truth)
    for size in range(0, abi.LAUNCH_HEADER_BYTES, 4):
        refused(segment.data[:size], "truncated.*header of 128 bytes")
    for size in range(abi.LAUNCH_HEADER_BYTES, len(segment.data), 16):
        refused(segment.data[:size], "corrupt launch header")


@pytest.mark.parametrize("size", [0, 1, 127])
def test_less_than_a_header_is_refused_even_if_it_is_all_zero(size: int) -> None:
    refused(bytes(size), "truncated")


@pytest.mark.parametrize(
    "data", [b"\x0a\x40perfetto" * 100, b"{" * 500, b"\xff" * 4096, bytes(4) + b"\x01" + bytes(300)]
)
def test_foreign_bytes_are_refused(data: bytes) -> None:
    refused(data, f"not written by ikp: it starts with 0x.*, not {abi.MAGIC:#010x}")


@pytest.mark.parametrize("version", [0, 2, 2**32 - 1])
def test_another_abi_is_refused_by_number(version: int) -> None:
    segment, _ = valid()
    segment.poke(LAUNCH["abi"], version)
    refused(segment.data, rf"has record ABI {version}, this ikp reads ABI 1.*compile cache")


HEADER_FAULTS: dict[str, tuple[int, ...]] = {
    **{f"grid_{axis}": (0, 2, 5, 7, 2**31, 2**32 - 1) for axis in "xyz"},
    **{f"block_{axis}": (0, 32, 63, 96, 1025, 2**32 - 1) for axis in "xyz"},
    "warps_per_block": (0, 1, 3, 2**32 - 1),
    "slot_bytes": (0, 16, 64, 127, 112, 144, 2**31, 2**32 - 16),
    "clock": (6, 2**32 - 1),
    "overflow": (3, 2**32 - 1),
}


@pytest.mark.parametrize(
    ("field", "value"),
    [(name, value) for name, values in HEADER_FAULTS.items() for value in values],
)
def test_one_wrong_number_in_the_launch_header_is_seen(field: str, value: int) -> None:
    segment, truth = valid()
    (was,) = struct.unpack_from("<I", segment.data, LAUNCH[field])
    segment.poke(LAUNCH[field], value)
    if (field, value) in {("block_x", 63), ("block_x", was)}:
        # Two warps as well: nothing else depends on the number of threads.
        truth = replace(truth, launch=replace(truth.launch, block=(value, 1, 1)))
        assert_holds(decode([segment.source()]), truth)
    else:
        refused(segment.data, "corrupt launch header: it claims")


def test_a_wrong_count_of_launches_changes_no_record() -> None:
    segment, truth = valid()
    for launches in (0, 2, 2**32 - 1):
        segment.poke(LAUNCH["launches"], launches)
        trace = decode([segment.source()])
        assert_holds(trace, truth)
        assert trace.launches[0].relaunches == max(0, launches - 1)


def without(truth: Truth, row: int) -> Truth:
    """Return the truth less one warp."""
    return replace(
        truth,
        slots=truth.slots[:row] + truth.slots[row + 1 :],
        events=tuple(
            event._replace(slot=event.slot - (event.slot > row))
            for event in truth.events
            if event.slot != row
        ),
    )


SLOT_FAULTS = {
    "sm": (1 << 16, 2**32 - 1),
    "role": (1 << 27, 2**32 - 1),
    "grid_id": (0, 78),
    "state": (2, 4, 2**32 - 1),
    **{
        f"{which}_{clock}": (2**64 - 1, 2**62)
        for which in ("init", "finish")
        for clock in ("ns", "clock")
    },
}


@pytest.mark.parametrize(
    ("field", "value"), [(name, value) for name, values in SLOT_FAULTS.items() for value in values]
)
def test_a_slot_with_a_header_that_can_not_be_is_left_out_and_counted(
    field: str, value: int
) -> None:
    segment, truth = valid()
    size = "<Q" if field.endswith(("_ns", "_clock")) else "<I"
    struct.pack_into(size, segment.data, segment.slot_at(3) + SLOT[field], value)
    trace = decode([segment.source()])
    assert_holds(trace, without(truth, 3))
    assert trace.launches[0].notes[0] == (
        "1 slots skipped: their headers are corrupt or of an earlier launch"
    )


def test_a_slot_that_is_zero_counts_as_one_that_never_ran() -> None:
    segment, truth = valid()
    at = segment.slot_at(3)
    segment.data[at : at + abi.SLOT_HEADER_BYTES] = bytes(abi.SLOT_HEADER_BYTES)
    trace = decode([segment.source()])
    assert_holds(trace, without(truth, 3))
    assert "1 warp never reached init" in trace.launches[0].notes[0]


def test_a_slot_marked_unused_is_not_one_that_never_ran() -> None:
    segment, truth = valid()
    segment.poke(segment.slot_at(3) + SLOT["state"], 0)
    trace = decode([segment.source()])
    assert_holds(trace, without(truth, 3))
    assert trace.launches[0].notes[0].startswith("1 slots skipped: their headers are corrupt")


def test_a_count_below_the_records_that_are_there_is_told() -> None:
    segment, _ = valid()
    at = segment.slot_at(4) + SLOT["attempted"]  # holds 3
    for count in (0, 2):
        segment.poke(at, count)
        trace = decode([segment.source()])
        assert trace.slots.kept[4] == count
        assert "1 warp left records behind where their count ends" in trace.launches[0].notes[0]


@pytest.mark.parametrize("overflow", [OverflowMode.STOP, OverflowMode.WRAP])
def test_a_hole_in_what_an_unfinished_warp_recorded_is_told(overflow: OverflowMode) -> None:
    segment, _ = valid(overflow, finish=None)
    segment.poke(segment.record_at(6, 1), 0)
    trace = decode([segment.source()])
    assert trace.slots.kept[6] == 1
    assert "1 warp left records behind where their count ends" in trace.launches[0].notes[0]


def test_a_count_that_reaches_into_an_earlier_launch_is_told() -> None:
    """What stands there are whole records; but they ended before the warp began."""
    segment = Segment(nbytes(1, 5))
    segment.run(Launch({(0, 0): Warp(STEPS, finish=10_000)}, grid_id=1))
    segment.run(Launch({(0, 0): Warp([Record(10**8, 10**8 + 9)], 10**8, 10**8 + 50)}, grid_id=2))
    segment.poke(segment.slot_at(0) + SLOT["attempted"], 3)
    (launch,) = decode([segment.source()]).launches
    assert "the last records of 1 warp ended before init or after finish" in "".join(launch.notes)


def test_a_smaller_grid_than_the_kernel_s_is_told_where_the_sizes_agree() -> None:
    warps = {(b, 0): Warp(STEPS[:1]) for b in range(96)}
    segment = Segment(nbytes(96, 1, spare=80))
    segment.run(Launch(warps, grid=(96, 1, 1)))
    segment.poke(LAUNCH["grid_x"], 90)
    trace = decode([segment.source()])
    assert len(trace.slots) == 90
    assert "there is something behind the last slot" in "".join(trace.launches[0].notes)


def test_records_of_another_layout_than_the_session_s_are_told() -> None:
    """As a kernel writes them that was compiled for another buffer."""
    segment, truth = valid()
    asked = {"overflow": OverflowMode.WRAP, "clock": ClockKind.CYCLES64}
    trace = decode([segment.source(**asked)])
    assert_holds(trace, truth)
    first, second = trace.launches[0].notes[:2]
    assert first.startswith("recorded with overflow='stop' where the session has 'wrap'")
    assert second.startswith("recorded with a clock of 32 bits where the session has 'cycles64'")
    same = {"overflow": OverflowMode.STOP, "clock": ClockKind.HOST}  # of the same size
    assert not any("session" in n for n in decode([segment.source(**same)]).launches[0].notes)


@pytest.mark.parametrize("options", [{"clock": 3}, {"overflow": 1}], ids=str)
def test_totals_that_no_kernel_can_keep_are_refused(options: dict[str, int]) -> None:
    segment, _ = valid()
    for name, word in ({"options": 4} | options).items():
        segment.poke(LAUNCH[name], word)
    refused(segment.data, "claims .*totals where none can be kept")


def test_block_ids_of_the_largest_grids_are_whole() -> None:
    segment, truth = valid()
    words = {"grid_x": (1 << 31) - 1, "grid_y": 2, "options": 1, "warps": 3}
    words |= {"first_block": (1 << 31) + 5, "block_step": 1, "block_count": 6}
    for name, word in words.items():
        segment.poke(LAUNCH[name], word)
    trace = decode([segment.source()])
    assert_consistent(trace)
    assert len(trace.slots) == len(truth.slots)
    assert np.unique(trace.slots.block).tolist() == [(1 << 31) + 5 + i for i in range(6)]
    assert {(one.block, one.warp) for one in ranges(trace)} >= {((1 << 31) + 5, 0)}
    segment.poke(LAUNCH["grid_y"], 3)
    refused(segment.data, "6442450941 blocks, more than the numbers of slots can distinguish")


@pytest.mark.parametrize("field", ["finish_ns", "finish_clock"])
def test_a_finish_before_init_moves_no_record(field: str) -> None:
    segment, truth = valid()
    struct.pack_into("<Q", segment.data, segment.slot_at(11) + SLOT[field], 5)
    trace = decode([segment.source()])
    ends = truth.events[-1].end_ns
    slots = (*truth.slots[:-1], truth.slots[-1]._replace(end_ns=ends))
    assert_holds(trace, replace(truth, slots=slots))
    assert "the clocks of 1 warp ran backwards" in trace.launches[0].notes[-1]


@pytest.mark.parametrize("field", ["init_ns", "finish_ns"])
def test_a_clock_anchor_that_is_far_off_moves_no_other(field: str) -> None:
    segment, truth = valid()
    at = segment.slot_at(11) + SLOT[field]
    (ns,) = struct.unpack_from("<Q", segment.data, at)
    shift = 10**12 if field == "finish_ns" else -(10**12)
    struct.pack_into("<Q", segment.data, at, ns + shift)
    trace = decode([segment.source()])
    assert_holds(trace, truth)
    assert "1 clock anchors left out" in trace.launches[0].notes[-1]


BAD_TAGS = [0, 5, abi.REGION_MASK, *(kind << 29 | 3 for kind in (5, 6, 7)), 2**32 - 1]


@pytest.mark.parametrize("tag", BAD_TAGS)
def test_a_record_with_a_tag_that_can_not_be_is_left_out_and_counted(tag: int) -> None:
    segment, truth = valid()
    segment.poke(segment.record_at(8, 1), tag)
    trace = decode([segment.source()])
    row = [event.slot for event in truth.events].index(8) + 1
    slots = list(truth.slots)
    slots[8] = slots[8]._replace(kept=slots[8].kept - 1)
    events = truth.events[:row] + truth.events[row + 1 :]
    assert_holds(trace, replace(truth, slots=tuple(slots), events=events))
    assert trace.launches[0].notes[0] == (
        "1 corrupt records skipped: something else wrote to the segment"
    )


@pytest.mark.parametrize("clock", [each for each in ClockKind if each.bits == 32])
def test_a_start_before_the_beginning_of_time_is_moved_there(clock: ClockKind) -> None:
    segment, _ = valid(clock=clock)
    for slot in range(12):
        for field in ("init_ns", "init_clock"):
            struct.pack_into("<Q", segment.data, segment.slot_at(slot) + SLOT[field], 5)
        segment.poke(segment.record_at(slot, 0) + 4, 20)
        segment.poke(segment.record_at(slot, 0) + 8, 10)
    trace = decode([segment.source()])
    assert_consistent(trace)
    first = trace.events.slot == 0
    assert trace.events.ticks[first].tolist()[0] == 2**32 - 10
    assert trace.events.start_ns[first].tolist()[0] == 0


def test_an_instant_that_lasts_is_left_out() -> None:
    segment, _ = valid()
    segment.poke(segment.record_at(0, 0), abi.tag(Kind.INSTANT, PayloadType.NONE, 1))
    trace = decode([segment.source()])
    assert_consistent(trace)
    assert trace.slots.kept[0] == 0
    assert "1 corrupt records" in trace.launches[0].notes[0]


def test_a_broken_segment_names_itself_among_others() -> None:
    good, _ = valid()
    bad, _ = valid()
    bad.poke(0, 0xDEAD)
    with pytest.raises(DecodeError, match="the segment 'bad'"):
        decode([good.source("good"), bad.source("bad")])


def test_a_choice_of_blocks_that_was_overwritten_is_told_and_the_session_s_taken() -> None:
    segment, _ = valid()
    words = {"grid_x": 24, "options": 1, "warps": 3, "block_step": 4, "block_count": 6}
    for name, word in words.items():
        segment.poke(LAUNCH[name], word)
    chosen = Selection(3, 0, 4, 6)
    right = decode([segment.source(selection=chosen)])
    segment.poke(LAUNCH["first_block"], 2)
    trace = decode([segment.source(selection=chosen)])
    assert trace.slots.block.tolist() == right.slots.block.tolist()
    assert trace.launches[0].notes[0].startswith("the choice of warps and blocks in the launch")


def test_an_overwritten_choice_is_checked_by_the_session_s_own() -> None:
    """What stands in the header may fit the segment, and the session's own be too many slots."""
    segment, _ = valid()
    words = {"grid_x": 24, "options": 1, "warps": 3, "block_step": 4, "block_count": 6}
    for name, word in words.items():
        segment.poke(LAUNCH[name], word)
    more = Selection(3, 0, 1, 24)
    with pytest.raises(DecodeError, match=r"slots of \d+ bytes for 24 blocks of 2 warps"):
        decode([segment.source(selection=more)])
    right = decode([segment.source()])
    for name, word in {"block_step": 0, "block_count": 1, "warps": 1}.items():
        segment.poke(LAUNCH[name], word)
        trace = decode([segment.source(selection=Selection(3, 0, 4, 6))])
        assert trace.slots.block.tolist() == right.slots.block.tolist()
        assert trace.launches[0].notes[0].startswith("the choice of warps and blocks in the launch")


def test_a_segment_to_which_only_the_host_wrote_gives_no_launch() -> None:
    data = np.zeros(4096, np.uint8)
    words = Selection(1, 0, 8, 6).words().view(np.uint8)
    data[LAUNCH["warps"] :][: len(words)] = words
    assert decode([SegmentSource("k", data)]).launches == ()
    data[LAUNCH["grid_x"]] = 1
    refused(data.tobytes(), "not written by ikp: it starts with 0x00000000")
