"""Device memory for segments: where from, and how it is handed out."""

from __future__ import annotations

import threading
import warnings
from functools import cache
from operator import index
from typing import Any

from ikp.core import abi
from ikp.core.segment import Tensor
from ikp.errors import BufferError, IkpWarning, UsageError
from ikp.session.current import Opening
from ikp.session.streams import current_stream
from ikp.session.wishes import SHARE, free_bytes
from ikp.session.zeros import zeroed

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
        if self._data.is_cuda:
            import torch

            stream = current_stream(self._data.device)[1]
            self.launched(stream, captured=torch.cuda.is_current_stream_capturing())
        else:
            self.launched(0, captured=False)
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
