"""Triton kernels for AMD tests: a range of the whole kernel, records by hand, a wrong argument."""

import triton
import triton.language as tl

import ikp
from ikp.backends.triton.unedited import _expressions as expressions


@triton.jit
def kept(out, n, prof):
    """Ask for the range of the whole kernel, which has two exits."""
    ikp.init(prof)
    expressions.whole("all of it")
    pid = tl.program_id(0)
    if pid == 1:
        return
    with ikp.range("store", pid):
        tl.store(out + pid, n)


@triton.jit
def by_hand(out, n, prof):
    """Ask for an IR with records placed by hand."""
    ikp.init(prof)
    expressions.by_hand("file_0")
    tl.store(out, n)


@triton.jit
def passed_on(out, n, prof):
    """Give init what is not the kernel's own argument."""
    ikp.init((prof[0] + 128, prof[1], prof[2]))
    tl.store(out, n)
