"""The bytes themselves. Kernels that are compiled and cached hold these numbers: whoever changes
one must raise the ABI version, and so must look here.
"""

from __future__ import annotations

import numpy as np
import pytest

from ikp.core import abi
from ikp.core.abi import (
    ClockKind,
    Kind,
    Language,
    Option,
    OverflowMode,
    PayloadType,
    SlotState,
)
from tests.segments import EPOCH, Launch, Record, Segment, Sm, Warp, nbytes

LAUNCH_WORDS = {
    "magic": 0,
    "abi": 4,
    "grid": 8,
    "grid_x": 8,
    "grid_y": 12,
    "grid_z": 16,
    "block": 20,
    "block_x": 20,
    "block_y": 24,
    "block_z": 28,
    "warps_per_block": 32,
    "slot_bytes": 36,
    "clock": 40,
    "overflow": 44,
    "grid_id": 48,
    "launches": 52,
    "language": 56,
    "options": 60,
    "warps": 64,
    "first_block": 68,
    "block_step": 72,
    "block_count": 76,
    "whole": 80,
    "together": 84,
    "margin": 88,
    "reserved": 92,
}
WIDE = abi.WIDE_RECORD.itemsize
SLOT_WORDS = {
    "init_ns": 0,
    "init_clock": 8,
    "finish_ns": 16,
    "finish_clock": 24,
    "sm": 32,
    "grid_id": 36,
    "state": 40,
    "role": 44,
    "attempted": 48,
    "open": 52,
    "open_start": 56,
}


DENSE_WORDS = {
    "init_ns": 0,
    "init_clock": 4,
    "attempted": 8,
    "sm": 12,
    "grid_id": 14,
    "finish_ns": 16,
    "finish_clock": 24,
}


def test_version_1_is_laid_out_like_this() -> None:
    assert (abi.ABI_VERSION, abi.MAGIC.to_bytes(4, "little")) == (1, b"IKP1")
    assert (abi.LAUNCH_HEADER_BYTES, abi.SLOT_HEADER_BYTES, abi.RECORD_BYTES) == (128, 64, 16)
    assert abi.field_offsets(abi.LAUNCH_HEADER) == LAUNCH_WORDS
    assert abi.field_offsets(abi.SLOT_HEADER).items() >= SLOT_WORDS.items()
    assert set(abi.SLOT_HEADER.names or ()) == set(SLOT_WORDS)
    assert abi.field_offsets(abi.DENSE_HEADER) == DENSE_WORDS
    assert abi.DENSE_HEADER_BYTES == 32
    assert abi.field_offsets(abi.RECORD) == {"tag": 0, "start": 4, "end": 8, "payload": 12}
    assert abi.field_offsets(abi.WIDE_RECORD) == {
        "start": 0,
        "end": 8,
        "tag": 16,
        "payload": 20,
        "reserved": 24,
    }
    assert {kind.name: kind.value for kind in Kind} == {
        "RANGE": 1,
        "INSTANT": 2,
        "PLACED_RANGE": 3,
        "PLACED_INSTANT": 4,
        "RANGE_TOTAL": 5,
        "INSTANT_TOTAL": 6,
    }
    assert abi.field_offsets(abi.TOTAL) == {
        "tag": 0,
        "ticks_low": 4,
        "ticks_high": 8,
        "count": 12,
    }
    assert {option.name: option.value for option in Option} == {
        "SELECTED": 1,
        "TOTALS": 4,
        "LANES64": 8,
        "DENSE": 16,
        "OTHERS": 32,
    }
    assert [kind.name for kind in PayloadType] == ["NONE", "U32", "I32", "F32"]
    narrow = ["CYCLES", "GLOBALTIMER", "HOST"]
    assert [kind.name for kind in ClockKind] == [*narrow, *(f"{name}64" for name in narrow)]
    assert [kind.value for kind in ClockKind] == list(range(6))
    assert [mode.name for mode in OverflowMode] == ["STOP", "WRAP", "STREAM"]
    assert [language.name for language in Language] == ["OTHER", "TRITON", "GLUON", "CUTE"]
    assert [state.value for state in SlotState] == [0, 1, 3]


