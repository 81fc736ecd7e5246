"""A GEMM whose loop Triton divides among warps: a range's work may go elsewhere; a wait."""

import triton
import triton.language as tl

import ikp

TYPES = {"a": "*fp16", "b": "*fp16", "out": "*fp32", "n": "i32", "K": "i32"}
TILES = {"BM": 128, "BN": 128, "BK": 64}


@triton.jit
def gemm(
    a,
    b,
    out,
    n,
    K,
    prof,
    NUMBERED: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Write out = a @ b.T; with payloads (NUMBERED), all records go to the warps that load."""
    ikp.init(prof)
    left = tl.make_tensor_descriptor(a, shape=[n, K], strides=[K, 1], block_shape=[BM, BK])
    right = tl.make_tensor_descriptor(b, shape=[n, K], strides=[K, 1], block_shape=[BN, BK])
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=True, num_stages=3):
        if NUMBERED:
            with ikp.range("load", k):
                x = left.load([row, k])
                y = right.load([column, k])
            with ikp.range("dot", k):
                total = tl.dot(x, y.T, total)
        else:
            with ikp.range("load"):
                x = left.load([row, k])
                y = right.load([column, k])
            with ikp.range("dot"):
                total = tl.dot(x, y.T, total)
    rows = row + tl.arange(0, BM)
    columns = column + tl.arange(0, BN)
    tl.store(out + rows[:, None] * n + columns[None, :], total)


@triton.jit
def waits(flag, out, prof):
    """Wait for a flag, and store."""
    ikp.init(prof)
    with ikp.range("wait for the flag"):
        while tl.load(flag, volatile=True) == 0:
            pass
    with ikp.range("after it"):
        at = tl.program_id(0) * 128 + tl.arange(0, 128)
        tl.store(out + at, tl.program_id(0) + 0.5)
