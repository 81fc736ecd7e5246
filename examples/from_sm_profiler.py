"""SM Profiler's quick start, in ikp: two ranges and an instant, written as a Chrome trace.

Run: ``python examples/from_sm_profiler.py [trace.json]``. docs/migrating.md has the calls side by
side. The second launch runs the same compiled kernel with recording off. Without a GPU it runs in
Triton's interpreter.
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
def my_kernel(x, out, prof, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    """Write sums of exponentials. x: [blocks, STEPS, BLOCK], contiguous; out: [blocks, BLOCK]."""
    ikp.init(prof)
    block = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(STEPS):
        with ikp.range("memory", step):
            values = tl.load(x + (block * STEPS + step) * BLOCK + tl.arange(0, BLOCK))
        with ikp.range("compute", step):
            total += tl.exp(values)
    tl.debug_barrier()
    ikp.instant("sync")
    with ikp.range("memory"):
        tl.store(out + block * BLOCK + tl.arange(0, BLOCK), total)


def main(path: Path) -> None:
    """Profile one of two launches, check both results, and write the trace."""
    on_gpu = torch.cuda.is_available() and not triton.knobs.runtime.interpret
    blocks, steps, block = (1024, 64, 1024) if on_gpu else (16, 3, 64)
    x = torch.randn(blocks, steps, block, device="cuda" if on_gpu else "cpu")
    out, again = torch.empty(2, blocks, block, device=x.device)
    with ikp.profile(path, force=True) as prof:
        my_kernel[(blocks,)](x, out, prof.buffer("my_kernel"), STEPS=steps, BLOCK=block)
        off = prof.buffer("not recorded", enabled=False)
        my_kernel[(blocks,)](x, again, off, STEPS=steps, BLOCK=block)
    torch.testing.assert_close(out, x.exp().sum(1))
    torch.testing.assert_close(again, out)
    prof.print_stats()
    print(f"wrote {path}: open it in chrome://tracing or https://ui.perfetto.dev")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "trace.json"))
