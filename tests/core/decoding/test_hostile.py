"""Bytes that may be anything: a clear error, or a trace that does not contradict itself. Never
another exception, never more memory or time than the segment itself explains.
"""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ikp.core import abi
from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.trace import Trace
from ikp.errors import DecodeError
from tests.core.decoding.checks import assert_consistent
from tests.core.decoding.test_refusals import valid
from tests.segments import SLOT, nbytes


def survives(data: bytes | bytearray) -> Trace | None:
    """Decode bytes that may be anything; the trace, unless they were refused."""
    try:
        trace = decode([SegmentSource("x", np.frombuffer(bytes(data), np.uint8))])
    except DecodeError:
        return None
    assert_consistent(trace)
    return trace


@given(st.binary(max_size=2000))
@example(bytes(128))
@example(abi.MAGIC.to_bytes(4, "little") + bytes(300))
def test_random_bytes(data: bytes) -> None:
    survives(data)


VALID = {
    (overflow, clock, finish): bytes(valid(overflow, clock, finish)[0].data)
    for overflow in OverflowMode
    for clock in ClockKind
    for finish in (10_000, None)
}
EXTREMES = st.sampled_from([0, 1, 2, 31, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 16, 2**32 - 1])
WORDS = st.one_of(EXTREMES, st.integers(0, 2**32 - 1))


def mutate(data: bytes, pokes: list[tuple[int, int]]) -> bytearray:
    changed = bytearray(data)
    for at, word in pokes:
        struct.pack_into("<I", changed, at * 4 % (len(data) - 3), word)
    return changed


def pokes(places: st.SearchStrategy[int]) -> st.SearchStrategy[list[tuple[int, int]]]:
    return st.lists(st.tuples(places, WORDS), min_size=1, max_size=12)


SOURCES = st.sampled_from(list(VALID.values()))
IN_LAUNCH_HEADER = st.integers(0, abi.LAUNCH_HEADER_BYTES // 4 - 1)
IN_SLOT_HEADERS = st.builds(
    lambda slot, word: (abi.LAUNCH_HEADER_BYTES + slot * 128) // 4 + word,
    st.integers(0, 11),
    st.integers(0, abi.SLOT_HEADER_BYTES // 4 - 1),
)
ANYWHERE = st.integers(abi.LAUNCH_HEADER_BYTES // 4, (nbytes(12, 4) - 4) // 4)


@pytest.mark.parametrize("places", [IN_LAUNCH_HEADER, IN_SLOT_HEADERS, ANYWHERE], ids=str)
def test_valid_segments_with_words_overwritten(
    places: st.SearchStrategy[int],
) -> None:
    @given(SOURCES, pokes(places))
    def hostile(data: bytes, words: list[tuple[int, int]]) -> None:
        survives(mutate(data, words))

    hostile()


@given(SOURCES, st.data())
def test_valid_headers_over_random_slots(data: bytes, draw: st.DataObject) -> None:
    size = len(data) - abi.LAUNCH_HEADER_BYTES
    body = draw.draw(st.binary(min_size=size, max_size=size))
    assert survives(data[: abi.LAUNCH_HEADER_BYTES] + body) is not None


@given(SOURCES, st.randoms(use_true_random=False))
def test_every_slot_overwritten_with_extremes(data: bytes, random: object) -> None:
    choice: Callable[..., int] = random.choice  # type: ignore[attr-defined]
    words = np.frombuffer(data, "<u4").copy()
    head = abi.LAUNCH_HEADER_BYTES // 4
    for slot in range(12):
        first = head + slot * 32
        for word in (*range(8), *range(8, 12), 12):
            if choice([True, False]):
                words[first + word] = choice([0, 1, 2**30 - 1, 2**32 - 1, words[first + word]])
        words[first + 9], words[first + 10] = 77, choice([1, 3])
    assert survives(words.tobytes()) is not None


def test_a_trace_of_hostile_bytes_needs_no_more_memory_than_the_segment() -> None:
    segment, _ = valid()
    for slot in range(12):
        segment.poke(segment.slot_at(slot) + SLOT["attempted"], 2**32 - 1)
        segment.poke(segment.slot_at(slot) + SLOT["sm"], 2**16 - 1 - slot)
    tracemalloc.start()
    try:
        trace = decode([segment.source()])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert trace.launches[0].kept <= 12 * 4
    assert peak < 16 << 20
