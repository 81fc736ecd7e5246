"""Memory at chosen addresses: where a program has it, another process maps memory of its own.

What pointers in that memory, in parameters and in code lead to is then the same in both. The driver
maps memory in pieces, so what is mapped begins before, and ends behind, what was asked for.

A driver may give memory from a region that is the same in every process, in which nothing can be
reserved once there is a context. So what a context has taken is reserved in a new process before it
has one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from ikp.checking.comparison import Buffer, NoRoomError
from ikp.driver import cuda
from ikp.errors import PatchError

_PINNED, _DEVICE, _READ_WRITE = 1, 1, 3
_RESERVED_BYTES: Final = 32 << 20
"""A driver (580.159.04) moves what is to be reserved up to a multiple of this."""


class TakenError(Exception):
    """An address is in use in this process; in another one it may be free.

    ``place`` is where what was asked for begins and ends.
    """

    def __init__(self, text: str, place: tuple[int, int]) -> None:
        super().__init__(text)
        self.place = place


class _Properties(ctypes.Structure):
    """Of memory that is allocated: ``CUmemAllocationProp``."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("place", ctypes.c_int),
        ("device", ctypes.c_int),
        ("unused", ctypes.c_uint64 * 2),
    )


class _Access(ctypes.Structure):
    """Who may access mapped memory: ``CUmemAccessDesc``."""

    _fields_ = (("place", ctypes.c_int), ("device", ctypes.c_int), ("how", ctypes.c_int))


class Reserved:
    """Addresses that this process keeps for memory of the program, from before its context."""

    def __init__(self, places: Iterable[tuple[int, int]]) -> None:
        """Reserve what can be had of some places: where each begins and ends."""
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
    """Have memory of a device where buffers are in another process, until that is left.

    Raises:
        TakenError: something else is there.
        NoRoomError: the device has not so much memory left.
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
    """Return where memory begins and ends that holds all buffers, in pieces of a size in bytes."""
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
    """Map memory at reserved addresses; ``made`` gives it back."""
    size, address = ctypes.c_size_t(nbytes), ctypes.c_uint64(start)
    handle = ctypes.c_uint64()
    try:
        cuda.call(
            *("cuMemCreate", ctypes.byref(handle), size, ctypes.byref(wish), ctypes.c_uint64(0)),
            to=f"allocate {nbytes:,} bytes",
        )
    except PatchError as error:
        raise NoRoomError(str(error)) from error
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
