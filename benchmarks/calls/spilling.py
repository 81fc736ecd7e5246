"""Triton's tutorial of a GEMM with too few warps: it spills, beside much shared memory."""

from __future__ import annotations

import torch

from benchmarks.calls.case import Case, definitions, randn, same


def spilling(m: int, n: int, k: int, stages: int) -> Case:
    """Return a call whose warps keep what spills in L1, beside more than 48 KB of shared memory."""
    import triton

    module = definitions("triton", "python", "tutorials", "03-matrix-multiplication.py")
    sizes = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": 8}
    half = torch.float16

    def call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        module.matmul_kernel.configs = [triton.Config(sizes, num_stages=stages, num_warps=4)]
        return module.matmul(a, b)

    return same(randn(4096, 4096, dtype=half), randn(4096, 4096, dtype=half)), call
