"""Launch a GEMM with records in turn with the plain one, and compare their kernel times.

Durations are CUPTI's, through torch.profiler: host time is not in them, and a drift of the clock
hits both kernels of a pair.
"""

import statistics
import sys
from collections.abc import Callable

import gemm_kernels as kernels
import torch
import triton

WARM_UP = 10


class Gemm:
    """The operands, and a launcher per kernel."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        shape = (kernels.SIZE, kernels.SIZE)
        self.a, self.b = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in "ab")
        self.c = torch.empty_like(self.a)
        self.reference = self.a.float() @ self.b.float()
        self.grid = (triton.cdiv(kernels.SIZE, 128) ** 2,)

    def launch(self, kernel, *prof: object) -> None:
        size = (kernels.SIZE,) * 3
        kernel[self.grid](self.a, self.b, self.c, *size, *prof, **kernels.BLOCK, **kernels.OPTIONS)

    def plain(self) -> None:
        self.launch(kernels.gemm_plain)

    def check(self) -> None:
        error = (self.c.float() - self.reference).norm() / self.reference.norm()
        if not error < 1e-3:
            sys.exit(f"the instrumented GEMM is wrong: relative error {error:.1e}")


def kernel_times(run: Callable[[], None], prefix: str) -> list[float]:
    """Return the durations in us of the kernels that ``run`` launches, in launch order."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        run()
        torch.cuda.synchronize()
    events = [e for e in profiler.events() if e.name.startswith(prefix)]
    events.sort(key=lambda e: e.time_range.start)
    return [e.device_time for e in events]


def pairs(gemm: Gemm, launch: Callable[[], None], rounds: int) -> tuple[list[float], float]:
    """Return the ratios launch / plain, measured in turn, and the plain kernel's median in us."""
    for _ in range(WARM_UP):
        gemm.plain()
    launch()
    torch.cuda.synchronize()
    gemm.check()

    def run() -> None:
        for _ in range(rounds):
            gemm.plain()
            launch()

    times = kernel_times(run, "gemm_")
    if len(times) != 2 * rounds:
        sys.exit(f"expected {2 * rounds} kernels in the profile, got {len(times)}")
    plain, recorded = times[0::2], times[1::2]
    return [r / p for r, p in zip(recorded, plain, strict=True)], statistics.median(plain)
