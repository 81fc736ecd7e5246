"""What ikp adds to the code of Triton kernels for AMD GPUs, and what it must not: no GPU needed."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import triton
from triton import knobs

from gcn import kernels
from gcn.compiling import (
    ARCHITECTURES,
    CLOCKS,
    SCRATCH,
    SYNCHRONISING,
    AmdCode,
    compile_amd,
)
from ikp.backends.triton._hooks import names_in_code
from ikp.core.abi import ClockKind, OverflowMode
from ikp.core.segment import Spec
from tests.backends.sass import spec
from tests.kernels import called, choices, control, gemm, straight
from tests.kernels.stripped import stripped
from tests.products import one_by_one, pairwise

pytestmark = pytest.mark.compiled

ARCHS = pytest.mark.parametrize("arch", ARCHITECTURES)
HAD = [OverflowMode.STOP, OverflowMode.WRAP]
"""AMD's GPUs have no stream yet, and say so."""
MODES = pytest.mark.parametrize("mode", HAD, ids=lambda mode: mode.name)
OUT_AND_N = {"out": "*i32", "n": "i32"}
STORES = 16
RANGE, INSTANT, RING = 15, 13, 1
"""Instructions that a range and an instant may cost in straight-line code, and more in a ring; with
the moves of a record's words and the waits for its clocks, which LLVM adds."""
SET_UP = 185
"""Instructions that init and finish add: as counted with Triton 3.6 and 3.9."""
VECTOR_REGISTERS = 26
"""How many more a pipelined GEMM may take: in its ranges, nothing is mixed with what is outside."""
PIPELINES = tuple(map(int, triton.__version__.split(".")[:2])) > (3, 6)
"""Triton 3.6 for AMD does not pipeline a loop with assembly in it."""
RECORD = re.compile(
    r"s_cmp_lt_u32 s\[ikp_cur\], s\[ikp_lim\]\n"
    r"s_cselect_b64 (s\[ikp_save:ikp_save_high\]), 1, 0\n"
    r"s_lshl4_add_u32 s\[ikp_low\], s\[ikp_cur\], s\[ikp_base\]\n"
    r"s_and_saveexec_b64 \1, \1\n"
    r"global_store_dwordx4 v\d+, v\[\d+:\d+\], s\[ikp_low:ikp_high\]\n"
    r"s_mov_b64 exec, \1\n"
    r"s_add_u32 s\[ikp_cur\], s\[ikp_cur\], 1"
)


@pytest.fixture(autouse=True)
def without_line_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs.compilation, "disable_line_info", True)


@cache
def code(
    records: int,
    kind: str = "range",
    arch: str = "gfx942",
    mode: OverflowMode | None = OverflowMode.STOP,
    clock: ClockKind = ClockKind.CYCLES,
) -> AmdCode:
    """Compile the straight-line kernel; ``mode`` None compiles it without recording."""
    constants = {"STORES": STORES, "RECORDS": records, "KIND": kind}
    prof = None if mode is None else spec(mode, clock)
    return compile_amd(straight.straight, {"x": "*i32", "p": "i32"}, prof, constants, arch)


@cache
def pipelined(arch: str, on: bool, barriers: bool = True) -> AmdCode:
    prof = replace(spec(), target_options=(("sched_barriers", barriers),)) if on else None
    constants = {"LOAD": True, "DOT": True, **gemm.TILES}
    options = gemm.OPTIONS if PIPELINES else gemm.OPTIONS | {"num_stages": 1}
    return compile_amd(gemm.gemm, gemm.TYPES, prof, constants, arch, True, **options)


@pytest.mark.parametrize(
    ("kind", "arch", "mode"),
    pairwise(["range", "payload", "functional", "run-time id", "instant"], ARCHITECTURES, HAD),
)
def test_what_a_record_costs_in_instructions(kind: str, arch: str, mode: OverflowMode) -> None:
    sizes = [len(code(n, kind, arch, mode).instructions) for n in (8, 16)]
    budget = (INSTANT if kind == "instant" else RANGE) + RING * (mode is OverflowMode.WRAP)
    assert 0 < sizes[1] - sizes[0] <= 8 * budget


