"""Kernels compiled by Triton, their PTX run thread by thread: every record of every warp."""

from __future__ import annotations

import numpy as np
import pytest

from ikp.backends.triton._hooks import names_in_code
from ikp.core import abi
from ikp.core.abi import ClockKind, OverflowMode, PayloadType
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.trace import Trace
from tests.backends.sass import Code, compile_kernel, spec
from tests.kernels import control
from tests.kernels.expected import KERNELS, PAYLOADS, Record
from tests.machines.ptx_machine import Dim, Machine

pytestmark = pytest.mark.compiled

SEGMENT, OUT, INTS, FLOATS = 0x7F00_0000_0000, 0x7E00_0000_0000, 0x7D00_0000_0000, 0x7C00_0000_0000
OUT_AND_N = {"out": "*i32", "n": "i32"}


def run(code: Code, grid: Dim, n: int, warps: int, slot_records: int = 64) -> Trace:
    """Run a kernel of ``control`` and decode what it recorded."""
    machine = Machine()
    blocks = int(np.prod(grid))
    size = abi.segment_bytes(blocks * warps, slot_records)
    segment = machine.memory.map(SEGMENT, size)
    machine.memory.map(OUT, 4 * blocks)
    params = [OUT, n, SEGMENT, size - abi.LAUNCH_HEADER_BYTES, 0, 0]
    machine.launch(code.ptx, params, grid, (32 * warps, 1, 1))
    return decode([SegmentSource("k", segment)], names_in_code(code.ptx))


def records(trace: Trace) -> list[list[Record]]:
    """Return what each warp recorded: name (or id) and payload."""
    found: list[list[Record]] = [[] for _ in range(len(trace.slots))]
    events = trace.events
    for slot, region, payload in zip(events.slot, events.region, trace.payload, strict=True):
        known = trace.regions[region]
        name = known.id if known.name == f"region {known.id}" else known.name
        found[slot].append((name, None if np.isnan(payload) else float(payload)))
    return found


@pytest.mark.parametrize("mode", OverflowMode, ids=lambda mode: mode.name)
@pytest.mark.parametrize("name", KERNELS)
def test_every_warp_records_what_the_kernel_says(name: str, mode: OverflowMode) -> None:
    grid, warps, n = (2, 1, 2), 2, 5
    code = compile_kernel(getattr(control, name), OUT_AND_N, spec(mode), num_warps=warps)
    trace = run(code, grid, n, warps)
    assert trace.slots.block.tolist() == np.repeat(np.arange(4), warps).tolist()
    assert trace.slots.finished.all()
    for slot, found in enumerate(records(trace)):
        assert found == list(KERNELS[name](slot // warps, n))
    assert (trace.events.start_ns <= trace.events.end_ns).all()
    assert trace.launches[0].notes == ()


@pytest.mark.parametrize("schedule", [True, False])
@pytest.mark.parametrize("clock", [ClockKind.CYCLES, ClockKind.GLOBALTIMER], ids=lambda c: c.name)
def test_ranges_nest_in_time_as_in_the_code(clock: ClockKind, schedule: bool) -> None:
    code = compile_kernel(control.nested, OUT_AND_N, spec(clock=clock, schedule=schedule))
    trace = run(code, (1, 1, 1), 4, warps=4)
    events = trace.events
    names = np.array([trace.regions[i].name for i in events.region])
    for slot in range(4):
        outer = (names == "for") & (events.slot == slot)
        inner = np.isin(names, ["step", "odd", "even"]) & (events.slot == slot)
        assert outer.sum() == 1 and inner.sum() == 8
        assert (events.start_ns[inner] >= events.start_ns[outer]).all()
        assert (events.end_ns[inner] <= events.end_ns[outer]).all()


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("name", KERNELS)
def test_loops_that_run_never_or_once(name: str, n: int) -> None:
    code = compile_kernel(getattr(control, name), OUT_AND_N, spec(), num_warps=1)
    trace = run(code, (2, 1, 1), n, warps=1)
    assert records(trace) == [list(KERNELS[name](pid, n)) for pid in range(2)]


def test_each_payload_has_the_type_and_value_it_was_given() -> None:
    types = {"ints": "*i32", "floats": "*fp32"}
    code = compile_kernel(control.payloads, types, spec(), num_warps=1)
    machine = Machine()
    size = abi.segment_bytes(1, 64)
    segment = machine.memory.map(SEGMENT, size)
    machine.memory.map(INTS, 4).view(np.int32)[:] = -5
    machine.memory.map(FLOATS, 4).view(np.float32)[:] = 1.25
    params = [INTS, FLOATS, SEGMENT, size - abi.LAUNCH_HEADER_BYTES, 0, 0]
    machine.launch(code.ptx, params)
    trace = decode([SegmentSource("k", segment)], names_in_code(code.ptx))
    found = {
        trace.regions[region].name: (None if np.isnan(value) else value, PayloadType(kind).name)
        for region, value, kind in zip(
            trace.events.region, trace.payload, trace.events.payload_type, strict=True
        )
    }
    assert found == PAYLOADS
