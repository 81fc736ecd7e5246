"""Device memory for segments: on which device, how much and where from, and what comes back."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import Any, Final

import numpy as np

from ikp.core import abi
from ikp.core.decoding.launch_header import Source
from ikp.core.segment import MAX_WARPS, WORDS_AT, Segment, Selection, Spec, Tensor
from ikp.errors import BufferError, UsageError

CHUNK_BYTES = 64 << 20
WINDOW = 1 << 32
"""Kernels keep the high half of an address constant: a segment lies inside one such window."""


def checked_device(wish: Any) -> Any:
    """Return the torch device that a buffer is to be on.

    Raises:
        UsageError: it is no device.
        BufferError: no kernel records there, or a CUDA graph is being captured.
    """
    import torch

    try:
        device = torch.device(wish)
    except (RuntimeError, TypeError) as error:
        raise UsageError(
            f"device={wish!r} is no torch device: use 'cuda', 'cuda:1' or 'cpu'."
        ) from error
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise BufferError(
                f"no CUDA device for the buffer on {device}: torch sees no GPU. Without one, "
                "run kernels in Triton's interpreter: set TRITON_INTERPRET=1 before importing "
                "triton."
            )
        if torch.cuda.is_current_stream_capturing():
            raise BufferError(
                "prof.buffer was called while a CUDA graph is being captured: take the buffer "
                "before the capture and pass it in."
            )
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
    elif device.type != "cpu":
        raise BufferError(f"no recording on device {device}: use a CUDA device or the CPU.")
    return device


def device_facts(device: Any) -> tuple[str, float]:
    """Return the device's name and advertised clock in Hz (0 where unknown)."""
    if device.type == "cpu":
        return "CPU", 0.0
    import torch

    properties = torch.cuda.get_device_properties(device)
    return f"{properties.name} (cuda:{device.index})", getattr(properties, "clock_rate", 0) * 1e3


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

    def nbytes(self, spec: Spec, chosen: Selection, device: Any, default: Any) -> Any:
        """Return the size as it was given, here or as the default; else what suits the launch.

        Raises:
            UsageError: what is known of the launch can't be used.
        """
        unknown = self.grid is None and self.num_warps is None
        slots = 0 if unknown else slots_of(self.grid, self.num_warps, chosen)
        size = default if self.size is None else self.size
        return inferred(spec, slots, lambda: free_bytes(device)) if size is None else size


def inferred(spec: Spec, slots: int, free_bytes: Callable[[], int | None]) -> int:
    """Return the size in bytes of a buffer for a launch that has so many ``slots``; 0: any number.

    ``free_bytes`` returns how much the device has left, where that is known. It is asked only where
    more than the default is wanted: the answer takes its time, and there may be many launches.
    """
    mode = "totals" if spec.totals else "timeline"
    wanted = abi.segment_bytes(slots, RECORDS[mode], spec.overflow, spec.clock) if slots else 0
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


def free_bytes(device: Any) -> int | None:
    """Return how much memory a GPU has left; None for the host."""
    if device.type == "cpu":
        return None
    import torch

    return int(torch.cuda.mem_get_info(device)[0])


def write_selection(data: Tensor, selection: Selection) -> None:
    """Write which warps and blocks record to the launch header, before any kernel reads it."""
    import torch

    words = torch.from_numpy(selection.words().view(np.uint8))
    data[WORDS_AT : WORDS_AT + len(words)].copy_(words)
    if data.is_cuda:
        torch.cuda.current_stream(data.device).synchronize()


def gpus_of(segments: list[Segment]) -> set[str]:
    """Return the GPUs on which the segments lie."""
    return {str(segment.data.device) for segment in segments if segment.data.is_cuda}


def wait(segments: list[Segment]) -> None:
    """Wait for everything queued on the segments' devices."""
    for device in {segment.data.device for segment in segments if segment.data.is_cuda}:
        import torch

        torch.cuda.synchronize(device)


def written(segment: Segment) -> bool:
    """Return whether a kernel has begun to record into the segment."""
    header = segment.data[:WORDS_AT].cpu().numpy()
    return bool(header.any())


def read_back(segment: Segment) -> Source:
    """Copy what the kernel wrote to the host."""
    data = segment.data
    head = data[: abi.LAUNCH_HEADER_BYTES].cpu().numpy()
    host = data.cpu().numpy() if head.any() else head
    return Source(
        label=segment.label,
        data=host,
        device=segment.device_name,
        backend=segment.backend,
        clock_rate_hz=segment.clock_rate_hz,
        regions=segment.regions,
        selected=segment.spec.select,
        totals=segment.spec.totals,
        selection=segment.selection if segment.spec.select else None,
        clock=segment.spec.clock,
        overflow=segment.spec.overflow,
        rank=segment.rank,
    )
