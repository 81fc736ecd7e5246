"""What every planted case is: a way to run it, a way to check it, and what to record of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import triton

ON_GPU = torch.cuda.is_available() and not triton.knobs.runtime.interpret
DEVICE = "cuda" if ON_GPU else "cpu"
SMS = torch.cuda.get_device_properties(0).multi_processor_count if ON_GPU else 4

Take = Callable[[], Any]
"""Hands out the buffer of one launch, or None where nothing is recorded."""


@dataclass(frozen=True)
class Case:
    """One kernel with its operands, of one of two twins.

    Args:
        run: launches the kernel; takes a buffer for each launch.
        out: what it writes.
        expected: what ``out`` is to be.
        recorded: the arguments of ``prof.buffer``: which blocks and warps keep the trace small.
        queued: launches may be put in the device's queue before they are timed. False where the
            time between them is what the case is about.
        tolerance: relative, of ``out``.
    """

    run: Callable[[Take], None]
    out: torch.Tensor
    expected: torch.Tensor
    recorded: Mapping[str, Any] = field(default_factory=dict)
    queued: bool = True
    tolerance: float = 1e-3

    def check(self) -> None:
        """Run it without records, and raise AssertionError where the result is another one."""
        self.out.fill_(float("nan"))
        self.run(lambda: None)
        torch.testing.assert_close(
            self.out.double(),
            self.expected.double(),
            rtol=self.tolerance,
            atol=self.tolerance * float(self.expected.abs().max()),
        )
