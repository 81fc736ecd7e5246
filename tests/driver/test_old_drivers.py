"""Drivers that are older than a function of CUDA's: one line names it, and nothing else is met."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ikp.driver import cuda, cuda_functions, cuda_memory
from ikp.errors import PatchError

# What drivers of CUDA 11 lack, and who asks for it.
LATER: dict[str, Callable[[], object]] = {
    "cuKernelGetFunction": lambda: cuda_functions.function_of(1),
    "cuLibraryGetGlobal": lambda: cuda_functions.find(1, "name", library=True),
    "cuStreamBatchMemOp_v2": lambda: cuda_memory.write(8, [1], 5),
    "cuGraphKernelNodeGetParams_v2": lambda: cuda.entry_point("cuGraphKernelNodeGetParams_v2"),
}


@pytest.fixture(autouse=True)
def _empty_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver without any function: a library of another kind."""
    monkeypatch.setattr(cuda, "driver", lambda: cuda.DriverLibrary("libc.so.6"))
    monkeypatch.setattr(cuda, "hook_count", lambda _: None)
    monkeypatch.setattr(cuda, "capturing", lambda _: True)


@pytest.mark.parametrize("function", LATER)
def test_a_function_that_is_missing_is_told_in_a_line(function: str) -> None:
    with pytest.raises(PatchError, match=rf"^the CUDA driver.* has no {function}\.$"):
        LATER[function]()


def test_what_ikp_can_do_without_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "context", lambda: 7)
    assert cuda.context_number() == 7
    assert not cuda.time_next(1, 2)
    assert cuda.seen_number(5) == 0
