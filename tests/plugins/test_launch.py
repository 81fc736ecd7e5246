"""How the plugin passes arguments to a kernel; launching itself needs a GPU (test_gpu.py)."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

import ikp
from ikp.core.segment import Spec
from ikp.errors import BufferError, UsageError
from tests.plugins.kernels import Modules


def argument(module: Modules, device: str = "cuda", index: int | None = 0) -> Any:
    backend = module("backend")
    data = SimpleNamespace(device=SimpleNamespace(type=device, index=index))
    return backend.Argument(data, backend.Prof(4096, 512), Spec())


@pytest.mark.parametrize(
    ("given", "kind", "value"),
    [
        (7, ctypes.c_uint32, 7),
        (-1, ctypes.c_uint32, 0xFFFFFFFF),
        (0xFFFFFFFF, ctypes.c_uint32, 0xFFFFFFFF),
        (1.5, ctypes.c_float, 1.5),
        (ctypes.c_double(0.1), ctypes.c_double, 0.1),
        (SimpleNamespace(data_ptr=lambda: 1 << 40), ctypes.c_void_p, 1 << 40),
    ],
)
def test_a_value_goes_as_its_c_type(module: Modules, given: Any, kind: Any, value: Any) -> None:
    passed = module("launch")._value(given)
    assert isinstance(passed, kind)
    assert passed.value == value


def test_a_buffer_goes_as_the_struct_and_none_as_one_that_is_off(module: Modules) -> None:
    value = module("launch")._value
    passed = value(argument(module))
    assert (passed.segment, passed.bytes) == (4096, 512)
    assert (value(None).segment, value(None).bytes) == (0, 0)
    assert ctypes.sizeof(passed) == 16


@pytest.mark.parametrize("given", [1 << 32, -(1 << 31) - 1, "text", object()])
def test_what_is_no_argument_is_refused(module: Modules, given: Any) -> None:
    with pytest.raises(UsageError, match=r"ctypes"):
        module("launch")._value(given)


def test_the_buffer_says_how_to_compile(module: Modules) -> None:
    spec = module("launch")._spec
    assert spec([1, argument(module), None], 0) == Spec()
    assert spec([1, None], 0) is None


def test_a_buffer_elsewhere_and_two_buffers_are_refused(module: Modules) -> None:
    spec = module("launch")._spec
    with pytest.raises(BufferError, match="lies on"):
        spec([argument(module, "cpu", None)], 0)
    with pytest.raises(BufferError, match="lies on"):
        spec([argument(module, index=1)], 0)
    with pytest.raises(UsageError, match="two were passed"):
        spec([argument(module)] * 2, 0)


def test_the_wrong_backends_buffer_is_refused(module: Modules) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    with ikp.profile(device="cpu", backend="triton", buffer_size=4096) as prof:
        foreign = prof.buffer("triton's", enabled=False)
    with pytest.raises(UsageError, match="can't take"):
        module("launch")._value(foreign)
