"""Records of 64-bit clocks in PTX: ranges of more than 32 bits of cycles, in every mode."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ikp.backends.triton.passes.schedule import schedule
from ikp.core import abi
from ikp.core.abi import ClockKind, Kind, OverflowMode
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.segment import Spec
from ikp.core.trace import Trace
from ikp.targets import ptx
from ikp.targets.ptx import RecordCode
from tests.machines.ptx_kernel import Kernel
from tests.machines.ptx_machine import WARP, Dim, Machine

pytestmark = pytest.mark.any_pins

BASE = 0x7F12_3456_7000
LONG = 3 * 2**32 + 7
"""Cycles from each clock read to the next: what 32 bits show as 7."""
CYCLES = ClockKind.CYCLES64
MODES = pytest.mark.parametrize("mode", OverflowMode, ids=lambda mode: mode.name)


def run(kernel: Kernel, slots: int, records: int, block: Dim = (WARP, 1, 1)) -> Trace:
    machine = Machine(cycles_per_read=LONG, ns_step=1)
    nbytes = abi.segment_bytes(slots, records, kernel.spec.overflow, kernel.spec.clock)
    data = machine.memory.map(BASE, nbytes)
    arguments = [BASE, nbytes - abi.LAUNCH_HEADER_BYTES]
    machine.launch(schedule(kernel.text()), arguments, block=block)
    return decode([SegmentSource("k", data)])


def recorder(kernel: Kernel, count: int) -> Kernel:
    kernel.init()
    for number in range(count):
        word = kernel.start()
        kernel.end(5, word, f"{number + 1}")
    kernel.finish()
    return kernel


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 12),
    st.integers(2, 9),
    st.sampled_from(OverflowMode),
    st.integers(1, 3),
    st.booleans(),
)
def test_ranges_longer_than_32_bits_are_as_long_as_they_were(
    count: int, room: int, mode: OverflowMode, warps: int, placed: bool
) -> None:
    kernel = recorder(Kernel(mode, CYCLES, schedule=placed), count)
    trace = run(kernel, warps, room, (WARP * warps, 1, 1))
    (launch,) = trace.launches
    kept = min(count, launch.capacity)
    first = count - kept if mode.wraps else 0
    assert launch.capacity == (room if mode is OverflowMode.STOP else 1 << (room - 1).bit_length())
    assert trace.events.payload.tolist() == [*range(first + 1, first + kept + 1)] * warps
    assert (trace.events.ticks == LONG).all()
    assert launch.attempted == count * warps
    assert (launch.clock.kind, launch.clock.bits) == ("cycles", 64)


def test_the_global_timer_too() -> None:
    trace = run(recorder(Kernel(clock=ClockKind.GLOBALTIMER64), 3), 1, 4)
    assert set(trace.events.ticks.tolist()) <= {LONG // 2, LONG // 2 + 1}
    assert (trace.events.end_ns - trace.events.start_ns == trace.events.ticks).all()


def test_conditions_indices_instants_and_run_time_ids() -> None:
    kernel = Kernel(clock=CYCLES)
    kernel.init()
    kernel.add("mov.u32 %r50, 6;", "mov.u32 %r51, 0;", "mov.u32 %r52, 1;")
    kernel.add(f"mov.u32 %r53, {abi.tag(Kind.RANGE, abi.PayloadType.U32, 9):#x};")
    word = kernel.start()
    kernel.end(5, word, "1", index="%r50")
    kernel.end(5, word, "2", where="%r51")
    kernel.end("%r53", word, "3", where="%r52")
    kernel.instant(7, "4")
    kernel.finish()
    trace = run(kernel, 1, 10)
    assert trace.events.payload.tolist() == [1, 3, 4]
    assert [trace.regions[i].id for i in trace.events.region] == [5, 9, 7]
    assert trace.events.ticks.tolist() == [LONG, 3 * LONG, 0]
    assert (np.diff(trace.events.end_ns) > 0).all()


def test_a_slot_that_holds_no_long_record_records_nothing() -> None:
    machine = Machine()
    nbytes = abi.segment_bytes(1, 1)
    data = machine.memory.map(BASE, nbytes)
    kernel = recorder(Kernel(clock=CYCLES), 1)
    machine.launch(kernel.text(), [BASE, nbytes - abi.LAUNCH_HEADER_BYTES])
    (launch,) = decode([SegmentSource("k", data)]).launches
    assert launch.capacity == 0 and "too small" in launch.notes[0]


@pytest.mark.parametrize("clock", [kind for kind in ClockKind if kind in ptx.CLOCK_READ])
def test_an_assembly_says_how_wide_its_operands_are(clock: ClockKind) -> None:
    spec = Spec(clock=clock)
    word = 64 if clock.name.endswith("64") else 32
    assert ptx.start(spec).bits == (word,)
    assert ptx.end(spec, RecordCode(None, "", where=True)).bits == (word, 32, word, 32, 32)
    assert ptx.instant(spec, RecordCode(5, "")).bits == (word, 32)
    assert ptx.role(5, "").bits == (32,)


def test_records_of_32_bits_are_those_of_before() -> None:
    made = ptx.end(Spec(), RecordCode(7, "7")).code
    assert "v4.b32 [a], {0x7, $1, $0, $2};" in made and "b64 [a]" not in made


def test_the_pass_places_64_bit_clock_reads_and_stores() -> None:
    kernel = Kernel(clock=CYCLES)
    kernel.init()
    first = kernel.start()
    kernel.add("st.global.b32 [%rd1], %r1;")
    kernel.end(1, first)
    kernel.add("add.s64 %rd50, %rd1, 64;")
    second = kernel.start()
    kernel.add("st.global.b32 [%rd50], %r1;")
    kernel.end(2, second)
    lines = schedule(kernel.text()).split("\n")
    reads = [i for i, line in enumerate(lines) if "%clock64;" in line and "clk" not in line]
    stores = [i for i, line in enumerate(lines) if "v2.b64 [a], {%rd1" in line]
    address = next(i for i, line in enumerate(lines) if "%rd50, %rd1, 64" in line)
    assert (len(reads), len(stores)) == (4, 2)
    assert address < reads[1], "the end of the first range passes the next address"
    assert stores[0] > reads[3], "its store waits for that of the next record"
