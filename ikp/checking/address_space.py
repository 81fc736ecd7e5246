"""Mapping of device memory at chosen addresses: those that the checked program's buffers have.

So pointers in that memory, in parameters and in code are valid in both processes. The driver maps
memory in pieces, so a mapping begins before, and ends behind, the buffers.

A driver may give memory from a region that is the same in every process, in which nothing can be
reserved once there is a context. So addresses that a context has taken are reserved in a new
process before it has a context.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from ikp.checking.comparison import Buffer, NoCopyRoomError
from ikp.driver import cuda
from ikp.errors import PatchError

_PINNED, _DEVICE, _READ_WRITE = 1, 1, 3
_RESERVED_BYTES: Final = 32 << 20
"""A driver (580.159.04) moves reservations up to a multiple of this."""


class TakenError(Exception):
    """An address is in use in this process; in another one it may be free.

    ``place`` is the range of addresses that was asked for.
    """

    def __init__(self, text: str, place: tuple[int, int]) -> None:
        super().__init__(text)
        self.place = place


class _Properties(ctypes.Structure):
    """The properties of memory to allocate: ``CUmemAllocationProp``."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("place", ctypes.c_int),
        ("device", ctypes.c_int),
        ("unused", ctypes.c_uint64 * 2),
    )


class _Access(ctypes.Structure):
    """The devices that may access mapped memory: ``CUmemAccessDesc``."""

    _fields_ = (("place", ctypes.c_int), ("device", ctypes.c_int), ("how", ctypes.c_int))


class Reserved:
    """Addresses that this process keeps for memory of the program, from before its context."""

    def __init__(self, places: Iterable[tuple[int, int]]) -> None:
        """Reserve those of some ranges of addresses that are free."""
        self._places: list[tuple[int, int]] = []
        for start, end in pieces((Buffer("", start, end - start) for start, end in places), 1):
            with suppress(TakenError), ExitStack() as made:
                _reserve(made, start, ctypes.c_size_t(end - start))
                made.pop_all()
                self._places.append((start, end))

    def holds(self, start: int, end: int) -> bool:
        """Return whether all addresses from ``start`` to ``end`` are reserved in one piece."""
        return any(first <= start and end <= past for first, past in self._places)


@contextmanager
def mapped(buffers: Sequence[Buffer], device: int, reserved: Reserved) -> Iterator[None]:
    """Map memory of a device at the addresses of buffers, until the ``with`` block is left.

    Raises:
        TakenError: an address is in use.
        NoCopyRoomError: the device has not so much memory left.
        PatchError: the driver refuses.
    """
    wish = _Properties(_PINNED, 0, _DEVICE, device)
    with ExitStack() as made:
        for start, end in pieces(buffers, _RESERVED_BYTES):
            if not reserved.holds(start, end):
                _reserve(made, start, ctypes.c_size_t(end - start))
        for start, end in pieces(buffers, _granularity(wish)):
            _map(made, start, end - start, wish)
        yield


def pieces(buffers: Iterable[Buffer], size: int) -> list[tuple[int, int]]:
    """Return the ranges of addresses that hold all buffers, in multiples of a size in bytes."""
    made: list[tuple[int, int]] = []
    for each in sorted(buffers, key=lambda buffer: buffer.address):
        start = each.address // size * size
        end = -(-(each.address + each.nbytes) // size) * size
        if made and start <= made[-1][1]:
            made[-1] = made[-1][0], max(end, made[-1][1])
        elif each.nbytes:
            made.append((start, end))
    return made


def _granularity(wish: _Properties) -> int:
    size = ctypes.c_size_t()
    call = "cuMemGetAllocationGranularity"
    cuda.call(call, ctypes.byref(size), ctypes.byref(wish), 0, to="say how memory is mapped")
    return size.value


def _map(made: ExitStack, start: int, nbytes: int, wish: _Properties) -> None:
    """Map memory at reserved addresses; ``made`` unmaps and releases it."""
    size, address = ctypes.c_size_t(nbytes), ctypes.c_uint64(start)
    handle = ctypes.c_uint64()
    try:
        cuda.call(
            *("cuMemCreate", ctypes.byref(handle), size, ctypes.byref(wish), ctypes.c_uint64(0)),
            to=f"allocate {nbytes:,} bytes",
        )
    except PatchError as error:
        raise NoCopyRoomError(str(error)) from error
    made.callback(cuda.call, "cuMemRelease", handle, to="release memory")
    zero = ctypes.c_uint64(0)
    cuda.call("cuMemMap", address, size, ctypes.c_size_t(0), handle, zero, to="map memory")
    made.callback(cuda.call, "cuMemUnmap", address, size, to="unmap memory")
    access = _Access(_DEVICE, wish.device, _READ_WRITE)
    one = ctypes.c_size_t(1)
    cuda.call("cuMemSetAccess", address, size, ctypes.byref(access), one, to="open mapped memory")


def _reserve(made: ExitStack, start: int, size: ctypes.c_size_t) -> None:
    address = ctypes.c_uint64()
    zero, where = ctypes.c_size_t(0), ctypes.c_uint64(start)
    try:
        cuda.call(
            *("cuMemAddressReserve", ctypes.byref(address), size, zero, where, ctypes.c_uint64(0)),
            to=f"reserve {size.value:,} bytes at {start:#x}",
        )
    except PatchError as error:
        raise TakenError(str(error), (start, start + size.value)) from error
    made.callback(cuda.call, "cuMemAddressFree", address, size, to="free addresses")
    if address.value != start:
        text = f"at {start:#x} the driver has something else."
        raise TakenError(text, (start, start + size.value))
