"""Marks in the source of kernels compiled for an AMD GPU: in the code, and in the caches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl

from gcn.compiling import SCRATCH, AmdCode
from gcn.launching import AmdDriver, compiled
from gcn.machine import GcnMachine
from ikp.backends.triton import TritonBackend
from ikp.backends.triton._hooks import names_in_code
from ikp.backends.triton.unedited._clones import kernel_clone
from ikp.backends.triton.unedited._mark_nodes import PROF
from ikp.core import abi
from ikp.core.decoding.decode import decode
from ikp.core.decoding.launch_header import SegmentSource
from ikp.unedited.plan import BY_HAND, Plan
from tests.backends.triton.unedited.compiling import buffer
from tests.kernels import unedited

pytestmark = pytest.mark.compiled

CHECKOUT = str(Path(__file__).parents[3])
"""Line info names the kernel's file: the folder may be called anything."""
OPTIONS = {"num_warps": 8, "num_stages": 1, "BM": 128, "BN": 128, "BK": 64}
DETAILS = pytest.mark.parametrize("detail", ["kernel", "loops", "ops"])
OUT, SEGMENT = 0x7E00_0000_0000, 0x7F00_0000_0000


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.runtime.driver, "_active", AmdDriver())
    TritonBackend()


def matmul(marks: dict[str, Any] | None = None, **options: Any) -> AmdCode:
    import torch

    half = torch.zeros(16, dtype=torch.float16)
    args = (half, half, half, 512, 512, 512)
    return compiled(unedited.matmul, *args, marks=marks, **{**OPTIONS, **options})


def numbers() -> Any:
    import torch

    return torch.zeros(64, dtype=torch.float32)


def kinds(code: AmdCode) -> set[str]:
    return {name.partition(" @")[0] for name in names_in_code(code.text).values()}


@DETAILS
def test_a_matmul_keeps_its_instructions(detail: str) -> None:
    marked, plain = matmul({"detail": detail}), matmul()
    expected = {
        "kernel": {"matmul"},
        "loops": {"matmul", "for k", "for k iteration"},
        "ops": {"matmul", "for k", "for k iteration", "tl.load", "tl.dot", "tl.store"},
    }
    assert kinds(marked) == expected[detail]
    assert marked.count(["v_mfma"]) == plain.count(["v_mfma"]) > 0
    assert marked.count(SCRATCH) == 0


def test_marks_in_helpers_and_in_both_exits() -> None:
    code = matmul({"detail": "ops"}, TWICE=True)
    assert {"doubled", "for i", "for i iteration"} <= kinds(code)


@DETAILS
def test_whiles_branches_noinline_helpers_and_long_loop_variables(detail: str) -> None:
    args = numbers(), numbers(), 4
    plain = compiled(unedited.several, *args, BLOCK=64)
    code = compiled(unedited.several, *args, marks={"detail": detail}, BLOCK=64)
    assert plain.opcodes["s_swappc_b64"] == code.opcodes["s_swappc_b64"] == 1
    loops = {"for i", "for i iteration", "while rounds < 3", "while rounds < 3 iteration"}
    ops = {"tl.load", "plus_one", "tl.debug_barrier", "tl.store"}
    expected: dict[str, set[str]] = {"kernel": set(), "loops": loops, "ops": loops | ops}
    assert kinds(code) == {"several"} | expected[detail]


@DETAILS
def test_a_flattened_nest_stays_one_loop(detail: str) -> None:
    args = numbers(), numbers(), 64, 16
    plain = compiled(unedited.persistent, *args, BLOCK=64).compiled
    code = compiled(unedited.persistent, *args, marks={"detail": detail}, BLOCK=64).compiled
    for operation in ("scf.for", "scf.if", "tt.load"):
        assert plain.asm["ttgir"].count(operation) == code.asm["ttgir"].count(operation)


