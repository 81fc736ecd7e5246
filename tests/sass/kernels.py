"""Kernels as people write them, with no ikp in them: their machine code is what is read."""

import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Write c = a @ b, row-major; sizes are multiples of the tile. Grid: (M / BM, N / BN)."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    left = a + rows[:, None] * K + depth[None, :]
    right = b + depth[:, None] * N + columns[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        x = tl.load(left)
        y = tl.load(right)
        acc = tl.dot(x, y, acc)
        left += BK
        right += BK * N
    tl.store(c + rows[:, None] * N + columns[None, :], acc.to(tl.float16))


@triton.jit
def matmul_tma(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Write c = a @ b through descriptors."""
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = left.load([row, k])
        y = right.load([k, column])
        acc = tl.dot(x, y, acc)
    out.store([row, column], acc.to(tl.float16))


@triton.jit
def softened(scores, top, total):
    """Return weights, and the maximum and sum as they then are."""
    new = tl.maximum(top, tl.max(scores, 1))
    weights = tl.exp2(scores - new[:, None])
    factor = tl.exp2(top - new)
    return weights, factor, new, total * factor + tl.sum(weights, 1)


@triton.jit
def attention(q, k, v, out, n, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Write softmax(q k^T) v for one head. Grid: (n / BM,)."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.arange(0, BN)
    depth = tl.arange(0, D)
    queries = tl.load(q + rows[:, None] * D + depth[None, :])
    acc = tl.zeros((BM, D), tl.float32)
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    for start in range(0, n, BN):
        keys = tl.load(k + (start + columns)[None, :] * D + depth[:, None])
        scores = tl.dot(queries, keys) * scale
        weights, factor, top, total = softened(scores, top, total)
        values = tl.load(v + (start + columns)[:, None] * D + depth[None, :])
        acc = tl.dot(weights.to(tl.float16), values, acc * factor[:, None])
    tl.store(out + rows[:, None] * D + depth[None, :], (acc / total[:, None]).to(tl.float16))


@triton.jit
def rms_norm(x, weight, out, columns, epsilon, BLOCK: tl.constexpr):
    """Normalise each row, in blocks, in two passes. Grid: (rows,)."""
    x += tl.program_id(0) * columns
    out += tl.program_id(0) * columns
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        row = tl.load(x + at, at < columns, other=0.0).to(tl.float32)
        squares += row * row
    scale = tl.rsqrt(tl.sum(squares) / columns + epsilon)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        row = tl.load(x + at, at < columns, other=0.0).to(tl.float32)
        gain = tl.load(weight + at, at < columns, other=0.0)
        tl.store(out + at, (row * scale * gain).to(tl.float16), at < columns)


@triton.jit
def gathered(table, index, out, steps, BLOCK: tl.constexpr):
    """Sum rows of a table that an index names: loads that wait for loads."""
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(steps):
        page = tl.load(index + tl.program_id(0) * steps + step)
        total += tl.load(table + page * BLOCK + at)
    tl.store(out + tl.program_id(0) * BLOCK + at, total)


@triton.jit
def flagged(flag, x, out, n, blocks, BLOCK: tl.constexpr):
    """Double blocks once n others have said, by a flag, that they are there. Grid: (1,)."""
    while tl.load(flag, volatile=True) != n:
        pass
    for block in range(blocks):
        at = block * BLOCK + tl.arange(0, BLOCK)
        values = tl.load(x + at)
        tl.store(out + at, values * 2)
