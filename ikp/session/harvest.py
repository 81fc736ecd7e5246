"""How segments' memory comes back while the session goes on.

A buffer that nobody holds any more can't be launched with again. If its kernel is done, what it
recorded can be copied out and the memory used for the next one, while others still run: so a long
session's memory does not grow. Nothing here waits for a kernel: each time a buffer is taken, one
looks whether what was begun earlier is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from ikp.core import abi
from ikp.core.decoding.launch_header import Source
from ikp.core.decoding.slots import Excerpt
from ikp.core.segment import Segment, Tensor
from ikp.session.memory import Notice
from ikp.session.readback import Event, read_back
from ikp.session.streams import current_stream
from ikp.session.wishes import SHARE, free_bytes

BEGIN_BYTES = 256 << 20
"""As long as all buffers are smaller than this in all, nothing is read before the session ends."""
UNREAD_BYTES = 1 << 30
"""Nor up to this, where it is no more than a share of what the device has left."""
_AT_ONCE = 64


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
