"""Kernels launched through CUDA's driver library; torch holds the buffers."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from ikp.plugins import BufferError, KernelError, Spec, UsageError
from ikp_cuda.backend import Argument, Prof
from ikp_cuda.compiler import build

Dim = tuple[int, int, int]


class Kernel:
    """A kernel in CUDA C++, compiled when it is first launched with a buffer of some kind.

    The same kernel with and without ``prof``, or for another clock, is another machine code: the
    buffer says which, so the two can't disagree.

    Args:
        source: C++ text, or the path of a file.
        name: the kernel's, declared ``extern "C" __global__``.
        names: regions beyond those that follow a verb in ``source``.
        options: more of nvcc's options.
    """

    def __init__(
        self,
        source: str | Path,
        name: str,
        *,
        names: Iterable[str] = (),
        options: Iterable[str] = (),
    ) -> None:
        self._source, self._name = source, name
        self._names, self._options = tuple(names), tuple(options)
        self._functions: dict[tuple[str, int], ctypes.c_void_p] = {}

    def launch(self, grid: Dim, block: Dim, *args: Any, shared: int = 0) -> None:
        """Launch on torch's current stream and return at once.

        Args:
            grid: blocks in x, y, z.
            block: threads in x, y, z.
            args: in the kernel's order. A tensor is its pointer, an ``int`` a 32-bit integer, a
                ``float`` a ``float``; anything else comes as the ctypes value it is. What
                ``prof.buffer(label)`` returned is the ``ikp::Prof``; None is one that is off.
            shared: bytes of dynamic shared memory, at most 48 KiB.

        Raises:
            BufferError: the buffer is not on the current CUDA device.
            UsageError: an argument can't be passed, or two are buffers.
            KernelError: nvcc refuses the source, or CUDA the launch.
        """
        import torch

        device, stream = torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream
        spec = _spec(args, device)
        function = self._functions.get((str(spec), device))
        if function is None:
            function = self._functions[str(spec), device] = self._load(spec, device)
        values = [_value(argument) for argument in args]
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        size = ctypes.c_uint(shared)
        call = _driver().cuLaunchKernel
        _check(
            call(function, *grid, *block, size, ctypes.c_void_p(stream), pointers, None),
            f"{self._name} can't be launched on a grid {grid} of blocks {block}",
        )

    def _load(self, spec: Spec | None, device: int) -> ctypes.c_void_p:
        image = build(
            self._source, _architecture(device), spec=spec, names=self._names, options=self._options
        )
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        driver = _driver()
        _check(driver.cuModuleLoadData(ctypes.byref(module), image), "the cubin can't be loaded")
        _check(
            driver.cuModuleGetFunction(ctypes.byref(function), module, self._name.encode()),
            f'there is no kernel {self._name!r} in the source. Declare it extern "C" __global__',
        )
        return function


def _spec(args: Iterable[Any], device: int) -> Spec | None:
    """Return how to compile for the buffer among ``args``; None if recording is off."""
    buffers = [argument for argument in args if isinstance(argument, Argument)]
    if len(buffers) > 1:
        raise UsageError("a launch records into one buffer: two were passed. Take one out.")
    for buffer in buffers:
        where = buffer.data.device
        if where.type != "cuda" or where.index != device:
            raise BufferError(
                f"the buffer lies on {where}, the launch is on cuda:{device}. Launch inside "
                f"torch.cuda.device(...), or pass device= to prof.buffer."
            )
        return buffer.spec
    return None


def _value(argument: Any) -> Any:
    """Return ``argument`` as the ctypes value that the kernel takes."""
    if argument is None:
        return Prof(0, 0)
    if isinstance(argument, Argument):
        return argument.prof
    if hasattr(argument, "data_ptr"):
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, int):
        if not -(1 << 31) <= argument < 1 << 32:
            raise UsageError(f"{argument} doesn't fit into 32 bits: pass ctypes.c_int64 instead.")
        return ctypes.c_uint32(argument & 0xFFFFFFFF)
    if isinstance(argument, float):
        return ctypes.c_float(argument)
    try:
        ctypes.addressof(argument)
    except TypeError as error:
        raise UsageError(
            f"a kernel can't take {argument!r}: pass a tensor, a number, a buffer or a ctypes "
            f"value."
        ) from error
    return argument


def _architecture(device: int) -> str:
    import torch

    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


@cache
def _driver() -> Any:
    """Return the driver library. torch has opened it, and made its context current."""
    return ctypes.CDLL("libcuda.so.1")


def _check(code: int, what: str) -> None:
    if code:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        reason = (text.value or b"unknown error").decode()
        raise KernelError(f"{what}: {reason} (CUDA error {code}).")