def test_a_kernel_made_in_a_function_keeps_what_it_finds_there() -> None:
    stores = []
    for step in (3, 4):
        code = compiled(unedited.made_in_a_function(step), numbers(), 8, marks={"detail": "ops"})
        assert kinds(code) == {"kernel", "for i", "for i iteration", "tl.store"}
        stores.append(code.compiled.asm["ttir"])
    assert "dense<3>" in stores[0] or "3 :" in stores[0]
    assert stores[0] != stores[1]


@pytest.mark.parametrize("n", [0, 2, 5])
def test_loops_and_iterations_are_recorded_as_often_as_they_run(n: int) -> None:
    import torch

    out = torch.zeros(64, dtype=torch.int32)
    kernel = unedited.made_in_a_function(7)
    code = compiled(kernel, out, n, marks={"detail": "loops"}, num_warps=1)
    machine = GcnMachine()
    size = abi.segment_bytes(1, 64)
    segment = machine.memory.map(SEGMENT, size)
    memory = machine.memory.map(OUT, 4 * 64)
    params = [OUT, n, SEGMENT, size - abi.LAUNCH_HEADER_BYTES, 0, 0]
    machine.launch(code.text, params, (1, 1, 1), 1)
    trace = decode([SegmentSource("k", segment)], names_in_code(code.text))
    assert trace.slots.finished.all()
    found = [trace.regions[i].name.partition(" @")[0] for i in trace.events.region]
    assert found.count("kernel") == found.count("for i") == 1
    assert found.count("for i iteration") == n
    stored = memory.view(np.int32)[:8].tolist()
    assert stored == [i + 7 if i < n else 0 for i in range(8)]


def test_the_plain_kernel_compiles_as_if_nobody_had_marked_it() -> None:
    before = matmul()
    matmul({"detail": "ops"})
    unedited.matmul.device_caches.clear()
    after = matmul()
    assert before.compiled.hash == after.compiled.hash
    assert before.text == after.text and "ikp" not in after.text.replace(CHECKOUT, "")


def test_no_two_plans_share_an_entry_of_the_compile_cache() -> None:
    marks: list[dict[str, Any] | None] = [None, {"lines": "40-41"}]
    marks += [{"detail": detail} for detail in ("kernel", "loops", "ops")]
    assert len({matmul(each).compiled.hash for each in marks}) == len(marks)


def test_a_marked_kernel_is_compiled_once() -> None:
    first, second = (matmul({"detail": "ops"}).compiled for _ in range(2))
    assert first is second


def test_a_changed_helper_is_compiled_anew() -> None:
    @triton.jit
    def helper(x):
        for _ in range(2):
            x = x + 7
        return x

    @triton.jit
    def kernel(x_ptr):
        tl.store(x_ptr, helper(tl.load(x_ptr)))

    before = compiled(kernel, numbers(), marks={"detail": "ops"}).compiled
    helper._unsafe_update_src(helper.src.replace("+ 7", "+ 9"))
    kernel.hash = None  # as Triton asks of who changes a function
    after = compiled(kernel, numbers(), marks={"detail": "ops"}).compiled
    assert before.hash != after.hash
    assert "9.0" in after.asm["ttir"] or "9.000000e+00" in after.asm["ttir"]


def test_the_debug_information_names_the_authors_lines() -> None:
    code, plain = matmul({"detail": "loops"}), matmul()

    def lines(made: AmdCode) -> set[str]:
        return set(re.findall(r'unedited\.py":(\d+):', made.compiled.asm["ttir"]))

    assert lines(plain) <= lines(code)


def test_records_by_hand_are_refused_with_what_works(tmp_path: Path) -> None:
    clone = kernel_clone(unedited.scaled.fn, Plan(level=BY_HAND, ttgir=str(tmp_path / "k.ttgir")))
    with pytest.raises(Exception, match=r"NVIDIA GPUs.*Leave it out: the kernel's source is"):
        clone.warmup(numbers(), 64, 64, True, grid=(1,), **{PROF: buffer()})