def test_everything_stays_aligned_for_vector_stores() -> None:
    for size in (abi.LAUNCH_HEADER_BYTES, abi.SLOT_HEADER_BYTES, abi.RECORD_BYTES, WIDE):
        assert size % abi.ALIGNMENT == 0
    assert abi.MAX_SEGMENT_BYTES % abi.ALIGNMENT == 0
    assert abi.MAX_SEGMENT_BYTES < 1 << 31


def test_the_model_of_a_device_writes_exactly_these_bytes() -> None:
    segment = Segment(nbytes(1, 2, spare=4))
    warp = Warp([Record(10, 20, 5, np.int32(-2)), Record(30)], init=1, finish=41, sm=9, role=4)
    segment.run(Launch({(0, 0): warp}, grid_id=0xABC, language=Language.CUTE))
    assert np.frombuffer(segment.data[:60], "<u4").tolist() == [
        *(0x31504B49, 1, 1, 1, 1, 32, 1, 1, 1, 64 + 2 * 16, 0, 0, 0xABC, 1, 3)
    ]
    assert not any(segment.data[60:128])
    clock = Sm().origin
    assert np.frombuffer(segment.data[128:160], "<u8").tolist() == [
        *(EPOCH + 1, clock + 2, EPOCH + 41, clock + 82)
    ]
    assert np.frombuffer(segment.data[160:192], "<u4").tolist() == [9, 0xABC, 3, 4, 2, 0, 0, 0]
    low = clock % 2**32
    assert np.frombuffer(segment.data[192:224], "<u4").tolist() == [
        *(1 << 29 | 2 << 27 | 5, low + 20, low + 40, 2**32 - 2),
        *(2 << 29 | 1, low + 60, low + 60, 0),
    ]
    assert len(segment.data) == 228


@pytest.mark.parametrize("region", [0, 1, abi.MAX_USER_REGION, abi.REGION_MASK])
@pytest.mark.parametrize("payload", PayloadType)
@pytest.mark.parametrize("kind", Kind)
def test_a_tag_keeps_its_parts_apart(kind: Kind, payload: PayloadType, region: int) -> None:
    tag = abi.tag(kind, payload, region)
    assert 0 < tag < 1 << 32
    assert (tag >> 29, tag >> 27 & 3, tag & abi.REGION_MASK) == (kind, payload, region)


@pytest.mark.parametrize(
    ("slot_bytes", "stop", "ring"),
    [
        *((0, 0, 0), (63, 0, 0), (64, 0, 0), (79, 0, 0), (80, 1, 1), (96, 2, 2), (112, 3, 2)),
        *((64 + 16 * 64, 64, 64), (64 + 16 * 127 + 15, 127, 64), (64 + 16 * 128, 128, 128)),
    ],
)
def test_capacity(slot_bytes: int, stop: int, ring: int) -> None:
    assert abi.slot_capacity(slot_bytes, OverflowMode.STOP) == stop
    assert abi.slot_capacity(slot_bytes, OverflowMode.WRAP) == ring
    twice = 64 + 2 * (slot_bytes - 64)  # each record takes twice the room
    assert abi.slot_capacity(twice, OverflowMode.STOP, ClockKind.CYCLES64) == stop
    assert abi.slot_capacity(twice, OverflowMode.WRAP, ClockKind.GLOBALTIMER64) == ring


def test_a_clock_of_64_bits_is_the_same_clock() -> None:
    for kind in ClockKind:
        assert (kind.bits, kind.record.itemsize) == ((64, 32) if "64" in kind.name else (32, 16))
        assert kind.unit.name == kind.name.removesuffix("64")


@pytest.mark.parametrize("overflow", OverflowMode)
@pytest.mark.parametrize("records", [2, 3, 63, 64, 65, 1000])
@pytest.mark.parametrize("slots", [1, 7, 8192])
def test_a_segment_of_the_stated_size_holds_what_was_asked(
    slots: int, records: int, overflow: OverflowMode
) -> None:
    def capacity(size: int) -> int:
        return abi.slot_capacity((size - 128) // slots // 16 * 16, overflow)

    size = abi.segment_bytes(slots, records, overflow)
    assert capacity(size) >= records
    assert capacity(size - 1) < capacity(size), "a smaller one would do"


def test_the_smallest_slot_records_something() -> None:
    for overflow, records in ((OverflowMode.STOP, 1), (OverflowMode.WRAP, 2)):
        smallest = abi.min_slot_bytes(overflow)
        assert abi.slot_capacity(smallest, overflow) == records
