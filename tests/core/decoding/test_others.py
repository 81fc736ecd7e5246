"""Warps without records leave when and where they ran, which is what their slots would say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.core import abi
from ikp.core.abi import Option
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.segment import Selection
from ikp.core.trace import Slots, Trace, faults
from ikp.errors import DecodeError
from tests.core.decoding.test_dense import DEVICE, warps
from tests.others import SEVENTH, chosen_blocks, every_block, headers_alone
from tests.segments import LAUNCH, Device, Launch, Record, Segment, Warp, nbytes

_WHERE = ("block", "warp", "sm", "start_ns", "end_ns", "finished")
_WARP = ("warp", "block")


def assert_alike(found: Trace, whole: Trace) -> None:
    """Compare when and where all warps ran, and what the clock is: sums have another order."""

    def rows(*tables: Slots) -> dict[str, Any]:
        order = np.lexsort([np.concatenate([getattr(t, n) for t in tables]) for n in _WARP])
        return {
            name: np.concatenate([getattr(one, name) for one in tables])[order] for name in _WHERE
        }

    one, other = rows(found.slots, found.others), rows(whole.slots)
    for name in ("block", "warp", "sm", "finished"):
        assert np.array_equal(one[name], other[name]), name
    for name in ("start_ns", "end_ns"):
        assert np.abs(one[name] - other[name]).max() <= 1
        times = getattr(found.events, name) - getattr(whole.events, name)
        assert np.abs(times).max(initial=0) <= 1
    for name in ("region", "ticks"):
        assert np.array_equal(getattr(found.events, name), getattr(whole.events, name)), name
    clock, same = found.launches[0].clock, whole.launches[0].clock
    assert clock.ns_per_tick == pytest.approx(same.ns_per_tick, rel=1e-9)
    assert (clock.rate, clock.anchors) == (same.rate, same.anchors)


choices = st.builds(
    Selection,
    first_block=st.integers(0, 2),
    block_step=st.integers(1, 4),
    block_count=st.integers(1, 4),
    others=st.just(True),
)


@given(
    blocks=st.integers(3, 9),
    size=st.sampled_from([1, 2, 4]),
    chosen=choices,
    room=st.integers(7, 8),
    data=st.data(),
)
def test_they_are_placed_as_if_they_had_slots(
    blocks: int, size: int, chosen: Selection, room: int, data: st.DataObject
) -> None:
    places = st.tuples(st.integers(0, blocks - 1), st.integers(0, size - 1))
    work = data.draw(st.dictionaries(places, warps, min_size=1))
    launch = Launch(work, (blocks, 1, 1), (32 * size, 1, 1))

    whole = decode([every_block(headers_alone(launch, chosen), room, DEVICE)])
    found = decode([chosen_blocks(launch, chosen, room, DEVICE)])

    assert not faults(found)
    assert_alike(found, whole)
    assert all(chosen.rank(block) is not None for block in found.slots.block.tolist())
    assert all(chosen.rank(block) is None for block in found.others.block.tolist())
    (one,), (other,) = found.launches, whole.launches
    assert (one.attempted, one.kept, one.needed_bytes) == (other.attempted, other.kept, 0)
    assert one.unfinished == np.count_nonzero(~found.slots.finished)
    absent = blocks * size - len(work)
    assert [int(note.split()[0]) for note in one.notes if "reached init" in note] == (
        [absent] if absent else []
    )


def launched(count: int = 16) -> Launch:
    """Return a launch of blocks of two warps, one block after another."""

    def work(block: int) -> Warp:
        begin = 50_000 * block
        return Warp([Record(begin + 10_000, begin + 30_000)], begin, begin + 40_000)

    made = {(block, warp): work(block) for block in range(count) for warp in range(2)}
    return Launch(made, (count, 1, 1), (64, 1, 1))


def source(launch: Launch | None = None) -> SegmentSource:
    return chosen_blocks(launch or launched(), SEVENTH, 2, Device())


def test_they_have_neither_events_nor_the_range_of_the_whole_kernel() -> None:
    one = source()
    one.data[LAUNCH["whole"]] = 9
    trace = decode([one], {9: "whole"})
    assert (len(trace.slots), len(trace.others)) == (6, 26)
    assert (trace.events.region == 1).sum() == 6 == (trace.events.region == 0).sum()
    assert trace.launches[0].attempted == trace.launches[0].kept == 12
    assert trace.launches[0].notes == ()
    assert not trace.others.attempted.any() and not trace.others.kept.any()


def test_sms_of_which_no_block_was_chosen_are_placed_by_the_others() -> None:
    launch = launched()
    moved = {(b, w): replace(work, sm=int(b % 7 > 0)) for (b, w), work in launch.warps.items()}
    device = Device({1: DEVICE.sms[0]})
    launch = replace(launch, warps=moved)
    found = decode([chosen_blocks(launch, SEVENTH, 2, device)])
    truth = Segment(nbytes(launch.slots, 2), device).run(launch)
    for at in truth.slots:
        table = found.slots if at.block % 7 == 0 else found.others
        row = np.flatnonzero((table.block == at.block) & (table.warp == at.warp)).item()
        assert abs(int(table.start_ns[row]) - at.start_ns) <= 1
        assert abs(int(table.end_ns[row]) - at.end_ns) <= 1


def test_several_launches_keep_theirs_apart() -> None:
    alone = [decode([source(launched(count))]) for count in (16, 1, 9)]
    single = Launch({(0, 0): Warp([Record(1, 2)])})
    plain = Segment(nbytes(1, 2))
    plain.run(single)
    sources = [source(launched(16)), plain.source(), source(launched(1)), source(launched(9))]
    together = decode(sources)
    assert together.launches[0].notes == together.launches[3].notes == ()
    for number, one in zip((0, 2, 3), alone, strict=True):
        for name in ("slots", "others"):
            mine = getattr(together, name).launch == number
            for column in ("block", "warp", "start_ns", "end_ns"):
                values = getattr(getattr(together, name), column)[mine]
                assert np.array_equal(values, getattr(getattr(one, name), column))
    assert together.slots.launch[together.events.slot].tolist() == [*[0] * 6, 1, 2, 2, *[3] * 4]


def test_a_kernel_that_does_not_heed_them_gives_the_trace_of_a_choice() -> None:
    """The host told the same sizes; the memory behind the slots stays empty."""
    heeded = source()
    assert isinstance(heeded.data, np.ndarray)
    data = heeded.data.copy()
    data[LAUNCH["options"]] = Option.DENSE | Option.SELECTED
    data[-32 * abi.DENSE_HEADER_BYTES :] = 0
    trace = decode([replace(heeded, data=data)])
    assert (len(trace.slots), len(trace.others), len(trace.events)) == (6, 0, 6)
    assert trace.launches[0].notes == ()
    data[-1] = 1
    assert "behind the last slot" in decode([replace(heeded, data=data)]).launches[0].notes[0]


def behind(data: Any) -> Any:
    return data[-32 * abi.DENSE_HEADER_BYTES :].view(abi.DENSE_HEADER)


def changed(change: Any) -> Trace:
    one = source()
    assert isinstance(one.data, np.ndarray)
    change(behind(one.data))
    return decode([one])


def test_one_that_never_came_is_told() -> None:
    def forget(heads: Any) -> None:
        heads[3] = 0

    trace = changed(forget)
    assert len(trace.others) == 25
    assert trace.launches[0].notes == (
        "1 warp never reached init (the kernel hung, failed, or exited early)",
    )


def test_one_that_never_left_is_told_and_counts_as_no_lost_records() -> None:
    def cut_short(heads: Any) -> None:
        heads["finish_ns"][3] = heads["finish_clock"][3] = 0

    trace = changed(cut_short)
    assert np.count_nonzero(~trace.others.finished) == 1
    assert trace.launches[0].unfinished == 0
    (note,) = trace.launches[0].notes
    assert note.startswith("1 warp of blocks that were not chosen never reached finish")


@pytest.mark.parametrize("row", [0, 5])
def test_one_that_is_not_this_launchs_is_left_out_and_told(row: int) -> None:
    """Row 0 is of a warp that has a slot, so that nothing at all should stand there."""

    def spoil(heads: Any) -> None:
        heads[row] = heads[5]
        heads["grid_id"][row] += row > 0

    trace = changed(spoil)
    assert len(trace.others) == 26 - (row > 0)
    assert trace.launches[0].notes[0].startswith("1 slots skipped")


@pytest.mark.parametrize("options", [32, 33, 48])
def test_they_stand_behind_dense_slots_of_a_choice_alone(options: int) -> None:
    one = source()
    one.data[LAUNCH["options"]] = options
    with pytest.raises(DecodeError, match="headers of others where there can be none"):
        decode([one])


def test_sizes_that_leave_no_room_for_them_are_refused() -> None:
    one = source()
    with pytest.raises(DecodeError, match=r"slots of 64 bytes for 16 blocks"):
        decode([replace(one, selection=replace(SEVENTH, others=False))])


def test_a_buffer_of_the_size_that_is_told_holds_all() -> None:
    work = Warp([Record(10 * n, 10 * n + 5) for n in range(5)])
    launch = Launch({(block, 0): work for block in range(9)}, (9, 1, 1))
    needed = decode([chosen_blocks(launch, SEVENTH, 3, Device())]).launches[0].needed_bytes
    fitting = chosen_blocks(launch, SEVENTH, 5, Device())
    assert needed == fitting.nbytes
    assert decode([fitting]).dropped == 0


def test_they_change_nothing_where_records_are_decoded_in_c() -> None:
    """Tens of thousands of records: what is decoded without numpy, in threads, in chunks."""
    records = [Record(10 * n, 10 * n + 5) for n in range(3000)]
    made = {(b, w): Warp(records, 7 * b, 40_000 + b, b % 3) for b in range(60) for w in range(2)}
    launch = Launch(made, (60, 1, 1), (64, 1, 1))
    whole = decode([every_block(headers_alone(launch, SEVENTH), 3000, DEVICE)])
    found = decode([chosen_blocks(launch, SEVENTH, 3000, DEVICE)])
    assert_alike(found, whole)


@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=4))
def test_bytes_that_something_else_wrote_make_no_other_error(wrong: list[tuple[int, int]]) -> None:
    one = source()
    assert isinstance(one.data, np.ndarray)
    for at, byte in wrong:
        one.data[at % len(one.data)] ^= byte
    try:
        trace = decode([one])
    except DecodeError:
        return
    assert not faults(trace)
    assert len(trace.others) <= 32
