"""Marks in kernels that nobody edited, compiled for an AMD GPU."""

from __future__ import annotations

from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget

from ikp.backends.triton import TritonBackend
from ikp.backends.triton._hooks import names_in_code
from ikp.backends.triton.unedited._mark_nodes import PROF
from ikp.backends.triton.unedited._twins import kernel_twin
from ikp.unedited.plan import plan
from tests.backends.amd import SCRATCH, AmdCode
from tests.backends.triton.unedited.compiling import FakeDriver, buffer
from tests.kernels import unedited

pytestmark = pytest.mark.compiled

OPTIONS = {"num_warps": 8, "num_stages": 1, "BM": 128, "BN": 128, "BK": 64}


class HipDriver(FakeDriver):
    """Tells Triton that an MI300 is there, under a number that no other test's GPU has."""

    def get_current_device(self) -> int:
        return 7

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("hip", "gfx942", 64)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.runtime.driver, "_active", HipDriver())
    TritonBackend()


def matmul(**marks: Any) -> AmdCode:
    import torch

    half = torch.zeros(16, dtype=torch.float16)
    args = (half, half, half, 512, 512, 512)
    if not marks:
        return AmdCode(unedited.matmul.warmup(*args, grid=(1,), **OPTIONS))
    twin = kernel_twin(unedited.matmul, plan(**marks))
    return AmdCode(twin.warmup(*args, grid=(1,), **{PROF: buffer()}, **OPTIONS))


def test_operations_are_marked_in_the_source() -> None:
    marked, plain = matmul(level="source", detail="ops"), matmul()
    names = {name.partition(" @")[0] for name in names_in_code(marked.text).values()}
    assert {"matmul", "tl.load", "tl.dot", "tl.store"} <= names
    assert marked.count(["v_mfma"]) == plain.count(["v_mfma"]) > 0
    assert marked.count(SCRATCH) == 0


def test_marks_after_scheduling_are_refused_with_what_works() -> None:
    with pytest.raises(Exception, match=r"NVIDIA GPUs.*Use level='source'"):
        matmul(level="scheduled", detail="ops")
