"""One software-pipelined GEMM, plain and instrumented: the kernels that gemm_overhead.py times.

The bodies are the same text on purpose: what differs between two kernels is the records alone.
"""

import triton
import triton.language as tl

import ikp

BLOCK = {"BM": 128, "BN": 128, "BK": 64, "GM": 8}
OPTIONS = {"num_warps": 8, "num_stages": 3}
SIZE = 4096


@triton.jit
def _tile(M, N, BM: tl.constexpr, BN: tl.constexpr, GM: tl.constexpr):
    """Return the tile of this program, grouped so that neighbours share columns in L2."""
    pid = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = pid // (GM * columns)
    height = min(rows - group * GM, GM)
    return group * GM + pid % (GM * columns) % height, pid % (GM * columns) // height


@triton.jit
def gemm_plain(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr
):
    tile_m, tile_n = _tile(M, N, BM, BN, GM)
    m, n, k = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN), tl.arange(0, BK)
    at = a + m[:, None] * K + k[None, :]
    bt = b + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        x = tl.load(at)
        y = tl.load(bt)
        acc = tl.dot(x, y, acc)
        at += BK
        bt += BK * N
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.float16))


@triton.jit
def gemm_dot(
    a, b, c, M, N, K, prof, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr
):
    """One range per iteration, around the dot."""
    ikp.init(prof)
    tile_m, tile_n = _tile(M, N, BM, BN, GM)
    m, n, k = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN), tl.arange(0, BK)
    at = a + m[:, None] * K + k[None, :]
    bt = b + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(tl.cdiv(K, BK)):
        x = tl.load(at)
        y = tl.load(bt)
        with ikp.range("dot", i):
            acc = tl.dot(x, y, acc)
        at += BK
        bt += BK * N
    with ikp.range("store"):
        tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.float16))


@triton.jit
def gemm_load(
    a, b, c, M, N, K, prof, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr
):
    """One range per iteration, around the loads."""
    ikp.init(prof)
    tile_m, tile_n = _tile(M, N, BM, BN, GM)
    m, n, k = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN), tl.arange(0, BK)
    at = a + m[:, None] * K + k[None, :]
    bt = b + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(tl.cdiv(K, BK)):
        with ikp.range("load", i):
            x = tl.load(at)
            y = tl.load(bt)
        acc = tl.dot(x, y, acc)
        at += BK
        bt += BK * N
    with ikp.range("store"):
        tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.float16))


@triton.jit
def gemm_both(
    a, b, c, M, N, K, prof, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr
):
    """Two ranges per iteration: the loads and the dot."""
    ikp.init(prof)
    tile_m, tile_n = _tile(M, N, BM, BN, GM)
    m, n, k = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN), tl.arange(0, BK)
    at = a + m[:, None] * K + k[None, :]
    bt = b + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(tl.cdiv(K, BK)):
        with ikp.range("load", i):
            x = tl.load(at)
            y = tl.load(bt)
        with ikp.range("dot", i):
            acc = tl.dot(x, y, acc)
        at += BK
        bt += BK * N
    with ikp.range("store"):
        tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.float16))
