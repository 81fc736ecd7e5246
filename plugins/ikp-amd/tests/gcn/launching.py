"""Compiles marked kernels as launches do, for an AMD GPU that need not be there."""

from __future__ import annotations

from typing import Any

import triton
from triton.backends.compiler import GPUTarget

from gcn.compiling import AmdCode
from ikp.backends.triton import TritonBackend
from ikp.backends.triton.unedited._clones import kernel_clone
from ikp.backends.triton.unedited._mark_nodes import PROF
from ikp.unedited.plan import plan
from tests.backends.triton.unedited.compiling import FakeDriver, buffer


class AmdDriver(FakeDriver):
    """Tells Triton that an MI300 is there, under a number that no other test's GPU has."""

    def get_current_device(self) -> int:
        return 7

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("hip", "gfx942", 64)


def compiled(
    kernel: Any, *args: Any, marks: dict[str, Any] | None = None, **options: Any
) -> AmdCode:
    """Return a kernel compiled for an AMD GPU, with marks in its source or (None) without."""
    triton.runtime.driver._active = AmdDriver()
    TritonBackend()  # installs the compiler hooks
    if marks is None:
        return AmdCode(kernel.warmup(*args, grid=(1,), **options))
    clone = kernel_clone(kernel, plan(**marks))
    return AmdCode(clone.warmup(*args, grid=(1,), **{PROF: buffer()}, **options))
