"""Storage of segments in memory of the host, the CUDA driver or torch, and streams of GPUs.

On NVIDIA GPUs, the memory is the driver's (``ikp.driver.memory_pool``), which no framework sees.
Torch's is for other GPUs, and where the driver has no pools. Both are used only in a thread of
ikp's own.

The streams are the user's current one, which may be capturing, the default one, and one of ikp's
own. Which one is current, torch knows: a program without torch names it at the launch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ikp.core.segment import SegmentRows, Tensor
from ikp.driver import devices
from ikp.driver.memory_pool import Pool
from ikp.errors import PatchError
from ikp.session import _foreign as foreign
from ikp.session.device import Allocation, Device, DeviceBytes, device_of, torch_of_program
from ikp.session.known_launch import now


class GpuStream(NamedTuple):
    """A stream of a GPU, by its handle."""

    number: int
    device: Device

    def record_event(self) -> Any:
        """Return an event behind all that is in the stream now, in a thread that uses the GPU.

        Raises:
            PatchError, RuntimeError: a kernel has failed.
        """
        if drives_cuda():
            from ikp.driver.stream_event import StreamEvent  # most programs launch nothing

            return StreamEvent(self.number)
        import torch

        known = torch.cuda.default_stream(str(self.device))
        if self.number:
            known = torch.cuda.ExternalStream(self.number, str(self.device))
        return known.record_event()


def current_stream(device: Device) -> tuple[GpuStream | None, int]:
    """Return the current stream of a device, and its number; None and 0 for the host."""
    if device.type != "cuda":
        return None, 0
    number = now.stream
    if now.device < 0:
        torch = torch_of_program()
        number = 0 if torch is None else int(torch.cuda.current_stream(str(device)).cuda_stream)
    return GpuStream(number, device), number


@cache
def launch_stream(device: Device) -> Callable[[], tuple[int, bool]]:
    """Return a function for each launch: the current stream of a GPU, and whether it is captured.

    It returns the stream's handle. Only programs with torch launch kernels that ask.
    """
    import torch

    cuda, index = torch.cuda, device.index
    known = foreign.current()

    def stream() -> tuple[int, bool]:
        if now.device >= 0:
            return now.stream, False
        return current_stream(device)[1], cuda.is_current_stream_capturing()

    if known is None or index is None:
        return stream
    handle, captured = known

    def at_once() -> tuple[int, bool]:
        return (now.stream, False) if now.device >= 0 else (handle(index), captured())

    return at_once


def default_stream(device: Device) -> tuple[GpuStream, int]:
    """Return the default stream of a device, and its number."""
    return GpuStream(0, device), 0


def is_capturing(device: Device) -> bool:
    """Return whether the current stream is captured into a CUDA graph."""
    if device.type != "cuda" or now.device >= 0:
        return False
    torch = torch_of_program()
    return torch is not None and bool(torch.cuda.is_current_stream_capturing())


@cache
def beside(device: Device) -> Any:
    """Return a stream of torch's on which no kernel of the user's runs; None for the host."""
    if device.type != "cuda":
        return None
    import torch

    return torch.cuda.Stream(str(device))


def on(stream: Any) -> AbstractContextManager[Any]:
    """Return a context in which torch's work goes to a stream, if there is one."""
    import torch

    return nullcontext() if stream is None else torch.cuda.stream(stream)


Bytes = NDArray[np.uint8]
_PIECE_BYTES: Final = 4 << 20


class Storage(Protocol):
    """Memory of one device."""

    reuses: bool
    """Whether memory is used again, so that segments are made ahead of launches."""
    lasts: bool
    """Whether records can still be read after a kernel has failed."""

    def zeroed(self, nbytes: int) -> Tensor:
        """Return memory that a kernel on any stream finds zero, as bytes.

        Raises:
            RuntimeError, MemoryError, PatchError: there is no memory for it.
        """

    def clear(self, data: Tensor, parts: Iterable[SegmentRows]) -> None:
        """Zero parts of memory that no kernel uses now, wait for that, and spare a GPU's caches."""

    def read(self, data: Tensor, part: SegmentRows) -> Bytes:
        """Return a copy of a part, row by row."""

    def stage(self, nbytes: int) -> None:
        """Prepare for ``peek`` of up to ``nbytes``, before a kernel runs."""

    def peek(self, data: Tensor, nbytes: int) -> Bytes:
        """Return the first bytes as they are now, in memory that the next call may overwrite."""

    def read_all(self, wanted: Sequence[tuple[Tensor, SegmentRows]]) -> list[Bytes]:
        """Return copies of several parts, with as few waits as can be."""

    def clear_all(self, wanted: Sequence[tuple[Tensor, Sequence[SegmentRows]]]) -> None:
        """Zero parts of several pieces of memory, as ``clear`` does of one."""

    def write(self, data: Tensor, at: int, words: Bytes) -> None:
        """Write some bytes before any kernel reads them, and wait for that."""

    def write_all(self, pieces: Sequence[Tensor], at: int, words: Bytes) -> None:
        """Write the same bytes to several pieces of memory, as ``write`` does to one."""

    def sweep(self) -> None:
        """Free memory that no tensor refers to any more."""


