"""Compiles marked kernels as launches do, for GPUs that need not be there."""

from __future__ import annotations

from typing import Any

import triton
from triton.backends.compiler import GPUTarget

from ikp.backends.argument import argument
from ikp.backends.triton import TritonBackend
from ikp.backends.triton.unedited._mark_nodes import PROF
from ikp.backends.triton.unedited._twins import kernel_twin
from ikp.core.segment import Segment
from ikp.unedited.plan import plan
from tests.backends.amd import AmdCode
from tests.backends.sass import spec


class FakeDriver:
    """Tells Triton that an H100 is there; nothing can be launched on it."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


class AmdDriver(FakeDriver):
    """Tells Triton that an MI300 is there, under a number that no other test's GPU has."""

    def get_current_device(self) -> int:
        return 7

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("hip", "gfx942", 64)


def buffer() -> Any:
    """Return the argument for one launch, as a session on a GPU would."""
    import torch

    data = torch.zeros(4096, dtype=torch.uint8)
    return argument(Segment("k", data, spec(), "triton", "a GPU", 0.0))


def compiled(
    kernel: Any, *args: Any, marks: dict[str, Any] | None = None, **options: Any
) -> AmdCode:
    """Return a kernel compiled for an AMD GPU, with marks in its source or (None) without."""
    triton.runtime.driver._active = AmdDriver()
    TritonBackend()  # installs the compiler hooks
    if marks is None:
        return AmdCode(kernel.warmup(*args, grid=(1,), **options))
    twin = kernel_twin(kernel, plan(**marks))
    return AmdCode(twin.warmup(*args, grid=(1,), **{PROF: buffer()}, **options))
