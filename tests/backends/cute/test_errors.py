"""What CuTe users see who use a verb where it can't work."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import cutlass
import pytest
from cutlass import Float32, Float64, Int32, Int64, cute

import ikp
from ikp.errors import IkpError, KernelError
from tests.backends.cute import kernels
from tests.backends.cute.compiling import compile_cute, floats, number, prof
from tests.backends.sass import Code

pytestmark = pytest.mark.compiled


@cute.kernel
def no_init(g: cute.Tensor, n: Int32, prof):
    with ikp.range("x"):
        g[0] = Float32(n)


@cute.kernel
def init_twice(g: cute.Tensor, n: Int32, prof):
    ikp.init(prof)
    ikp.init(prof)


@cute.kernel
def unbalanced(g: cute.Tensor, n: Int32, prof):
    ctx = ikp.init(prof)
    for _ in cutlass.range(n):
        ctx = ikp.start(ctx, "open")


@cute.kernel
def wide_payload(g: cute.Tensor, n: Int32, prof):
    ikp.init(prof)
    ikp.instant("x", Int64(n))


@cute.kernel
def wide_float_payload(g: cute.Tensor, n: Int32, prof):
    ikp.init(prof)
    ikp.instant("x", Float64(n))


@cute.kernel
def init_in_a_branch(g: cute.Tensor, n: Int32, prof):
    if n > 3:
        ikp.init(prof)
    g[0] = Float32(n)


@cute.kernel
def init_in_a_loop(g: cute.Tensor, n: Int32, prof):
    for i in cutlass.range(n):
        ikp.init(prof)
        g[i] = Float32(n)


@cute.kernel
def tensor_payload(g: cute.Tensor, n: Int32, prof):
    ikp.init(prof)
    ikp.instant("x", g)


@cute.kernel
def float_region(g: cute.Tensor, n: Int32, prof):
    ikp.init(prof)
    ikp.instant(Float32(n))


@cute.kernel
def wrong_end(g: cute.Tensor, n: Int32, prof):
    ctx = ikp.init(prof)
    ctx = ikp.start(ctx, "a")
    ctx = ikp.end(ctx, "b")


@cute.kernel
def end_without_start(g: cute.Tensor, n: Int32, prof):
    ctx = ikp.init(prof)
    ctx = ikp.end(ctx, "a")


@cute.kernel
def no_context(g: cute.Tensor, n: Int32, prof):
    ikp.init(prof)
    ikp.start("load", 3)


@cute.kernel
def no_token(g: cute.Tensor, n: Int32, prof):
    ctx = ikp.init(prof)
    ikp.end_async(ctx, ctx)


@cute.kernel
def empty_name(g: cute.Tensor, n: Int32, prof):
    ikp.init(prof)
    ikp.instant("")


@cute.kernel
def begins_in_a_branch(g: cute.Tensor, n: Int32, prof):
    ctx = ikp.init(prof)
    if n > 3:
        ctx = ikp.start(ctx, "open")
    ctx = ikp.end(ctx, "open")


@cute.kernel
def begins_and_ends_in_branches(g: cute.Tensor, n: Int32, prof):
    ctx = ikp.init(prof)
    if n > 3:
        ctx = ikp.start(ctx, "open")
    g[0] = Float32(n)
    if n > 3:
        ctx = ikp.end(ctx, "open")


@cute.kernel
def another_in_a_branch(g: cute.Tensor, n: Int32, prof):
    ctx = ikp.init(prof)
    ctx = ikp.start(ctx, "one")
    if n > 3:
        ctx = ikp.end(ctx, "one")
        ctx = ikp.start(ctx, "another")
    ctx = ikp.end(ctx, "one")


@cute.kernel
def open_at_finish(g: cute.Tensor, n: Int32, prof):
    ctx = ikp.init(prof)
    ctx = ikp.start(ctx, "load")
    ikp.finish(ctx)


@cute.kernel
def never_ended(g: cute.Tensor, n: Int32, prof):
    ctx = ikp.init(prof)
    ctx = ikp.start(ctx, "never ended")
    for i in cutlass.range(n, unroll=1):
        ctx = ikp.start(ctx, "ended", i)
        ctx = ikp.end(ctx, "ended")
    ikp.finish()


@cute.kernel
def token_dropped(g: cute.Tensor, n: Int32, prof):
    ctx = ikp.init(prof)
    token = ikp.start_async(ctx, "dropped")
    for i in cutlass.range(n, unroll=1):
        if i > 3:
            token = ikp.start_async(ctx, "dropped")
        g[i] = Float32(i)
    while n > 0:
        n = n - 1
        token = ikp.start_async(ctx, "dropped")  # noqa: F841 - that is the mistake
    ikp.finish()


@cute.kernel
def token_as_context(g: cute.Tensor, n: Int32, prof):
    ctx = ikp.init(prof)
    token = ikp.start_async(ctx, "load")
    ikp.end(token, "load")


@cute.kernel
def tensor_as_where(g: cute.Tensor, n: Int32, prof):
    ikp.init(prof)
    with ikp.range("x", where=g):
        g[0] = Float32(n)


@cute.kernel
def float_as_index(g: cute.Tensor, n: Int32, prof):
    ikp.init(prof)
    ikp.instant("x", index=1.5)


@cute.kernel
def name_of_a_loop_variable(g: cute.Tensor, n: Int32, prof):
    ikp.init(prof)
    for i in cutlass.range_constexpr(2):
        with ikp.range(f"really? {i}"):
            g[i] = Float32(n)
    for i in cutlass.range(n, unroll=1):
        with ikp.range(f"step {i}"):
            g[i] = Float32(n)


@cute.kernel
def number_as_role(g: cute.Tensor, n: Int32, prof):
    ikp.init(prof)
    ikp.role(3)


@cute.kernel
def raises(g: cute.Tensor, n: Int32, prof):
    ikp.init(prof)
    with ikp.range("x"):
        raise ValueError("the kernel's own")


@cute.jit
def in_host_code(g: cute.Tensor, n: Int32, prof):
    with ikp.range("x"):
        kernels.control(g, n, prof).launch(grid=[1, 1, 1], block=[32, 1, 1])


ON_AND_OFF = pytest.mark.parametrize("recorded", [True, False], ids=["on", "off"])
"""What is wrong is wrong with None for the buffer, too."""


def compiling(kernel: Any, recorded: bool = True) -> Callable[[], Code]:
    buffer = prof() if recorded else None
    return lambda: compile_cute(kernels.launch, kernel, floats(), number(), buffer)


def causes(error: BaseException | None) -> str:
    """Return the messages of an error and of what it was raised from."""
    text = ""
    while error is not None:
        text += f"{type(error).__name__}: {error}\n"
        error = error.__cause__ or error.__context__
    return text


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (no_init, "ikp.range comes before ikp.init"),
        (init_twice, "ikp.init is called twice"),
        (init_in_a_branch, "is in a loop or a branch"),
        (init_in_a_loop, "is in a loop or a branch"),
        (wide_payload, r"has type Int64, which does not fit in 32 bits.* cutlass\.Int32\(x\)"),
        (wide_float_payload, r"has type Float64, .* cutlass\.Float32\(x\)"),
        (tensor_payload, "must be one number"),
        (float_region, "needs a region"),
        (wrong_end, "ranges close in reverse order"),
        (end_without_start, "has no open range"),
        (no_context, "the first argument of ikp.start is the context"),
        (no_token, "takes \\(ctx, token\\)"),
        (token_as_context, r"the first argument of ikp\.end is the context"),
        (open_at_finish, r"ikp\.finish ends the kernel, and 'load' is still open"),
        (tensor_as_where, r"the where of ikp\.range must be one boolean or integer"),
        (float_as_index, r"the index of ikp\.instant must be one integer"),
        (name_of_a_loop_variable, r"the name 'step \?', an f-string of a value that a compiled"),
        (number_as_role, r"ikp\.role needs a name"),
    ],
)
@ON_AND_OFF
def test_a_verb_used_wrongly_says_what_to_do(kernel: Any, says: str, recorded: bool) -> None:
    with pytest.raises(KernelError, match=says):
        compiling(kernel, recorded)()


@ON_AND_OFF
def test_an_empty_name_is_refused(recorded: bool) -> None:
    with pytest.raises(IkpError, match="name"):
        compiling(empty_name, recorded)()


@ON_AND_OFF
def test_what_a_kernel_raises_in_a_range_is_what_is_told(recorded: bool) -> None:
    with pytest.raises(ValueError, match="the kernel's own"):
        compiling(raises, recorded)()


def test_host_code_is_no_kernel() -> None:
    with pytest.raises(KernelError, match=r"ikp\.range is in host code"):
        compile_cute(in_host_code, floats(), number(), prof())


def test_a_number_is_no_buffer() -> None:
    with pytest.raises(KernelError, match=r"takes what prof\.buffer"):
        compile_cute(kernels.launch, kernels.payloads, floats(), number(), number())


def test_outside_any_kernel() -> None:
    with pytest.raises(KernelError, match=r"ikp\.range is called outside a kernel"):
        ikp.range("x")


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (unbalanced, "open"),
        (begins_in_a_branch, "open"),
        (begins_and_ends_in_branches, "open"),
        (another_in_a_branch, "another"),
    ],
)
@ON_AND_OFF
def test_a_range_left_open_is_an_error(kernel: Any, name: str, recorded: bool) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - CuTe's own, of several kinds
        compiling(kernel, recorded)()
    told = " ".join(causes(caught.value).split())
    assert f"the open ranges '{name}' (an iteration or a branch must close every range" in told


@pytest.mark.parametrize(
    ("kernel", "name"), [(never_ended, "never ended"), (token_dropped, "dropped")]
)
def test_a_range_that_nothing_records_is_refused(kernel: Any, name: str) -> None:
    line = inspect.getsource(kernel.__wrapped__).split("\n")
    at = next(i for i, text in enumerate(line) if f'"{name}"' in text)
    at += inspect.getsourcelines(kernel.__wrapped__)[1]
    told = rf"the range '{name}' is opened at {__file__}:{at} and never closed: nothing records it"
    with pytest.raises(KernelError, match=told):
        compiling(kernel)()


@pytest.mark.parametrize("kernel", [kernels.control, kernels.sentinel, kernels.choices])
def test_tokens_that_go_round_loops_are_recorded(kernel: Any) -> None:
    assert "ikp_cur" in compiling(kernel)().ptx


def test_an_error_leaves_the_next_compilation_alone() -> None:
    with pytest.raises(KernelError):
        compiling(init_twice)()
    assert (
        "ikp_cur" in compile_cute(kernels.launch, kernels.payloads, floats(), number(), prof()).ptx
    )
