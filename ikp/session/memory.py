"""Device memory for segments: on which device, how much, where from, and how it is handed out."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from operator import index
from typing import Any, Final

import numpy as np

from ikp.core import abi
from ikp.core.segment import MAX_WARPS, Selection, Spec, Tensor
from ikp.errors import BufferError, IkpWarning, UsageError
from ikp.session.current import Opening
from ikp.session.streams import beside, current_stream, on

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
    finds it zero. That is done on a stream where nothing else runs, so that it waits for no kernel.
    Any thread may take a segment. A chunk is given back with the last of its segments.
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
        stream = beside(self._device)
        with on(stream):
            self._chunk = torch.zeros(size, dtype=torch.uint8, device=self._device)
        if stream is not None:
            stream.synchronize()


DEFAULT_BYTES: Final = {"timeline": 32 << 20, "totals": 8 << 20}
"""Where nothing is known of the launch."""
RECORDS: Final = {"timeline": 512, "totals": 32}
"""For how many records there is room in each warp of a launch that is known."""
SMALL: Final = {"timeline": 8192, "totals": 512}
"""For how many, where that takes less than the default: a thousand small launches may be queued."""
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
        roomy = abi.segment_bytes(slots, SMALL[mode], spec.overflow, spec.clock) if slots else None
        return min(DEFAULT_BYTES[mode], roomy or DEFAULT_BYTES[mode])
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


_pinned: dict[int, Tensor] = {}
"""Memory that kernels may write to at any time from now on, by address: never freed."""


def hand_out(data: Tensor, label: str, opening: Opening | None) -> Tensor:
    """Return ``data`` as a tensor that notices when a kernel takes its address.

    Args:
        data: the memory of one segment.
        label: what the buffer is called.
        opening: the opening of the session that reads it; None where no kernel records into it.
    """
    handed = data.as_subclass(_kind())
    handed.ikp_notice = None if opening is None else Notice(data, label, opening)
    return handed


class Notice:
    """Tells a launch that nobody will read what it records.

    Every language asks a tensor for its address when it launches, so it is there that this is told.
    """

    def __init__(self, data: Tensor, label: str, opening: Opening) -> None:
        self._data, self._label, self._opening = data, label, opening
        self._told = False
        self.streams: set[int] = set()  # that were current when its address was taken
        self.captured = False  # a CUDA graph holds its address

    def taken(self) -> None:
        """Take note of a launch: tell if nobody will read it, keep memory that outlives this."""
        over = not (self._opening.lasts and self._opening.here)
        self.launched(current_stream(self._data.device)[1], captured=_capturing(self._data))
        if over:
            _pinned[self._data.untyped_storage().data_ptr()] = self._data
        if over and not self._told:
            self._told = True
            warnings.warn(self._why(), IkpWarning, stacklevel=4)

    def launched(self, stream: int, *, captured: bool) -> None:
        """Take note of the stream of a launch.

        ``captured`` tells that a CUDA graph will launch again without asking for the address.
        """
        self.streams.add(stream)
        self.captured |= captured
        if captured:
            _pinned[self._data.untyped_storage().data_ptr()] = self._data

    def _why(self) -> str:
        if not self._opening.here:
            return (
                f"a kernel is launched with the buffer {self._label!r} of the process that this "
                "one was forked from, which can't see what is recorded here: it is lost. Open a "
                "session in this process, with a path of its own."
            )
        return (
            f"a kernel is launched with the buffer {self._label!r} after its session ended: what "
            "it records is lost. Take a buffer for each launch, inside the session."
        )


def _capturing(data: Tensor) -> bool:
    import torch

    return bool(data.is_cuda and torch.cuda.is_current_stream_capturing())


@cache
def _kind() -> Any:
    """Return the class of what kernels are handed: torch is loaded late."""
    import torch

    class Handed(torch.Tensor):  # type: ignore[misc]  # torch is Any here
        """Like any tensor; what is made of it is a plain one."""

        __torch_function__ = torch._C._disabled_torch_function_impl  # noqa: SLF001 - torch's docs
        ikp_notice: Notice | None

        def data_ptr(self) -> int:
            """Return the address, as compiled kernels take it."""
            if self.ikp_notice is not None:
                self.ikp_notice.taken()
            return int(super().data_ptr())

        def untyped_storage(self) -> Any:
            """Return the memory, as Triton's interpreter takes it."""
            if self.ikp_notice is not None:
                self.ikp_notice.taken()
            return super().untyped_storage()

    return Handed
