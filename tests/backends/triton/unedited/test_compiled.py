"""Marked kernels that Triton compiles: what is in the code, and what the caches hold."""

from __future__ import annotations

import re
from typing import Any

import pytest
import triton
import triton.language as tl

from ikp.backends.triton import TritonBackend
from ikp.backends.triton._hooks import names_in_code
from tests.backends.sass import verbs_in
from tests.backends.triton.unedited.compiling import FakeDriver, compiled
from tests.kernels import unedited

pytestmark = pytest.mark.compiled

DETAILS = pytest.mark.parametrize("detail", ["kernel", "loops", "ops"])
SIZES = {"BM": 128, "BN": 128, "BK": 64}
UNCHANGED = (
    "wgmma.mma_async",
    "cp.async.cg",
    "wgmma.wait_group",
    "cp.async.wait_group",
    "bar.sync",
)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.runtime.driver, "_active", FakeDriver())
    TritonBackend()


def matrices() -> tuple[Any, ...]:
    import torch

    half = torch.zeros(16, dtype=torch.float16)
    return half, half, half, 512, 512, 512


def numbers() -> Any:
    import torch

    return torch.zeros(64, dtype=torch.float32)


def kinds(code: Any) -> set[str]:
    return {name.partition(" @")[0] for name in names_in_code(code.asm["ptx"]).values()}


@DETAILS
def test_a_pipelined_matmul_keeps_its_instructions(detail: str) -> None:
    options = {"num_warps": 8, "num_stages": 3, **SIZES}
    plain = compiled(unedited.matmul, *matrices(), **options)
    code = compiled(unedited.matmul, *matrices(), marks={"detail": detail}, **options)
    for instruction in UNCHANGED:
        assert plain.asm["ptx"].count(instruction) == code.asm["ptx"].count(instruction)
    assert plain.metadata.shared == code.metadata.shared
    assert ".local " not in code.asm["ptx"]
    expected = {
        "kernel": {"matmul"},
        "loops": {"matmul", "for k", "for k iteration"},
        "ops": {"matmul", "for k", "for k iteration", "tl.load", "tl.dot", "tl.store"},
    }
    assert kinds(code) == expected[detail]


def test_marks_in_helpers_and_in_both_exits() -> None:
    code = compiled(unedited.matmul, *matrices(), TWICE=True, marks={"detail": "ops"}, **SIZES)
    assert {"doubled", "for i", "for i iteration"} <= kinds(code)


@DETAILS
def test_whiles_branches_noinline_helpers_and_long_loop_variables(detail: str) -> None:
    args = numbers(), numbers(), 4
    plain = compiled(unedited.several, *args, BLOCK=64)
    code = compiled(unedited.several, *args, marks={"detail": detail}, BLOCK=64)
    assert plain.asm["ptx"].count("call.uni") == code.asm["ptx"].count("call.uni") == 1
    loops = {"for i", "for i iteration", "while rounds < 3", "while rounds < 3 iteration"}
    ops = {"tl.load", "plus_one", "tl.debug_barrier", "tl.store"}
    expected = {"kernel": set(), "loops": loops, "ops": loops | ops}
    assert kinds(code) == {"several"} | expected[detail]


@DETAILS
def test_helpers_that_call_themselves_and_inline_assembly(detail: str) -> None:
    plain = compiled(unedited.recursive, numbers())
    code = compiled(unedited.recursive, numbers(), marks={"detail": detail})
    for instruction in ("mul.f32", "mul.rn.f32", "add.f32"):
        assert plain.asm["ptx"].count(instruction) == code.asm["ptx"].count(instruction)
    calls = {"raised", "tl.load", "tl.store"} if detail == "ops" else set()
    assert kinds(code) == {"recursive"} | calls


@DETAILS
def test_a_flattened_nest_stays_one_loop(detail: str) -> None:
    args = numbers(), numbers(), 64, 16
    plain = compiled(unedited.persistent, *args, BLOCK=64)
    code = compiled(unedited.persistent, *args, marks={"detail": detail}, BLOCK=64)
    for operation in ("scf.for", "scf.if", "tt.load"):
        assert plain.asm["ttgir"].count(operation) == code.asm["ttgir"].count(operation)


def test_a_kernel_made_in_a_function_keeps_what_it_finds_there() -> None:
    stores = []
    for step in (3, 4):
        code = compiled(unedited.made_in_a_function(step), numbers(), 8, marks={"detail": "ops"})
        assert kinds(code) == {"kernel", "for i", "for i iteration", "tl.store"}
        stores.append(code.asm["ttir"])
    assert "dense<3>" in stores[0] or "3 :" in stores[0]
    assert stores[0] != stores[1]


def test_the_plain_kernel_compiles_as_if_nobody_had_marked_it() -> None:
    before = compiled(unedited.matmul, *matrices(), **SIZES)
    compiled(unedited.matmul, *matrices(), marks={"detail": "ops"}, **SIZES)
    unedited.matmul.device_caches.clear()
    after = compiled(unedited.matmul, *matrices(), **SIZES)
    assert before.hash == after.hash
    assert before.asm["cubin"] == after.asm["cubin"]
    assert verbs_in(after.asm["ptx"]) == []


def test_no_two_plans_share_an_entry_of_the_compile_cache() -> None:
    marks: list[dict[str, Any] | None] = [None, {"lines": "40-41"}]
    marks += [{"detail": detail} for detail in ("kernel", "loops", "ops")]
    hashes = {compiled(unedited.matmul, *matrices(), marks=m, **SIZES).hash for m in marks}
    assert len(hashes) == len(marks)


def test_a_marked_kernel_is_compiled_once() -> None:
    first, second = (
        compiled(unedited.matmul, *matrices(), marks={"detail": "ops"}, **SIZES) for _ in range(2)
    )
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

    before = compiled(kernel, numbers(), marks={"detail": "ops"})
    helper._unsafe_update_src(helper.src.replace("+ 7", "+ 9"))
    kernel.hash = None  # as Triton asks of who changes a function
    after = compiled(kernel, numbers(), marks={"detail": "ops"})
    assert before.hash != after.hash
    assert "9.0" in after.asm["ttir"] or "9.000000e+00" in after.asm["ttir"]


def test_the_debug_information_names_the_authors_lines() -> None:
    code = compiled(unedited.matmul, *matrices(), marks={"detail": "loops"}, **SIZES)
    plain = compiled(unedited.matmul, *matrices(), **SIZES)

    def lines(text: str) -> set[str]:
        return set(re.findall(r'unedited\.py":(\d+):', text))

    assert lines(plain.asm["ttir"]) <= lines(code.asm["ttir"])
