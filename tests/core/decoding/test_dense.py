"""Short headers side by side, and records in rows: they say what headers before records do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.core import abi
from ikp.core.abi import Option, SlotState
from ikp.core.decoding.decode import decode
from ikp.core.decoding.dense import expanded
from ikp.core.decoding.launch_header import FIRST_RECORDS, SegmentSource
from ikp.errors import DecodeError
from tests.segments import LAUNCH, SLOT, Device, Launch, Record, Segment, Sm, Warp, nbytes

DEVICE = Device({0: Sm(7 << 32, 1_900_000_000), 1: Sm((9 << 32) - 50, 1_900_000_000)})
"""Clocks of which one has its low half turn over as kernels begin."""
HIGH = 1 << 32


def densely(segment: Segment, launch: Launch, records: int, together: int) -> SegmentSource:
    """Return what a segment says, in the other layout, with the same room for records."""
    source, slots = segment.source(), launch.slots
    own = records * abi.RECORD_BYTES
    plain = source.data[abi.LAUNCH_HEADER_BYTES :].reshape(slots, abi.SLOT_HEADER_BYTES + own)
    heads = plain[:, : abi.SLOT_HEADER_BYTES].copy().view(abi.SLOT_HEADER)[:, 0]
    made = np.zeros(slots, abi.DENSE_HEADER)
    finished = heads["state"] == SlotState.FINISHED
    for name in ("finish_ns", "finish_clock", "attempted"):
        made[name] = np.where(finished, heads[name], 0)
    for name in ("init_ns", "init_clock"):
        made[name] = heads[name] % HIGH
    made["sm"], made["grid_id"] = heads["sm"], heads["grid_id"] & 0xFFFF
    rows = plain[:, abi.SLOT_HEADER_BYTES :].reshape(-1, together, records, abi.RECORD_BYTES)
    rows = rows.swapaxes(1, 2).reshape(-1)
    head = source.data[: abi.LAUNCH_HEADER_BYTES].copy()
    for name, word in (
        ("options", Option.DENSE),
        ("together", together),
        ("slot_bytes", abi.DENSE_HEADER_BYTES + own),
    ):
        head[LAUNCH[name] :][:4] = np.frombuffer(np.uint32(word).tobytes(), np.uint8)
    return replace(source, data=np.concatenate([head, made.view(np.uint8), rows]))


warps = st.builds(
    lambda records, sm, init, life, finishes: Warp(
        [Record(init + 10 * n, init + 10 * n + 5, 1 + n % 3) for n in range(records)],
        init,
        init + 10 * records + life if finishes or not records else None,
        sm,
    ),
    st.integers(0, 6),
    st.integers(0, 1),
    st.integers(0, 1_000_000),
    st.integers(0, 1_000_000_000),
    st.booleans(),
)


@given(
    blocks=st.integers(1, 4),
    together=st.sampled_from([1, 2, 4]),
    more=st.integers(1, 2),
    records=st.integers(1, 5),
    data=st.data(),
)
def test_it_is_the_same_trace(
    blocks: int, together: int, more: int, records: int, data: st.DataObject
) -> None:
    size = together * more
    work = data.draw(
        st.dictionaries(
            st.tuples(st.integers(0, blocks - 1), st.integers(0, size - 1)), warps, min_size=1
        )
    )
    launch = Launch(work, (blocks, 1, 1), (32 * size, 1, 1))
    segment = Segment(nbytes(launch.slots, records), DEVICE)
    segment.run(launch)

    one, other = decode([segment.source()]), decode([densely(segment, launch, records, together)])

    for name in ("block", "warp", "sm", "attempted", "kept", "finished"):
        assert np.array_equal(getattr(one.slots, name), getattr(other.slots, name)), name
    for name in ("slot", "region", "ticks", "payload"):
        assert np.array_equal(getattr(one.events, name), getattr(other.events, name)), name
    if other.slots.finished.any():
        assert np.array_equal(one.slots.start_ns, other.slots.start_ns)
        assert np.array_equal(one.events.end_ns, other.events.end_ns)
        assert one.launches[0].clock == other.launches[0].clock


def test_headers_of_an_earlier_launch_are_told_apart() -> None:
    launch = Launch({(0, 0): Warp(), (0, 1): Warp()}, block=(64, 1, 1))
    segment = Segment(nbytes(2, 2))
    segment.run(launch)
    segment.poke(segment.slot_at(1) + SLOT["grid_id"], launch.grid_id + 1)
    trace = decode([densely(segment, launch, 2, 2)])
    assert len(trace.slots) == 1
    assert "of an earlier launch" in trace.launches[0].notes[0]


def test_a_header_of_something_else_takes_no_other_along() -> None:
    """Warps that never left have the time of those that did, and not what is no time at all."""
    rows = np.zeros(3, abi.DENSE_HEADER)
    rows["grid_id"], rows["init_ns"], rows["init_clock"] = (7, 7, 99), 1000, 500
    rows["finish_ns"], rows["finish_clock"] = (5000, 0, (1 << 63) + 5), (2500, 0, (1 << 63) + 5)
    found = expanded(rows.view(np.uint8), 3, 7)
    assert found["init_ns"][:2].tolist() == [1000, 1000]
    assert found["init_clock"][:2].tolist() == [500, 500]


@pytest.mark.parametrize("long", [1, 4])
@pytest.mark.parametrize("seconds", [2.3, 3, 4.2])
def test_warps_that_ran_longer_than_their_headers_tell_are_told(long: int, seconds: float) -> None:
    """Four warps of 1.9 GHz: a turn takes 2.26 s, and may have been lost of some or of all."""
    first = [Record(10, 20)]
    warps = {
        (0, n): Warp(first, finish=int(seconds * 1e9) if n < long else 10**8) for n in range(4)
    }
    launch = Launch(warps, block=(128, 1, 1))
    source = replace(recorded(launch, 2), clock_rate_hz=1.9e9)
    notes = decode([source]).launches[0].notes
    which = "1 warp" if long == 1 else f"{long} warps"
    told = f"{which} ran longer than the {2**32 / 1.9e9:.2f} s that the short headers"
    assert [note.startswith(told) for note in notes if "ran longer" in note] == [True]
    assert not any("something else wrote" in note for note in notes)


@pytest.mark.parametrize("seconds", [1, 2.2])
def test_warps_that_ran_shorter_are_not(seconds: float) -> None:
    warps = {(0, n): Warp([Record(10, 20)], finish=int(seconds * 1e9) + n) for n in range(4)}
    assert decode([recorded(Launch(warps, block=(128, 1, 1)), 2)]).launches[0].notes == ()


@pytest.mark.parametrize("room", [0, 3])
def test_a_buffer_of_the_size_that_is_told_holds_all(room: int) -> None:
    """Headers are shorter than other kernels', so a buffer for theirs would be too large."""
    work = Warp([Record(10 * n, 10 * n + 5) for n in range(5)])
    launch = Launch({(0, warp): work for warp in range(4)}, block=(128, 1, 1))
    needed = decode([recorded(launch, room)]).launches[0].needed_bytes
    fitting = 5 if room else FIRST_RECORDS
    assert needed == recorded(launch, fitting).nbytes
    assert decode([recorded(launch, fitting)]).launches[0].kept == 20


