"""Kernels that use the verbs wrongly, one mistake each."""

import triton
import triton.language as tl

import ikp


@triton.jit
def range_before_init(x, prof):
    with ikp.range("early"):
        tl.store(x, 1)
    ikp.init(prof)


@triton.jit
def instant_before_init(x, prof):
    ikp.instant("early")
    ikp.init(prof)


@triton.jit
def finish_before_init(x, prof):
    ikp.finish()
    ikp.init(prof)


@triton.jit
def helper_of_no_init(x):
    with ikp.range("helper"):
        tl.store(x, 1)


@triton.jit
def no_init_at_all(x, prof):
    helper_of_no_init(x)


@triton.jit
def init_twice(x, prof):
    ikp.init(prof)
    ikp.init(prof)


@triton.jit
def helper_with_init(x, prof):
    ikp.init(prof)
    tl.store(x, 1)


@triton.jit
def init_in_a_helper_called_twice(x, prof):
    helper_with_init(x, prof)
    helper_with_init(x + 1, prof)


@triton.jit
def end_without_start(x, prof):
    ctx = ikp.init(prof)
    ctx = ikp.end(ctx, "load")


@triton.jit
def end_of_another(x, prof):
    ctx = ikp.init(prof)
    ctx = ikp.start(ctx, "load")
    ctx = ikp.start(ctx, "dot")
    ctx = ikp.end(ctx, "load")


@triton.jit
def end_with_the_old_context(x, prof):
    ctx = ikp.init(prof)
    ikp.start(ctx, "load")
    ctx = ikp.end(ctx, "load")


@triton.jit
def start_in_a_for_loop(x, prof):
    ctx = ikp.init(prof)
    for i in range(tl.load(x)):
        ctx = ikp.start(ctx, "never closed")
        tl.store(x, i)


@triton.jit
def end_in_a_for_loop(x, prof):
    ctx = ikp.init(prof)
    ctx = ikp.start(ctx, "closed too often")
    for i in range(tl.load(x)):
        ctx = ikp.end(ctx, "closed too often")
        tl.store(x, i)


@triton.jit
def start_in_a_while_loop(x, prof):
    ctx = ikp.init(prof)
    n = tl.load(x)
    while n > 0:
        ctx = ikp.start(ctx, "never closed")
        n -= 1


@triton.jit
def start_in_one_branch(x, prof):
    ctx = ikp.init(prof)
    if tl.load(x) > 0:
        ctx = ikp.start(ctx, "in one branch")
    tl.store(x, 1)
    ctx = ikp.end(ctx, "in one branch")


@triton.jit
def name_is_a_float(x, prof):
    ikp.init(prof)
    with ikp.range(tl.load(x).to(tl.float32)):
        tl.store(x, 1)


@triton.jit
def name_is_a_block(x, prof):
    ikp.init(prof)
    with ikp.range(tl.arange(0, 16)):
        tl.store(x, 1)


@triton.jit
def name_is_none(x, prof):
    ikp.init(prof)
    ikp.instant(None)


@triton.jit
def name_is_a_bool(x, prof):
    ikp.init(prof)
    ikp.instant(True)


@triton.jit
def name_is_empty(x, prof):
    ikp.init(prof)
    ikp.instant("")


@triton.jit
def id_is_negative(x, prof):
    ikp.init(prof)
    ikp.instant(-1)


@triton.jit
def id_is_too_large(x, prof):
    ikp.init(prof)
    ikp.instant(67108864)


@triton.jit
def payload_is_a_block(x, prof):
    ikp.init(prof)
    with ikp.range("load", tl.arange(0, 16)):
        tl.store(x, 1)


@triton.jit
def payload_is_int64(x, prof):
    ikp.init(prof)
    ikp.instant("load", tl.load(x).to(tl.int64))


@triton.jit
def payload_is_float64(x, prof):
    ikp.init(prof)
    with ikp.range("load", tl.load(x).to(tl.float64)):
        tl.store(x, 1)


@triton.jit
def payload_is_a_pointer(x, prof):
    ikp.init(prof)
    ikp.instant("load", x)


