"""Kernels whose authors named ranges, launched without a buffer: their code has none of it."""

import triton
import triton.language as tl

import ikp


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, N, K, prof, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Multiply two row-major float16 matrices. Grid: N / BN, M / BM."""
    ikp.init(prof)
    rm = tl.program_id(1) * BM + tl.arange(0, BM)
    rn = tl.program_id(0) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a_ptr + rm[:, None] * K + rk[None, :]
    pb = b_ptr + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(K // BK):
        with ikp.range("load", k):
            a = tl.load(pa)
            b = tl.load(pb)
        with ikp.range("dot"):
            acc = tl.dot(a, b, acc)
        pa += BK
        pb += BK * N
    with ikp.range("store"):
        tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(tl.float16))


@triton.jit
def matmul_plain(a_ptr, b_ptr, c_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Do the same, with no word of ikp."""
    rm = tl.program_id(1) * BM + tl.arange(0, BM)
    rn = tl.program_id(0) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a_ptr + rm[:, None] * K + rk[None, :]
    pb = b_ptr + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(K // BK):
        a = tl.load(pa)
        b = tl.load(pb)
        acc = tl.dot(a, b, acc)
        pa += BK
        pb += BK * N
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(tl.float16))


@triton.jit
def summed(x, out, prof, N: tl.constexpr):
    """Sum powers of eight rows; the compiler unrolls the loop."""
    ikp.init(prof)
    total = tl.zeros((N,), tl.float32)
    for k in range(8):
        with ikp.range("load", k):
            values = tl.load(x + k * N + tl.arange(0, N))
        total += tl.exp(values)
    tl.store(out + tl.program_id(0) * N + tl.arange(0, N), total)
