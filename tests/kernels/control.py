"""Kernels that use every verb in every place, compiled and interpreted alike.

``tests/kernels/expected.py`` says what each of them records.
"""

# Triton refuses to return from inside a with statement.
# ruff: noqa: RET504

import triton
import triton.language as tl

import ikp


@triton.jit
def linear_id():
    return tl.program_id(0) + tl.num_programs(0) * (
        tl.program_id(1) + tl.num_programs(1) * tl.program_id(2)
    )


@triton.jit
def inner_helper(x, k):
    with ikp.range("inner", k):
        y = x + k
    return y


@triton.jit
def outer_helper(x, k):
    with ikp.range("outer"):
        y = inner_helper(inner_helper(x, k), k + 100)
    return y


@triton.jit
def nested(out, n, prof):
    """Context managers in loops, branches and helpers that are called more than once."""
    ikp.init(prof)
    pid = linear_id()
    x = pid
    with ikp.range("for", n):
        for i in range(n):
            with ikp.range("step", i):
                x += i
            if i % 2 == 0:
                ikp.instant("even", pid)
            else:
                with ikp.range("odd"):
                    x += 1
    k = n
    while k > 0:
        with ikp.range("while", k):
            k -= 2
    for j in tl.static_range(2):
        with ikp.range("static", j):
            x = outer_helper(x, j)
    tl.store(out + pid, x)


@triton.jit
def timed(ctx, x, k):
    """A helper that takes the context and returns it."""
    ctx = ikp.start(ctx, "callee", k)
    x += k
    ctx = ikp.end(ctx, "callee")
    return ctx, x


@triton.jit
def open_in(ctx, k):
    """A helper that returns with a range still open."""
    return ikp.start(ctx, "opened in a helper", k)


@triton.jit
def functional(out, n, prof):
    """The functional style, with run-time ids and payloads given at the end."""
    ctx = ikp.init(prof)
    pid = linear_id()
    x = pid
    ctx = ikp.start(ctx, "all", n)
    for i in range(n):
        ctx = ikp.start(ctx, "a", i)
        ctx = ikp.start(ctx, i % 3)
        ctx, x = timed(ctx, x, i)
        ctx = ikp.end(ctx, i % 3)
        if i == 1:
            ctx = ikp.instant(ctx, "one", x)
        ctx = ikp.end(ctx, "a", i * 10)
    ctx = open_in(ctx, pid)
    x += 1
    ctx = ikp.end(ctx, "opened in a helper")
    ctx = ikp.instant(ctx, 5)
    ctx = ikp.end(ctx, "all")
    tl.store(out + pid, x)
    ctx = ikp.finish(ctx)


@triton.jit
def overlapping(out, n, prof):
    """Tokens that overlap each other and cross iterations."""
    ctx = ikp.init(prof)
    pid = linear_id()
    first = ikp.start_async(ctx, "first", 1)
    second = ikp.start_async(ctx, "second")
    ctx = ikp.end_async(ctx, first)
    flight = ikp.start_async(ctx, "flight", 0)
    for i in range(n):
        following = ikp.start_async(ctx, "flight", i + 1)
        ctx = ikp.end_async(ctx, flight)
        flight = following
    ctx = ikp.end_async(ctx, flight, 99)
    ctx = ikp.end_async(ctx, second, 2.5)
    tl.store(out + pid, n)


@triton.jit
def sentinel(out, n, prof):
    """A token that is carried round a loop, and stands for nothing before the first round."""
    ctx = ikp.init(prof)
    pid = linear_id()
    token = ikp.no_token(ctx, "flight", 0)
    for i in range(n):
        ctx = ikp.end_async(ctx, token, where=i != 2)
        token = ikp.start_async(ctx, "flight", i)
    ctx = ikp.end_async(ctx, token)
    tl.store(out + pid, n)


@triton.jit
def early_return(out, n, prof):
    """Odd programs return before their end; nobody calls finish."""
    ikp.init(prof)
    pid = linear_id()
    with ikp.range("first", pid):
        tl.store(out + pid, n)
    if pid % 2 == 1:
        return
    with ikp.range("rest"):
        tl.store(out + pid, pid)


@triton.jit
def payloads(ints, floats, prof):
    """One instant per type of payload; ``ints`` points to -5, ``floats`` to 1.25."""
    ikp.init(prof)
    i = tl.load(ints)
    f = tl.load(floats)
    ikp.instant("none")
    ikp.instant("i32", i)
    ikp.instant("u32", i.to(tl.uint32, bitcast=True))
    ikp.instant("i8", i.to(tl.int8))
    ikp.instant("u16", i.to(tl.uint16))
    ikp.instant("bool", i < 0)
    ikp.instant("f32", f)
    ikp.instant("f16", f.to(tl.float16))
    ikp.instant("negative", -7)
    ikp.instant("large", 4294967295)
    ikp.instant("float", 0.5)
    ikp.instant("true", True)
    with ikp.range("range of int", 3000000000):
        pass
    with ikp.range("range of float", -2.5):
        pass
    with ikp.range("range of f32", f):
        pass