@triton.jit
def payload_is_too_large(x, prof):
    ikp.init(prof)
    ikp.instant("load", 4294967296)


@triton.jit
def payload_is_too_small(x, prof):
    ctx = ikp.init(prof)
    ctx = ikp.start(ctx, "load", -2147483649)


@triton.jit
def payload_is_a_string(x, prof):
    ikp.init(prof)
    ikp.instant("load", "store")


@triton.jit(noinline=True)
def begun_elsewhere(x, prof):
    ikp.init(prof)
    tl.store(x, 1)


@triton.jit
def init_in_noinline(x, prof):
    begun_elsewhere(x, prof)


@triton.jit(noinline=True)
def ended_elsewhere(x):
    tl.store(x, 1)
    ikp.finish()


@triton.jit
def finish_in_noinline(x, prof):
    ikp.init(prof)
    ended_elsewhere(x)


@triton.jit
def return_in_with(x, prof):
    ikp.init(prof)
    with ikp.range("load"):
        tl.store(x, 1)
        return


@triton.jit
def ends_in_another_branch(x, prof):
    ctx = ikp.init(prof)
    n = tl.load(x)
    if n > 0:
        ctx = ikp.start(ctx, "across")
    tl.store(x, 1)
    if n > 0:
        ctx = ikp.end(ctx, "across")


@triton.jit
def closing(ctx):
    return ikp.end(ctx, "in a helper")


@triton.jit
def ended_by_a_helper_in_a_loop(x, prof):
    ctx = ikp.init(prof)
    ctx = ikp.start(ctx, "in a helper")
    for _ in range(tl.load(x)):
        ctx = closing(ctx)


@triton.jit
def name_of_a_loop_variable(x, prof):
    ikp.init(prof)
    for i in range(tl.load(x)):
        with ikp.range(f"step {i}"):
            tl.store(x, i)


@triton.jit
def open_at_finish(x, prof):
    ctx = ikp.init(prof)
    ctx = ikp.start(ctx, "load")
    tl.store(x, 1)
    ctx = ikp.finish(ctx)


@triton.jit
def token_as_context(x, prof):
    ctx = ikp.init(prof)
    token = ikp.start_async(ctx, "load")
    ikp.end(token, "load")


@triton.jit
def where_is_a_block(x, prof):
    ikp.init(prof)
    with ikp.range("load", where=tl.arange(0, 4)):
        tl.store(x, 1)


@triton.jit
def index_is_a_float(x, prof):
    ikp.init(prof)
    ikp.instant("load", index=1.5)


@triton.jit
def role_is_a_number(x, prof):
    ikp.init(prof)
    ikp.role(3)


@triton.jit
def instant_without_region(x, prof):
    ctx = ikp.init(prof)
    ikp.instant(ctx)


@triton.jit
def instant_with_three_values(x, prof):
    ikp.init(prof)
    ikp.instant("a", 1, 2)


@triton.jit
def start_without_context(x, prof):
    ikp.init(prof)
    ikp.start("load", 1)


@triton.jit
def end_without_context(x, prof):
    ikp.init(prof)
    ikp.end("load", 1)


@triton.jit
def start_async_without_context(x, prof):
    ikp.init(prof)
    ikp.start_async("load", 1)


@triton.jit
def token_is_the_context(x, prof):
    ctx = ikp.init(prof)
    ikp.end_async(ctx, ctx)


@triton.jit
def token_is_a_name(x, prof):
    ctx = ikp.init(prof)
    ikp.end_async(ctx, "load")


@triton.jit
def token_forgotten(x, prof):
    ctx = ikp.init(prof)
    token = ikp.start_async(ctx, "load")
    ctx = ikp.end_async(token, ctx)


@triton.jit
def buffer_made_in_the_kernel(x, prof):
    ikp.init((prof[0] + 128, prof[1], prof[2]))
    ikp.instant("a")


@triton.jit
def correct(x, prof):
    ikp.init(prof)
    with ikp.range("load", 1):
        tl.store(x, 1)
