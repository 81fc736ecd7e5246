"""CuTe kernels that use the verbs in every place where the language lets them stand.

Each is compiled with and without a buffer; ``plain`` kernels have no line of ikp in them.
"""

import cutlass
from cutlass import Boolean, Float16, Float32, Int32, Uint32, cute

import ikp


@cute.jit
def work(g: cute.Tensor, at: Int32, i: cutlass.Constexpr):
    """Store something that no other piece of work can be merged with."""
    g[at + i * 128] = Float32(i)


@cute.kernel
def straight(g: cute.Tensor, p: Int32, prof, kind: cutlass.Constexpr, records: cutlass.Constexpr):
    """Do 8 pieces of work, the first ``records`` of them with a record of ``kind``."""
    ctx = ikp.init(prof)
    at, _, _ = cute.arch.thread_idx()
    for i in cutlass.range_constexpr(8):
        if cutlass.const_expr(i >= records):
            work(g, at, i)
        elif cutlass.const_expr(kind == "range"):
            with ikp.range("work"):
                work(g, at, i)
        elif cutlass.const_expr(kind == "payload"):
            with ikp.range("work", p):
                work(g, at, i)
        elif cutlass.const_expr(kind == "functional"):
            ctx = ikp.start(ctx, "work")
            work(g, at, i)
            ctx = ikp.end(ctx, "work")
        elif cutlass.const_expr(kind == "run-time id"):
            with ikp.range(p):
                work(g, at, i)
        else:
            work(g, at, i)
            ikp.instant("work")
    ikp.finish()


@cute.jit
def helper(g: cute.Tensor, at: Int32):
    with ikp.range("helper", 1.5):
        g[at] = g[at] * Float32(3.0)


@cute.kernel
def control(g: cute.Tensor, n: Int32, prof):
    """Nested ranges in dynamic and unrolled loops, branches and helpers; tokens across loops."""
    ctx = ikp.init(prof)
    at, _, _ = cute.arch.thread_idx()
    ctx = ikp.start(ctx, "outer", n)
    token = ikp.start_async(ctx, "flight", 0)
    for i in cutlass.range(n, unroll=1):
        with ikp.range("loop", i):
            g[at] = g[at] + Float32(1.0)
            with ikp.range("nested"):
                g[at] = g[at] + Float32(2.0)
        ctx = ikp.start(ctx, i % 3)
        helper(g, at)
        ctx = ikp.end(ctx, i % 3, g[at])
        ctx = ikp.end_async(ctx, token)
        token = ikp.start_async(ctx, "flight", i)
        if i > 3:
            ikp.instant("then", i)
        else:
            with ikp.range("else"):
                g[at] = g[at] + Float32(7.0)
    ctx = ikp.end_async(ctx, token)
    left = n
    while left > 0:
        with ikp.range("while", left):
            left = left - 2
            g[at] = g[at] + Float32(left)
    for i in cutlass.range_constexpr(2):
        with ikp.range("unrolled", i):
            g[at + 128 * i] = Float32(i)
    if at // 32 == 1:
        with ikp.range("chosen warp"):
            g[at] = Float32(0.0)
    ctx = ikp.end(ctx, "outer")
    ikp.finish(ctx)


@cute.jit
def plain_helper(g: cute.Tensor, at: Int32):
    g[at] = g[at] * Float32(3.0)


@cute.kernel
def plain_control(g: cute.Tensor, n: Int32, prof):
    """What ``control`` does, without ikp."""
    at, _, _ = cute.arch.thread_idx()
    for i in cutlass.range(n, unroll=1):
        g[at] = g[at] + Float32(1.0)
        g[at] = g[at] + Float32(2.0)
        plain_helper(g, at)
        if i > 3:
            pass
        else:
            g[at] = g[at] + Float32(7.0)
    left = n
    while left > 0:
        left = left - 2
        g[at] = g[at] + Float32(left)
    for i in cutlass.range_constexpr(2):
        g[at + 128 * i] = Float32(i)
    if at // 32 == 1:
        g[at] = Float32(0.0)


@cute.kernel
def sentinel(g: cute.Tensor, n: Int32, prof):
    """A token that is carried round a loop, and stands for nothing before the first round."""
    ctx = ikp.init(prof)
    at, _, _ = cute.arch.thread_idx()
    token = ikp.no_token(ctx, "flight", 0)
    for i in cutlass.range(n, unroll=1):
        ctx = ikp.end_async(ctx, token)
        token = ikp.start_async(ctx, "flight", i)
        g[at] = g[at] + Float32(1.0)
    ctx = ikp.end_async(ctx, token)
    ikp.finish(ctx)


