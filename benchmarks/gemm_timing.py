"""Launch a GEMM with records in turn with the plain one, and compare their kernel times."""

import sys
from collections.abc import Callable

import gemm_kernels as kernels
import ratios
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


def pairs(gemm: Gemm, launch: Callable[[], None], rounds: int) -> tuple[list[float], float]:
    """Return the ratios launch / plain, measured in turn, and the plain kernel's median in us."""
    for _ in range(WARM_UP):
        gemm.plain()
    launch()
    torch.cuda.synchronize()
    gemm.check()
    return ratios.pairs(gemm.plain, launch, rounds, "gemm_")
