"""Devices, by their numbers as the driver counts: names, clocks, memory, MPS, contexts' limits."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from ikp.driver import cuda
from ikp.errors import PatchError

_CLOCK_RATE: Final = 13
"""The attribute of a device that is its clock in kHz."""
_MPS_ENABLED: Final = 133
_NAME_BYTES: Final = 256
_LIMITS: Final = (0, 1, 2)
"""Limits of a context: a thread's stack, the buffer of ``printf``, the heap of kernels."""


def count() -> int:
    """Return how many devices there are; 0 where there is no driver, or it finds none."""
    found = ctypes.c_int()
    try:
        cuda.call("cuInit", 0, to="begin")
        cuda.call("cuDeviceGetCount", ctypes.byref(found), to="count devices")
    except PatchError:
        return 0
    return found.value


def name(ordinal: int) -> str:
    """Return a device's name: ``NVIDIA H100 80GB HBM3``.

    Raises:
        PatchError: the driver refuses.
    """
    text = ctypes.create_string_buffer(_NAME_BYTES)
    cuda.call("cuDeviceGetName", text, _NAME_BYTES, cuda.handle(ordinal), to="name a device")
    return text.value.decode(errors="replace")


def clock_rate_hz(ordinal: int) -> float:
    """Return the advertised clock of a device's SMs, in Hz; 0 where the driver does not say."""
    return _attribute(ordinal, _CLOCK_RATE, to="report a device's clock") * 1e3


def shared_by_mps(ordinal: int) -> bool:
    """Whether a GPU's contexts are those of an MPS server, so that processes run kernels at once.

    False where the driver does not say, as one that is too old.
    """
    return bool(_attribute(ordinal, _MPS_ENABLED, to="ask for MPS"))


def _attribute(ordinal: int, which: int, *, to: str) -> int:
    """Return an attribute of a device; 0 where the driver does not say."""
    value = ctypes.c_int()
    try:
        asked = ctypes.byref(value), which, cuda.handle(ordinal)
        cuda.call("cuDeviceGetAttribute", *asked, to=to)
    except PatchError:
        return 0
    return value.value


def free_bytes(ordinal: int) -> int:
    """Return how much memory a device has left.

    Raises:
        PatchError: the driver refuses.
    """
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    with _within_primary(ordinal):
        asked = ctypes.byref(free), ctypes.byref(total)
        cuda.call("cuMemGetInfo_v2", *asked, to="report free memory")
    return free.value


def failure(ordinal: int) -> str:
    """Wait for everything queued on a device; return the error, if some of it failed."""
    with _within_primary(ordinal):
        code = cuda.driver().cuCtxSynchronize()
    if not code:
        return ""
    text = ctypes.c_char_p()
    cuda.driver().cuGetErrorString(code, ctypes.byref(text))
    return f"CUDA error: {text.value.decode() if text.value else cuda.error_name(code)}"


@contextmanager
def _within_primary(ordinal: int) -> Iterator[None]:
    """Make a device's primary context this thread's meanwhile."""
    device, before = cuda.handle(ordinal), ctypes.c_void_p()
    context = cuda.retain(device, to="find a device's context")
    try:
        cuda.call("cuCtxPushCurrent_v2", ctypes.c_void_p(context), to="use a device's context")
        try:
            yield
        finally:
            cuda.call("cuCtxPopCurrent_v2", ctypes.byref(before), to="use a context no more")
    finally:
        cuda.give_back(device)


def limits() -> tuple[tuple[int, int], ...]:
    """Return limits of the current context: their numbers, and bytes.

    Raises:
        PatchError: the driver refuses.
    """
    made = []
    for each in _LIMITS:
        value = ctypes.c_size_t()
        cuda.call("cuCtxGetLimit", ctypes.byref(value), each, to="read a context's limit")
        made.append((each, value.value))
    return tuple(made)


def give_limits(wanted: Iterable[tuple[int, int]]) -> None:
    """Set those limits of the current context that differ from the wanted ones.

    Raises:
        PatchError: the driver refuses.
    """
    for (which, had), (_, value) in zip(limits(), wanted, strict=True):
        if had != value:
            cuda.call("cuCtxSetLimit", which, ctypes.c_size_t(value), to="set a context's limit")
