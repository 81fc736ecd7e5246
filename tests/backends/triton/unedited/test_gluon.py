"""Marks in a warp-specialised Gluon kernel."""

from __future__ import annotations

from typing import Any

import pytest
import triton

from ikp.backends.triton import TritonBackend
from ikp.backends.triton._hooks import names_in_code
from tests.backends.triton.unedited.compiling import FakeDriver, compiled

pytestmark = pytest.mark.compiled

UNCHANGED = (
    "wgmma.mma_async",
    "cp.async.bulk",
    "mbarrier.try_wait",
    "mbarrier.arrive.",
    "bar.sync",
)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.runtime.driver, "_active", FakeDriver())
    TritonBackend()


def gemm(**marks: Any) -> Any:
    """Return the compiled kernel."""
    import torch
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    from tests.kernels import unedited_gluon

    def descriptor(rows: int, columns: int) -> Any:
        layout = gl.NVMMASharedLayout.get_default_for([rows, columns], gl.float16)
        data = torch.zeros((256, 256), dtype=torch.float16)
        return TensorDescriptor.from_tensor(data, [rows, columns], layout)

    args = (descriptor(128, 64), descriptor(64, 128), torch.zeros(16, dtype=torch.float16))
    return compiled(
        unedited_gluon.gemm, *args, 256, 256, marks=marks or None, STAGES=4, num_warps=4
    )


def kinds(code: Any) -> set[str]:
    return {name.partition(" @")[0] for name in names_in_code(code.asm["ptx"]).values()}


EXPECTED = {
    "kernel": {
        *("gemm", "partition consumer", "partition producer"),
        *("consumer", "producer"),  # the roles of their warps
    },
    "loops": {"for k", "for k iteration", "for i", "for i iteration"},
    "ops": {
        *("mbarrier.wait", "mbarrier.expect", "load_tile", "hopper.warpgroup_mma"),
        *("hopper.warpgroup_mma_wait", "mbarrier.arrive", "gl.store"),
    },
}


@pytest.mark.parametrize("detail", EXPECTED)
def test_partitions_loops_and_operations_at_source_level(detail: str) -> None:
    plain, code = gemm(), gemm(detail=detail)
    for instruction in UNCHANGED:
        assert plain.asm["ptx"].count(instruction) == code.asm["ptx"].count(instruction)
    chosen = list(EXPECTED)[: list(EXPECTED).index(detail) + 1]
    assert kinds(code) == set().union(*(EXPECTED[each] for each in chosen))


def test_partitions_and_operations_after_scheduling() -> None:
    plain, code = gemm(), gemm(detail="ops", level="scheduled")
    for instruction in UNCHANGED:
        assert plain.asm["ptx"].count(instruction) == code.asm["ptx"].count(instruction)
    assert {
        *("gemm", "partition0", "for", "for iteration", "wait_barrier", "arrive_barrier"),
        *("async_tma_copy_global_to_local", "warp_group_dot", "warp_group_dot_wait", "store"),
    } <= kinds(code)
