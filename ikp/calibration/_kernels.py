"""The calibration's Triton kernel: ranges with a given number of records, among work or none."""

import triton
import triton.language as tl

from ikp.verbs import intrinsics, ranges


@triton.jit
def _work(value, ROOTS: tl.constexpr):
    """Return the value after ROOTS square roots, each of which waits for the one before."""
    for _ in tl.static_range(ROOTS):
        value = tl.sqrt(value + 1.0)
    return value


@triton.jit
def records(
    out,
    n,
    prof,
    KIND: tl.constexpr,
    COUNT: tl.constexpr,
    PIECES: tl.constexpr,
    ROOTS: tl.constexpr,
):
    """Record n ranges "around", with COUNT records of KIND in each.

    Each range holds PIECES pieces of work twice, with records or without. The result is stored at
    the end, so that the compiler keeps the work.
    """
    ctx = ranges.init(prof)
    value = tl.zeros((32,), tl.float32) + tl.program_id(0)
    for _ in range(n):
        ctx = intrinsics.start(ctx, "around")
        for piece in tl.static_range(PIECES):
            if piece >= COUNT:
                value = _work(value, ROOTS)
            elif KIND == "nested":
                ctx = intrinsics.start(ctx, "inside")
                value = _work(value, ROOTS)
            elif KIND == "instants":
                intrinsics.instant("inside")
                value = _work(_work(value, ROOTS), ROOTS)
            else:
                with ranges.range("inside"):
                    value = _work(value, ROOTS)
                value = _work(value, ROOTS)
        for piece in tl.static_range(PIECES):
            if KIND == "nested" and piece < COUNT:
                ctx = intrinsics.end(ctx, "inside")
            if KIND == "nested" or piece >= COUNT:
                value = _work(value, ROOTS)
        ctx = intrinsics.end(ctx, "around")
    tl.store(out + tl.program_id(0) * 32 + tl.arange(0, 32), value)
