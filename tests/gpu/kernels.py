"""Kernels for the tests that run on a GPU."""

import triton
import triton.language as tl

import ikp


@triton.jit
def counted(out, n, prof, PAYLOAD: tl.constexpr):
    """Record n ranges per warp with their number as payload, one instant, one enclosing range."""
    ikp.init(prof)
    block = tl.program_id(0) + tl.num_programs(0) * (
        tl.program_id(1) + tl.num_programs(1) * tl.program_id(2)
    )
    value = tl.zeros((1024,), tl.float32) + block
    with ikp.range("outer", block):
        for i in range(n):
            if PAYLOAD:
                with ikp.range("step", i):
                    value += tl.sqrt(value + i)
            else:
                with ikp.range("step"):
                    value += tl.sqrt(value + i)
        ikp.instant("done", 1.5)
    tl.store(out + block * 1024 + tl.arange(0, 1024), value)
    ikp.finish()


@triton.jit
def early_exit(out, n, prof):
    """Odd programs return before their end; nobody calls finish."""
    ikp.init(prof)
    pid = tl.program_id(0)
    for i in range(n):
        with ikp.range("step", i):
            tl.store(out + pid, i)
    if pid % 2 == 1:
        return
    with ikp.range("rest"):
        tl.store(out + pid, n)


@triton.jit
def helper(value):
    with ikp.range("helper"):
        value = tl.exp(value * 0.001)
    return value  # noqa: RET504 - Triton refuses a return inside with


@triton.jit
def functional(out, n, prof):
    """Nested, run-time ids, and asynchronous ranges that cross iterations."""
    ctx = ikp.init(prof)
    pid = tl.program_id(0)
    value = tl.zeros((256,), tl.float32) + pid
    ctx = ikp.start(ctx, "all", pid)
    token = ikp.start_async(ctx, "flight", 0)
    for i in range(n):
        ctx = ikp.start(ctx, i % 3)
        value = helper(value)
        ctx = ikp.end(ctx, i % 3)
        ctx = ikp.end_async(ctx, token)
        token = ikp.start_async(ctx, "flight", i + 1)
    ctx = ikp.end_async(ctx, token)
    ctx = ikp.end(ctx, "all")
    tl.store(out + pid * 256 + tl.arange(0, 256), value)
    ikp.finish(ctx)


@triton.jit
def spin(out, ns, prof):
    """A range that lasts ``ns`` by the global timer."""
    ikp.init(prof)
    start = tl.extra.cuda.globaltimer()
    now = start
    with ikp.range("spin", ns):
        while now - start < ns:
            now = tl.extra.cuda.globaltimer()
    tl.store(out + tl.program_id(0), now - start)
    ikp.finish()


@triton.jit
def spin_ms(out, ms, prof):
    """A range that lasts ``ms`` milliseconds by the global timer."""
    ikp.init(prof)
    start = tl.extra.cuda.globaltimer()
    now = start
    with ikp.range("spin"):
        while now - start < ms.to(tl.int64) * 1000000:
            now = tl.extra.cuda.globaltimer()
    tl.store(out + tl.program_id(0), now - start)


@triton.autotune(
    [triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((256, 2), (1024, 8))], ["n"]
)
@triton.heuristics({"EVEN": lambda args: args["n"] % 1024 == 0})
@triton.jit
def tuned(out, n, prof, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """Autotuned: every configuration runs many times with the same buffer."""
    ikp.init(prof)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with ikp.range("store", BLOCK):
        tl.store(out + at, at, mask=at < n)
    ikp.finish()
