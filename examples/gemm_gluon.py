"""Warp-specialised GEMM for Hopper in Gluon: one warp loads with TMA, four multiply with WGMMA.

Run: ``python examples/gemm_gluon.py [gemm-gluon.pftrace]``, on a GPU of compute capability 9.0.

The trace shows the two roles apart. Long "wait full" ranges in the consumer's warps: the loads are
what limits the kernel. Long "wait empty" ranges in the producer's warp: the multiplications are.
"""

import sys
from pathlib import Path

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

import ikp

BM, BN, BK, STAGES, WARPS = 128, 128, 64, 4, 4
load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # Triton 3.6's name


@gluon.jit
def producer(left, right, row, column, K, x, y, full, empty):
    """Keep the ring of tiles full: one warp, one TMA load per tile and operand."""
    ikp.role("producer")
    BK: gl.constexpr = left.block_type.shape[1]
    STAGES: gl.constexpr = x.shape[0]
    for k in range(0, K, BK):
        step = k // BK
        at = step % STAGES
        with ikp.range("wait empty", step):
            mbarrier.wait(empty.index(at), ((step // STAGES) & 1) ^ 1)
        with ikp.range("issue TMA", step):
            mbarrier.expect(full.index(at), left.block_type.nbytes + right.block_type.nbytes)
            load_tile(left, [row, k], full.index(at), x.index(at))
            load_tile(right, [k, column], full.index(at), y.index(at))


@gluon.jit
def consumer(out, row, column, N, K, x, y, full, empty):
    """Multiply each tile of the ring as it arrives, then write the block's result."""
    ikp.role("consumer")
    BM: gl.constexpr = x.shape[1]
    BK: gl.constexpr = x.shape[2]
    BN: gl.constexpr = y.shape[2]
    STAGES: gl.constexpr = x.shape[0]
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BN, 16])
    acc = gl.zeros((BM, BN), gl.float32, mma)
    for k in range(0, K, BK):
        step = k // BK
        at = step % STAGES
        with ikp.range("wait full", step):
            mbarrier.wait(full.index(at), (step // STAGES) & 1)
        with ikp.range("wgmma", step):
            acc = hopper.warpgroup_mma(x.index(at), y.index(at), acc, is_async=True)
            acc = hopper.warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(empty.index(at), count=1)
    with ikp.range("store"):
        rows = row + gl.arange(0, BM, layout=gl.SliceLayout(1, mma))
        columns = column + gl.arange(0, BN, layout=gl.SliceLayout(0, mma))
        gl.store(out + rows[:, None] * N + columns[None, :], acc.to(gl.float16))


@gluon.jit
def gemm(left, right, out, N, K, prof, STAGES: gl.constexpr):
    """Write out = left @ right: descriptors of row-major float16. Grid: (M / BM, N / BN)."""
    ikp.init(prof)
    BM: gl.constexpr = left.block_type.shape[0]
    BK: gl.constexpr = left.block_type.shape[1]
    BN: gl.constexpr = right.block_type.shape[1]
    x = gl.allocate_shared_memory(gl.float16, [STAGES, BM, BK], left.layout)
    y = gl.allocate_shared_memory(gl.float16, [STAGES, BK, BN], right.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    hopper.fence_async_shared()
    row = gl.program_id(0) * BM
    column = gl.program_id(1) * BN
    gl.warp_specialize(
        [
            (consumer, (out, row, column, N, K, x, y, full, empty)),
            (producer, (left, right, row, column, K, x, y, full, empty)),
        ],
        [1],
        [40],
    )


def tiles(matrix: torch.Tensor, shape: list[int]) -> TensorDescriptor:
    """Return the TMA descriptor of a matrix of float16 for tiles of ``shape``."""
    layout = gl.NVMMASharedLayout.get_default_for(shape, gl.float16)
    return TensorDescriptor.from_tensor(matrix, shape, layout)


def main(path: Path) -> None:
    """Profile one launch, check its result, and write the trace."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        sys.exit("this kernel needs a GPU of compute capability 9.0 (H100, H200): WGMMA and TMA.")
    size = 4096
    a, b = torch.randn(2, size, size, device="cuda").half()
    c = torch.empty_like(a)
    left, right = tiles(a, [BM, BK]), tiles(b, [BK, BN])
    with ikp.profile(path, force=True) as prof:
        buffer = prof.buffer("gemm")
        gemm[(size // BM, size // BN)](left, right, c, size, size, buffer, STAGES, num_warps=WARPS)
    torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=1e-2, atol=0.5)
    print(prof.trace.stats())
    print(f"wrote {path}: see it with `ikp view {path}`")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "gemm-gluon.pftrace"))
