"""A program for ``ikp run --host``: ranges, an unedited kernel, torch's kernels, a CUDA graph."""

import os
import sys

import torch
import triton
import triton.language as tl

STEPS = 40


@triton.jit
def scaled(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(8):
        total += tl.load(x + at, mask=at < n) * k
    tl.store(out + at, total, mask=at < n)


def main() -> None:
    x = torch.randn(1 << 20, device="cuda")
    out, weight = torch.empty_like(x), torch.randn(512, 512, device="cuda")
    grid = (x.numel() // 1024,)
    scaled[grid](x, out, x.numel(), BLOCK=1024)
    out.relu_()
    torch.cuda.synchronize()
    graph, fixed = torch.cuda.CUDAGraph(), torch.empty_like(x)
    with torch.cuda.graph(graph):
        torch.mul(out, 2, out=fixed)
        scaled[grid](fixed, out, x.numel(), BLOCK=1024)
    if "WORLD_SIZE" in os.environ:
        torch.distributed.init_process_group("gloo")
        torch.distributed.barrier()
    for number in range(STEPS):
        with torch.profiler.record_function(f"step {number}"):
            with torch.cuda.nvtx.range("launch"):
                scaled[grid](x, out, x.numel(), BLOCK=1024)
            made = (weight @ weight).softmax(-1)
            graph.replay()
    if "profiles" in sys.argv:
        with torch.profiler.profile() as theirs:
            scaled[grid](x, out, x.numel(), BLOCK=1024)
            torch.cuda.synchronize()
        print(sum("scaled" in each.name for each in theirs.events() if each.device_time > 0) > 0)
    print(f"{made.sum().item():.3f} {fixed.isfinite().all().item()}")


if __name__ == "__main__":
    main()