@MODES
@ARCHS
def test_what_init_and_finish_cost_in_instructions(arch: str, mode: OverflowMode) -> None:
    plain, empty = (len(code(0, "range", arch, each).instructions) for each in (None, mode))
    assert empty - plain <= SET_UP


@ARCHS
@pytest.mark.parametrize("clock", [ClockKind.CYCLES, ClockKind.GLOBALTIMER], ids=lambda c: c.name)
def test_the_clock_is_read_twice_per_range(arch: str, clock: ClockKind) -> None:
    wanted, other = CLOCKS if clock is ClockKind.CYCLES else CLOCKS[::-1]
    few, many = (code(n, "range", arch, clock=clock).opcodes for n in (0, 16))
    assert many[wanted] - few[wanted] == 32
    assert many[other] == few[other]


@ARCHS
def test_each_record_is_one_store_that_one_compare_bounds(arch: str) -> None:
    text = code(16, "range", arch).text
    assert text.count("; ikp.store ") == len(RECORD.findall(text)) == 16
    wide = [code(n, "range", arch).opcodes["global_store_dwordx4"] for n in (0, 16)]
    assert wide[1] - wide[0] == 16


@pytest.mark.parametrize(
    ("kind", "arch", "mode"),
    pairwise(["range", "instant", "run-time id"], ARCHITECTURES, HAD),
)
def test_records_bring_no_branch_no_atomic_no_barrier_and_no_scratch(
    kind: str, arch: str, mode: OverflowMode
) -> None:
    plain, empty, full = (
        code(n, kind, arch, each) for n, each in ((0, None), (0, mode), (16, mode))
    )
    for each in (empty, full):
        assert each.count(["branch"]) == plain.count(["branch"])
        assert each.count(SYNCHRONISING) == plain.count(SYNCHRONISING) == 0
        assert each.count(SCRATCH) == 0
        assert each.fact(".private_segment_fixed_size") == 0
        assert each.fact(".vgpr_spill_count") == each.fact(".sgpr_spill_count") == 0


@ARCHS
def test_it_assembles(arch: str) -> None:
    assert code(16, "range", arch).compiled.asm["hsaco"].startswith(b"\x7fELF")


@ARCHS
def test_the_registers_of_ikp_are_those_after_the_kernels_own(arch: str) -> None:
    made = code(16, "range", arch)
    numbers = [int(n) for n in re.findall(r"\.set ikp_\w+, (\d+)", made.text)]
    assert numbers == list(range(numbers[0], numbers[0] + 7)) and numbers[0] % 2 == 0
    own = [int(n) for n in re.findall(r"\bs(?:\[(?:\d+:)?)?(\d+)\b", "\n".join(made.lines))]
    assert max(own) < numbers[0]
    assert made.fact(".amdhsa_next_free_sgpr") == numbers[-1] + 1
    assert made.fact(".sgpr_count") >= numbers[-1] + 1


@ARCHS
def test_matrix_instructions_and_barriers_are_as_without_ikp(arch: str) -> None:
    off, on = pipelined(arch, False), pipelined(arch, True)
    assert off.count(["v_mfma"])
    for names in (["v_mfma"], ["s_barrier"], ["ds_write"], ["atomic"]):
        assert on.count(names) == off.count(names), names
    assert on.count(SCRATCH) == off.count(SCRATCH) == 0
    assert on.fact(".private_segment_fixed_size") == 0
    assert on.fact(".vgpr_count") <= off.fact(".vgpr_count") + VECTOR_REGISTERS
    assert set(names_in_code(on.text).values()) == {"load", "dot"}


@ARCHS
def test_a_range_around_a_dot_holds_the_whole_dot(arch: str) -> None:
    made = pipelined(arch, True)
    held = [sum("v_mfma" in line for line in part) for part in made.between_clocks()]
    dots = [count for count in held if count]
    assert len(dots) == made.text.count('"dot"')
    assert sum(dots) == made.count(["v_mfma"])
    assert len(set(dots)) == 1


def test_without_barriers_the_scheduler_mixes_the_dot_with_the_rest() -> None:
    arch = ARCHITECTURES[-1]
    made = pipelined(arch, True, barriers=False)
    assert made.text.count("sched_barrier") == pipelined(arch, False).text.count("sched_barrier")
    held = [sum("v_mfma" in line for line in part) for part in made.between_clocks()]
    assert len({count for count in held if count}) > 1


