"""What a kernel pays for memory that was zeroed right before it, by how that was done. One GPU.

    python benchmarks/zeroing.py [--rounds 12]

Two launches of one Triton kernel: one reads 436 MB, and one 22 MB that are in the L2 cache. Each is
launched twice, then 64 MiB are zeroed on another stream, and waited for, then it is launched again.
Prints the medians of the kernel's own durations (CUPTI), before that and after it.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch.profiler import ProfilerActivity, profile

from ikp.session.storage import zero

BYTES = 64 << 20
BLOCKS, WIDTH = 528, 1024


@triton.jit
def sums(x, y, turns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(turns):
        total += tl.load(x + (row * turns + k) * BLOCK + at).to(tl.float32)
    tl.store(y + row * BLOCK + at, total)


@triton.jit
def streamed(data, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(data + at, tl.zeros((BLOCK,), tl.int64), cache_modifier=".cs")


def ways(data: torch.Tensor, other: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """Return ways to zero memory, by what they are called."""
    words = data.view(torch.int64)
    grid = (len(words) // WIDTH,)
    return {
        "nothing": lambda: None,
        "zeroed by a kernel": data.zero_,
        "by stores that stream": lambda: streamed[grid](words, BLOCK=WIDTH),
        "by a kernel, then other memory read": lambda: (data.zero_(), other.sum()),
        "from the host, as ikp does": lambda: zero(data),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=12)
    rounds = options.parse_args().rounds
    out = torch.empty(BLOCKS, WIDTH, device="cuda")
    data = torch.zeros(BYTES, dtype=torch.uint8, device="cuda")
    other = torch.zeros(4 * BYTES // 8, dtype=torch.int64, device="cuda")
    reads = {turns: torch.zeros(BLOCKS, turns * WIDTH, device="cuda").half() for turns in (404, 20)}
    side, order = torch.cuda.Stream(), []

    def launch(turns: int) -> None:
        sums[(BLOCKS,)](reads[turns], out, turns, BLOCK=WIDTH, num_warps=4)

    for way in ways(data, other).values():  # compiles, and gets what memory they need
        way()
    for turns in reads:
        launch(turns)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(rounds):
            for name, way in ways(data, other).items():
                for turns in reads:
                    launch(turns)
                    launch(turns)
                    torch.cuda.synchronize()
                    with torch.cuda.stream(side):
                        way()
                    side.synchronize()
                    launch(turns)
                    order.append((name, turns))
        torch.cuda.synchronize()
    kernels = [each for each in profiled.events() if each.name == "sums"]
    took = [each.device_time for each in sorted(kernels, key=lambda each: each.time_range.start)]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    sizes = (f"{each.nbytes / 1e6:.0f} MB: before, after" for each in reads.values())
    print(f"| | {' | '.join(sizes)} |\n| --- | --- | --- |")
    for name in ways(data, other):
        cells = [name]
        for turns in reads:
            found = [3 * i for i, each in enumerate(order) if each == (name, turns)]
            before, after = (statistics.median(took[i + j] for i in found) for j in (1, 2))
            cells.append(f"{before:.1f}, {after:.1f}")
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
