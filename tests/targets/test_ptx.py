"""The generated PTX, run thread by thread: what it writes is what the decoder reads."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikp.core import abi
from ikp.core.abi import ClockKind, Kind, OverflowMode, PayloadType, SlotState
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.trace import Trace
from tests.machines.ptx_kernel import Kernel
from tests.machines.ptx_machine import WARP, Dim, Machine
from tests.machines.ptx_program import FaultError
from tests.products import one_by_one

pytestmark = pytest.mark.any_pins

MODES = pytest.mark.parametrize("mode", OverflowMode, ids=lambda mode: mode.name)
CLOCKS = pytest.mark.parametrize(
    "clock", [ClockKind.CYCLES, ClockKind.GLOBALTIMER], ids=lambda clock: clock.name
)
BASE = 0x7F12_3456_7000
WINDOW = 1 << 32


@dataclass
class Launched:
    """A kernel that ran, and its segment."""

    machine: Machine
    data: Any
    trace: Trace

    def headers(self) -> tuple[Any, Any]:
        """Return the launch header and the headers of all slots."""
        launch = self.data[: abi.LAUNCH_HEADER_BYTES].view(abi.LAUNCH_HEADER)[0]
        rows = self.data[abi.LAUNCH_HEADER_BYTES :]
        slots = int(np.prod(launch["grid"])) * int(launch["warps_per_block"])
        rows = rows[: slots * int(launch["slot_bytes"])].reshape(slots, -1)
        heads = np.ascontiguousarray(rows[:, : abi.SLOT_HEADER_BYTES])
        return launch, heads.view(abi.SLOT_HEADER).ravel()


def run(
    kernel: Kernel,
    nbytes: int,
    grid: Dim = (1, 1, 1),
    block: Dim = (WARP, 1, 1),
    base: int = BASE,
    machine: Machine | None = None,
) -> Launched:
    """Run ``kernel`` on a segment of ``nbytes`` and decode it."""
    machine = machine or Machine()
    data = machine.memory.map(base, nbytes)
    machine.launch(kernel.text(), [base, nbytes - abi.LAUNCH_HEADER_BYTES], grid, block)
    return Launched(machine, data, decode([SegmentSource("k", data)]))


def warps(block: Dim) -> int:
    return -(-block[0] * block[1] * block[2] // WARP)


def who_am_i(kernel: Kernel) -> str:
    """Compute a payload that names block and thread; lane 0 of each warp is to record it."""
    kernel.add(
        "mov.u32 %r10, %ctaid.x;", "mov.u32 %r11, %ctaid.y;", "mov.u32 %r12, %ctaid.z;",
        "mad.lo.u32 %r20, %r11, 10, %r10;", "mad.lo.u32 %r20, %r12, 100, %r20;",
        "mov.u32 %r10, %tid.x;", "mov.u32 %r11, %tid.y;", "mov.u32 %r12, %tid.z;",
        "mad.lo.u32 %r20, %r10, 1000, %r20;", "mad.lo.u32 %r20, %r11, 100000, %r20;",
        "mad.lo.u32 %r20, %r12, 10000000, %r20;",
    )  # fmt: skip
    return "%r20"


def expected_identity(slot: int, grid: Dim, block: Dim) -> int:
    """Return what ``who_am_i`` computes in lane 0 of a slot's warp."""
    linear, warp = divmod(slot, warps(block))
    x, y, z = np.unravel_index(linear, grid[::-1])[::-1]
    i, j, k = np.unravel_index(warp * WARP, block[::-1])[::-1]
    return int(x + 10 * y + 100 * z + 1000 * i + 100_000 * j + 10_000_000 * k)


SHAPES = [
    ((5, 1, 1), (32, 1, 1)),
    ((3, 2, 1), (64, 1, 1)),
    ((2, 3, 4), (128, 1, 1)),
    ((1, 1, 3), (16, 4, 2)),
    ((2, 1, 1), (8, 3, 5)),  # 120 threads: the last warp is not full
    ((1, 1, 1), (1024, 1, 1)),
]


