"""Kernels whose authors never heard of ikp."""

import triton
import triton.language as tl

SCALE = tl.constexpr(2.0)


@triton.jit
def doubled(x, times: tl.constexpr):
    for i in tl.static_range(times):  # noqa: B007 - names the loop
        x = x * SCALE
    return x


@triton.jit(noinline=True)
def plus_one(x):
    return x + 1


@triton.jit
def matmul(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    TWICE: tl.constexpr = False,
):
    """Multiply two row-major float16 matrices. Grid: 1-D, and may be too large."""
    pid = tl.program_id(0)
    columns = tl.cdiv(N, BN)
    if pid >= tl.cdiv(M, BM) * columns:
        return
    rm = pid // columns * BM + tl.arange(0, BM)
    rn = pid % columns * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a_ptr + rm[:, None] * K + rk[None, :]
    pb = b_ptr + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.cdiv(K, BK)):
        a = tl.load(pa, mask=rk[None, :] < K - k * BK, other=0.0)
        b = tl.load(pb, mask=rk[:, None] < K - k * BK, other=0.0)
        acc += tl.dot(a, b)
        pa += BK
        pb += BK * N
    if TWICE:
        acc = doubled(acc, 1)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(tl.float16))


@triton.jit
def several(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Sum ``n`` blocks of ``x`` twice, and a bit."""
    total = tl.zeros((BLOCK,), tl.float32)
    at = tl.arange(0, BLOCK)
    for i in range(n.to(tl.int64)):
        total += tl.load(x_ptr + i * BLOCK + at) + tl.load(x_ptr + i * BLOCK + at)
    rounds = 0
    while rounds < 3:
        total = total + 1.0
        rounds += 1
    value = tl.sum(total)
    if n > 1:
        value = plus_one(value)
        tl.debug_barrier()
    else:
        value = value + 0.0
    tl.store(out_ptr + tl.program_id(0), value)


def made_in_a_function(step):
    """Return a kernel that finds ``step`` in the function around it."""
    step = tl.constexpr(step)

    @triton.jit
    def kernel(x_ptr, n):
        for i in range(n):
            tl.store(x_ptr + i, i + step)

    return kernel


@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def scaled(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for i in range(2):
        if EVEN:
            tl.store(x_ptr + at, tl.load(x_ptr + at) * 2 + i)
        else:
            tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2 + i, mask=at < n)


TRIALS = []


def _once(call, quantiles):
    TRIALS.append(call)
    call()
    return [1.0] * len(quantiles)


autotuned = triton.autotune(
    configs=[triton.Config({"BLOCK": size}) for size in (32, 64)],
    key=["n"],
    restore_value=["x_ptr"],
    do_bench=_once,
)(scaled)


@triton.jit
def persistent(x_ptr, out_ptr, tiles, steps, BLOCK: tl.constexpr):
    """Sum ``steps`` blocks of ``x`` for each tile; the compiler makes one loop of the two."""
    at = tl.arange(0, BLOCK)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        total = tl.zeros((BLOCK,), tl.float32)
        for step in range(steps):
            total += tl.load(x_ptr + (tile * steps + step) * BLOCK + at)
        tl.store(out_ptr + tile * BLOCK + at, total)
