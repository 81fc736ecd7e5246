"""Errors that pass functions of ikp's hold nothing of the program's once they are handled.

Where a function keeps an error that it raises, both hold each other until the next collection of
garbage, and with them the variables of every caller: a program's tensors among them.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from copy import copy

import pytest

from ikp.backends.refusing import in_words
from ikp.errors import PatchError
from ikp.session.arena import Arena
from ikp.session.segment_sources import ends_within
from ikp.session.service import DeviceService
from ikp.signals import pass_on
from tests.session.test_service import CPU, Reused, gpu, storage

pytestmark = pytest.mark.any_pins
__all__ = ["gpu", "storage"]


class Tensor:
    """Something that the program holds."""


@pytest.fixture(autouse=True)
def _no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def fail() -> None:
    raise RuntimeError("a kernel has failed")


def is_let_go(call: Callable[[], object]) -> bool:
    """Return whether a caller's tensor ends with the caller, whose call fails."""

    def program() -> weakref.ref[Tensor]:
        tensor = Tensor()
        try:
            call()
        except Exception:  # noqa: BLE001 - as a program that goes on
            return weakref.ref(tensor)
        raise AssertionError("it did not fail")

    return program()() is None


def test_an_error_that_a_fence_looks_at_holds_no_caller() -> None:
    """Whether a signal handler raised it, as at each launch that is refused."""

    def fenced(_: object) -> None:
        try:
            fail()
        except Exception as error:  # noqa: BLE001 - as a fence
            pass_on(error)
        raise ValueError("what the program handles")

    assert is_let_go(lambda: fenced(1))


@pytest.mark.parametrize("error", [PatchError("_Z1kv can't be patched."), ValueError("odd")])
def test_a_refusal_in_other_words_holds_no_caller(error: Exception) -> None:
    def refuse() -> None:
        raise copy(error)

    def refused() -> None:
        with in_words("_Z1kv", "k()"):
            refuse()

    assert is_let_go(refused)


def test_an_error_of_the_services_thread_holds_no_caller(gpu: DeviceService) -> None:
    assert is_let_go(lambda: gpu.call(fail))


def test_an_error_of_a_wait_for_kernels_holds_no_caller() -> None:
    assert is_let_go(lambda: ends_within(60, fail))


def test_memory_that_there_is_not_holds_no_caller(
    storage: Reused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "zeroed", lambda _: fail())
    arena = Arena(storage, CPU)
    assert is_let_go(lambda: arena.take(1 << 20))