@pytest.mark.parametrize(("mode", "shape"), one_by_one(OverflowMode, SHAPES))
def test_each_warp_records_in_its_own_slot(mode: OverflowMode, shape: tuple[Dim, Dim]) -> None:
    grid, block = shape
    kernel = Kernel(mode)
    kernel.init()
    me = who_am_i(kernel)
    word = kernel.start()
    kernel.end(5, word, me)
    kernel.instant(6, me)
    kernel.finish()
    slots = int(np.prod(grid)) * warps(block)
    ran = run(kernel, abi.segment_bytes(slots, 2, mode), grid, block)

    (launch,) = ran.trace.launches
    assert (launch.grid, launch.block, launch.warps_per_block) == (grid, block, warps(block))
    assert (launch.attempted, launch.kept, launch.unfinished) == (2 * slots, 2 * slots, 0)
    assert (launch.capacity, launch.notes) == (2, ())
    slot = ran.trace.slots
    assert np.array_equal(slot.block * warps(block) + slot.warp, np.arange(slots))
    assert np.array_equal(slot.sm, slot.block % ran.machine.sms)
    events = ran.trace.events
    assert np.array_equal(events.slot, np.repeat(np.arange(slots), 2))
    names = [ran.trace.regions[i].id for i in events.region]
    assert names == [5, 6] * slots
    assert events.kind.tolist() == [Kind.RANGE, Kind.INSTANT] * slots
    assert set(events.payload_type.tolist()) == {PayloadType.U32}
    identities = [expected_identity(slot, grid, block) for slot in range(slots)]
    assert events.payload.tolist() == np.repeat(identities, 2).tolist()
    assert len(set(identities)) == slots


