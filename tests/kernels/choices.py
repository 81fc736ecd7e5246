"""Kernels that say what is recorded, where in the slot, and in which role."""

import triton
import triton.language as tl

import ikp


@triton.jit
def conditional(out, n, prof):
    """Record every third iteration, some by a condition of the program, some never."""
    ctx = ikp.init(prof)
    pid = tl.program_id(0)
    ikp.role("worker")
    token = ikp.start_async(ctx, "flight")
    for k in range(n):
        with ikp.range("third", k, where=k % 3 == 0):
            tl.store(out + pid, k)
        ctx = ikp.start(ctx, "late", k)
        tl.store(out + pid, k)
        ctx = ikp.end(ctx, "late", where=k > 2)
        ikp.instant("even", k, where=pid % 2 == 0)
    ctx = ikp.end_async(ctx, token, where=n)
    with ikp.range("never", where=False):
        tl.store(out + pid, n)
    with ikp.range("always", where=True):
        tl.store(out + pid, n)


def conditional_records(pid, n):
    """Return what a program of ``conditional`` records: name and payload."""
    found = []
    for k in range(n):
        found += [("third", k)] if k % 3 == 0 else []
        found += [("late", k)] if k > 2 else []
        found += [("even", k)] if pid % 2 == 0 else []
    return [*found, *([("flight", None)] if n else []), ("always", None)]


@triton.jit
def placed(out, n, prof):
    """Fill the slot from its end: 2n indices, then one record after them."""
    ikp.init(prof)
    pid = tl.program_id(0)
    for k in range(n):
        with ikp.range("down", k, index=2 * n - 1 - k):
            tl.store(out + pid, k)
        ikp.instant(k, index=k)
    ikp.instant("last")


def placed_records(pid, n):
    """Return what a program of ``placed`` records, in the order of time."""
    pairs = [[("down", k), (f"region {k}", None)] for k in range(n)]
    return [record for pair in pairs for record in pair] + [("last", None)]


@triton.jit
def ring_with_index(out, prof):
    """Give an index; a ring has no use for one."""
    ikp.init(prof)
    with ikp.range("x", index=3):
        tl.store(out, 1)


@triton.jit
def block_condition(out, prof):
    """Give a condition that is not one value."""
    ikp.init(prof)
    with ikp.range("x", where=tl.arange(0, 16) > 3):
        tl.store(out, 1)


@triton.jit
def wrong_index(out, prof):
    """Give an index that is no integer."""
    ikp.init(prof)
    ikp.instant("x", index=1.5)
    tl.store(out, 1)


@triton.jit
def negative_index(out, prof):
    """Give an index before the slot."""
    ikp.init(prof)
    ikp.instant("x", index=-1)
    tl.store(out, 1)


@triton.jit
def numbered_role(out, prof):
    """Give a role without a name."""
    ikp.init(prof)
    ikp.role(3)
    tl.store(out, 1)
