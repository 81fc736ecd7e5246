"""CuTe kernels for the tests that run on a GPU."""

import cutlass
from cutlass import Float32, Int32, cute

import ikp


@cute.jit
def helper(out: cute.Tensor, at: Int32):
    with ikp.range("helper", 1.5):
        out[at] = out[at] + Float32(1.0)


@cute.kernel
def counted(out: cute.Tensor, n: Int32, prof: ikp.Argument):
    ctx = ikp.init(prof)
    x, _, _ = cute.arch.thread_idx()
    bx, by, bz = cute.arch.block_idx()
    gx, gy, _ = cute.arch.grid_dim()
    threads, _, _ = cute.arch.block_dim()
    block = bx + gx * (by + gy * bz)
    at = block * threads + x
    out[at] = Float32(0.0)
    ctx = ikp.start(ctx, "outer", block)
    token = ikp.start_async(ctx, "flight", 0)
    for i in cutlass.range(n, unroll=1):
        with ikp.range("step", i):
            out[at] = out[at] + Float32(i)
        ctx = ikp.start(ctx, i % 3)
        helper(out, at)
        ctx = ikp.end(ctx, i % 3)
        ctx = ikp.end_async(ctx, token)
        token = ikp.start_async(ctx, "flight", i + 1)
    ctx = ikp.end_async(ctx, token)
    if x // 32 == 1:
        ikp.instant("second warp", x)
    ctx = ikp.end(ctx, "outer")
    ikp.finish(ctx)


@cute.jit
def launch(
    out: cute.Tensor,
    n: Int32,
    prof: ikp.Argument,
    grid: cutlass.Constexpr,
    threads: cutlass.Constexpr,
):
    counted(out, n, prof).launch(grid=grid, block=[threads, 1, 1])
