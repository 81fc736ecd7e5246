"""Memory of the CUDA driver: allocations, copies, writes in a stream, and what a pointer is of."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Final

from ikp.driver import cuda

_WRITE_64: Final = 5
"""The operation of a stream that writes 64 bits."""
_MEMORY_TYPE, _MANAGED, _ORDINAL, _BEGIN, _SIZE = 2, 8, 9, 11, 12
"""Attributes of a pointer."""
_REACHABLE: Final = (1, 2)
"""Types of memory that kernels can reach: the host's, the device's."""
_SIGNED: Final = (1 << 32) - 1
"""The bits of an ordinal, which may be negative."""


class _Write(ctypes.Structure):
    """One operation on memory in a stream: writing 64 bits."""

    _fields_ = (
        ("operation", ctypes.c_uint32),
        ("gap", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("alias", ctypes.c_uint64),
        ("rest", ctypes.c_uint64),
    )


def copy_within(target: int, source: int, nbytes: int, stream: int) -> None:
    """Copy memory of the device, in the order of a stream.

    Raises:
        PatchError: the driver refuses.
    """
    code = cuda.driver().cuMemcpyDtoDAsync_v2(
        ctypes.c_uint64(target),
        ctypes.c_uint64(source),
        ctypes.c_size_t(nbytes),
        ctypes.c_void_p(stream),
    )
    cuda.checked(code, "copy within the device")


def write(target: int, words: Sequence[int], stream: int) -> None:
    """Write words of 64 bits to the device's memory, in the order of a stream.

    The values go with the call: a CUDA graph that is captured writes them at each replay.

    Raises:
        PatchError: the driver refuses.
    """
    if cuda.capturing(stream):
        _write_each(target, words, stream)
        return
    # Copies of so few bytes go with the command itself: the host's are read before this returns.
    values = (ctypes.c_uint64 * len(words))(*words)
    code = cuda.driver().cuMemcpyHtoDAsync_v2(
        ctypes.c_uint64(target),
        values,
        ctypes.c_size_t(ctypes.sizeof(values)),
        ctypes.c_void_p(stream),
    )
    cuda.checked(code, "write to the device in a stream's order")


def _write_each(target: int, words: Sequence[int], stream: int) -> None:
    """Write words by memory operations of the stream, for a capture.

    A graph keeps the values of such operations; of a copy, it would keep the host's address. Each
    waits until all earlier writes are seen, which takes 3 us.
    """
    operations = (_Write * len(words))(
        *(_Write(_WRITE_64, 0, target + 8 * at, word) for at, word in enumerate(words))
    )
    code = cuda.driver().cuStreamBatchMemOp_v2(ctypes.c_void_p(stream), len(words), operations, 0)
    cuda.checked(code, "write to the device in a stream's order")


def allocation(pointer: int) -> tuple[int, int]:
    """Return the base address and the bytes of the allocation that a device pointer points into.

    Raises:
        PatchError: it is no pointer to the device's memory.
    """
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    cuda.checked(
        cuda.driver().cuMemGetAddressRange_v2(
            ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer)
        ),
        f"find the memory around {pointer:#x}",
    )
    return base.value, size.value


def reachable(pointer: int) -> bool:
    """Return whether an address is in memory that kernels can reach, of a device or the host."""
    return _of_pointer(pointer, _MEMORY_TYPE) in _REACHABLE


def far_memory(pointer: int) -> tuple[str, int, int] | None:
    """Return whose memory a pointer is of, with its base and its bytes; None of this device's.

    "host", "managed" (the driver moves its pages) or "another GPU".
    """
    kind, managed = _of_pointer(pointer, _MEMORY_TYPE), _of_pointer(pointer, _MANAGED)
    device = ctypes.c_int()
    if kind is None or cuda.driver().cuCtxGetDevice(ctypes.byref(device)):
        return None
    owner = _of_pointer(pointer, _ORDINAL) or 0
    whose = "managed" if managed else "host" if kind == 1 else ""
    if not whose and owner & _SIGNED != device.value:
        whose = "another GPU"
    begin, size = _of_pointer(pointer, _BEGIN), _of_pointer(pointer, _SIZE)
    return (whose, begin or pointer, size or 1) if whose else None


def _of_pointer(pointer: int, which: int) -> int | None:
    """Return an attribute of a pointer, of up to 64 bits; None where the driver says none."""
    found = ctypes.c_uint64()
    code = cuda.driver().cuPointerGetAttribute(ctypes.byref(found), which, ctypes.c_uint64(pointer))
    return None if code else found.value


def allocate(nbytes: int) -> int:
    """Return the address of new memory on the device.

    Raises:
        PatchError: there is not so much.
    """
    address = ctypes.c_uint64()
    cuda.checked(
        cuda.driver().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes)),
        f"allocate {nbytes:,} bytes",
    )
    return address.value


def free(address: int) -> None:
    """Give memory back.

    Raises:
        PatchError: the driver refuses.
    """
    cuda.checked(cuda.driver().cuMemFree_v2(ctypes.c_uint64(address)), "free memory")


def copy_to_host(target: int, source: int, nbytes: int) -> None:
    """Copy from the device to the host, and wait for it.

    Raises:
        PatchError: the driver refuses.
    """
    cuda.checked(
        cuda.driver().cuMemcpyDtoH_v2(
            ctypes.c_void_p(target), ctypes.c_uint64(source), ctypes.c_size_t(nbytes)
        ),
        "copy to the host",
    )


def read(source: int, nbytes: int) -> bytes:
    """Return what the device's memory holds; wait for it.

    Raises:
        PatchError: the driver refuses.
    """
    made = ctypes.create_string_buffer(nbytes)
    copy_to_host(ctypes.addressof(made), source, nbytes)
    return made.raw


def copy_from_host(target: int, source: int, nbytes: int) -> None:
    """Copy from the host to the device, and wait for it.

    Raises:
        PatchError: the driver refuses.
    """
    cuda.call(
        "cuMemcpyHtoD_v2",
        *(ctypes.c_uint64(target), ctypes.c_void_p(source), ctypes.c_size_t(nbytes)),
        to="copy to the device",
    )