def storage_of(device: Device, wake: Callable[[], None]) -> Storage:
    """Return the storage of a GPU; called in the thread that is to use it.

    ``wake`` has that thread sweep the storage soon; any thread may call it, at any time.

    Raises:
        PatchError: the driver has no pools for it, as for virtual GPUs, and the program no torch.
    """
    torch = torch_of_program()
    if torch is not None:
        torch.cuda.set_device(str(device))
    if not drives_cuda():
        return TorchStorage(device)
    try:
        return DriverStorage(Pool(device.index or 0), device, wake)
    except PatchError:
        if torch is None:
            raise
        return TorchStorage(device)


def drives_cuda() -> bool:
    """Whether devices that torch calls "cuda" are CUDA's: GPUs of others have that name, too."""
    torch = torch_of_program()
    return torch is None or torch.version.cuda is not None or not torch.cuda.is_available()


def shared_by_mps(device: Device) -> bool:
    """Whether kernels of other processes may run on a device at the same time, by MPS."""
    return device.type == "cuda" and drives_cuda() and devices.shared_by_mps(device.index or 0)


class _PartByPart(Storage):
    """Memory of which several parts are read and zeroed one by one, with nothing to prepare."""

    def stage(self, nbytes: int) -> None:
        """Do nothing."""

    def peek(self, data: Tensor, nbytes: int) -> Bytes:
        """Return a copy of the first bytes."""
        return self.read(data, SegmentRows(0, nbytes))

    def read_all(self, wanted: Sequence[tuple[Tensor, SegmentRows]]) -> list[Bytes]:
        """Return copies of several parts."""
        return [self.read(*each) for each in wanted]

    def clear_all(self, wanted: Sequence[tuple[Tensor, Sequence[SegmentRows]]]) -> None:
        """Zero parts of several pieces of memory."""
        for data, parts in wanted:
            self.clear(data, parts)

    def write_all(self, pieces: Sequence[Tensor], at: int, words: Bytes) -> None:
        """Write the same bytes to several pieces of memory."""
        for data in pieces:
            self.write(data, at, words)


class HostStorage(_PartByPart):
    """Memory of the host, by numpy: the system's pages are zero already."""

    reuses = False
    lasts = True

    def zeroed(self, nbytes: int) -> Tensor:
        """Return new memory.

        Torch would zero with threads, which a process that was forked has lost: it would wait for
        them for ever.
        """
        import torch

        return torch.from_numpy(np.zeros(nbytes, np.uint8))

    def clear(self, data: Tensor, parts: Iterable[SegmentRows]) -> None:
        """Zero parts."""
        for part in parts:
            _rows(data.numpy(), part)[:] = 0

    def read(self, data: Tensor, part: SegmentRows) -> Bytes:
        """Return a copy of a part."""
        return _rows(data.numpy(), part).flatten()

    def write(self, data: Tensor, at: int, words: Bytes) -> None:
        """Write some bytes."""
        data.numpy()[at : at + len(words)] = words

    def sweep(self) -> None:
        """Do nothing: numpy has freed the memory."""


def _rows(data: Bytes, part: SegmentRows) -> Bytes:
    pitch = part.pitch if part.rows > 1 else part.width
    return np.lib.stride_tricks.as_strided(data[part.at :], (part.rows, part.width), (pitch, 1))


