"""Gluon kernels for the tests that run on a GPU."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import ikp


@gluon.jit
def partition(out, n, base: gl.constexpr, WARPS: gl.constexpr, name: gl.constexpr):
    ikp.role(name)
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [WARPS], [0])
    at = gl.arange(0, WARPS * 32, layout=layout)
    for k in range(n):
        with ikp.range(name, k):
            gl.store(out + gl.program_id(0) * 1024 + base + at, at + k)


@gluon.jit
def specialised(out, n, prof):
    """A default partition of 4 warps and workers of 1 and 2 warps, each with its own ranges."""
    ikp.init(prof)
    gl.warp_specialize(
        [
            (partition, (out, n, 0, 4, "default")),
            (partition, (out, n + 1, 128, 1, "one")),
            (partition, (out, n + 2, 160, 2, "two")),
        ],
        [1, 2],
        [24, 24],
    )
