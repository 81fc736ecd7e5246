"""Persistent, warp-specialised GEMM for Hopper in CuTe DSL: one warp loads, eight multiply.

Run: ``python examples/gemm_cute.py [gemm-cute.pftrace]``, on a GPU of compute capability 9.0.

The trace shows the two roles apart. Long "wait full" ranges in the consumers' warps: the loads are
what limits the kernel. Long "wait empty" ranges in the producer's warp: the multiplications are.
"wait WGMMA" ends when all but the last step's multiplications are done: there the warps of a
kernel that keeps the tensor cores busy spend their time.
"""

import sys
from pathlib import Path

import cutlass
import torch
from cutlass import Float16, Float32, cute, pipeline, utils
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup
from cutlass.cute.runtime import from_dlpack

import ikp

BM, BN, BK, STAGES = 128, 256, 64, 4
WARPGROUP, CONSUMERS = 128, 2  # threads; warpgroups that multiply, each half of a tile's rows
Memory = getattr(cutlass, "memory", utils).SmemAllocator  # in utils before 4.8


@cute.jit
def producer(load_a, load_b, a, b, x, y, ring, blocks: cutlass.Constexpr):
    """Keep the ring of tiles full: one warp, TMA loads for both operands of each step."""
    ikp.role("producer")
    state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
    rows, columns, steps = a.shape[1], b.shape[1], a.shape[2]
    block, _, _ = cute.arch.block_idx()
    for tile in cutlass.range(block, rows * columns, blocks, unroll=1):
        for step in cutlass.range(steps, unroll=1):
            with ikp.range("wait empty", step):
                ring.producer_acquire(state)
            with ikp.range("issue TMA", step):
                full = ring.producer_get_barrier(state)
                left, right = a[None, tile % rows, step], b[None, tile // rows, step]
                cute.copy(load_a, left, x[None, state.index], tma_bar_ptr=full)
                cute.copy(load_b, right, y[None, state.index], tma_bar_ptr=full)
            state.advance()
    with ikp.range("wait drained"):
        ring.producer_tail(state)


@cute.jit
def multiply(mma, x, y, acc, ring, state, step):
    """Wait for one step's tiles, then issue their multiplications."""
    with ikp.range("wait full", step):
        ring.consumer_wait(state)
    with ikp.range("issue WGMMA", step):
        warpgroup.fence()
        for k in cutlass.range_constexpr(cute.size(x, mode=[2])):
            at = (None, None, k, state.index)
            cute.gemm(mma, acc, x[at], y[at], acc)
        warpgroup.commit_group()


@cute.jit
def consumer(mma, x, y, c, ring, steps: cutlass.Constexpr, blocks: cutlass.Constexpr):
    """Multiply the tiles of the ring as they arrive, one step ahead; write each result."""
    ikp.role("consumer")
    filled = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
    used = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
    rows, columns = c.shape[3], c.shape[4]
    acc = cute.make_rmem_tensor(c.shape[:3], Float32)
    out = cute.make_rmem_tensor(c.shape[:3], Float16)
    mma.set(warpgroup.Field.ACCUMULATE, True)
    block, _, _ = cute.arch.block_idx()
    for tile in cutlass.range(block, rows * columns, blocks, unroll=1):
        acc.fill(0.0)
        multiply(mma, x, y, acc, ring, filled, 0)
        filled.advance()
        for step in cutlass.range(1, steps, unroll=1):
            multiply(mma, x, y, acc, ring, filled, step)
            filled.advance()
            with ikp.range("wait WGMMA", step):
                warpgroup.wait_group(1)
            ring.consumer_release(used)
            used.advance()
        with ikp.range("wait WGMMA", steps):
            warpgroup.wait_group(0)
        ring.consumer_release(used)
        used.advance()
        with ikp.range("store", tile):
            out.store(acc.load().to(Float16))
            cute.autovec_copy(out, c[None, None, None, tile % rows, tile // rows])


@cute.kernel
def gemm(load_a, a, load_b, b, c, mma, layout_x, layout_y, blocks: cutlass.Constexpr, prof):
    """Write the tiles of c that are this block's share. Grid: (blocks, 1, 1)."""
    ikp.init(prof)
    memory = Memory()
    barriers = memory.allocate_array(cutlass.Int64, 2 * STAGES)
    x, y = (
        memory.allocate_tensor(Float16, layout.outer, byte_alignment=1024, swizzle=layout.inner)
        for layout in (layout_x, layout_y)
    )
    ring = pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers,
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * CONSUMERS),  # warps
        tx_count=cute.size_in_bytes(Float16, cute.select(layout_x, mode=[0, 1]))
        + cute.size_in_bytes(Float16, cute.select(layout_y, mode=[0, 1])),
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
    )
    thread, _, _ = cute.arch.thread_idx()
    group = cute.arch.make_warp_uniform(thread // WARPGROUP)
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if group == CONSUMERS:
        cute.arch.setmaxregister_decrease(40)
        if warp == 4 * CONSUMERS:
            a_tiles = cute.flat_divide(a, (BM, BK))
            b_tiles = cute.flat_divide(b, (BN, BK))
            one = cute.make_layout(1)
            x_in, a_in = cpasync.tma_partition(
                load_a, 0, one, cute.group_modes(x, 0, 2), cute.group_modes(a_tiles, 0, 2)
            )
            y_in, b_in = cpasync.tma_partition(
                load_b, 0, one, cute.group_modes(y, 0, 2), cute.group_modes(b_tiles, 0, 2)
            )
            producer(load_a, load_b, a_in, b_in, x_in, y_in, ring, blocks)
    if group < CONSUMERS:
        cute.arch.setmaxregister_increase(232)
        leader = mma.get_slice(group * WARPGROUP)  # the same for the whole warpgroup
        x_mma = mma.make_fragment_A(leader.partition_A(x))
        y_mma = mma.make_fragment_B(leader.partition_B(y))
        out = mma.get_slice(thread).partition_C(cute.flat_divide(c, (BM, BN)))
        consumer(mma, x_mma, y_mma, out, ring, a.shape[1] // BK, blocks)
    ikp.finish()


@cute.jit
def matmul(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, blocks: cutlass.Constexpr, prof):
    """Launch c = a @ b, row-major float16; b comes as its transpose: (M, K), (N, K), (M, N)."""
    k_major, n_major = OperandMajorMode.K, OperandMajorMode.MN
    instruction = warpgroup.MmaF16BF16Op(
        Float16,
        Float32,
        (BM // CONSUMERS, BN, 16),
        warpgroup.OperandSource.SMEM,
        k_major,
        n_major,
    )
    mma = cute.make_tiled_mma(instruction, (CONSUMERS, 1, 1))
    kinds = warpgroup.SmemLayoutAtomKind
    row = warpgroup.make_smem_layout_atom(kinds.K_SW128, Float16)
    column = warpgroup.make_smem_layout_atom(kinds.MN_SW128, Float16)
    layout_x = cute.tile_to_shape(row, (BM, BK, STAGES), order=(0, 1, 2))
    layout_y = cute.tile_to_shape(column, (BN, BK, STAGES), order=(1, 0, 2))
    load = cpasync.CopyBulkTensorTileG2SOp()
    stage = cute.select(layout_x, mode=[0, 1])
    load_a, a_tma = cpasync.make_tiled_tma_atom(load, a, stage, (BM, BK))
    stage = cute.select(layout_y, mode=[0, 1])
    load_b, b_tma = cpasync.make_tiled_tma_atom(load, b, stage, (BN, BK))
    gemm(load_a, a_tma, load_b, b_tma, c, mma, layout_x, layout_y, blocks, prof).launch(
        grid=[blocks, 1, 1], block=[WARPGROUP * (CONSUMERS + 1), 1, 1], min_blocks_per_mp=1
    )


def main(path: Path) -> None:
    """Profile one launch, check its result, and write the trace."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        sys.exit("this kernel needs a GPU of compute capability 9.0 (H100, H200): WGMMA and TMA.")
    size = 4096
    a, b = torch.randn(2, size, size, device="cuda").half()
    c = torch.empty_like(a)
    left, right, out = (from_dlpack(matrix, assumed_align=16) for matrix in (a, b.t(), c))
    blocks = torch.cuda.get_device_properties("cuda").multi_processor_count
    with ikp.profile(path, force=True) as prof:
        matmul(left, right, out, blocks, prof.buffer("gemm"))
    torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=1e-2, atol=0.5)
    print(prof.trace.stats())
    print(f"wrote {path}: see it with `ikp view {path}`")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "gemm-cute.pftrace"))
