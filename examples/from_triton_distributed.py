"""Triton-distributed's profiler guide, in ikp: a tile-wise copy with ranges numbered at run time.

Run: ``python examples/from_triton_distributed.py [copy.pftrace]``. The guide wraps the launch in a
``ProfilerBuffer`` with ``task_names=["perfect", "non-perfect"]``: tiles that are whole, and the one
that the end of the tensor cuts. docs/migrating.md has the calls side by side. Without a GPU it runs
in Triton's interpreter, which runs one block after another, so there no block waits for the others.
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

TASKS = {0: "perfect", 1: "non-perfect", 2: "barrier"}


@triton.jit
def wait_for_all_blocks(barrier):
    """Return when every block of the launch has come here: all must be resident."""
    tl.atomic_add(barrier, 1)
    while tl.atomic_add(barrier, 0) < tl.num_programs(0):
        pass


@triton.jit
def copy_1d_tilewise(source, target, barrier, n, prof, TILE: tl.constexpr, WAIT: tl.constexpr):
    """Copy n elements in tiles; then, with WAIT, wait for all blocks. barrier: [1], zero."""
    ctx = ikp.init(prof)
    for tile in range(tl.program_id(0), tl.cdiv(n, TILE), tl.num_programs(0)):
        task = ((tile + 1) * TILE > n).to(tl.int32)
        ctx = ikp.start(ctx, task, tile)
        at = tile * TILE + tl.arange(0, TILE)
        tl.store(target + at, tl.load(source + at, at < n), at < n)
        ctx = ikp.end(ctx, task)
    if WAIT:
        ctx = ikp.start(ctx, 2)
        wait_for_all_blocks(barrier)
        ctx = ikp.end(ctx, 2)


def main(path: Path) -> None:
    """Profile one launch, check its result, and write the trace."""
    on_gpu = torch.cuda.is_available() and not triton.knobs.runtime.interpret
    device = "cuda" if on_gpu else "cpu"
    blocks = torch.cuda.get_device_properties(0).multi_processor_count if on_gpu else 4
    tile = 4096 if on_gpu else 128
    n = tile * (6 * blocks + 1) + tile // 3
    source = torch.randn(n, device=device)
    target = torch.empty_like(source)
    barrier = torch.zeros(1, dtype=torch.int32, device=device)
    with ikp.profile(path, force=True) as prof:
        buffer = prof.buffer("copy", regions=TASKS)
        copy_1d_tilewise[(blocks,)](source, target, barrier, n, buffer, TILE=tile, WAIT=on_gpu)
    torch.testing.assert_close(target, source)
    prof.print_stats()
    print(f"wrote {path}: see it with `ikp view {path}`")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "copy.pftrace"))