@cute.kernel
def plain_sentinel(g: cute.Tensor, n: Int32, prof):
    """What ``sentinel`` does, without ikp."""
    at, _, _ = cute.arch.thread_idx()
    for _ in cutlass.range(n, unroll=1):
        g[at] = g[at] + Float32(1.0)


@cute.kernel
def choices(g: cute.Tensor, n: Int32, prof):
    """Conditions, known now and at run time, and indices."""
    ctx = ikp.init(prof)
    at, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(at // 32)
    for k in cutlass.range(n, unroll=1):
        with ikp.range("first warp", k, where=warp == 0):
            g[at] = g[at] + Float32(1.0)
        ctx = ikp.start(ctx, "third", k)
        g[at] = g[at] * Float32(2.0)
        ctx = ikp.end(ctx, "third", where=k % 3 == 0)
        ikp.instant("down", k, where=warp == 1, index=20 + n - k)
    with ikp.range("never", where=False):
        g[at] = g[at] + Float32(1.0)
    ikp.instant("always", where=True)
    ikp.finish()


@cute.kernel
def payloads(g: cute.Tensor, n: Int32, prof):
    """Every type that a payload may have."""
    ikp.init(prof)
    at, _, _ = cute.arch.thread_idx()
    ikp.instant("Int32", n)
    ikp.instant("Uint32", Uint32(at))
    ikp.instant("Float32", g[at])
    ikp.instant("Float16", Float16(g[at]))
    ikp.instant("Boolean", Boolean(n > 3))
    ikp.instant("int", -7)
    ikp.instant("large int", 0xFFFFFFFE)
    ikp.instant("float", 1.5)
    ikp.instant("bool", True)
    ikp.instant("none")
    ikp.finish()


class Roles:
    """A warp-specialised kernel as a class: a producer warpgroup and a consumer warpgroup."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    @cute.jit
    def __call__(self, g: cute.Tensor, n: Int32, prof):
        self.kernel(g, n, prof).launch(grid=[4, 2, 2], block=[256, 1, 1], min_blocks_per_mp=1)

    @cute.kernel
    def kernel(self, g: cute.Tensor, n: Int32, prof):
        ikp.init(prof)
        at, _, _ = cute.arch.thread_idx()
        group = cute.arch.make_warp_uniform(at // 128)
        if group == 0:
            cute.arch.setmaxregister_decrease(40)
            ikp.role("producer")
            for i in cutlass.range(n, unroll=1):
                with ikp.range("produce", i):
                    g[at] = g[at] + Float32(i)
        if group == 1:
            cute.arch.setmaxregister_increase(232)
            ikp.role("consumer")
            for i in cutlass.range(n, unroll=1):
                with ikp.range("consume", i):
                    self.consume(g, at)
        ikp.finish()

    @cute.jit
    def consume(self, g: cute.Tensor, at: Int32):
        for i in cutlass.range_constexpr(self.steps):
            with ikp.range("step"):
                g[at + 256 * i] = g[at + 256 * i] * Float32(2.0)


class PlainRoles(Roles):
    """``Roles`` without ikp."""

    @cute.kernel
    def kernel(self, g: cute.Tensor, n: Int32, prof):
        at, _, _ = cute.arch.thread_idx()
        group = cute.arch.make_warp_uniform(at // 128)
        if group == 0:
            cute.arch.setmaxregister_decrease(40)
            for i in cutlass.range(n, unroll=1):
                g[at] = g[at] + Float32(i)
        if group == 1:
            cute.arch.setmaxregister_increase(232)
            for _ in cutlass.range(n, unroll=1):
                self.consume(g, at)

    @cute.jit
    def consume(self, g: cute.Tensor, at: Int32):
        for i in cutlass.range_constexpr(self.steps):
            g[at + 256 * i] = g[at + 256 * i] * Float32(2.0)


@cute.kernel
def timed(g: cute.Tensor, n: Int32, prof):
    """Give a record the time that the kernel took by a clock of the language's."""
    ikp.init(prof)
    began = cute.arch.clock()
    for i in cutlass.range(n, unroll=1):
        g[i] = Float32(i)
    ikp.instant("took", cute.arch.clock() - began)
    ikp.finish()


@cute.jit
def launch(kernel: cutlass.Constexpr, g: cute.Tensor, n: Int32, prof):
    kernel(g, n, prof).launch(grid=[4, 2, 2], block=[128, 1, 1])


@cute.jit
def launch_straight(
    g: cute.Tensor, p: Int32, prof, kind: cutlass.Constexpr, records: cutlass.Constexpr
):
    straight(g, p, prof, kind, records).launch(grid=[4, 1, 1], block=[128, 1, 1])