CASES: list[tuple[ModuleType, str, dict[str, str], dict[str, Any], dict[str, int]]] = [
    *((control, name, OUT_AND_N, {}, {}) for name in ("nested", "functional", "early_return")),
    (gemm, "gemm", gemm.TYPES, {"LOAD": True, "DOT": True, **gemm.TILES}, gemm.OPTIONS),
    (
        straight,
        "straight",
        {"x": "*i32", "p": "i32"},
        {"STORES": 8, "RECORDS": 8, "KIND": "range"},
        {},
    ),
]


@pytest.mark.parametrize(
    ("module", "name", "types", "constants", "options", "arch"),
    [
        pytest.param(*case, arch, id=f"{case[1]}-{arch}")
        for case, arch in one_by_one(CASES, ARCHITECTURES)
    ],
)
def test_off_is_the_kernel_without_ikp(
    module: ModuleType,
    name: str,
    types: dict[str, str],
    constants: dict[str, Any],
    options: dict[str, int],
    arch: str,
    tmp_path: Path,
) -> None:
    bare = getattr(stripped(module, tmp_path), name)
    off, plain = (
        compile_amd(kernel, types, None, constants, arch, divisible=True, **options)
        for kernel in (getattr(module, name), bare)
    )
    assert off.text == plain.text
    assert "ikp" not in off.text


@pytest.mark.parametrize("size", [{}, {"divisible": True}])
def test_early_exits_finish(size: dict[str, bool]) -> None:
    made = compile_amd(control.early_return, OUT_AND_N, spec(), **size)  # type: ignore[arg-type]
    assert made.text.count("; ikp.finish") >= made.opcodes["s_endpgm"] >= 1


def test_other_amd_gpus_are_refused_by_name() -> None:
    with pytest.raises(Exception, match=r"gfx942 and gfx950.*compiled for gfx90a"):
        compile_amd(control.nested, OUT_AND_N, spec(), arch="gfx90a")


def test_a_hook_that_was_taken_away_stops_the_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.backends import sass

    monkeypatch.setattr(sass, "TritonBackend", lambda: None)
    monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", None)
    with pytest.raises(Exception, match="which another tool took away"):
        compile_amd(choices.conditional, OUT_AND_N, spec(), num_warps=2)


def test_a_stage_that_has_another_name_stops_the_compilation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without(*args: Any) -> Any:
        if not args:
            return "", ""
        args[1]["gcn"] = args[1].pop("amdgcn")
        return None

    monkeypatch.setattr(knobs.compilation, "always_compile", True)
    monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", without)
    with pytest.raises(
        Exception, match=r"records on AMD GPUs, which .* no compiler stage 'amdgcn'"
    ):
        compile_amd(choices.conditional, OUT_AND_N, spec(), num_warps=2)


@pytest.mark.parametrize(
    ("name", "prof", "message"),
    [
        ("by_hand", spec(), "ttgir= places records in kernels for NVIDIA GPUs.*Leave it out"),
        ("passed_on", spec(), "is not the kernel's own argument"),
        ("kept", replace(spec(), totals=True), "Record a timeline"),
        ("kept", spec(clock=ClockKind.CYCLES64), "Use clock='cycles'"),
        ("kept", spec(OverflowMode.STREAM), "Use overflow='wrap'"),
    ],
)
def test_what_can_not_be_is_refused_with_what_can(name: str, prof: Spec, message: str) -> None:
    with pytest.raises(Exception, match=message):
        compile_amd(getattr(kernels, name), OUT_AND_N, prof)


@ARCHS
def test_functions_that_a_kernel_calls_leave_the_registers_alone(arch: str) -> None:
    made = compile_amd(called.around_plain, OUT_AND_N, spec(), arch=arch)
    assert made.opcodes["s_swappc_b64"] == 1
    first = int(re.findall(r"\.set ikp_low, (\d+)", made.text)[0])
    used = re.findall(r"\bs(?:\[(?:\d+:)?)?(\d+)\b", "\n".join(made.lines))
    assert max(map(int, used)) < first
    assert "ikp" not in made.text.partition("; @around_plain")[0].partition("\t.amdgcn_target")[2]
