"""Kernels compiled for AMD GPUs, their assembly run wave by wave: every record of every wave."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from triton import knobs

from gcn import kernels
from gcn.compiling import ARCHITECTURES, AmdCode, compile_amd
from gcn.machine import GcnMachine
from ikp.backends.triton._hooks import names_in_code
from ikp.core import abi
from ikp.core.abi import ClockKind, Language, Option, OverflowMode, PayloadType
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.segment import WORDS_AT, Selection, Spec
from ikp.core.trace import Trace
from ikp_amd import _registers as registers
from tests.backends.sass import spec
from tests.backends.triton.test_compiled_kernels import (
    FLOATS,
    INTS,
    OUT,
    OUT_AND_N,
    SEGMENT,
    records,
)
from tests.extended import check, extend
from tests.kernels import choices, control
from tests.kernels.expected import KERNELS, PAYLOADS
from tests.machines.ptx_machine import Dim
from tests.machines.ptx_program import FaultError
from tests.products import pairwise

pytestmark = pytest.mark.compiled

ARCHS = pytest.mark.parametrize("arch", ARCHITECTURES)
HAD = [OverflowMode.STOP, OverflowMode.WRAP]
"""AMD's GPUs have no stream yet, and say so."""
MODES = pytest.mark.parametrize("mode", HAD, ids=lambda mode: mode.name)


def run(
    code: AmdCode,
    grid: Dim,
    n: int,
    waves: int,
    slot_records: int = 64,
    selection: Selection | None = None,
    slots: int | None = None,
    preloads: bool = True,
) -> Trace:
    """Run a kernel of ``control`` and decode what it recorded."""
    machine = GcnMachine()
    blocks = int(np.prod(grid))
    size = abi.segment_bytes(slots or blocks * waves, slot_records)
    segment = machine.memory.map(SEGMENT, size)
    if selection is not None:
        words = selection.words().view(np.uint8)
        segment[WORDS_AT : WORDS_AT + len(words)] = words
    machine.memory.map(OUT, 4 * blocks)
    params = [OUT, n, SEGMENT, size - abi.LAUNCH_HEADER_BYTES, 0, 0]
    machine.launch(code.text, params, grid, waves, preloads=preloads)
    source = SegmentSource("k", segment, selected=selection is not None)
    return decode([source], names_in_code(code.text))


@cache
def compiled(name: str, prof: Spec, arch: str, waves: int) -> AmdCode:
    return compile_amd(getattr(control, name), OUT_AND_N, prof, arch=arch, num_warps=waves)


