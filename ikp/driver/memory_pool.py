"""``Pool``: device memory from a memory pool of the CUDA driver, with a stream for its copies.

No framework's allocator sees this memory. All calls are made in one thread that is not the
program's, for three reasons. No allocation is routed to a pool of a CUDA graph. No copy gets the
number of a launch that is under way. No capture forbids a call: the thread's own capture mode is
relaxed for as long as it lives. Memory is freed in the order of a stream, so that no call waits for
the program's kernels, as ``cuMemFree`` would.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.segment import SegmentRows
from ikp.driver import cuda

_NON_BLOCKING: Final = 1
_PINNED: Final = 1
_DEVICE_LOCATION: Final = 1
_HOST: Final = 1
_DEVICE: Final = 2
"""Flags and kinds, as ``cuda.h`` counts them."""
_ZEROS_BYTES: Final = 4 << 20
_LANDING_BYTES: Final = 4 << 20
_LANDING_STEP: Final = 64


class _PoolProperties(ctypes.Structure):
    """``CUmemPoolProps``."""

    _fields_ = (
        ("allocations", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", ctypes.c_int),
        ("device", ctypes.c_int),
        ("security", ctypes.c_void_p),
        ("most", ctypes.c_size_t),
        ("rest", ctypes.c_ubyte * 56),
    )


class _Side(ctypes.Structure):
    """The source or the target of a ``CUDA_MEMCPY2D``."""

    _fields_ = (
        ("x", ctypes.c_size_t),
        ("y", ctypes.c_size_t),
        ("kind", ctypes.c_int),
        ("host", ctypes.c_void_p),
        ("device", ctypes.c_uint64),
        ("array", ctypes.c_void_p),
        ("pitch", ctypes.c_size_t),
    )


class _CopyOfRows(ctypes.Structure):
    """``CUDA_MEMCPY2D``."""

    _fields_ = (
        ("source", _Side),
        ("target", _Side),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


def _pieces(part: SegmentRows) -> Iterator[SegmentRows]:
    """Yield a part's rows in order, in pieces that the pinned memory holds."""
    if part.width > _LANDING_BYTES:
        for row in range(part.rows):
            for at in range(0, part.width, _LANDING_BYTES):
                size = min(_LANDING_BYTES, part.width - at)
                yield SegmentRows(part.at + row * part.pitch + at, size)
        return
    step = _LANDING_BYTES // max(1, part.width)
    for row in range(0, part.rows if part.width else 0, step):
        rows = min(step, part.rows - row)
        yield SegmentRows(part.at + row * part.pitch, part.width, part.pitch, rows)


def _pinned(nbytes: int) -> NDArray[np.uint8]:
    """Return new pinned memory, which stays: to free it would wait for kernels."""
    address, size = ctypes.c_void_p(), ctypes.c_size_t(nbytes)
    cuda.call("cuMemAllocHost_v2", ctypes.byref(address), size, to="pin memory")
    held = (ctypes.c_uint8 * nbytes).from_address(address.value or 0)
    return np.frombuffer(memoryview(held), np.uint8)


