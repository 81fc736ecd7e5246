"""A kernel whose loop Triton divides among warps, with ranges in it and behind it."""

import triton
import triton.language as tl

import ikp


@triton.jit
def matmul(a_ptr, out, n, prof, BLOCK: tl.constexpr, INSIDE: tl.constexpr, AFTER: tl.constexpr):
    ikp.init(prof)
    rows = tl.make_tensor_descriptor(
        a_ptr, shape=[n, BLOCK], strides=[BLOCK, 1], block_shape=[BLOCK, BLOCK]
    )
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for i in tl.range(0, n, BLOCK, warp_specialize=True, num_stages=2):
        if INSIDE:
            with ikp.range("load"):
                a = rows.load([i, 0])
            with ikp.range("dot"):
                total = tl.dot(a, a.T, total)
        else:
            a = rows.load([i, 0])
            total = tl.dot(a, a.T, total)
    at = tl.arange(0, BLOCK)
    places = out + at[:, None] * BLOCK + at[None, :]
    if AFTER:
        with ikp.range("store"):
            tl.store(places, total)
    else:
        tl.store(places, total)
