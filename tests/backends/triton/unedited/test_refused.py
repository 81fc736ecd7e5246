"""What is said of a kernel that fails with marks in it: only what marks may have to do with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import triton
import triton.language as tl

from ikp.backends.triton import TritonBackend
from ikp.backends.triton.unedited import _launching as launching
from ikp.backends.triton.unedited._launching import BLOCKED, Launcher
from ikp.backends.triton.unedited._twins import kernel_twin
from ikp.unedited.plan import plan
from tests.backends.triton.unedited.compiling import FakeDriver, buffer

pytestmark = pytest.mark.compiled
SESSION: Any = SimpleNamespace(buffer=lambda *_, **__: buffer(), discard=lambda _: None, facts={})


@triton.jit
def sound(x, n):
    for i in range(n):
        tl.store(x + i, 0.0)


@triton.jit
def wrong(x, n):
    for i in range(n):
        tl.store(x + i, undefined)  # noqa: F821


def notes_of(kernel: Any, *args: Any) -> list[str]:
    """Launch a kernel marked; return the notes of what it fails with."""
    import torch

    with pytest.raises(Exception) as failed:  # noqa: PT011 - each fails in a way of its own
        Launcher(plan(), lambda: SESSION).run(
            kernel, kernel.run, torch.zeros(4), *args, grid=(1,), warmup=False
        )
    return getattr(failed.value, "__notes__", [])


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.runtime.driver, "_active", FakeDriver())
    TritonBackend()


def test_marks_are_blamed_where_the_kernel_compiles_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launching, "kernel_twin", lambda _, plan: kernel_twin(wrong, plan))
    assert notes_of(sound, 3) == [BLOCKED]


def test_marks_are_not_blamed_for_what_the_kernel_itself_has_wrong() -> None:
    assert notes_of(wrong, 3) == []


def test_marks_are_not_blamed_for_a_launch_that_fails() -> None:
    assert notes_of(sound, 3) == []  # it compiles, and there is no GPU
    assert notes_of(sound, object()) == []
