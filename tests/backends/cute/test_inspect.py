"""``ikp.inspect`` on CuTe kernels, whose machine code has no line numbers."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import ikp
from ikp.inspection._images import Image
from ikp.inspection.inspector import report
from ikp.inspection.report import KernelReport
from ikp.sass.disassembly.opcodes import Work, work_of
from ikp.sass.disassembly.tools import assemble
from tests.backends.cute import kernels
from tests.backends.cute.compiling import TARGETS, compile_cute, floats, number, prof
from tests.backends.sass import Code
from tests.inspection.test_records import check_against_ptx

pytestmark = pytest.mark.compiled


@cache
def control(target: str) -> Code:
    arguments = (kernels.control, floats(), number(), prof())
    return compile_cute(kernels.launch, *arguments, target=target)


@cache
def roles() -> Code:
    return compile_cute(kernels.Roles(2), floats(), number(), prof())


def inspected(made: Code) -> KernelReport:
    (kernel,) = report([Image(made.compiled.asm["cubin"], made.ptx, "a test")])
    return kernel


@pytest.mark.parametrize("target", TARGETS)
def test_every_record_is_found(target: str) -> None:
    kernel = inspected(control(target))
    assert kernel.target == target
    assert kernel.problems == ()
    assert "no line numbers" in kernel.notes[0]
    marks = control(target).ptx.count("// ikp.store")
    assert sum(len(r.copies) for r in kernel.ranges) == marks
    names = {r.name for r in kernel.ranges}
    assert names >= {"outer", "flight", "loop", "nested", "helper", "else", "while", "chosen warp"}


@pytest.mark.parametrize("target", TARGETS)
def test_clock_reads_are_those_of_the_ptx(target: str, tmp_path: Path) -> None:
    ptx = control(target).ptx
    check_against_ptx(assemble(ptx, "a test"), ptx)


def test_roles_hold_their_loads_and_stores() -> None:
    kernel = inspected(roles())
    held = {
        name: Counter(work_of(i) for i in kernel[name].copies[0].instructions)
        for name in ("produce", "consume", "step")
    }
    assert [held[name][Work.LOAD] for name in held] == [1, 2, 1]
    assert [held[name][Work.STORE] for name in held] == [1, 2, 1]
    assert [len(kernel[name].copies) for name in ("consume", "step")] == [8, 16]
    assert kernel.warnings == ()


def test_what_the_roles_of_a_gemm_hold() -> None:
    from tests.examples.test_cute import gemm

    kernel = inspected(gemm(True))
    held = {
        found.name: {work_of(i) for copy in found.copies for i in copy.instructions}
        for found in kernel.ranges
    }
    assert Work.COPY in held["issue TMA"]
    assert Work.TENSOR in held["issue WGMMA"]
    assert not any(Work.TENSOR in held[name] for name in held if name.startswith("wait"))
    assert all(Work.WAIT in held[name] for name in held if name.startswith("wait"))
    assert kernel.problems == ()
    assert kernel.warnings == ()


def test_the_compiled_object_itself() -> None:
    from cutlass import cute

    keep = (cute.KeepPTX, cute.KeepCUBIN, cute.GPUArch("sm_90a"))
    made = cute.compile[keep](kernels.launch, kernels.control, floats(), number(), prof())
    assert ikp.inspect(made)["nested"].copies
