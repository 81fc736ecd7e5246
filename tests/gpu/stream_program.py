"""A kernel that fails after some tasks, in a stream: ``python -m tests.gpu.stream_program PATH``.

One block waits 50 ms in the range "bad store", and stores to an address where nothing is.
"""

import sys

import torch
import triton
import triton.language as tl

import ikp

BLOCKS, TASKS, NOWHERE = 16, 500, 1 << 46
FAILS: tl.constexpr = tl.constexpr(3)
"""The block that does."""


@triton.jit
def fails(out, nowhere, n, prof):
    """Do n tasks; in one block, store to an address that the host gave as an integer."""
    ikp.init(prof)
    block = tl.program_id(0)
    for i in range(n):
        with ikp.range("task", i):
            tl.store(out + block, i)
    begin = tl.extra.cuda.globaltimer()
    if block == FAILS:
        with ikp.range("bad store"):
            while tl.extra.cuda.globaltimer() - begin < 50_000_000:
                pass
            tl.store(nowhere.to(tl.pointer_type(tl.int32)), 1)
    else:
        with ikp.range("wait"):
            while tl.extra.cuda.globaltimer() - begin < 500_000_000:
                pass


def main() -> None:
    """Run it, and let the error out."""
    out = torch.zeros(BLOCKS, dtype=torch.int32, device="cuda")
    with ikp.profile(sys.argv[1], force=True, overflow="stream", clock="globaltimer") as prof:
        buffer = prof.buffer("fails", size=1 << 20)
        fails[(BLOCKS,)](out, NOWHERE, TASKS, buffer, num_warps=1)
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
