"""The Triton kernel of ``ikp demo``: causal flash attention, with ikp's verbs around its parts.

A block computes BLOCK rows of the output of one head, over the tiles of keys and values at or
before those rows. The loop's bound is a constexpr and tiles beyond the diagonal are skipped, so
that the kernel runs in the interpreter of every supported Triton too.
"""

# A kernel has many arguments, and its constants are upper case.
# ruff: noqa: N803

from __future__ import annotations

import triton
import triton.language as tl

import ikp


@triton.jit
def online_softmax(scores, top, total):
    """Return the weights of one tile, the new running maximum and sum, and the rescaling."""
    with ikp.range("softmax"):
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - new_top[:, None])
        rescale = tl.exp2(top - new_top)
        total = total * rescale + tl.sum(weights, 1)
    return weights, new_top, total, rescale


@triton.jit
def attention(
    q, k, v, out, scale, prof, TILES: tl.constexpr, BLOCK: tl.constexpr, DIM: tl.constexpr
):
    """Write softmax(scale * q k^T) v, causal; q, k, v, out: contiguous [heads, TILES * BLOCK, DIM].

    ``scale`` includes log2(e), since the kernel works with powers of 2. Grid: (TILES, heads).
    """
    ikp.init(prof)
    tile_row = tl.program_id(0)
    head = tl.program_id(1) * TILES * BLOCK * DIM
    rows = tile_row * BLOCK + tl.arange(0, BLOCK)
    dims = tl.arange(0, DIM)
    own = head + rows[:, None] * DIM + dims[None, :]
    with ikp.range("load q"):
        queries = tl.load(q + own)
    acc = tl.zeros((BLOCK, DIM), tl.float32)
    top = tl.full((BLOCK,), -1e30, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for tile in range(TILES):
        if tile <= tile_row:
            with ikp.range("tile", tile):
                columns = tile * BLOCK + tl.arange(0, BLOCK)
                other = head + columns[:, None] * DIM + dims[None, :]
                with ikp.range("load k, v"):
                    keys = tl.load(k + other)
                    values = tl.load(v + other)
                with ikp.range("q @ k"):
                    scores = tl.dot(queries, tl.trans(keys)) * scale
                    scores = tl.where(rows[:, None] >= columns[None, :], scores, -1e30)
                weights, top, total, rescale = online_softmax(scores, top, total)
                with ikp.range("p @ v"):
                    acc = tl.dot(weights.to(values.dtype), values, acc * rescale[:, None])
    with ikp.range("store"):
        tl.store(out + own, (acc / total[:, None]).to(out.dtype.element_ty))
    ikp.instant("rows done", tile_row)