class DriverStorage:
    """Memory of a pool of the CUDA driver, which no framework sees."""

    reuses = True
    lasts = False

    def __init__(self, pool: Pool, device: Device, wake: Callable[[], None]) -> None:
        self._pool, self._device, self._wake = pool, device, wake
        self._gone: deque[int] = deque()

    def _let_go(self, address: int) -> None:
        self._gone.append(address)
        self._wake()

    def zeroed(self, nbytes: int) -> Tensor:
        """Return memory that a kernel on any stream finds zero.

        Raises:
            PatchError: the driver has none.
        """
        self.sweep()
        address = self._pool.allocate(nbytes)
        self._pool.clear(address, SegmentRows(0, nbytes))
        self._pool.wait()
        return DeviceBytes(Allocation(address, self._let_go), address, nbytes, self._device)

    def clear(self, data: Tensor, parts: Iterable[SegmentRows]) -> None:
        """Zero parts, by copies from the host."""
        for part in parts:
            self._pool.clear(data.data_ptr(), part)
        self._pool.wait()

    def read(self, data: Tensor, part: SegmentRows) -> Bytes:
        """Return a copy of a part."""
        return self._pool.read(data.data_ptr(), part)

    def stage(self, nbytes: int) -> None:
        """Pin memory."""
        self._pool.stage(nbytes)

    def peek(self, data: Tensor, nbytes: int) -> Bytes:
        """Return a copy of the first bytes, in pinned memory."""
        return self._pool.peek(data.data_ptr(), nbytes)

    def read_all(self, wanted: Sequence[tuple[Tensor, SegmentRows]]) -> list[Bytes]:
        """Return copies of several parts."""
        return self._pool.read_all([(data.data_ptr(), part) for data, part in wanted])

    def clear_all(self, wanted: Sequence[tuple[Tensor, Sequence[SegmentRows]]]) -> None:
        """Zero parts of several pieces of memory."""
        for data, parts in wanted:
            for part in parts:
                self._pool.clear(data.data_ptr(), part)
        self._pool.wait()

    def write(self, data: Tensor, at: int, words: Bytes) -> None:
        """Write some bytes."""
        self._pool.write([data.data_ptr() + at], words)

    def write_all(self, pieces: Sequence[Tensor], at: int, words: Bytes) -> None:
        """Write the same bytes to several pieces of memory, and wait once."""
        self._pool.write([data.data_ptr() + at for data in pieces], words)

    def sweep(self) -> None:
        """Free memory that nothing refers to any more."""
        freed = False
        while self._gone:
            self._pool.free(self._gone.popleft())
            freed = True
        if freed:
            self._pool.wait()


class TorchStorage(_PartByPart):
    """Memory of torch's allocator."""

    reuses = True
    lasts = False

    def __init__(self, device: Device) -> None:
        self._device = device

    def zeroed(self, nbytes: int) -> Tensor:
        """Return memory that a kernel on any stream finds zero.

        Raises:
            RuntimeError: torch has none.
        """
        import torch

        with on(beside(self._device)):
            data = torch.empty(nbytes, dtype=torch.uint8, device=str(self._device))
        zero(data)
        return data

    def clear(self, data: Tensor, parts: Iterable[SegmentRows]) -> None:
        """Zero parts; all, where there are any: torch has no copies of rows without a kernel."""
        if any(part.nbytes for part in parts):
            zero(data)

    def read(self, data: Tensor, part: SegmentRows) -> Bytes:
        """Return a copy of a part."""
        shape, step = (part.rows, part.width), (part.pitch if part.rows > 1 else part.width, 1)
        with on(beside(self._device)):
            rows = data.as_strided(shape, step, data.storage_offset() + part.at)
            made: Bytes = rows.contiguous().view(-1).cpu().numpy()
        return made

    def write(self, data: Tensor, at: int, words: Bytes) -> None:
        """Write some bytes."""
        import torch

        stream = beside(self._device)
        with on(stream):
            data[at : at + len(words)].copy_(torch.from_numpy(words))
        stream.synchronize()

    def sweep(self) -> None:
        """Do nothing: torch has freed the memory."""


def zero(data: Tensor) -> None:
    """Zero torch's memory that no kernel uses now, wait for that, and spare a GPU's caches.

    Zeros that a kernel writes are in the L2 cache afterwards, in place of the data of the user's
    next kernel; and that kernel waits until the zeros are in memory. Zeros copied from the host
    leave the cache as it is.

    Args:
        data: bytes on a GPU.
    """
    stream, source = beside(device_of(data.device)), _on_host()
    with on(stream):
        if source is None:
            data.zero_()
        else:
            for piece in data.split(_PIECE_BYTES):
                piece.copy_(source[: len(piece)], non_blocking=True)
    if stream is not None:
        stream.synchronize()


@cache
def _on_host() -> Tensor | None:
    """Return zeros that a GPU reads by itself; None where the host has no memory for them."""
    import torch

    try:
        return torch.zeros(_PIECE_BYTES, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:
        return None
