"""Device memory for segments: how much, and where from."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import Any, Final

import numpy as np

from ikp.core import abi
from ikp.core.segment import MAX_WARPS, Selection, Spec, Tensor
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
        self._chunk: Tensor = None
        self._used = 0
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Tensor:
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

    def _carve(self, nbytes: int) -> Tensor:
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

    def _carve_new(self, nbytes: int) -> Tensor:
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


DEFAULT_BYTES: Final = {"timeline": 32 << 20, "totals": 8 << 20}
"""Where nothing is known of the launch, and the least that is taken where it is."""
RECORDS: Final = {"timeline": 512, "totals": 32}
"""For how many records there is room in each warp of a launch that is known."""
MOST_BYTES: Final = 256 << 20
SHARE: Final = 8
"""Beyond the default, no more than this part of the device's free memory is taken unasked."""


@dataclass(frozen=True, slots=True)
class Room:
    """How large a buffer is to be: as given, or as its launch needs."""

    size: Any = None
    grid: Any = None
    num_warps: Any = None

    def slots(self, selection: Selection) -> int:
        """Return how many warps will record; 0 where nothing is known of the launch.

        Raises:
            UsageError: what is known can't be used.
        """
        if self.grid is None and self.num_warps is None:
            return 0
        return slots_of(self.grid, self.num_warps, selection)


def inferred(spec: Spec, slots: int, free_bytes: Callable[[], int | None]) -> int:
    """Return the size in bytes of a buffer for a launch that has so many ``slots``.

    ``free_bytes`` returns how much the device has left, where that is known. It is asked only where
    more than the default is wanted: the answer takes its time, and there may be many launches.
    """
    mode = "totals" if spec.totals else "timeline"
    wanted = abi.segment_bytes(slots, RECORDS[mode], spec.overflow, spec.clock)
    if wanted <= DEFAULT_BYTES[mode]:
        return DEFAULT_BYTES[mode]
    free = free_bytes()
    most = MOST_BYTES if free is None else min(MOST_BYTES, free // SHARE)
    return max(DEFAULT_BYTES[mode], min(wanted, most))


def slots_of(grid: Any, num_warps: Any, selection: Selection) -> int:
    """Return how many warps of a launch record.

    Args:
        grid: blocks: an integer, or up to three of them.
        num_warps: warps of each block.
        selection: which of them record.

    Raises:
        UsageError: an argument is missing or can't be used.
    """
    sizes = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
    if not 1 <= len(sizes) <= 3 or not all(_is_count(size) for size in sizes):
        raise UsageError(
            f"grid={grid!r} is no grid: give the number of blocks, or up to three of them, as to "
            "the launch."
        )
    if not _is_count(num_warps) or index(num_warps) > MAX_WARPS:
        raise UsageError(
            f"num_warps={num_warps!r}: with grid, give also how many warps a block has, 1 to "
            f"{MAX_WARPS}."
        )
    blocks = selection.count_blocks(math.prod(index(size) for size in sizes))
    return blocks * len(selection.chosen_warps(index(num_warps)))


def _is_count(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool) and index(value) >= 0
