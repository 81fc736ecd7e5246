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


@triton.jit
def scaled_often(x, out, n, times, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(times):
        total += tl.load(x + at, mask=at < n) * k
    tl.store(out + at, total, mask=at < n)


def two_streams() -> None:
    """Launch one kernel on two streams in turn: two run at once, for different times."""
    x = torch.randn(1 << 13, device="cuda")
    out = torch.empty(2, x.numel(), device="cuda")
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    for number in range(2 * STEPS):
        which = number % 2
        with torch.cuda.stream(streams[which]):
            times = 700_000 + 300_000 * which  # 5 ms or more: a launch takes one at most
            scaled_often[(8,)](x, out[which], x.numel(), times, BLOCK=1024)
    torch.cuda.synchronize()


def main() -> None:
    if "streams" in sys.argv:
        two_streams()
        return
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
