"""What a compiled CuTe function is called with, held against what it was compiled with."""

from __future__ import annotations

import ctypes
import gc
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from cutlass import Int32, cute
from cutlass.base_dsl.jit_executor import JitCompiledFunction
from cutlass.cute.runtime import from_dlpack

import ikp
from ikp.backends.argument import Argument
from ikp.core.abi import ClockKind
from ikp.errors import UsageError
from tests.backends.cute import kernels
from tests.backends.cute.compiling import DEFAULT, floats, number, prof
from tests.backends.sass import spec

pytestmark = pytest.mark.compiled

OTHER_CLOCK = replace(spec(), clock=ClockKind.GLOBALTIMER)
WRONG = [
    (True, prof(OTHER_CLOCK), r"clock=cycles is compiled in, clock=globaltimer is given"),
    (True, 7, r"type int as its argument 'prof', but was compiled with a buffer there"),
    (False, prof(), r"with a buffer as its argument 'prof', but was compiled with None"),
]
"""Whether the function was compiled with a buffer, what it is called with, what that is told."""


@cute.jit
def first(prof, g: cute.Tensor, n: Int32):
    kernels.payloads(g, n, prof).launch(grid=[4, 2, 2], block=[128, 1, 1])


@cute.jit
def left_out(g: cute.Tensor, n: Int32, prof: ikp.Argument = None):
    kernels.payloads(g, n, prof).launch(grid=[4, 2, 2], block=[128, 1, 1])


@cute.jit
def last(g: cute.Tensor, n: Int32, prof):
    kernels.payloads(g, n, prof).launch(grid=[4, 2, 2], block=[128, 1, 1])


@pytest.fixture(autouse=True)
def target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTE_DSL_ARCH", DEFAULT)  # no GPU need be there


def tensor() -> Any:
    return from_dlpack(torch.zeros(1 << 14))


def passed(function: Any, *args: Any, **kwargs: Any) -> list[int]:
    """Return the words that CuTe would pass on, read as its host code reads them: 32 bits each."""
    pointers, kept = function.execution_args.generate_execution_args(args, kwargs)
    gc.collect()
    words = [ctypes.cast(each, ctypes.POINTER(ctypes.c_int32)) for each in pointers]
    values = [word[0] for word in words]
    del kept
    return values


@cache
def compiled(function: Any, with_buffer: bool = True, *options: str) -> Any:
    """Compile one of the three for a buffer, or for none of it."""
    buffer = prof() if with_buffer else None
    args = (floats(), number(), buffer)
    given = (buffer, floats(), number()) if function is first else args
    return cute.compile(function, *given, **({"options": options[0]} if options else {}))


def test_none_after_a_buffer_records_nothing_and_moves_no_other_argument() -> None:
    function = compiled(first)
    buffer = prof()
    with_buffer = passed(function, buffer, tensor(), 5)
    assert with_buffer[1] == buffer.slots_bytes
    assert with_buffer[3] == 5
    del buffer
    without = passed(function, None, tensor(), 5)
    assert (without[0], without[1], without[3]) == (0, 0, 5)


@pytest.mark.parametrize("named", [{}, {"prof": None}])
def test_a_buffer_that_is_left_out_is_none(named: dict[str, Any]) -> None:
    function = compiled(left_out)
    assert passed(function, tensor(), 5, **named)[2:] == [0, 0]
    buffer = prof()
    assert passed(function, tensor(), 5, prof=buffer)[-1] == buffer.slots_bytes


def test_none_stays_none_where_the_function_was_compiled_with_none() -> None:
    function = compiled(last, False)
    assert passed(function, tensor(), 5, None)[1:] == [5]


@pytest.mark.parametrize(("with_buffer", "given", "told"), WRONG)
def test_a_call_that_the_function_was_not_compiled_for_is_refused(
    with_buffer: bool, given: Any, told: str
) -> None:
    function = compiled(last, with_buffer)
    with pytest.raises(UsageError, match=told):
        function(tensor(), 5, given)


def test_an_arguments_words_live_as_long_as_its_memory() -> None:
    """One thread's words stay where they are while another one passes the same buffer."""
    buffer = prof()
    assert buffer.__c_pointers__() == buffer.__c_pointers__()
    halved = Argument(buffer.data, buffer.slots_bytes // 2, buffer.spec)
    assert halved.__c_pointers__() != buffer.__c_pointers__()


def test_functions_without_a_buffer_are_left_as_they_are() -> None:
    @cute.jit
    def plain(g: cute.Tensor, n: Int32):
        kernels.plain_control(g, n, 0).launch(grid=[1, 1, 1], block=[32, 1, 1])

    compiled(last)  # from here on, ikp watches
    made = cute.compile(plain, floats(), number())
    assert isinstance(made, JitCompiledFunction)
    assert type(made.execution_args).__module__.startswith("cutlass.")


TVM = "--enable-tvm-ffi"


class TestTvmFfi:
    """``--enable-tvm-ffi``: the calling convention of QuACK's and FlashAttention's kernels."""

    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        pytest.importorskip("tvm_ffi")

    @pytest.mark.parametrize("function", [last, left_out])
    @pytest.mark.parametrize("given", [prof(), None])
    def test_it_takes_a_buffer_and_none(self, function: Any, given: Any) -> None:
        made = compiled(function, True, TVM)
        # No GPU: TVM-FFI checks the types from left to right, and a CPU tensor is the first.
        with pytest.raises(ValueError, match=r"prof: Tuple\[int64, int32\]\)`, expected device"):
            made(torch.zeros(1 << 14), 5, given)

    def test_a_buffer_in_front_is_decoded(self) -> None:
        made = compiled(first, True, TVM)
        for given in (prof(), None):
            with pytest.raises(ValueError, match=r"Tensor on argument .1"):  # not the first
                made(given, torch.zeros(1 << 14), 5)

    @pytest.mark.parametrize(("with_buffer", "given", "told"), WRONG)
    def test_it_refuses_the_same_calls(self, with_buffer: bool, given: Any, told: str) -> None:
        made = compiled(last, with_buffer, TVM)
        with pytest.raises(UsageError, match=told):
            made(torch.zeros(1 << 14), 5, given)
