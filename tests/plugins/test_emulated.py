"""What the plugin's C++ verbs write: nvcc's PTX, run thread by thread on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ikp
from ikp.core import abi, launch_fields
from ikp.core.abi import ClockKind, Language, OverflowMode
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.segment import Spec
from ikp.core.trace import Trace
from tests.extended import check, extend
from tests.machines.ptx_machine import Dim
from tests.plugins.kernels import MODES, NEEDS_NVCC, SOURCE, Modules, emulate
from tests.products import one_by_one

CLOCKS = [each for each in ClockKind if each.unit != ClockKind.HOST]
SHAPES = [((2, 3, 2), (5, 4, 3)), ((1, 1, 1), (32, 1, 1)), ((3, 1, 1), (50, 1, 1))]
"""Of a grid, and of a block."""


def records(n: int) -> int:
    return n + n // 2 + 4


def rows(trace: Trace, slot: int) -> list[tuple[str, float]]:
    """Return region and payload of a slot's events."""
    mine = np.flatnonzero(trace.events.slot == slot)
    names = [trace.regions[region].name for region in trace.events.region[mine]]
    return list(zip(names, trace.payload[mine].tolist(), strict=True))


def expected(n: int, who: int) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for i in range(n):
        found += [("odd", -i)] * (i % 2) + [("step", i)]
    nothing = float("nan")
    found += [("first", nothing), ("second", np.float32(0.1).item())]
    return [*found, ("region 7", who), ("whole", nothing)]


def same(found: list[tuple[str, float]], wanted: list[tuple[str, float]]) -> bool:
    left, right = (list(zip(*each, strict=True)) for each in (found, wanted))
    return left[0] == right[0] and np.array_equal(left[1], right[1], equal_nan=True)


@pytest.mark.any_pins
@NEEDS_NVCC
@pytest.mark.parametrize(("clock", "shape"), one_by_one(CLOCKS, SHAPES))
def test_every_record_of_every_warp_comes_back(
    build: Any, module: Modules, shape: tuple[Dim, Dim], clock: ClockKind
) -> None:
    grid, block = shape
    n, warps = 5, -(-int(np.prod(block)) // 32)
    slots = int(np.prod(grid)) * warps
    ptx = build(SOURCE, "sm_80", spec=Spec(clock=clock), ptx=True)
    data = emulate(ptx, abi.segment_bytes(slots, records(n), clock=clock), n, grid, block)
    header = data[: abi.LAUNCH_HEADER_BYTES].view(abi.LAUNCH_HEADER)[0]
    assert header["language"] == Language.OTHER
    assert header["launches"] == 1
    trace = decode([SegmentSource("k", data)], module("regions").known())
    (launch,) = trace.launches
    assert (launch.grid, launch.block) == (grid, block)
    assert launch.clock.bits == clock.bits
    assert (launch.attempted, launch.kept) == (slots * records(n), slots * records(n))
    assert trace.slots.finished.all()
    assert len(trace.slots) == slots
    for slot in range(slots):
        linear, warp = divmod(slot, warps)
        who = warp * 32 % block[0] + 1000 * (linear % grid[0])
        assert same(rows(trace, slot), expected(n, who))
        ends = trace.events.end_ns[trace.events.slot == slot]
        assert (np.diff(ends) >= 0).all()


@pytest.mark.any_pins
@NEEDS_NVCC
def test_a_full_slot_stops_and_counts(build: Any) -> None:
    ptx = build(SOURCE, "sm_80", spec=Spec(), ptx=True)
    trace = decode([SegmentSource("k", emulate(ptx, abi.segment_bytes(2, 3), 9, (2, 1, 1)))])
    assert [launch.attempted for launch in trace.launches] == [2 * records(9)]
    assert trace.launches[0].kept == 2 * 3
    assert [payload for _, payload in rows(trace, 1)] == [0, -1, 1]


@pytest.mark.any_pins
@NEEDS_NVCC
def test_a_full_ring_keeps_the_latest(build: Any, module: Modules) -> None:
    ptx = build(SOURCE, "sm_80", spec=Spec(overflow=OverflowMode.WRAP), ptx=True)
    size = abi.segment_bytes(1, 8) + 5 * abi.RECORD_BYTES  # not enough for a ring of 16
    trace = decode([SegmentSource("k", emulate(ptx, size, 9))], module("regions").known())
    assert trace.launches[0].overflow == "wrap"
    assert (trace.launches[0].attempted, trace.launches[0].kept) == (records(9), 8)
    assert same(rows(trace, 0), expected(9, 0)[-8:])


@pytest.mark.any_pins
@NEEDS_NVCC
@MODES
def test_a_segment_too_small_for_one_record_is_left_alone(build: Any, mode: OverflowMode) -> None:
    ptx = build(SOURCE, "sm_80", spec=Spec(overflow=mode), ptx=True)
    enough = abi.LAUNCH_HEADER_BYTES + abi.min_slot_bytes(mode)
    assert decode([SegmentSource("k", emulate(ptx, enough, 1))]).launches[0].kept > 0
    assert not emulate(ptx, enough - abi.ALIGNMENT, 1)[abi.LAUNCH_HEADER_BYTES :].any()


@pytest.mark.any_pins
@NEEDS_NVCC
def test_no_bytes_for_slots_turns_recording_off(build: Any) -> None:
    ptx = build(SOURCE, "sm_80", spec=Spec(), ptx=True)
    assert not emulate(ptx, abi.LAUNCH_HEADER_BYTES, 4).any()


@NEEDS_NVCC
def test_from_a_session_to_the_tsv_without_a_gpu(
    build: Any, module: Modules, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    options = {"backend": "cuda", "device": "cpu", "buffer_size": 4096, "clock": "globaltimer"}
    with ikp.profile(tmp_path / "t.tsv", **options) as prof:
        argument = prof.buffer("emulated", regions={7: "who"})
        data = emulate(build(SOURCE, "sm_80", spec=argument.spec, ptx=True), 4096, 3)
        assert argument.prof.segment == argument.data.data_ptr()
        assert argument.prof.bytes == 4096 - abi.LAUNCH_HEADER_BYTES
        argument.data.copy_(torch.from_numpy(data))
    assert [launch.backend for launch in prof.trace.launches] == ["cuda"]
    lines = (tmp_path / "t.tsv").read_text().splitlines()
    assert len(lines) == 1 + records(3)
    assert sum("\twho\tinstant\t" in line for line in lines) == 1


@NEEDS_NVCC
def test_a_buffer_that_is_off_has_no_room(module: Modules) -> None:
    pytest.importorskip("torch")
    with ikp.profile(backend="cuda", device="cpu", buffer_size=4096) as prof:
        assert prof.buffer("off", enabled=False).prof.bytes == 0


@pytest.mark.any_pins
@NEEDS_NVCC
def test_a_new_field_of_the_launch_header_is_written(
    module: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend(monkeypatch)
    structs = module("generated")._STRUCTS | {"LaunchHeader": launch_fields.layout()}
    monkeypatch.setattr(module("generated"), "_STRUCTS", structs)
    ptx = module("compiler").build(SOURCE, "sm_80", spec=Spec(), ptx=True)
    check(emulate(ptx, abi.segment_bytes(12, 16), 5, (2, 3, 1), (64, 1, 1)))
