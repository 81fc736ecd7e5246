"""Gluon kernels for AMD GPUs: what ikp adds to their code, and what they then record."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import triton
from triton import knobs
from triton.experimental.gluon._runtime import GluonASTSource

from gcn import gluon_kernels as amd_kernels
from gcn.compiling import ARCHITECTURES, SCRATCH, AmdCode, target
from gcn.machine import GcnMachine
from ikp.backends.triton._hooks import names_in_code
from ikp.core import abi
from ikp.core.abi import Language
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from tests.backends.sass import source, spec
from tests.backends.triton.test_compiled_kernels import records
from tests.kernels.stripped import stripped

pytestmark = pytest.mark.compiled

ARCHS = pytest.mark.parametrize("arch", ARCHITECTURES)
OUT_AND_N = {"out": "*i32", "n": "i32"}
GEMM = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "K": "i32"}
MATRIX = {
    "gfx942": {"VERSION": 3, "DEPTH": 8, "WIDTH": 4},
    "gfx950": {"VERSION": 4, "DEPTH": 16, "WIDTH": 8},
}
VECTOR_REGISTERS = 12
"""How many more the GEMM may take: a record in flight, and less mixing of what ranges part."""
SEGMENT, OUT = 0x7F00_0000_0000, 0x7E00_0000_0000


def compile_gluon(
    kernel: Any, types: dict[str, str], on: bool, constants: dict[str, int], arch: str, waves: int
) -> AmdCode:
    made = source(kernel, types, spec() if on else None, constants, True)
    gluon = GluonASTSource(made.fn, made.signature, made.constants, made.attrs)
    options = {"num_warps": waves}
    return AmdCode(triton.compile(gluon, target=target(arch), options=options))


@cache
def gemm(arch: str, on: bool) -> AmdCode:
    return compile_gluon(amd_kernels.gemm, GEMM, on, MATRIX[arch], arch, 4)


@ARCHS
@pytest.mark.parametrize("n", [0, 6])
def test_every_wave_records_what_the_kernel_says(n: int, arch: str) -> None:
    code = compile_gluon(amd_kernels.control, OUT_AND_N, True, {}, arch, 2)
    machine = GcnMachine()
    size = abi.segment_bytes(2, 64)
    segment = machine.memory.map(SEGMENT, size)
    machine.memory.map(OUT, 4 * 128)
    params = [OUT, n, SEGMENT, size - abi.LAUNCH_HEADER_BYTES, 0, 0]
    machine.launch(code.text, params, waves=2)
    head = segment[: abi.LAUNCH_HEADER_BYTES].view(abi.LAUNCH_HEADER)[0]
    assert head["language"] == Language.GLUON
    trace = decode([SegmentSource("k", segment)], names_in_code(code.text))
    wanted = amd_kernels.control_records(n)  # type: ignore[no-untyped-call]
    assert records(trace) == [wanted] * 2


@ARCHS
def test_matrix_instructions_stand_in_their_range_and_nothing_else_changes(arch: str) -> None:
    off, on = gemm(arch, False), gemm(arch, True)
    assert off.count(["v_mfma"]) > 1
    for names in (["v_mfma"], ["s_barrier"], ["buffer_load"], ["ds_write"], ["atomic"], ["branch"]):
        assert on.count(names) == off.count(names), names
    assert on.count(SCRATCH) == 0
    assert on.fact(".private_segment_fixed_size") == 0
    assert on.fact(".vgpr_count") <= off.fact(".vgpr_count") + VECTOR_REGISTERS
    held = [sum("v_mfma" in line for line in part) for part in on.between_clocks()]
    assert [count for count in held if count] == [on.count(["v_mfma"])]
    loads = [sum("buffer_load" in line for line in part) for part in on.between_clocks()]
    assert [count for count in loads if count] == [on.count(["buffer_load"])]
    names = {"load", "layout", "mfma", "store"}
    assert set(names_in_code(on.text).values()) == names


@ARCHS
@pytest.mark.parametrize("kernel", ["control", "gemm"])
def test_off_is_the_kernel_without_ikp(
    kernel: str, arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knobs.compilation, "disable_line_info", True)
    types, constants = (GEMM, MATRIX[arch]) if kernel == "gemm" else (OUT_AND_N, {})
    waves = 4 if kernel == "gemm" else 2
    bare = getattr(stripped(amd_kernels, tmp_path), kernel)
    off, plain = (
        compile_gluon(each, types, False, constants, arch, waves)
        for each in (getattr(amd_kernels, kernel), bare)
    )
    assert off.text == plain.text
    assert "ikp" not in off.text