@pytest.mark.parametrize(("name", "mode", "arch"), pairwise(KERNELS, HAD, ARCHITECTURES))
def test_every_wave_records_what_the_kernel_says(name: str, mode: OverflowMode, arch: str) -> None:
    grid, waves, n = (2, 1, 2), 2, 5
    trace = run(compiled(name, spec(mode), arch, waves), grid, n, waves)
    assert trace.slots.block.tolist() == np.repeat(np.arange(4), waves).tolist()
    assert trace.slots.warp.tolist() == [0, 1] * 4
    assert trace.slots.finished.all()
    for slot, found in enumerate(records(trace)):
        assert found == list(KERNELS[name](slot // waves, n))
    assert (trace.events.start_ns <= trace.events.end_ns).all()
    (launch,) = trace.launches
    assert (launch.grid, launch.block, launch.notes) == (grid, (128, 1, 1), ())


@pytest.mark.parametrize("preloads", [True, False])
def test_arguments_are_found_whether_the_firmware_preloads_them_or_not(preloads: bool) -> None:
    code = compiled("nested", spec(), "gfx942", 1)
    trace = run(code, (3, 1, 1), 3, 1, preloads=preloads)
    assert records(trace) == [list(KERNELS["nested"](pid, 3)) for pid in range(3)]


@pytest.mark.any_pins
@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("name", KERNELS)
def test_loops_that_run_never_or_once(name: str, n: int) -> None:
    trace = run(compiled(name, spec(), "gfx942", 1), (2, 1, 1), n, 1)
    assert records(trace) == [list(KERNELS[name](pid, n)) for pid in range(2)]


@pytest.mark.parametrize("barriers", [True, False])
@pytest.mark.parametrize("clock", [ClockKind.CYCLES, ClockKind.GLOBALTIMER], ids=lambda c: c.name)
def test_ranges_nest_in_time_as_in_the_code(clock: ClockKind, barriers: bool) -> None:
    prof = replace(spec(clock=clock), target_options=(("sched_barriers", barriers),))
    events = (trace := run(compiled("nested", prof, "gfx942", 1), (1, 1, 1), 4, 1)).events
    names = np.array([trace.regions[i].name for i in events.region])
    outer, inner = names == "for", np.isin(names, ["step", "odd", "even"])
    assert (outer.sum(), inner.sum()) == (1, 8)
    assert (events.start_ns[inner] >= events.start_ns[outer]).all()
    assert (events.end_ns[inner] <= events.end_ns[outer]).all()
    step = 10 if clock is ClockKind.GLOBALTIMER else 0
    assert (events.end_ns - events.start_ns)[names == "step"].min() >= step


@ARCHS
def test_each_payload_has_the_type_and_value_it_was_given(arch: str) -> None:
    types = {"ints": "*i32", "floats": "*fp32"}
    code = compile_amd(control.payloads, types, spec(), arch=arch, num_warps=1)
    machine = GcnMachine()
    size = abi.segment_bytes(1, 64)
    segment = machine.memory.map(SEGMENT, size)
    machine.memory.map(INTS, 4).view(np.int32)[:] = -5
    machine.memory.map(FLOATS, 4).view(np.float32)[:] = 1.25
    machine.launch(code.text, [INTS, FLOATS, SEGMENT, size - abi.LAUNCH_HEADER_BYTES, 0, 0])
    trace = decode([SegmentSource("k", segment)], names_in_code(code.text))
    found = {
        trace.regions[region].name: (None if np.isnan(value) else value, PayloadType(kind).name)
        for region, value, kind in zip(
            trace.events.region, trace.payload, trace.events.payload_type, strict=True
        )
    }
    assert found == PAYLOADS


@pytest.mark.any_pins
@MODES
@pytest.mark.parametrize("slot_records", [1, 2, 3, 7, 8, 40])
def test_a_full_slot_keeps_its_part_and_counts_the_rest(
    slot_records: int, mode: OverflowMode
) -> None:
    wanted = list(KERNELS["nested"](0, 5))
    trace = run(compiled("nested", spec(mode), "gfx950", 1), (2, 1, 1), 5, 1, slot_records)
    (launch,) = trace.launches
    if mode is OverflowMode.WRAP and slot_records == 1:
        assert launch.kept == 0
        return
    assert launch.attempted == len(wanted) + len(list(KERNELS["nested"](1, 5)))
    kept = min(len(wanted), launch.capacity)
    first = records(trace)[0]
    assert first == (wanted[:kept] if mode is OverflowMode.STOP else wanted[-kept:])


def test_size_zero_turns_recording_off_at_run_time() -> None:
    code = compiled("nested", spec(), "gfx942", 2)
    machine = GcnMachine()
    segment = machine.memory.map(SEGMENT, abi.LAUNCH_HEADER_BYTES)
    machine.memory.map(OUT, 4)
    machine.launch(code.text, [OUT, 5, SEGMENT, 0, 0, 0], waves=2)
    assert not segment.any()


def test_headers_say_how_the_kernel_was_launched() -> None:
    code = compiled("nested", spec(), "gfx942", 2)
    machine = GcnMachine()
    size = abi.segment_bytes(12, 16)
    segment = machine.memory.map(SEGMENT, size)
    machine.memory.map(OUT, 24)
    params = [OUT, 2, SEGMENT, size - abi.LAUNCH_HEADER_BYTES, 0, 0]
    for launches in (1, 2):
        machine.launch(code.text, params, (3, 2, 1), 2)
        head = segment[: abi.LAUNCH_HEADER_BYTES].view(abi.LAUNCH_HEADER)[0]
        assert (head["launches"], head["warps_per_block"]) == (launches, 2)
        assert (head["language"], head["options"]) == (Language.TRITON, Option.LANES64)
    trace = decode([SegmentSource("k", segment)], names_in_code(code.text))
    assert trace.slots.sm.tolist() == [2 << 8 | block % 3 for block in range(6) for _ in range(2)]
    assert "only the last is kept" in trace.launches[0].notes[0]


def test_a_launch_that_was_smaller_leaves_the_slots_of_the_last_one_out() -> None:
    code = compiled("early_return", spec(), "gfx942", 1)
    machine = GcnMachine()
    size = abi.segment_bytes(4, 8)
    segment = machine.memory.map(SEGMENT, size)
    machine.memory.map(OUT, 16)
    params = [OUT, 2, SEGMENT, size - abi.LAUNCH_HEADER_BYTES, 0, 0]
    machine.launch(code.text, params, (4, 1, 1))
    machine.launch(code.text, params, (4, 1, 1), blocks=[0, 1])
    trace = decode([SegmentSource("k", segment)], names_in_code(code.text))
    assert trace.slots.block.tolist() == [0, 1]
    assert "of an earlier launch" in " ".join(trace.launches[0].notes)


CHOICES = {"conditional": choices.conditional_records, "placed": choices.placed_records}


@pytest.mark.parametrize(("name", "n", "arch"), pairwise(CHOICES, [0, 1, 7], ARCHITECTURES))
def test_conditions_indices_and_roles(name: str, n: int, arch: str) -> None:
    code = compile_amd(getattr(choices, name), OUT_AND_N, spec(), arch=arch, num_warps=1)
    trace = run(code, (2, 1, 1), n, 1)
    wanted = [CHOICES[name](pid, n) for pid in range(2)]  # type: ignore[no-untyped-call]
    assert [[(f"region {r}" if isinstance(r, int) else r, p) for r, p in found]
            for found in records(trace)] == wanted  # fmt: skip
    assert trace.launches[0].dropped == 0
    role = "worker" if name == "conditional" else ""
    assert [trace.roles[i] for i in trace.slots.role] == [role] * 2


@pytest.mark.any_pins
@MODES
@pytest.mark.parametrize("slot_records", [2, 5])
def test_a_condition_decides_what_is_counted_in_a_full_slot(
    slot_records: int, mode: OverflowMode
) -> None:
    code = compile_amd(choices.conditional, OUT_AND_N, spec(mode), num_warps=1)
    trace = run(code, (1, 1, 1), 7, 1, slot_records)
    wanted = choices.conditional_records(0, 7)  # type: ignore[no-untyped-call]
    (launch,) = trace.launches
    assert launch.attempted == len(wanted)
    kept = wanted[: launch.capacity] if mode is OverflowMode.STOP else wanted[-launch.capacity :]
    assert records(trace) == [kept]


@pytest.mark.any_pins
@pytest.mark.parametrize(
    "selection",
    [
        Selection(warps=0b10),
        Selection(warps=0b1111, first_block=1, block_step=2, block_count=2**32 - 1),
        Selection(warps=0b101, first_block=2, block_step=3, block_count=1),
        Selection(warps=0xFFFF_FFFF, first_block=5, block_step=1, block_count=7),
        Selection(warps=0b100000),
        Selection(warps=1, first_block=40),
    ],
)
@MODES
def test_the_chosen_waves_of_the_chosen_blocks_record(
    selection: Selection, mode: OverflowMode
) -> None:
    grid, waves, blocks = (2, 3, 1), 4, 6
    chosen = range(selection.first_block, blocks, selection.block_step)
    wanted = [
        (block, wave)
        for rank, block in enumerate(chosen)
        if rank < selection.block_count
        for wave in range(waves)
        if selection.warps >> wave & 1
    ]
    code = compiled("early_return", replace(spec(mode), select=True), "gfx942", waves)
    trace = run(code, grid, 2, waves, 2, selection, max(1, len(wanted)))
    found = zip(trace.slots.block.tolist(), trace.slots.warp.tolist(), strict=True)
    assert list(found) == wanted
    if wanted:
        assert trace.launches[0].capacity == 2


@pytest.mark.any_pins
def test_a_store_that_ignored_the_limit_would_be_seen() -> None:
    """The machine's own check: without the compare, a record lies outside of the segment."""
    code = compiled("nested", spec(), "gfx942", 1)
    text = code.text.replace("s_cmp_lt_u32 s[ikp_cur], s[ikp_lim]", "s_cmp_eq_u32 0, 0")
    assert text != code.text
    broken = replace_text(code, text)
    with pytest.raises(FaultError, match="outside the program's memory"):
        run(broken, (1, 1, 1), 5, 1, slot_records=2)


@pytest.mark.any_pins
@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("s_waitcnt lgkmcnt(0)", "", "has not been waited for"),
        ("s_nop 4", "", "states after"),
    ],
)
def test_the_machine_sees_missing_waits_and_states(old: str, new: str, fault: str) -> None:
    code = compiled("nested", spec(), "gfx942", 1)
    assert old in code.text
    with pytest.raises(FaultError, match=fault):
        run(replace_text(code, code.text.replace(old, new)), (1, 1, 1), 5, 1)


