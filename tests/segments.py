"""A device in plain Python: writes segments as kernels do, and keeps the truth beside them.

It is a model of the machine, not of the decoder: every warp walks through its records one by one
with a cursor, as the device code does, and clocks are integer arithmetic. Times are nanoseconds
since ``EPOCH``. Offsets come from ``ikp.core.abi``, whose layout ``tests/core/test_abi.py`` pins.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ikp.core import abi
from ikp.core.abi import ClockKind, Kind, Language, OverflowMode, PayloadType, SlotState
from ikp.core.decoding.launch_header import SegmentSource

EPOCH = 1_760_000_000_123_456_789
"""Unix time of 0 ns here: a present-day time, which no float64 can hold to the nanosecond."""
WORD = (1 << 32) - 1
TIMERS = (ClockKind.GLOBALTIMER, ClockKind.GLOBALTIMER64)
Number = np.uint32 | np.int32 | np.float32

LAUNCH = abi.field_offsets(abi.LAUNCH_HEADER)
SLOT = abi.field_offsets(abi.SLOT_HEADER)
PAYLOAD_TYPES = {np.uint32: PayloadType.U32, np.int32: PayloadType.I32, np.float32: PayloadType.F32}


@dataclass(frozen=True, slots=True)
class Sm:
    """One SM's cycle counter."""

    origin: int = 5_000_000_000  # what it shows at EPOCH
    hz: int = 2_000_000_000

    def ticks(self, ns: int) -> int:
        return self.origin + ns * self.hz // 10**9


@dataclass(frozen=True, slots=True)
class Device:
    """The clocks. With a timer step of 1 a decoder can place every tick within a nanosecond."""

    sms: Mapping[int, Sm] = field(default_factory=dict)  # others are as Sm()
    timer_step: int = 1  # 32 on an H200

    def timer(self, ns: int) -> int:
        unix = EPOCH + ns
        return unix - unix % self.timer_step

    def ticks(self, sm: int, ns: int) -> int:
        return self.sms.get(sm, Sm()).ticks(ns)


@dataclass(frozen=True, slots=True)
class Record:
    """A range, or an instant where ``end`` is None."""

    start: int
    end: int | None = None
    region: int = 1
    payload: Number | None = None

    @property
    def last(self) -> int:
        return self.start if self.end is None else self.end

    @property
    def tag(self) -> tuple[Kind, PayloadType, int]:
        kind = Kind.INSTANT if self.end is None else Kind.RANGE
        return kind, self.payload_type, self.region

    @property
    def payload_type(self) -> PayloadType:
        return PayloadType.NONE if self.payload is None else PAYLOAD_TYPES[type(self.payload)]

    @property
    def bits(self) -> int:
        return 0 if self.payload is None else int.from_bytes(self.payload.tobytes(), "little")


