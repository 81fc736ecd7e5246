"""Proton's intra-kernel tutorial, in ikp: a vector addition in Triton, a matmul in Gluon.

Run: ``python examples/from_proton.py [--op-measure] [--warp-sampling --warp-ids 0,1,2,3]
[--increase-accuracy] [OUT]``.
The addition is recorded twice: with ranges in its source, and, where the tutorial edits dumped IR,
by ``ikp.instrument`` alone. docs/migrating.md has the calls side by side. The matmul needs a GPU of
compute capability 9.0 (WGMMA and TMA); the addition also runs in Triton's interpreter.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # Triton reads it when it is imported

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

import ikp

BM, BN, BK, STAGES = 128, 128, 64, 2
load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # Triton 3.6's name


@triton.jit
def add_kernel(x, y, out, n, prof, BLOCK: tl.constexpr):
    """Write out = x + y, n elements, with the tutorial's three scopes."""
    ikp.init(prof)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with ikp.range("kernel"):
        with ikp.range("load_and_add"):
            with ikp.range("load_x"):
                left = tl.load(x + at, at < n)
            with ikp.range("load_y"):
                right = tl.load(y + at, at < n)
            total = left + right
        tl.store(out + at, total, at < n)


@triton.jit
def plain_add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    """Write out = x + y, n elements, and know of no profiler."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)


@gluon.jit
def matmul_kernel(left, right, out, N, K, prof, STAGES: gl.constexpr):
    """Write out = left @ right: descriptors of row-major float16. Grid: (M / BM, N / BN)."""
    ikp.init(prof)
    BM: gl.constexpr = left.block_type.shape[0]
    BK: gl.constexpr = left.block_type.shape[1]
    BN: gl.constexpr = right.block_type.shape[1]
    x = gl.allocate_shared_memory(gl.float16, [STAGES, BM, BK], left.layout)
    y = gl.allocate_shared_memory(gl.float16, [STAGES, BK, BN], right.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
    hopper.fence_async_shared()
    row = gl.program_id(0) * BM
    column = gl.program_id(1) * BN
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BN, 16])
    acc = gl.zeros((BM, BN), gl.float32, mma)
    for step in range(gl.cdiv(K, BK)):
        at = step % STAGES
        with ikp.range("issue TMA", step):
            mbarrier.expect(full.index(at), left.block_type.nbytes + right.block_type.nbytes)
            load_tile(left, [row, step * BK], full.index(at), x.index(at))
            load_tile(right, [step * BK, column], full.index(at), y.index(at))
        with ikp.range("wait TMA", step):
            mbarrier.wait(full.index(at), (step // STAGES) & 1)
        with ikp.range("wgmma", step):
            acc = hopper.warpgroup_mma(x.index(at), y.index(at), acc, is_async=True)
            acc = hopper.warpgroup_mma_wait(0, deps=(acc,))
    with ikp.range("store"):
        rows = row + gl.arange(0, BM, layout=gl.SliceLayout(1, mma))
        columns = column + gl.arange(0, BN, layout=gl.SliceLayout(0, mma))
        gl.store(out + rows[:, None] * N + columns[None, :], acc.to(gl.float16))


def tiles(matrix: torch.Tensor, shape: list[int]) -> TensorDescriptor:
    """Return the TMA descriptor of a matrix of float16 for tiles of ``shape``."""
    layout = gl.NVMMASharedLayout.get_default_for(shape, gl.float16)
    return TensorDescriptor.from_tensor(matrix, shape, layout)


def add(prof: ikp.profile, device: str, **chosen: Any) -> None:
    """Record the addition with ranges in its source, and without."""
    n, block = (1 << 20, 1024) if device == "cuda" else (1000, 256)
    x, y = torch.randn(2, n, device=device)
    grid = (triton.cdiv(n, block),)
    out = torch.empty_like(x)
    add_kernel[grid](x, y, out, n, prof.buffer("add", **chosen), BLOCK=block)
    torch.testing.assert_close(out, x + y)
    every = {"sample": 1}  # ranges in all blocks, as the tutorial has them
    marked = ikp.instrument(plain_add_kernel, detail="ops", **every, **chosen)
    marked[grid](x, y, out.zero_(), n, BLOCK=block)
    torch.testing.assert_close(out, x + y)


def matmul(prof: ikp.profile, **chosen: Any) -> None:
    """Record the matmul."""
    size = 1024
    a, b = torch.randn(2, size, size, device="cuda").half()
    c = torch.empty_like(a)
    left, right = tiles(a, [BM, BK]), tiles(b, [BK, BN])
    buffer = prof.buffer("matmul", **chosen)
    matmul_kernel[(size // BM, size // BN)](left, right, c, size, size, buffer, STAGES, num_warps=4)
    torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=1e-2, atol=0.5)


def main(arguments: list[str] | None = None) -> None:
    """Profile the kernels that this machine can run, check their results, and write the trace."""
    parser = argparse.ArgumentParser(description="Proton's intra-kernel tutorial, in ikp.")
    parser.add_argument("out", nargs="?", type=Path, help="where to write")
    parser.add_argument("--op-measure", action="store_true", help="no timeline: totals alone")
    parser.add_argument("--warp-sampling", action="store_true", help="record --warp-ids only")
    parser.add_argument("--warp-ids", default="0,2", help="warps of each block: 0,1,2,3")
    parser.add_argument(
        "--increase-accuracy", action="store_true", help="deduct what recording itself costs"
    )
    args = parser.parse_args(arguments)
    path = args.out or Path("proton.hatchet" if args.op_measure else "proton.pftrace")
    warps = [int(warp) for warp in args.warp_ids.split(",")] if args.warp_sampling else None
    on_gpu = torch.cuda.is_available() and not triton.knobs.runtime.interpret
    if args.increase_accuracy and not on_gpu:
        print("left out: --increase-accuracy deducts what recording costs on a GPU")
    # Of Proton's three optimizations, clock32 and sched_stores are the default here.
    deduct = args.increase_accuracy and on_gpu  # time_shift
    mode = "totals" if args.op_measure else "timeline"
    with ikp.profile(path, force=True, mode=mode, deduct_overhead=deduct) as prof:
        add(prof, "cuda" if on_gpu else "cpu", warps=warps)
        if on_gpu and torch.cuda.get_device_capability() == (9, 0):
            matmul(prof, warps=warps)
        else:
            print("left out: the matmul needs a GPU of compute capability 9.0 (WGMMA and TMA)")
    prof.print_stats()
    viewer = "proton-viewer -m normalized_cycles" if path.suffix == ".hatchet" else "ikp view"
    print(f"wrote {path}: see it with `{viewer} {path}`")


if __name__ == "__main__":
    main()
