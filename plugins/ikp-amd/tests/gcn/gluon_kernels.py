"""Gluon kernels for AMD GPUs: a wave has 64 lanes, and matrix instructions their own layouts."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import ikp


@gluon.jit
def control(out, n, prof):
    """Nested ranges in loops, branches; a token that crosses iterations."""
    ctx = ikp.init(prof)
    layout: gl.constexpr = gl.BlockedLayout([1], [64], [2], [0])
    at = gl.arange(0, 128, layout=layout)
    ctx = ikp.start(ctx, "outer", n)
    token = ikp.start_async(ctx, "flight", 0)
    for i in range(n):
        with ikp.range("loop", i):
            gl.store(out + at, at + i)
            with ikp.range("nested"):
                gl.store(out + at, at)
        if i > 3:
            ikp.instant("then", i)
        ctx = ikp.end_async(ctx, token)
        token = ikp.start_async(ctx, "flight", i)
    ctx = ikp.end_async(ctx, token)
    ctx = ikp.end(ctx, "outer")


def control_records(n):
    """Return what each wave of ``control`` records."""
    found = []
    for i in range(n):
        found += [("nested", None), ("loop", i)]
        found += [("then", i)] if i > 3 else []
        found.append(("flight", max(0, i - 1)))
    return [*found, ("flight", max(0, n - 1)), ("outer", n)]


@gluon.jit
def gemm(a, b, c, K, prof, VERSION: gl.constexpr, DEPTH: gl.constexpr, WIDTH: gl.constexpr):
    """Write c = a @ b for one tile of 64 x 64; a: [64, K], b: [K, 64], c: fp32, all row-major."""
    ikp.init(prof)
    blocked: gl.constexpr = gl.BlockedLayout([1, 8], [8, 8], [4, 1], [1, 0])
    matrix: gl.constexpr = gl.amd.AMDMFMALayout(VERSION, [32, 32, DEPTH], True, [2, 2])
    left: gl.constexpr = gl.DotOperandLayout(0, matrix, WIDTH)
    right: gl.constexpr = gl.DotOperandLayout(1, matrix, WIDTH)
    rows = gl.arange(0, 64, layout=gl.SliceLayout(1, blocked))
    columns = gl.arange(0, 64, layout=gl.SliceLayout(0, blocked))
    acc = gl.zeros([64, 64], gl.float32, layout=matrix)
    for k in range(0, K, 64):
        with ikp.range("load", k):
            x = gl.amd.cdna3.buffer_load(a, rows[:, None] * K + columns[None, :] + k)
            y = gl.amd.cdna3.buffer_load(b, (rows[:, None] + k) * 64 + columns[None, :])
        with ikp.range("layout"):
            x = gl.convert_layout(x, left)
            y = gl.convert_layout(y, right)
        with ikp.range("mfma", k):
            acc = gl.amd.cdna3.mfma(x, y, acc)
    with ikp.range("store"):
        m = gl.arange(0, 64, layout=gl.SliceLayout(1, matrix))
        n = gl.arange(0, 64, layout=gl.SliceLayout(0, matrix))
        gl.store(c + m[:, None] * 64 + n[None, :], acc)
