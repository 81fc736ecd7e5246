"""Kernels that only the interpreter can run: they call plain Python."""

import triton
import triton.language as tl

import ikp


def give_up(pid):
    """Raise in the second program."""
    if int(pid) == 1:
        raise ValueError("the second program gives up")


@triton.jit
def failing(out, prof):
    ctx = ikp.init(prof)
    pid = tl.program_id(0)
    ctx = ikp.start(ctx, "open when it fails")
    with ikp.range("before", pid):
        tl.store(out + pid, pid)
    with ikp.range("while it fails", pid):
        give_up(pid)
    ctx = ikp.end(ctx, "open when it fails")
    ikp.finish(ctx)


@triton.jit
def left_open(prof):
    ctx = ikp.init(prof)
    ctx = ikp.start(ctx, "open")
