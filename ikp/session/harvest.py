"""How segments' memory is handed out, and comes back while the session goes on.

A buffer that nobody holds any more can't be launched with again. If its kernel is done, what it
recorded can be copied out and the memory used for the next one, while others still run: so a long
session's memory does not grow. Nothing here waits for a kernel: each time a buffer is taken, one
looks whether what was begun earlier is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cache
from typing import Any

from ikp.core import abi
from ikp.core.decoding.launch_header import Source
from ikp.core.decoding.slots import Excerpt
from ikp.core.segment import Segment, Tensor
from ikp.session.current import Opening
from ikp.session.memory import SHARE, free_bytes
from ikp.session.readback import Event, read_back
from ikp.session.streams import current_stream
from ikp.warning import warn

BEGIN_BYTES = 256 << 20
"""As long as all buffers are smaller than this in all, nothing is read before the session ends."""
UNREAD_BYTES = 1 << 30
"""Nor up to this, where it is no more than a share of what the device has left."""
_AT_ONCE = 64


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
            warn(self._why(), stacklevel=4)

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


@dataclass(slots=True, eq=False)
class Taken:
    """A segment, and the tensor that a kernel was handed for it, as long as somebody holds that.

    ``heard`` tells that a kernel has written to it before it was emptied.
    """

    segment: Segment
    handed: Callable[[], Tensor | None]
    notice: Notice | None  # None where no kernel records into it
    heard: bool = False
    launch: object = None  # what launches have in common whose buffers are alike
    source: Source | None = None  # what was read back of it; its memory is gone then

    def is_over(self, stream: int) -> bool:
        """Tell whether all its launches were on one stream, and there can be no others."""
        return (
            self.handed() is None
            and self.notice is not None
            and not self.notice.captured
            and self.notice.streams == {stream}
        )


class Harvest:
    """Reads segments of one device as they are done."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._waiting: deque[Taken] = deque()
        self._bytes = 0  # of those
        self._begin_bytes = 0  # from how many on they are read; 0 until that is asked
        self._made: dict[object, int] = {}  # records of the busiest warp, by what launches share
        self._group: list[Taken] = []
        self._reading: Generator[Event, None, list[Source]] | None = None
        self._event: Event = None

    def add(self, taken: Taken) -> None:
        """Watch a segment."""
        self._waiting.append(taken)
        self._bytes += taken.segment.nbytes

    def forget(self, keep: Callable[[Taken], bool]) -> None:
        """Watch only some of the segments from now on; nothing may be running."""
        every = [*self._group, *self._waiting]
        self._group, self._reading = [], None
        self._waiting = deque(each for each in every if keep(each) and each.source is None)
        self._bytes = sum(each.segment.nbytes for each in self._waiting)

    def records(self, launch: object) -> int | None:
        """Return how many records a warp needs, by those that came back of launches like this.

        None as long as nothing had to be read back for want of memory: no need to know.
        """
        return self._made.get(launch)

    def _full(self) -> bool:
        """Return whether segments take so much that some are to be read.

        From the first ones that were on, less is enough: buffers are smaller then, and who makes
        more records than before is to be known soon.
        """
        if self._made:
            return self._bytes > BEGIN_BYTES
        if self._bytes > BEGIN_BYTES and not self._begin_bytes:
            free = free_bytes(self._device)
            # They are a part of what there was.
            share = 0 if free is None else (free + self._bytes) // SHARE
            self._begin_bytes = max(BEGIN_BYTES, min(UNREAD_BYTES, share))
        return self._bytes > max(BEGIN_BYTES, self._begin_bytes)

    def step(self) -> None:
        """Go on as far as one can without waiting."""
        if self._reading is None and self._full():
            self._begin()
        while self._reading is not None:
            try:
                if self._event is not None and not self._event.query():
                    return
                self._event = next(self._reading)
            except StopIteration as end:
                self._end(end.value)
            except (RuntimeError, MemoryError):
                # No memory for a copy, or a kernel failed: who reads at the end says so.
                self._end([])

    def _begin(self) -> None:
        """Begin with those whose launches were on the stream that is the current one now."""
        stream, number = current_stream(self._device)
        for _ in range(min(_AT_ONCE, len(self._waiting))):
            each = self._waiting.popleft()
            (self._group if each.is_over(number) else self._waiting).append(each)
        if not self._group:
            return
        self._event = None
        if stream is not None:
            self._event = stream.record_event()
        self._reading = read_back([each.segment for each in self._group], whole=False)

    def _end(self, sources: list[Source]) -> None:
        """Give back the memory of segments that were read; the others wait for the end."""
        import torch

        for each in self._group:
            self._bytes -= each.segment.nbytes
        empty = torch.empty(0, dtype=torch.uint8, device=self._device)
        for each, source in zip(self._group, sources, strict=False):
            if isinstance(source.data, Excerpt) and len(source.data.heads):
                made = int(source.data.heads.view(abi.SLOT_HEADER)["attempted"].max())
                self._made[each.launch] = max(made, self._made.get(each.launch, 0))
                each.source, each.segment.data, each.notice = source, empty, None
        self._group, self._reading, self._event = [], None, None
