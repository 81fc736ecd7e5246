"""Kernels that do nothing but record."""

import triton
import triton.language as tl

import ikp


@triton.jit
def records(n, prof, KIND: tl.constexpr, COUNT: tl.constexpr):
    """Record n ranges "around", with COUNT records of KIND in each and nothing else."""
    ctx = ikp.init(prof)
    for _ in range(n):
        ctx = ikp.start(ctx, "around")
        for _ in tl.static_range(COUNT):
            if KIND == "side by side":
                with ikp.range("inside"):
                    pass
            elif KIND == "nested":
                ctx = ikp.start(ctx, "inside")
            else:
                ikp.instant("inside")
        if KIND == "nested":
            for _ in tl.static_range(COUNT):
                ctx = ikp.end(ctx, "inside")
        ctx = ikp.end(ctx, "around")