@dataclass(frozen=True, slots=True)
class Warp:
    """What one warp does; records in the order of their ends, ``finish`` None if never reached."""

    records: Sequence[Record] = ()
    init: int = 0
    finish: int | None = 1_000_000
    sm: int = 0
    role: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch. ``warps`` maps (linear block, warp in block); others never reach ``init``."""

    warps: Mapping[tuple[int, int], Warp]
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (32, 1, 1)
    clock: ClockKind = ClockKind.CYCLES
    overflow: OverflowMode = OverflowMode.STOP
    grid_id: int = 77
    language: Language = Language.OTHER

    @property
    def warps_per_block(self) -> int:
        return -(-math.prod(self.block) // 32)

    @property
    def slots(self) -> int:
        return math.prod(self.grid) * self.warps_per_block

    @property
    def wide(self) -> bool:
        return self.clock.name.endswith("64")

    @property
    def record_bytes(self) -> int:
        return 32 if self.wide else 16


class SlotTruth(NamedTuple):
    """A warp that ran. ``attempted`` is what the warp did, whether or not a decoder can know."""

    block: int
    warp: int
    sm: int
    role: int
    finished: bool
    start_ns: int
    end_ns: int
    attempted: int
    kept: int


class EventTruth(NamedTuple):
    """A record that is still there. ``slot`` counts the warps that ran."""

    slot: int
    region: int
    kind: int
    payload_type: int
    payload: int
    ticks: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Truth:
    """What really happened in the last launch into a segment."""

    launch: Launch
    capacity: int
    slots: tuple[SlotTruth, ...]
    events: tuple[EventTruth, ...]

    @property
    def attempted(self) -> int:
        return sum(slot.attempted for slot in self.slots)

    @property
    def most(self) -> int:
        """Records of the busiest warp."""
        return max((slot.attempted for slot in self.slots), default=0)


def nbytes(slots: int, records: int, spare: int = 0, record_bytes: int = 16) -> int:
    """Return the size of a segment whose slots hold exactly ``records``."""
    slot = abi.SLOT_HEADER_BYTES + records * record_bytes
    return abi.LAUNCH_HEADER_BYTES + slots * slot + spare


class Segment:
    """Memory that launches record into, zeroed at first."""

    def __init__(self, size: int, device: Device | None = None) -> None:
        self.data = bytearray(size)
        self.device = device or Device()
        self._launches = 0

    def run(self, launch: Launch) -> Truth:
        """Let every warp write what it writes on a device; return the truth."""
        size = (len(self.data) - abi.LAUNCH_HEADER_BYTES) // launch.slots // 16 * 16
        self._launches += 1
        self._write_launch_header(launch, size)
        capacity = _capacity(size, launch)
        warps = sorted(launch.warps.items()) if capacity else []
        for (block, warp), work in warps:
            slot = block * launch.warps_per_block + warp
            self._run_warp(launch, work, abi.LAUNCH_HEADER_BYTES + slot * size, capacity)
        slots = tuple(self._slot_truth(launch, at, work, capacity) for at, work in warps)
        events = tuple(
            self._event_truth(launch, row, work, record)
            for row, (_, work) in enumerate(warps)
            for record in _latest_or_first(work.records, capacity, launch.overflow)
        )
        return Truth(launch, capacity, slots, events)

    def source(self, label: str = "k", **facts: Any) -> SegmentSource:
        """Return the bytes as the session hands them to the decoder."""
        facts = {"clock_rate_hz": 2e9, "device": "model", "backend": "test", **facts}
        return SegmentSource(label, np.frombuffer(bytes(self.data), np.uint8), **facts)

    def poke(self, at: int, word: int) -> None:
        """Overwrite one 32-bit word."""
        struct.pack_into("<I", self.data, at, word & WORD)

    def slot_at(self, slot: int) -> int:
        """Return the offset of a slot, from the size that the last launch wrote down."""
        size = int.from_bytes(self.data[LAUNCH["slot_bytes"] :][:4], "little")
        return abi.LAUNCH_HEADER_BYTES + slot * size

    def record_at(self, slot: int, record: int) -> int:
        """Return the offset of a record, one of a 32-bit clock."""
        return self.slot_at(slot) + abi.SLOT_HEADER_BYTES + record * abi.RECORD_BYTES

    def _write_launch_header(self, launch: Launch, size: int) -> None:
        for name, word in {
            "magic": abi.MAGIC,
            "abi": abi.ABI_VERSION,
            **{f"grid_{axis}": n for axis, n in zip("xyz", launch.grid, strict=True)},
            **{f"block_{axis}": n for axis, n in zip("xyz", launch.block, strict=True)},
            "warps_per_block": launch.warps_per_block,
            "slot_bytes": size,
            "clock": launch.clock,
            "overflow": launch.overflow,
            "grid_id": launch.grid_id,
            "launches": self._launches,
            "language": launch.language,
        }.items():
            self.poke(LAUNCH[name], word)

    def _run_warp(self, launch: Launch, work: Warp, at: int, capacity: int) -> None:
        first = at + abi.SLOT_HEADER_BYTES
        for name in ("finish_ns", "finish_clock"):
            struct.pack_into("<Q", self.data, at + SLOT[name], 0)
        self._write_state(at, launch, work, SlotState.RUNNING, 0)
        self._write_anchor(at, "init", work.sm, work.init)
        done = 0
        for record in work.records:
            if launch.overflow.wraps:
                self._store(first + done % capacity * launch.record_bytes, launch, work, record)
            elif done < capacity:
                self._store(first + done * launch.record_bytes, launch, work, record)
            done += 1
            if launch.overflow is OverflowMode.STREAM:
                self.poke(at + SLOT["attempted"], done)
        if work.finish is not None:
            self._write_anchor(at, "finish", work.sm, work.finish)
            self._write_state(at, launch, work, SlotState.FINISHED, done)

    def _write_state(
        self, at: int, launch: Launch, work: Warp, state: SlotState, attempted: int
    ) -> None:
        self.poke(at + SLOT["sm"], work.sm)
        self.poke(at + SLOT["grid_id"], launch.grid_id)
        self.poke(at + SLOT["state"], state)
        self.poke(at + SLOT["role"], work.role)
        self.poke(at + SLOT["attempted"], attempted)

    def _write_anchor(self, at: int, which: str, sm: int, ns: int) -> None:
        struct.pack_into("<Q", self.data, at + SLOT[f"{which}_ns"], self.device.timer(ns))
        struct.pack_into("<Q", self.data, at + SLOT[f"{which}_clock"], self.device.ticks(sm, ns))

    def _store(self, at: int, launch: Launch, work: Warp, record: Record) -> None:
        times = [self._clock(launch, work.sm, ns) for ns in (record.start, record.last)]
        if launch.wide:
            struct.pack_into("<2Q2I", self.data, at, *times, abi.tag(*record.tag), record.bits)
            return
        words = (time & WORD for time in times)
        struct.pack_into("<4I", self.data, at, abi.tag(*record.tag), *words, record.bits)

    def _clock(self, launch: Launch, sm: int, ns: int) -> int:
        timer = launch.clock in TIMERS
        return self.device.timer(ns) if timer else self.device.ticks(sm, ns)

    def _true_ns(self, launch: Launch, ns: int) -> int:
        # What a coarse timer can't tell apart is the same time.
        return self.device.timer(ns) if launch.clock in TIMERS else EPOCH + ns

    def _slot_truth(
        self, launch: Launch, at: tuple[int, int], work: Warp, capacity: int
    ) -> SlotTruth:
        kept = _latest_or_first(work.records, capacity, launch.overflow)
        done = kept[-1].last if kept else work.init
        return SlotTruth(
            *at,
            work.sm,
            work.role,
            work.finish is not None,
            self._true_ns(launch, work.init),
            self._true_ns(launch, done if work.finish is None else work.finish),
            len(work.records),
            len(kept),
        )

    def _event_truth(self, launch: Launch, row: int, work: Warp, record: Record) -> EventTruth:
        kind, payload_type, region = record.tag
        start, end = (self._clock(launch, work.sm, ns) for ns in (record.start, record.last))
        return EventTruth(
            row,
            region,
            kind,
            payload_type,
            record.bits,
            end - start,
            self._true_ns(launch, record.start),
            self._true_ns(launch, record.last),
        )


def _capacity(slot_bytes: int, launch: Launch) -> int:
    records = max(0, slot_bytes - abi.SLOT_HEADER_BYTES) // launch.record_bytes
    if launch.overflow is OverflowMode.STOP:
        return records
    ring = 1
    while 2 * ring <= records:
        ring *= 2
    return ring if records >= 2 else 0


def _latest_or_first(
    records: Sequence[Record], capacity: int, overflow: OverflowMode
) -> Sequence[Record]:
    return records[-capacity:] if overflow.wraps else records[:capacity]