def replace_text(code: AmdCode, text: str) -> AmdCode:
    return AmdCode(SimpleNamespace(asm={"amdgcn": text}))  # type: ignore[arg-type]


@ARCHS
@pytest.mark.parametrize("clock", [ClockKind.CYCLES, ClockKind.GLOBALTIMER], ids=lambda c: c.name)
def test_the_range_of_a_kernel_lasts_from_init_to_each_exit(arch: str, clock: ClockKind) -> None:
    code = compile_amd(kernels.kept, OUT_AND_N, spec(clock=clock), arch=arch, num_warps=1)
    trace = run(code, (3, 1, 1), 4, 1)
    both = [("store", 0.0), ("all of it", None)]
    assert records(trace) == [both, [("all of it", None)], [("store", 2.0), ("all of it", None)]]
    events = trace.events
    for slot in (0, 2):
        inner, outer = np.flatnonzero(events.slot == slot)
        assert events.start_ns[outer] <= events.start_ns[inner]
        assert events.end_ns[inner] <= events.end_ns[outer]


def test_a_kernel_with_fewer_registers_for_itself_records_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = compiled("functional", spec(), "gfx942", 1).fact(".amdhsa_next_free_sgpr")
    monkeypatch.setattr(registers, "MOST", usual - 1)
    monkeypatch.setattr(registers, "LIMIT", usual - 1 - len(registers.NAMES) - 1)
    monkeypatch.setattr(knobs.compilation, "always_compile", True)
    code = compile_amd(control.functional, OUT_AND_N, spec(), num_warps=1)
    assert code.fact(".amdhsa_next_free_sgpr") < usual
    assert code.fact(".private_segment_fixed_size") == 0
    assert records(run(code, (1, 1, 1), 3, 1)) == [list(KERNELS["functional"](0, 3))]


def test_a_new_field_of_the_launch_header_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    extend(monkeypatch)
    prof = replace(spec(), revision="extended")
    code = compile_amd(control.nested, OUT_AND_N, prof, arch="gfx942", num_warps=2)
    machine = GcnMachine()
    size = abi.segment_bytes(12, 16)
    data = machine.memory.map(SEGMENT, size)
    machine.memory.map(OUT, 4 * 6)
    params = [OUT, 2, SEGMENT, size - abi.LAUNCH_HEADER_BYTES, 0, 0]
    machine.launch(code.text, params, (2, 3, 1), 2)
    check(data)
