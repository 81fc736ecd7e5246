"""Helpers that are functions of their own, with records in them."""

import triton
import triton.language as tl

import ikp


@triton.jit(noinline=True)
def early(out, k):
    """Return before the end for some k."""
    with ikp.range("early", k):
        tl.store(out + k, k)
    if k > 2:
        return
    ikp.instant("late", k)
    tl.store(out + k + 64, k)


@triton.jit(noinline=True)
def valued(out, k):
    """Return a value, from another function with records."""
    with ikp.range("valued", k):
        deeper(out, k)
        found = tl.load(out + k)
    return found * 3


@triton.jit(noinline=True)
def deeper(out, k):
    with ikp.range("deeper", k):
        tl.store(out + k, k + 1)


@triton.jit(noinline=True)
def silent(out, k):
    """Record nothing; what it calls does."""
    deeper(out, k)


@triton.jit(noinline=True)
def quiet(out):
    """Record nothing at all."""
    tl.store(out + 200, 1)


@triton.jit
def calling(out, n, prof):
    ikp.init(prof)
    out += tl.program_id(0) * 256
    for k in range(n):
        with ikp.range("step", k):
            early(out, k)
            found = valued(out, k)
            silent(out, k)
        tl.store(out + 128 + k, found)
    quiet(out)
    ikp.instant("end")


def records(n):
    """Return what a warp of ``calling`` records, in order: name and payload."""
    made = []
    for k in range(n):
        made.append(("early", k))
        if k <= 2:
            made.append(("late", k))
        made += [("deeper", k), ("valued", k), ("deeper", k), ("step", k)]
    return [*made, ("end", None)]


@triton.jit(noinline=True)
def plain(out, n):
    tl.store(out, n)


@triton.jit
def around_plain(out, n, prof):
    """Call a function that is not inlined, and has no records."""
    ikp.init(prof)
    with ikp.range("call"):
        plain(out, n)