@MODES
@CLOCKS
def test_the_headers_say_what_the_abi_says(mode: OverflowMode, clock: ClockKind) -> None:
    kernel = Kernel(mode, clock)
    kernel.init()
    kernel.instant(1)
    kernel.finish()
    grid, block = (2, 3, 1), (64, 1, 1)
    machine = Machine(grid_id=0xABC_0000_0123)
    size = abi.segment_bytes(12, 4, mode)
    ran = run(kernel, size, grid, block, machine=machine)
    launch, heads = ran.headers()
    facts = {name: np.asarray(launch[name]).tolist() for name in launch.dtype.names}
    assert facts == {
        "magic": abi.MAGIC,
        "abi": abi.ABI_VERSION,
        "grid": list(grid),
        "block": list(block),
        "warps_per_block": 2,
        "slot_bytes": (size - abi.LAUNCH_HEADER_BYTES) // 12,
        "clock": clock,
        "overflow": mode,
        "grid_id": 0x123,
        "launches": 1,
        "language": 0,
        "options": 0,
        "warps": 0,
        "first_block": 0,
        "block_step": 0,
        "block_count": 0,
        "whole": 0,
        "together": 0,
        "margin": 0,
        "reserved": [0] * 9,
    }
    assert set(heads["state"]) == {SlotState.FINISHED}
    assert set(heads["grid_id"]) == {0x123}
    assert set(heads["attempted"]) == {1}
    assert heads["sm"].tolist() == [i // 2 % machine.sms for i in range(12)]
    for name in ("role", "open", "open_start"):
        assert not heads[name].any()
    ns, cycles = heads["init_ns"].astype(np.int64), heads["init_clock"].astype(np.int64)
    assert (ns[1:] >= ns[:-1]).all() and ns[0] >= machine.epoch_ns
    own = cycles - heads["sm"].astype(np.int64) * machine.sm_skew
    assert (np.abs((ns - machine.epoch_ns) - own // 2) <= machine.ns_step).all()
    reads = 3  # by the instant, and two by finish
    assert set(heads["finish_clock"].astype(np.int64) - cycles) == {reads * machine.cycles_per_read}
    assert (heads["finish_ns"] >= heads["init_ns"]).all()


def chatter(mode: OverflowMode, records: int, finish: bool = True) -> Kernel:
    """Return a kernel that records ``records`` ranges with payloads 1, 2, 3, ..."""
    kernel = Kernel(mode)
    kernel.init()
    for i in range(records):
        kernel.end(9, kernel.start(), str(i + 1))
    if finish:
        kernel.finish()
    return kernel


def expected_payloads(
    slot_bytes: int, records: int, mode: OverflowMode, *, finish: bool = True
) -> list[int]:
    """Say in plain words which records a slot keeps.

    Over the oldest of a stream, a warp that has not finished may be writing the next one.
    """
    everything = list(range(1, records + 1))
    if slot_bytes < abi.min_slot_bytes(mode):
        return []
    room = abi.slot_capacity(slot_bytes, mode)
    if mode is OverflowMode.STOP:
        return everything[:room]
    under_way = mode is OverflowMode.STREAM and not finish
    return everything[max(0, records - room + under_way) :]


@given(
    mode=st.sampled_from(OverflowMode),
    extra=st.integers(0, 700),
    records=st.integers(0, 9),
    blocks=st.integers(1, 3),
    warp_count=st.integers(1, 2),
    finish=st.booleans(),
)
def test_any_segment_keeps_what_fits_and_counts_the_rest(
    mode: OverflowMode, extra: int, records: int, blocks: int, warp_count: int, finish: bool
) -> None:
    slots = blocks * warp_count
    size = (abi.LAUNCH_HEADER_BYTES + 16 + extra * slots) // abi.ALIGNMENT * abi.ALIGNMENT
    kernel = chatter(mode, records, finish)
    ran = run(kernel, size, (blocks, 1, 1), (WARP * warp_count, 1, 1))
    slot_bytes = (size - abi.LAUNCH_HEADER_BYTES) // slots // abi.ALIGNMENT * abi.ALIGNMENT
    kept = expected_payloads(slot_bytes, records, mode, finish=finish)
    (launch,) = ran.trace.launches
    events = ran.trace.events
    assert events.payload.tolist() == kept * (slots if launch.capacity else 0)
    assert (events.ticks == ran.machine.cycles_per_read).all()
    if launch.capacity and finish:
        assert launch.attempted == records * slots
        assert launch.dropped == (records - len(kept)) * slots
    assert launch.unfinished == (0 if finish or not launch.capacity else slots)


@MODES
def test_a_slot_one_step_too_small_records_nothing_and_says_so(mode: OverflowMode) -> None:
    smallest = abi.min_slot_bytes(mode)
    enough = run(chatter(mode, 1), abi.LAUNCH_HEADER_BYTES + 2 * smallest, (2, 1, 1))
    assert len(enough.trace.events) == 2
    short = run(chatter(mode, 1), abi.LAUNCH_HEADER_BYTES + 2 * smallest - 1, (2, 1, 1))
    assert len(short.trace.events) == 0
    assert not short.data[abi.LAUNCH_HEADER_BYTES :].any()
    assert "too small for 2 warps" in short.trace.launches[0].notes[0]


@MODES
def test_size_zero_turns_recording_off_at_run_time(mode: OverflowMode) -> None:
    ran = run(chatter(mode, 3), abi.LAUNCH_HEADER_BYTES, (2, 1, 1), (64, 1, 1))
    assert not ran.data.any()
    assert ran.trace.launches == ()


BASES = [
    0x10000,
    5 * WINDOW,
    6 * WINDOW - abi.segment_bytes(6, 2) - abi.ALIGNMENT,  # a window's end
    (1 << 63) + 0x1230,
    (1 << 64) - 2 * WINDOW,
]


@pytest.mark.parametrize(("mode", "base"), one_by_one(OverflowMode, BASES))
def test_a_segment_may_lie_anywhere_in_a_window_of_4_gib(mode: OverflowMode, base: int) -> None:
    ran = run(chatter(mode, 5), abi.segment_bytes(6, 2, mode), (3, 1, 1), (64, 1, 1), base)
    assert ran.trace.events.payload.tolist() == expected_payloads(64 + 32, 5, mode) * 6
    assert ran.trace.launches[0].dropped == 6 * 3


@MODES
@pytest.mark.parametrize(
    "grid", [(1 << 27, 32, 1), (1 << 30, 1, 4), (1 << 30, 16, 2), ((1 << 31) - 1, 65535, 65535)]
)
def test_a_grid_of_more_warps_than_32_bits_count_records_nothing(
    mode: OverflowMode, grid: Dim
) -> None:
    machine = Machine()
    size = abi.LAUNCH_HEADER_BYTES + 1024
    data = machine.memory.map(BASE, size)
    blocks = [0, 1, 1000, grid[0] * grid[1] * grid[2] - 1]
    machine.launch(chatter(mode, 1).text(), [BASE, 1024], grid, (64, 1, 1), blocks)
    assert not data[abi.LAUNCH_HEADER_BYTES :].any()
    (launch,) = decode([SegmentSource("k", data)]).launches
    assert "too small" in launch.notes[0]


@MODES
def test_clock_words_wrap_within_a_range_and_between_ranges(mode: OverflowMode) -> None:
    machine = Machine(sms=1, cycles=(1 << 32) - 40, cycles_per_read=7)
    ran = run(chatter(mode, 4), abi.segment_bytes(1, 4, mode), machine=machine)
    words = ran.data[abi.LAUNCH_HEADER_BYTES + abi.SLOT_HEADER_BYTES :].view(abi.RECORD)
    assert words["start"].max() > 1 << 31 and words["end"].min() < 100
    events = ran.trace.events
    assert events.ticks.tolist() == [7] * 4
    assert (np.diff(events.start_ns) > 0).all()


@CLOCKS
def test_times_are_those_of_the_clock(clock: ClockKind) -> None:
    machine = Machine(cycles_per_read=500)  # 250 ns
    kernel = Kernel(clock=clock)
    kernel.init()
    for region in range(4):
        kernel.end(region, kernel.start())
    kernel.finish()
    ran = run(kernel, abi.segment_bytes(3, 4), (3, 1, 1), machine=machine)
    events, slots = ran.trace.events, ran.trace.slots
    span = events.end_ns - events.start_ns
    slack = machine.ns_step + 2
    assert (abs(span - 250) <= slack).all()
    start = slots.start_ns[events.slot] + 250 * (1 + 2 * (np.arange(12) % 4))
    assert (abs(events.start_ns - start) <= 2 * slack + 250).all()
    assert (np.diff(events.start_ns) > 0).all()
    assert ran.trace.launches[0].clock.kind == clock.name.lower()


@MODES
def test_a_region_known_only_at_run_time(mode: OverflowMode) -> None:
    kernel = Kernel(mode)
    kernel.init()
    tags = (abi.tag(Kind.RANGE, PayloadType.F32, 77), abi.tag(Kind.INSTANT, PayloadType.NONE, 78))
    kernel.add(f"mov.b32 %r30, {tags[0]:#x};", f"mov.b32 %r31, {tags[1]:#x};")
    kernel.end("%r30", kernel.start(), "0f40490FDB")
    kernel.instant("%r31")
    kernel.finish()
    trace = run(kernel, abi.segment_bytes(1, 2, mode)).trace
    assert [trace.regions[i].id for i in trace.events.region] == [77, 78]
    assert trace.payload[0] == np.float32(np.pi)
    assert np.isnan(trace.payload[1])


@MODES
def test_ranges_may_overlap(mode: OverflowMode) -> None:
    kernel = Kernel(mode)
    kernel.init()
    words = [kernel.start() for _ in range(3)]
    for region, word in enumerate(words):
        kernel.end(region, word)
    kernel.finish()
    ran = run(kernel, abi.segment_bytes(1, 4, mode))
    assert ran.trace.events.ticks.tolist() == [3 * ran.machine.cycles_per_read] * 3


@MODES
def test_a_launch_into_the_same_segment_replaces_the_last(mode: OverflowMode) -> None:
    machine = Machine()
    size = abi.segment_bytes(2, 8, mode)
    data = machine.memory.map(BASE, size)
    for records, grid_id in ((7, 1), (3, 2)):
        machine.grid_id = grid_id
        text = chatter(mode, records).text()
        machine.launch(text, [BASE, size - abi.LAUNCH_HEADER_BYTES], (2, 1, 1))
    trace = decode([SegmentSource("k", data)])
    assert trace.launches[0].relaunches == 1
    assert trace.events.payload.tolist() == [1, 2, 3] * 2


@MODES
def test_blocks_that_return_before_init_leave_their_slots_empty(mode: OverflowMode) -> None:
    kernel = Kernel(mode)
    kernel.add("mov.u32 %r50, %ctaid.x;", "and.b32 %r50, %r50, 1;", "setp.eq.u32 %p1, %r50, 1;")
    kernel.add("@%p1 ret;")
    kernel.lines += chatter(mode, 2).lines
    ran = run(kernel, abi.segment_bytes(5, 2, mode), (5, 1, 1))
    assert ran.trace.slots.block.tolist() == [0, 2, 4]
    assert "2 warps never reached init" in ran.trace.launches[0].notes[0]


@MODES
def test_counts_of_all_sizes_agree_with_the_decoder(mode: OverflowMode) -> None:
    """The kernel's idea of a slot's capacity (a mask, a limit) is the ABI's, for every size."""
    sizes = range(64, 64 + 16 * 20, 16)
    for size, finish in (*zip(sizes, repeat(True)), *zip(sizes[::5], repeat(False))):
        ran = run(chatter(mode, 21, finish), abi.LAUNCH_HEADER_BYTES + size)
        expected = expected_payloads(size, 21, mode)
        if mode is OverflowMode.STREAM and not finish:  # the oldest may be half overwritten
            expected = expected[1:]
        assert ran.trace.events.payload.tolist() == expected, size


def test_two_inits_do_not_assemble() -> None:
    kernel = chatter(OverflowMode.STOP, 1)
    kernel.init()
    with pytest.raises(FaultError, match="ikp_cur is declared twice"):
        run(kernel, 1024)
