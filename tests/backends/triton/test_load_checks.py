"""A range that is opened and never closed is told, with its place in the source."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl

import ikp
from ikp.backends.triton import _load_checks as load_checks
from tests.backends.sass import compile_kernel, spec
from tests.kernels import control

TYPES = {"out": "*i32", "n": "i32"}


@triton.jit
def never_ended(out, n, prof):
    ctx = ikp.init(prof)
    ctx = ikp.start(ctx, 'never "$" ended')
    for i in range(n):
        ctx = ikp.start(ctx, "ended", i)
        tl.store(out + i, n)
        ctx = ikp.end(ctx, "ended")


@triton.jit
def helper(ctx, x):
    return ikp.start_async(ctx, "dropped", x)


@triton.jit
def tokens_dropped(out, n, prof):
    ctx = ikp.init(prof)
    token = helper(ctx, 0)
    for i in range(n):
        token = ikp.start_async(ctx, "dropped", i)  # noqa: F841 - that is the mistake
        tl.store(out + i, n)
    other = ikp.start_async(ctx, n)  # noqa: F841 - and this
    if n > 3:
        ctx = ikp.end_async(ctx, ikp.start_async(ctx, "ended"))


@triton.jit
def never_recorded(out, n, prof):
    """Opened and closed, though on purpose nothing is recorded."""
    ctx = ikp.init(prof)
    ctx = ikp.start(ctx, "never")
    tl.store(out, n)
    ctx = ikp.end(ctx, "never", where=False)
    with ikp.range("never", where=False):
        tl.store(out + 1, n)
    ctx = ikp.finish(ctx)


def told(compiled: Any) -> list[str]:
    return list(load_checks.unclosed(str(compiled.asm["ttir"])))


def place(kernel: Any, text: str) -> str:
    lines, first = inspect.getsourcelines(kernel.fn)
    at = next(i for i, line in enumerate(lines) if text in line)
    return f"opened at {__file__}:{first + at} and never closed: nothing records it"


@pytest.mark.compiled
def test_a_start_without_an_end_is_told_with_its_line() -> None:
    compiled = compile_kernel(never_ended, TYPES, spec()).compiled
    (text,) = told(compiled)
    assert f"the range 'never \"$\" ended' is {place(never_ended, 'ikp.start')}" in text


@pytest.mark.compiled
def test_each_token_that_nothing_takes_is_told() -> None:
    texts = told(compile_kernel(tokens_dropped, TYPES, spec()).compiled)
    expected = [
        f"the range 'dropped' is {place(helper, 'start_async')}",
        f"the range 'dropped' is {place(tokens_dropped, 'start_async')}",
        f"the range that is named on the host is {place(tokens_dropped, 'other')}",
    ]
    assert len(texts) == len(expected)
    assert all(any(one in text for text in texts) for one in expected)


@pytest.mark.compiled
@pytest.mark.parametrize("kernel", [never_recorded, control.overlapping, control.sentinel])
def test_ranges_that_are_closed_are_not_told(kernel: Any) -> None:
    assert not told(compile_kernel(kernel, TYPES, spec()).compiled)


@pytest.mark.compiled
def test_loading_a_kernel_tells_once(tmp_path: Path) -> None:
    compiled = compile_kernel(never_ended, TYPES, spec()).compiled
    path = tmp_path / "never_ended.ttir"
    path.write_text(str(compiled.asm["ttir"]))
    loaded = (None, None, "never_ended", {path.name: str(path)}, "hash")
    with pytest.warns(ikp.IkpWarning, match="never_ended: the range .* never closed"):
        triton.knobs.runtime.kernel_load_start_hook(*loaded)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        triton.knobs.runtime.kernel_load_start_hook(*loaded)


@pytest.mark.interp
@pytest.mark.parametrize(("kernel", "text"), [(never_ended, "ikp.start"), (helper, "start_async")])
def test_the_interpreter_tells_once_for_a_launch(kernel: Any, text: str) -> None:
    import torch

    launched = tokens_dropped if kernel is helper else kernel
    with warnings.catch_warnings(record=True) as caught, ikp.profile() as prof:
        warnings.simplefilter("always")
        launched[(3,)](torch.zeros(8, dtype=torch.int32), 2, prof.buffer("k"))
    told = [str(each.message) for each in caught if issubclass(each.category, ikp.IkpWarning)]
    assert ("no records: 3 warps" in told[-1]) == (kernel is helper)
    assert len(told) == (3 + 1 if kernel is helper else 1)
    assert sum(place(kernel, text) in one for one in told) == 1


@pytest.mark.interp
@pytest.mark.parametrize("off", [False, True])
def test_the_interpreter_tells_of_nothing_else(off: bool) -> None:
    import torch

    with warnings.catch_warnings(), ikp.profile() as prof:
        warnings.simplefilter("error", ikp.IkpWarning)
        for kernel in (never_ended if off else never_recorded, control.overlapping):
            out = torch.zeros(8, dtype=torch.int32)
            kernel[(3,)](out, 2, None if off else prof.buffer(kernel.__name__))
        warnings.filterwarnings("ignore", "never_recorded: no records", ikp.IkpWarning)