def recorded(launch: Launch, room: int) -> SegmentSource:
    segment = Segment(nbytes(launch.slots, room or 1), DEVICE)
    segment.run(launch)
    source = densely(segment, launch, room or 1, 2)
    if room:
        return source
    data = source.data[: abi.LAUNCH_HEADER_BYTES + launch.slots * abi.DENSE_HEADER_BYTES].copy()
    data[LAUNCH["slot_bytes"]] = abi.DENSE_HEADER_BYTES
    return replace(source, data=data)


@pytest.mark.parametrize("word", [0, 3, 1 << 31])
def test_rows_that_no_launch_has_are_refused(word: int) -> None:
    launch = Launch({(0, 0): Warp()}, block=(64, 1, 1))
    segment = Segment(nbytes(2, 2))
    segment.run(launch)
    source = densely(segment, launch, 2, 2)
    source.data[LAUNCH["together"] :][:4] = np.frombuffer(np.uint32(word).tobytes(), np.uint8)
    with pytest.raises(DecodeError, match=f"records of {word} warps in a row"):
        decode([source])


@pytest.mark.parametrize("name", ["overflow", "clock"])
def test_no_other_kind_of_records_has_rows(name: str) -> None:
    launch = Launch({(0, 0): Warp()}, block=(64, 1, 1))
    segment = Segment(nbytes(2, 2))
    segment.run(launch)
    source = densely(segment, launch, 2, 2)
    source.data[LAUNCH[name]] = {"overflow": 1, "clock": 3}[name]
    with pytest.raises(DecodeError, match="in a row"):
        decode([source])
