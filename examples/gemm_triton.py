"""Tiled GEMM in Triton: loads, tensor cores and the store of each tile, block by block.

Run: ``python examples/gemm_triton.py [gemm.pftrace]``. Without a GPU it runs in Triton's
interpreter: the ranges are the same, the times are the host's.

Triton pipelines this loop: loads of a later iteration are issued in an earlier one. A range shows
where instructions were issued, so "load" is short, and the wait for its data is in "dot".
"""

import os
import sys
from pathlib import Path

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # Triton reads it when it is imported

import triton
import triton.language as tl

import ikp


@triton.jit
def gemm(a, b, c, N, prof, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Write c = a @ b, row-major float16; sizes are multiples of the tile. Grid: (M/BM, N/BN)."""
    ikp.init(prof)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    left = a + rows[:, None] * K + depth[None, :]
    right = b + depth[:, None] * N + columns[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(K // BK):
        with ikp.range("load", k):
            x = tl.load(left)
            y = tl.load(right)
        with ikp.range("dot", k):
            acc = tl.dot(x, y, acc)
        left += BK
        right += BK * N
    with ikp.range("store"):
        tl.store(c + rows[:, None] * N + columns[None, :], acc.to(tl.float16))


def main(path: Path) -> None:
    """Profile one launch, check its result, and write the trace."""
    on_gpu = torch.cuda.is_available() and not triton.knobs.runtime.interpret
    device = "cuda" if on_gpu else "cpu"
    size, (bm, bn, bk) = (4096, (128, 128, 64)) if on_gpu else (64, (32, 32, 16))
    a, b = torch.randn(2, size, size, device=device, dtype=torch.float32).half()
    c = torch.empty_like(a)
    grid = (size // bm, size // bn)
    with ikp.profile(path, force=True) as prof:
        buffer = prof.buffer("gemm")
        gemm[grid](a, b, c, size, buffer, K=size, BM=bm, BN=bn, BK=bk, num_warps=8)
    torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=1e-2, atol=0.5)
    print(prof.trace.stats())
    print(f"wrote {path}: see it with `ikp view {path}`")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "gemm.pftrace"))
