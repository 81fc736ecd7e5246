"""A warp-specialised Gluon kernel whose author never heard of ikp: Hopper, TMA and WGMMA."""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # Triton 3.6's name


@gluon.jit
def producer(left, right, row, column, K, x, y, full, empty):
    BK: gl.constexpr = left.block_type.shape[1]
    STAGES: gl.constexpr = x.shape[0]
    for k in range(0, K, BK):
        step = k // BK
        at = step % STAGES
        mbarrier.wait(empty.index(at), ((step // STAGES) & 1) ^ 1)
        mbarrier.expect(full.index(at), left.block_type.nbytes + right.block_type.nbytes)
        load_tile(left, [row, k], full.index(at), x.index(at))
        load_tile(right, [k, column], full.index(at), y.index(at))


@gluon.jit
def consumer(out, row, column, N, K, x, y, full, empty):
    BM: gl.constexpr = x.shape[1]
    BK: gl.constexpr = x.shape[2]
    BN: gl.constexpr = y.shape[2]
    STAGES: gl.constexpr = x.shape[0]
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    acc = gl.zeros((BM, BN), gl.float32, mma)
    for k in range(0, K, BK):
        step = k // BK
        at = step % STAGES
        mbarrier.wait(full.index(at), (step // STAGES) & 1)
        acc = hopper.warpgroup_mma(x.index(at), y.index(at), acc, is_async=True)
        acc = hopper.warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(empty.index(at), count=1)
    rows = row + gl.arange(0, BM, layout=gl.SliceLayout(1, mma))
    columns = column + gl.arange(0, BN, layout=gl.SliceLayout(0, mma))
    gl.store(out + rows[:, None] * N + columns[None, :], acc.to(gl.float16))


@gluon.jit
def gemm(left, right, out, N, K, STAGES: gl.constexpr):
    """Write out = left @ right: descriptors of row-major float16. Grid: (M / BM, N / BN)."""
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
