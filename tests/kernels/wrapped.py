"""Kernels as users wrap them: autotuned, with heuristics, and with names given as constants."""

# Constants are upper case.

import triton
import triton.language as tl

import ikp


@triton.jit
def scale(x, n, prof, BLOCK: tl.constexpr, EVEN: tl.constexpr, NAME: tl.constexpr):
    """Add 1 to ``n`` numbers at ``x``."""
    ikp.init(prof)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with ikp.range(NAME, tl.program_id(0)):
        if EVEN:
            tl.store(x + at, tl.load(x + at) + 1)
        else:
            tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


heuristic = triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})(scale)

autotuned = triton.autotune(
    configs=[
        triton.Config({"BLOCK": size}, num_warps=warps) for size, warps in ((64, 1), (128, 4))
    ],
    key=["n"],
)(heuristic)


def _try_once(call, quantiles):
    """Time a configuration by running it once: Triton's own timer needs a GPU."""
    call()
    return [1.0] * len(quantiles)


tuned_here = triton.autotune(
    configs=[triton.Config({"BLOCK": size}) for size in (32, 64)], key=["n"], do_bench=_try_once
)(heuristic)
one_config = triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=["n"])(heuristic)
