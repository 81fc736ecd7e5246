"""Streams: no record is shown that its warp did not write, at whatever time memory is copied."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.core import abi
from ikp.core.abi import ClockKind, OverflowMode, SlotState
from ikp.core.decoding import stream
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.decoding.slots import Memory
from ikp.core.decoding.stream import StreamReader
from tests.segments import Launch, Record, Segment, Warp, nbytes

pytestmark = pytest.mark.any_pins

ARRIVES = 10
"""The longest time that a byte of a store takes to memory."""


@dataclass
class Writer:
    """A warp whose stores arrive byte by byte, each byte at a time of its own."""

    capacity: int
    issued: list[int]  # when each record is stored
    counted: list[int]  # when its count is stored
    rng: np.random.Generator
    size: int = abi.RECORD_BYTES
    bytes_at: list[np.ndarray] = field(default_factory=list)  # by record, its bytes' arrivals
    count_at: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number, when in enumerate(self.issued):
            arrives = when + self.rng.integers(0, ARRIVES + 1, self.size)
            if number >= self.capacity:  # stores to one address arrive in their order
                arrives = np.maximum(arrives, self.bytes_at[number - self.capacity])
            self.bytes_at.append(arrives)
        delays = self.rng.integers(0, ARRIVES + 1, len(self.counted))
        self.count_at = np.maximum.accumulate(np.array(self.counted) + delays).tolist()

    def record(self, number: int) -> bytes:
        """Return a record all of whose bytes differ from its predecessor's in the ring."""
        made = np.zeros((), abi.RECORD if self.size == abi.RECORD_BYTES else abi.WIDE_RECORD)
        made["tag"] = abi.tag(abi.Kind.RANGE, abi.PayloadType.U32, number * 0x010305 & 0xFFFFFF)
        made["payload"], made["start"], made["end"] = number, 2 * number, 2 * number + 1
        return made.tobytes()

    def count(self, when: int) -> int:
        return bisect_right(self.count_at, when)

    def copy(self, begin: int, end: int) -> bytes:
        """Return the ring, each of whose bytes is read at a time between two others."""
        made = np.zeros(self.capacity * self.size, np.uint8)
        when = self.rng.integers(begin, end + 1, len(made))
        oldest = max(0, self.count(begin) - 2 * self.capacity)
        for number, arrives in enumerate(self.bytes_at[oldest:], oldest):
            if arrives.min() > end:
                break
            at = number % self.capacity * self.size
            there = np.arange(at, at + self.size)[arrives <= when[at : at + self.size]]
            made[there] = np.frombuffer(self.record(number), np.uint8)[there - at]
        return made.tobytes()


def reader_of(capacity: int, clock: ClockKind) -> tuple[StreamReader, SegmentSource]:
    segment = Segment(nbytes(1, capacity, record_bytes=clock.record.itemsize))
    segment.run(Launch({}, clock=clock, overflow=OverflowMode.STREAM))
    source = segment.source()
    assert source.layout is not None and source.layout.capacity == capacity
    return StreamReader(source.layout, source.grid_id), source


def head(attempted: int, source: SegmentSource, state: SlotState) -> np.ndarray:
    made = np.zeros(1, abi.SLOT_HEADER)
    made["attempted"], made["state"], made["grid_id"] = attempted, state, source.grid_id
    return made


def read_all(
    writer: Writer, clock: ClockKind, passes: list[tuple[int, int]], pause: int
) -> tuple[list[int], list[bytes], int]:
    """Return the numbers and the bytes of kept records, and how many were lost, as a host sees."""
    reader, source = reader_of(writer.capacity, clock)
    now, layout = 0, source.layout
    last = (max(writer.issued[-1], writer.counted[-1]) + ARRIVES + 1, 1)
    for wait, takes in [*passes, last]:
        now += wait
        done = (wait, takes) == last
        state = SlotState.FINISHED if done else SlotState.RUNNING
        before = head(writer.count(now), source, state)
        now += pause
        ring = writer.copy(now, now + takes)
        now += takes + pause
        raw = bytes(abi.LAUNCH_HEADER_BYTES + abi.SLOT_HEADER_BYTES) + ring
        memory = Memory(np.frombuffer(raw, np.uint8), layout)
        reader.take(before, memory, head(writer.count(now), source, state))
    rows = head(writer.count(now), source, SlotState.FINISHED)
    made = reader.excerpt(np.frombuffer(source.head, np.uint8), rows, source.nbytes)
    size = clock.record.itemsize
    kept = [made.records[at : at + size].tobytes() for at in range(0, len(made.records), size)]
    numbers = np.frombuffer(made.records, clock.record)["payload"].tolist()
    return numbers, kept, len(writer.issued) - int(made.counts[0])


@st.composite
def writers(draw: st.DrawFn) -> tuple[Writer, ClockKind, list[tuple[int, int]]]:
    clock = draw(st.sampled_from([ClockKind.CYCLES, ClockKind.CYCLES64]))
    gaps = draw(st.lists(st.integers(1, 30), min_size=1, max_size=40))
    issued, counted, now = [], [], 0
    for gap in gaps:
        now += gap
        issued.append(now)
        now += draw(st.integers(0, 3))
        counted.append(now)
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    writer = Writer(2 ** draw(st.integers(1, 4)), issued, counted, rng, clock.record.itemsize)
    passes = draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40)), max_size=12))
    return writer, clock, passes


@given(writers())
def test_every_record_shown_was_written_and_all_others_are_counted(
    made: tuple[Writer, ClockKind, list[tuple[int, int]]],
) -> None:
    writer, clock, passes = made
    numbers, kept, lost = read_all(writer, clock, passes, ARRIVES)
    assert numbers == sorted(set(numbers))
    assert kept == [writer.record(number) for number in numbers]
    assert len(numbers) + lost == len(writer.issued)
    latest = 1 - writer.capacity  # but for one that could have been overwritten next
    assert numbers[latest:] == [*range(len(writer.issued))][latest:]


def torn(pause: int = ARRIVES, seeds: int = 30) -> Iterator[bool]:
    """Yield whether a fast warp's records come out wrong."""
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        issued = np.cumsum(rng.integers(1, 4, 60)).tolist()
        writer = Writer(4, issued, [each + 1 for each in issued], rng)
        passes = [(int(rng.integers(0, 5)), int(rng.integers(0, 4))) for _ in range(8)]
        numbers, kept, _ = read_all(writer, ClockKind.CYCLES, passes, pause)
        yield kept != [writer.record(number) for number in numbers]


def test_each_part_of_the_protocol_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(torn())
    assert any(torn(pause=0))
    monkeypatch.setattr(stream, "_UNDER_WAY", -1)
    assert any(torn())


@given(st.integers(0, 40), st.booleans())
def test_a_stream_that_nothing_drained_has_its_latest_records(count: int, finish: bool) -> None:
    records = [Record(10 * i, 10 * i + 5, payload=np.uint32(i)) for i in range(count)]
    warp = Warp(records, finish=10_000 if finish else None)
    segment = Segment(nbytes(1, 8))
    segment.run(Launch({(0, 0): warp}, overflow=OverflowMode.STREAM))
    trace = decode([segment.source()])
    (launch,) = trace.launches
    most = 8 if finish else 7  # the oldest may be half overwritten
    kept = count if count < 8 else most
    assert trace.events.payload.tolist() == [*range(count - kept, count)]
    assert (launch.attempted, launch.dropped) == (count, count - kept)
    assert launch.overflow == "stream"
    dropped = [note for note in launch.notes if "overwritten before the host had read" in note]
    assert bool(dropped) == (kept < count)
