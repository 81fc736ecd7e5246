"""Device memory for segments: how much, where from, and how it gets zero."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from operator import index
from typing import Any, Final

import numpy as np

from ikp.core import abi
from ikp.core.segment import MAX_WARPS, Selection, Spec, Tensor
from ikp.errors import BufferError, UsageError
from ikp.session.streams import beside, on

DEFAULT_BYTES: Final = {"timeline": 32 << 20, "totals": 8 << 20}
"""Where nothing is known of the launch."""
RECORDS: Final = {"timeline": 512, "totals": 32}
"""For how many records there is room in each warp of a launch that is known."""
SMALL: Final = {"timeline": 8192, "totals": 512}
"""For how many, where that takes less than the default: a thousand small launches may be queued."""
MOST_BYTES: Final = 256 << 20
MARGIN: Final = 2
MORE: Final = 64
"""Where memory is short, a warp has room for twice what earlier launches made, and so many more;
but no buffer gets less than the default for it."""
SHARE: Final = 8
"""Beyond the default, no more than this part of the device's free memory is taken unasked."""


@dataclass(frozen=True, slots=True)
class Room:
    """How large a buffer is to be: as given, or as its launch needs."""

    size: Any = None
    grid: Any = None
    num_warps: Any = None

    def nbytes(
        self, spec: Spec, chosen: Selection, device: Any, default: Any, made: int | None = None
    ) -> Any:
        """Return the size as it was given, here or as the default; else what suits the launch.

        Args:
            spec: how the kernel records.
            chosen: which warps and blocks record.
            device: torch's.
            default: the session's size, where the user gave one.
            made: the records of the busiest warp of earlier launches like this, where memory is
                short and they are known.

        Raises:
            UsageError: what is known of the launch can't be used.
        """
        unknown = self.grid is None and self.num_warps is None
        slots, headers = (0, 0) if unknown else slots_of(self.grid, self.num_warps, chosen)
        size = default if self.size is None else self.size
        if size is not None:
            return size
        size = inferred(spec, slots, lambda: free_bytes(device))
        if made is not None and slots:
            enough = abi.segment_bytes(slots, MARGIN * made + MORE, spec.overflow, spec.clock)
            most = DEFAULT_BYTES["totals" if spec.totals else "timeline"]
            size = min(size, max(enough, most))
        return size + headers * abi.DENSE_HEADER_BYTES


def inferred(spec: Spec, slots: int, free_bytes: Callable[[], int | None]) -> int:
    """Return the size in bytes of a buffer for a launch that has so many ``slots``; 0: any number.

    ``free_bytes`` returns how much the device has left, where that is known. It is asked only where
    more than the default is wanted: the answer takes its time, and there may be many launches.
    """
    mode = "totals" if spec.totals else "timeline"
    wanted = abi.segment_bytes(slots, RECORDS[mode], spec.overflow, spec.clock) if slots else 0
    if wanted <= DEFAULT_BYTES[mode]:
        roomy = abi.segment_bytes(slots, SMALL[mode], spec.overflow, spec.clock) if slots else None
        return min(DEFAULT_BYTES[mode], roomy or DEFAULT_BYTES[mode])
    free = free_bytes()
    most = MOST_BYTES if free is None else min(MOST_BYTES, free // SHARE)
    return max(DEFAULT_BYTES[mode], min(wanted, most))


def slots_of(grid: Any, num_warps: Any, selection: Selection) -> tuple[int, int]:
    """Return how many warps of a launch record, and how many headers stand behind their slots.

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
    blocks, warps = math.prod(index(size) for size in sizes), index(num_warps)
    return selection.count_slots(blocks, warps), selection.count_headers(blocks, warps)


def _is_count(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool) and index(value) >= 0


def free_bytes(device: Any) -> int | None:
    """Return how much memory a GPU has left; None for the host."""
    if getattr(device, "type", "cpu") == "cpu":
        return None
    import torch

    return int(torch.cuda.mem_get_info(device)[0])


CHUNK_BYTES = 64 << 20
_LARGEST_CHUNK = 256 << 20
"""For more than one segment."""
WINDOW = 1 << 32
"""Kernels keep the high half of an address constant: a segment lies inside one such window."""


class Arena:
    """Zeroed memory on one device, from which each launch takes a segment.

    Memory is zeroed, and the zeroing waited for, when a chunk is allocated: a kernel on any stream
    finds it zero. That is done on a stream where nothing else runs, so that it waits for no kernel.
    Any thread may take a segment. A chunk is given back with the last of its segments. Where one
    large segment after another is taken, chunks get room for more of them: a launch waits less.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._chunk: Tensor = None
        self._used = 0
        self._size = 0  # of the segment that the latest chunk was for
        self._together = 1  # how many of these it had room for, where it is larger than others
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Tensor:
        """Return a zeroed uint8 tensor of at least ``nbytes``, aligned for vector stores.

        Raises:
            UsageError: the size can't be that of a segment.
            BufferError: the device has too little memory left.
        """
        least, most = abi.MIN_SEGMENT_BYTES, abi.MAX_SEGMENT_BYTES
        if not hasattr(nbytes, "__index__") or not least <= nbytes <= most:
            raise UsageError(
                f"a buffer of {nbytes!r} bytes can't be used: the size is {least} to "
                f"{most} bytes. The default fits most kernels; leave size out, or "
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
        for size in (self._chunk_bytes(nbytes), nbytes, 2 * nbytes + abi.ALIGNMENT):
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

    def _chunk_bytes(self, nbytes: int) -> int:
        """Return how large a new chunk is to be: with room for more, where it is one of many."""
        together = 2 * self._together if nbytes == self._size else 1
        if together * nbytes > CHUNK_BYTES:
            together = max(1, min(together, _LARGEST_CHUNK // nbytes))
        if together > 1 and together * nbytes > CHUNK_BYTES:
            free = free_bytes(self._device)
            most = together if free is None else free // (SHARE * nbytes)
            together = max(1, min(together, most))
        self._size, self._together = nbytes, together
        return max(CHUNK_BYTES, together * nbytes)

    def _allocate(self, size: int) -> None:
        self._chunk, self._used = None, 0  # what it held must be free for the next one
        self._chunk = zeroed(size, self._device)


_PIECE_BYTES = 4 << 20


def zeroed(size: int, device: Any) -> Tensor:
    """Return memory that a kernel on any stream finds zero.

    Args:
        size: in bytes.
        device: torch's.

    Raises:
        RuntimeError, MemoryError: there is no memory for it; torch's and numpy's.
    """
    import torch

    if str(device) == "cpu":
        # The system's pages are zero already. And torch zeroes with threads, which a process
        # that was forked has lost: it would wait for them for ever.
        return torch.from_numpy(np.zeros(size, np.uint8))
    with on(beside(device)):
        data = torch.empty(size, dtype=torch.uint8, device=device)
    zero(data)
    return data


def zero(data: Tensor) -> None:
    """Zero memory that no kernel uses now, wait for that, and leave a GPU's caches as they were.

    What a kernel zeroes is in the L2 cache afterwards, in place of what the user's next kernel
    would have found there; and that one waits until the zeros are in memory. Zeros that come from
    the host leave the cache alone.

    Args:
        data: bytes on any device.
    """
    stream = beside(data.device)  # where no kernel is waited for
    source = None if data.device.type == "cpu" else _on_host()
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
