"""Gluon kernels that use the verbs in every place where the language lets them stand."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import ikp


@gluon.jit
def straight(x, p, prof, STORES: gl.constexpr, RECORDS: gl.constexpr, KIND: gl.constexpr):
    """Do STORES pieces of work, the first RECORDS of them with a record of KIND."""
    ctx = ikp.init(prof)
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    lanes = gl.arange(0, 128, layout=layout)
    for i in gl.static_range(STORES):
        if i < RECORDS:
            if KIND == "range":
                with ikp.range("work"):
                    gl.store(x + i * 128 + lanes, lanes)
            elif KIND == "payload":
                with ikp.range("work", p):
                    gl.store(x + i * 128 + lanes, lanes)
            elif KIND == "functional":
                ctx = ikp.start(ctx, "work")
                gl.store(x + i * 128 + lanes, lanes)
                ctx = ikp.end(ctx, "work")
            elif KIND == "run-time id":
                with ikp.range(p):
                    gl.store(x + i * 128 + lanes, lanes)
            else:
                gl.store(x + i * 128 + lanes, lanes)
                ikp.instant("work")
        else:
            gl.store(x + i * 128 + lanes, lanes)


@gluon.jit
def helper(out, at, k):
    with ikp.range("helper", k):
        gl.store(out + at, at + k)


@gluon.jit
def control(out, n, prof):
    """Nested ranges in loops, branches and helpers; a token that crosses iterations."""
    ctx = ikp.init(prof)
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.arange(0, 128, layout=layout)
    ctx = ikp.start(ctx, "outer", n)
    token = ikp.start_async(ctx, "flight", 0)
    for i in range(n):
        with ikp.range("loop", i):
            helper(out, at, i)
            with ikp.range("nested"):
                gl.store(out + at, at)
        if i > 3:
            ikp.instant("then", i)
        ctx = ikp.end_async(ctx, token)
        token = ikp.start_async(ctx, "flight", i)
    ctx = ikp.end_async(ctx, token)
    left = n
    while left > 0:
        with ikp.range("while", left):
            left -= 2
            gl.store(out + left, left)
    for j in gl.static_range(2):
        with ikp.range("unrolled", j):
            gl.store(out + j, j)
    ctx = ikp.end(ctx, "outer")
    ikp.finish(ctx)


@gluon.jit
def partition(out, n, base: gl.constexpr, WARPS: gl.constexpr, name: gl.constexpr):
    ikp.role(name)
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [WARPS], [0])
    at = gl.arange(0, WARPS * 32, layout=layout)
    for k in range(n):
        with ikp.range(name, k):
            gl.store(out + base + at, at + k)


@gluon.jit
def specialised(out, n, prof):
    """A default partition and workers of 1 and 2 warps, each with its own ranges."""
    ikp.init(prof)
    gl.warp_specialize(
        [
            (partition, (out, n, 0, 4, "default")),
            (partition, (out, n, 128, 1, "one")),
            (partition, (out, n, 160, 2, "two")),
        ],
        [1, 2],
        [24, 24],
    )


@gluon.jit(noinline=True)
def called(out, k):
    """Record in a function of its own."""
    with ikp.range("called", k):
        gl.store(out + k, k)


@gluon.jit
def calling(out, n, prof):
    ikp.init(prof)
    for k in range(n):
        called(out, k)


@gluon.jit
def dropping(out, n, prof):
    """A token is dropped in a loop."""
    ctx = ikp.init(prof)
    for i in range(n):
        ikp.start_async(ctx, "dropped", i)
        with ikp.range("closed", i):
            gl.store(out + i, n)
