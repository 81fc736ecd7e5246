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


def allocation(pointer: int) -> tuple[int, int]:
    """Return where the allocation begins that a device pointer points into, and its bytes.

    Raises:
        PatchError: it is no pointer to the device's memory.
    """
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    _checked(
        _driver().cuMemGetAddressRange_v2(
            ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer)
        ),
        f"find the memory around {pointer:#x}",
    )
    return base.value, size.value


def allocate(nbytes: int) -> int:
    """Return the address of new memory on the device.

    Raises:
        PatchError: there is not so much.
    """
    address = ctypes.c_uint64()
    _checked(
        _driver().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes)),
        f"allocate {nbytes:,} bytes",
    )
    return address.value


def free(address: int) -> None:
    """Give memory back.

    Raises:
        PatchError: the driver refuses.
    """
    _checked(_driver().cuMemFree_v2(ctypes.c_uint64(address)), "free memory")


def copy_on_device(target: int, source: int, nbytes: int) -> None:
    """Copy from the device to the device, and wait for it.

    Raises:
        PatchError: the driver refuses.
    """
    _checked(
        _driver().cuMemcpyDtoD_v2(
            ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(nbytes)
        ),
        "copy on the device",
    )
    wait()


def copy_to_host(target: int, source: int, nbytes: int) -> None:
    """Copy from the device to the host, and wait for it.

    Raises:
        PatchError: the driver refuses.
    """
    _checked(
        _driver().cuMemcpyDtoH_v2(
            ctypes.c_void_p(target), ctypes.c_uint64(source), ctypes.c_size_t(nbytes)
        ),
        "copy to the host",
    )


def wait() -> None:
    """Wait for all that the device was asked for.

    Raises:
        PatchError: something of it failed.
    """
    _checked(_driver().cuCtxSynchronize(), "finish what was launched")
