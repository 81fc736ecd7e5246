"""A kernel whose two warps wait for each other by a pipeline; ``called.py`` compiles it."""

from __future__ import annotations

import cutlass
from cutlass import Int32, Int64, cute, pipeline, utils

Memory = getattr(cutlass, "memory", utils).SmemAllocator  # in utils before 4.8


@cute.kernel
def kernel(x: cute.Tensor, n: Int32):
    memory = Memory()
    barriers = memory.allocate_array(Int64, 4)
    agent = pipeline.CooperativeGroup(pipeline.Agent.Thread, 32)
    ring = pipeline.PipelineAsync.create(
        num_stages=2, producer_group=agent, consumer_group=agent, barrier_storage=barriers
    )
    lane, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if warp == 0:
        filled = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 2)
        for k in cutlass.range(n, unroll=1):
            ring.producer_acquire(filled)
            x[lane + k] = 1.0
            ring.producer_commit(filled)
            filled.advance()
    if warp == 1:
        used = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 2)
        for k in cutlass.range(n, unroll=1):
            ring.consumer_wait(used)
            x[lane] = x[lane + k] + 1.0
            ring.consumer_release(used)
            used.advance()


@cute.jit
def launch(x: cute.Tensor, n: Int32):
    kernel(x, n).launch(grid=[1, 1, 1], block=[64, 1, 1])
