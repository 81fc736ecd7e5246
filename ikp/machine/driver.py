"""What ikp asks of the CUDA driver, with no package in between: a module's memory, and copies."""

from __future__ import annotations

import ctypes
from functools import cache

from ikp.errors import PatchError


@cache
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise PatchError(f"the CUDA driver can't be loaded: {error}") from error


def address_of(module: int, symbol: str) -> int:
    """Return where a loaded module's global symbol lies in the device's memory.

    Args:
        module: the driver's handle.
        symbol: the symbol's name.

    Raises:
        PatchError: the module has no such symbol, or the driver refuses.
    """
    address, size = ctypes.c_uint64(), ctypes.c_size_t()
    _checked(
        _driver().cuModuleGetGlobal_v2(
            ctypes.byref(address), ctypes.byref(size), ctypes.c_void_p(module), symbol.encode()
        ),
        f"find {symbol} in a module",
    )
    return address.value


def copy(target: int, source: int, nbytes: int, stream: int) -> None:
    """Copy pinned host memory to the device, in the order of a stream.

    The host memory stays as it is until the copy is over; in a CUDA graph, as long as that lives.

    Raises:
        PatchError: the driver refuses.
    """
    _checked(
        _driver().cuMemcpyHtoDAsync_v2(
            ctypes.c_uint64(target),
            ctypes.c_void_p(source),
            ctypes.c_size_t(nbytes),
            ctypes.c_void_p(stream),
        ),
        "copy to the device",
    )


def _checked(code: int, what: str) -> None:
    if code:
        name = ctypes.c_char_p()
        _driver().cuGetErrorName(code, ctypes.byref(name))
        told = name.value.decode() if name.value else f"error {code}"
        raise PatchError(f"the CUDA driver could not {what}: {told}.")
