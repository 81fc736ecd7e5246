"""A GPU that need not be there, and the argument for a launch on it."""

from __future__ import annotations

from typing import Any

from triton.backends.compiler import GPUTarget

from ikp.backends.argument import argument
from ikp.core.segment import Segment
from tests.backends.sass import spec


class FakeDriver:
    """Tells Triton that an H100 is there; nothing can be launched on it."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def buffer() -> Any:
    """Return the argument for one launch, as a session on a GPU would."""
    import torch

    data = torch.zeros(4096, dtype=torch.uint8)
    return argument(Segment("k", data, spec(), "triton", "a GPU", 0.0))
