"""Device memory for segments: zeroed chunks, handed out piece by piece."""

from __future__ import annotations

import threading
from operator import index
from typing import Any

import numpy as np

from ikp.core import abi
from ikp.errors import BufferError, UsageError

CHUNK_BYTES = 64 << 20
WINDOW = 1 << 32
"""Kernels keep the high half of an address constant: a segment lies inside one such window."""


class Arena:
    """Zeroed memory on one device, from which each launch takes a segment.

    Memory is zeroed, and the zeroing waited for, when a chunk is allocated: a kernel on any stream
    finds it zero. Any thread may take a segment.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._chunk: Any = None
        self._used = 0
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Any:
        """Return a zeroed uint8 tensor of at least ``nbytes``, aligned for vector stores.

        Raises:
            UsageError: the size can't be that of a segment.
            BufferError: the device has too little memory left.
        """
        smallest = abi.LAUNCH_HEADER_BYTES + abi.min_slot_bytes(abi.OverflowMode.WRAP)
        if not hasattr(nbytes, "__index__") or not smallest <= nbytes <= abi.MAX_SEGMENT_BYTES:
            raise UsageError(
                f"a buffer of {nbytes!r} bytes can't be used: the size is {smallest} to "
                f"{abi.MAX_SEGMENT_BYTES} bytes. The default fits most kernels; leave size out, or "
                f"let ikp.capture find it."
            )
        nbytes = -(-index(nbytes) // abi.ALIGNMENT) * abi.ALIGNMENT
        with self._lock:  # a chunk that one thread has just made, another must not carve up
            piece = self._carve(nbytes)
            return self._carve_new(nbytes) if piece is None else piece

    def _carve(self, nbytes: int) -> Any:
        if self._chunk is None:
            return None
        base = self._chunk.data_ptr()
        start = base + self._used + -(base + self._used) % abi.ALIGNMENT
        if start // WINDOW != (start + nbytes) // WINDOW:
            start += -start % WINDOW
        offset = start - base
        if offset + nbytes > self._chunk.numel():
            return None
        self._used = offset + nbytes
        return self._chunk[offset : offset + nbytes]

    def _carve_new(self, nbytes: int) -> Any:
        """Allocate a chunk and carve from it."""
        # One for many segments if there is room; twice the size always has room on one side of a
        # window's border.
        failure: Exception | None = None
        for size in (max(CHUNK_BYTES, nbytes), nbytes, 2 * nbytes + abi.ALIGNMENT):
            try:
                self._allocate(size)
            except (RuntimeError, MemoryError) as error:  # torch's and numpy's
                failure = error
                continue
            if (piece := self._carve(nbytes)) is not None:
                return piece
        raise BufferError(
            f"no memory for a recording buffer of {nbytes / 2**20:.1f} MiB on {self._device}: "
            f"{failure}. Give a smaller size: prof.buffer(label, size=...)."
        ) from failure

    def _allocate(self, size: int) -> None:
        import torch

        self._chunk, self._used = None, 0  # what it held must be free for the next one
        if str(self._device) == "cpu":
            # The system's pages are zero already. And torch zeroes with threads, which a process
            # that was forked has lost: it would wait for them for ever.
            self._chunk = torch.from_numpy(np.zeros(size, np.uint8))
            return
        self._chunk = torch.zeros(size, dtype=torch.uint8, device=self._device)
        if self._chunk.is_cuda:
            torch.cuda.current_stream(self._chunk.device).synchronize()