class Pool:
    """A memory pool of one device, with a stream. The thread that makes it is the one that uses it.

    Args:
        ordinal: the device's number, as the driver counts.

    Raises:
        PatchError: the driver has no pools for this device, or refuses.
    """

    def __init__(self, ordinal: int) -> None:
        device = cuda.use_primary_context(ordinal)
        wish = _PoolProperties(_PINNED, 0, _DEVICE_LOCATION, device)
        self._pool, self._stream = ctypes.c_void_p(), ctypes.c_void_p()
        cuda.call("cuMemPoolCreate", ctypes.byref(self._pool), ctypes.byref(wish), to="make a pool")
        cuda.call("cuStreamCreate", ctypes.byref(self._stream), _NON_BLOCKING, to="make a stream")
        self._zeros = _pinned(_ZEROS_BYTES)
        self._zeros[:] = 0
        # While kernels run, to pin memory would wait for them.
        self._landing, self._staged = _pinned(_LANDING_BYTES), np.zeros(0, np.uint8)

    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory, with any content.

        Raises:
            PatchError: there is not so much.
        """
        address = ctypes.c_uint64()
        cuda.call(
            "cuMemAllocFromPoolAsync",
            ctypes.byref(address),
            ctypes.c_size_t(nbytes),
            self._pool,
            self._stream,
            to=f"allocate {nbytes:,} bytes",
        )
        self.wait()
        return address.value

    def free(self, address: int) -> None:
        """Give memory back that no kernel uses any more.

        Raises:
            PatchError: the driver refuses.
        """
        cuda.call("cuMemFreeAsync", ctypes.c_uint64(address), self._stream, to="free memory")

    def wait(self) -> None:
        """Wait for this pool's own copies and frees.

        Raises:
            PatchError: a copy failed.
        """
        cuda.call("cuStreamSynchronize", self._stream, to="finish its own copies")

    def clear(self, base: int, part: SegmentRows) -> None:
        """Queue copies of zeros from the host to the rows of a segment at ``base``: decision 61.

        Raises:
            PatchError: the driver refuses.
        """
        if part.rows == 1 or part.width == part.pitch:
            self._clear_run(base + part.at, part.nbytes)
            return
        if part.width > _ZEROS_BYTES:
            for row in range(part.rows):
                self._clear_run(base + part.at + row * part.pitch, part.width)
            return
        step = _ZEROS_BYTES // part.width
        for first in range(0, part.rows, step):
            rows = min(step, part.rows - first)
            there = _Side(0, 0, _DEVICE, None, base + part.at + first * part.pitch, None)
            there.pitch = part.pitch
            here = _Side(0, 0, _HOST, self._zeros.ctypes.data, 0, None, part.width)
            self._copy(_CopyOfRows(here, there, part.width, rows), "zero its memory")

    def _clear_run(self, address: int, nbytes: int) -> None:
        for at in range(0, nbytes, _ZEROS_BYTES):
            size = min(_ZEROS_BYTES, nbytes - at)
            self._to_device(address + at, self._zeros.ctypes.data, size, "zero its memory")

    def write(self, addresses: Sequence[int], data: NDArray[np.uint8]) -> None:
        """Copy bytes to each of some addresses, and wait for the copies.

        Raises:
            PatchError: the driver refuses.
        """
        for address in addresses:
            self._to_device(address, data.ctypes.data, data.nbytes, "write to its memory")
        self.wait()

    def read(self, base: int, part: SegmentRows) -> NDArray[np.uint8]:
        """Return rows of a segment at ``base``, one after another.

        They are copied to pinned memory, piece by piece. A copy to memory that is not pinned keeps
        the context until it is done: for 300 MB, the program's calls waited 0.15 s.

        Raises:
            PatchError: the driver refuses, or a kernel has failed.
        """
        made, end = np.empty(part.nbytes, np.uint8), 0
        for piece in _pieces(part):
            self._land(base, piece, self._landing)
            self.wait()
            begin, end = end, end + piece.nbytes
            made[begin:end] = self._landing[: piece.nbytes]
        return made

    def _land(self, base: int, part: SegmentRows, to: NDArray[np.uint8]) -> None:
        """Queue a copy of rows of a segment at ``base`` to pinned memory."""
        pitch = part.pitch if part.rows > 1 else part.width
        there = _Side(0, 0, _DEVICE, None, base + part.at, None, pitch)
        here = _Side(0, 0, _HOST, to.ctypes.data, 0, None, part.width)
        self._copy(_CopyOfRows(there, here, part.width, part.rows), "read its memory")

    def stage(self, nbytes: int) -> None:
        """Pin memory for a ``peek`` of up to ``nbytes``, before a kernel runs.

        Raises:
            PatchError: there is not so much.
        """
        if nbytes > len(self._staged):
            self._staged = _pinned(nbytes)

    def peek(self, base: int, nbytes: int) -> NDArray[np.uint8]:
        """Return the first bytes of a segment at ``base``, in memory that the next peek overwrites.

        Raises:
            PatchError: the driver refuses, or a kernel has failed.
        """
        self.stage(nbytes)
        self._land(base, SegmentRows(0, nbytes), self._staged)
        self.wait()
        return self._staged[:nbytes]

    def read_all(self, wanted: Sequence[tuple[int, SegmentRows]]) -> list[NDArray[np.uint8]]:
        """Return rows of segments, each one after another, for addresses of segments and parts.

        What is small is copied to pinned memory together, and waited for once.

        Raises:
            PatchError: the driver refuses, or a kernel has failed.
        """
        made: list[NDArray[np.uint8]] = []
        queued: list[tuple[int, int]] = []  # where each lies in the pinned memory
        used = 0
        for base, part in wanted:
            if used + part.nbytes > _LANDING_BYTES:
                made += self._landed(queued, used)
                queued, used = [], 0
            if part.nbytes > _LANDING_BYTES:
                made.append(self.read(base, part))
                continue
            if part.nbytes:
                self._land(base, part, self._landing[used:])
            queued.append((used, used + part.nbytes))
            used += -(-part.nbytes // _LANDING_STEP) * _LANDING_STEP
        return made + self._landed(queued, used)

    def _landed(self, queued: list[tuple[int, int]], used: int) -> list[NDArray[np.uint8]]:
        """Wait for copies to the pinned memory, and return them in memory of their own."""
        whole = np.empty(used, np.uint8)
        if used:
            self.wait()
            whole[:] = self._landing[:used]
        return [whole[begin:end] for begin, end in queued]

    def _copy(self, rows: _CopyOfRows, what: str) -> None:
        cuda.call("cuMemcpy2DAsync_v2", ctypes.byref(rows), self._stream, to=what)

    def _to_device(self, target: int, source: int, nbytes: int, what: str) -> None:
        cuda.call(
            "cuMemcpyHtoDAsync_v2",
            ctypes.c_uint64(target),
            ctypes.c_void_p(source),
            ctypes.c_size_t(nbytes),
            self._stream,
            to=what,
        )
