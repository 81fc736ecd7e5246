"""A software-pipelined GEMM on tensor cores, with a range around its loads, its dot, or both."""

import triton
import triton.language as tl

import ikp

TILES = {"BM": 128, "BN": 128, "BK": 64}
OPTIONS = {"num_warps": 8, "num_stages": 3}
TYPES = {**dict.fromkeys("abc", "*fp16"), **dict.fromkeys("MNK", "i32")}


@triton.jit
def gemm(
    a,
    b,
    c,
    M,
    N,
    K,
    prof,
    LOAD: tl.constexpr,
    DOT: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Write c = a @ b, row-major; M, N, K: multiples of the tile. Grid: (M / BM, N / BN)."""
    ikp.init(prof)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    left = a + rows[:, None] * K + depth[None, :]
    right = b + depth[:, None] * N + columns[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.cdiv(K, BK)):
        if LOAD:
            with ikp.range("load", k):
                x = tl.load(left)
                y = tl.load(right)
        else:
            x = tl.load(left)
            y = tl.load(right)
        if DOT:
            with ikp.range("dot", k):
                acc = tl.dot(x, y, acc)
        else:
            acc = tl.dot(x, y, acc)
        left += BK
        right += BK * N
    tl.store(c + rows[:, None] * N + columns[None, :], acc.to(tl.float16))
