"""How segments' memory is handed out, and comes back while the session goes on.

A buffer that nobody holds any more can't be launched with again. If its kernel is done, what it
recorded can be copied out and the memory used for the next one, while others still run: so a long
session's memory does not grow. The launching thread records an event and goes on, and the service
(``ikp.session.service``) looks whether it has come. Only a program that launches faster than what
it launched is read waits, and not for kernels that make no progress.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from ikp.core.segment import Segment, Tensor
from ikp.session.arena import Kind, Shelf
from ikp.session.current import Opening
from ikp.session.lifting import Lifted, lift
from ikp.session.memory import SHARE, free_bytes
from ikp.session.service import Service
from ikp.session.streams import current_stream, default_stream, is_capturing
from ikp.warning import warn

BEGIN_BYTES = 256 << 20
"""As long as all buffers are smaller than this in all, memory is not short."""
UNREAD_BYTES = 1 << 30
"""Nor up to this, where it is no more than a share of what the device has left."""
_AT_ONCE = 64
_POLL_S = 0.001
"""How often one looks whether launches are over."""
SETTLED_S = 0.05
"""After so many seconds a launch on a GPU is read though there is memory: a kernel that fails later
takes all that is in a GPU's memory with it."""
PATIENCE_S = 0.5
"""How long a launch waits at most, while nothing is read, until less memory is unread."""
DECODED = 4
"""How much more memory what was read back takes when a trace is made of it."""


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
        self.asks = True  # torch, for the stream: whoever launches does not say it by ``launched``
        self.streams: set[int] = set()  # that were current when its address was taken
        self.captured = False  # a CUDA graph holds its address

    def taken(self) -> None:
        """Take note of a launch: tell if nobody will read it, keep memory that outlives this."""
        if not self.asks:
            return
        over = not (self._opening.lasts and self._opening.here)
        if self._data.is_cuda:
            stream = current_stream(self._data.device)[1]
            self.launched(stream, captured=is_capturing(self._data.device))
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
    kind: Kind
    heard: bool = False
    launch: object = None  # what launches have in common whose buffers are alike
    at: float = field(default_factory=time.monotonic)  # when it was taken
    lifted: Lifted | None = None  # what was read back of it; its memory is another's then

    def is_over(self, stream: int) -> bool:
        """Tell whether all its launches were on one stream, and there can be no others."""
        return (
            self.handed() is None
            and self.notice is not None
            and not self.notice.captured
            and self.notice.streams == {stream}
        )


class Harvest:
    """Reads segments of one device as they are done, and puts their memory back on the shelf."""

    def __init__(self, device: Any, service: Service, shelf: Shelf) -> None:
        self._device, self._service, self._shelf = device, service, shelf
        self._lock = threading.Lock()
        self._waiting: deque[Taken] = deque()
        self._unread = 0  # bytes of segments that have memory
        self._kept = 0  # bytes of what was read back
        self._begin_bytes = 0  # from how many on they are read; 0 until that is asked
        self._made: dict[object, int] = {}  # records of the busiest warp, by what launches share
        self._attempted: dict[object, int] = {}  # the same, whether memory is short or not
        self._group: deque[Taken] = deque()  # those that are read now
        self._paused = 0
        self._short = False  # it is read for want of memory
        self._watched = False  # the service looks for launches that have settled
        self._next = 0.0  # when to look for them
        self._moves = True  # something was read since a launch waited for that in vain
        self.waited_s = 0.0  # by launches, for memory

    def add(self, taken: Taken) -> None:
        """Watch a segment."""
        with self._lock:
            self._waiting.append(taken)
            self._unread += taken.segment.nbytes
            watched, self._watched = self._watched, not self._service.storage.lasts
        if self._watched and not watched:
            self._service.post(self._watch)

    def _watch(self) -> float | None:
        """Have read what has settled on the default stream, which is never gone; in the service."""
        with self._lock:
            if not self._waiting:
                self._watched = False
                return None
        if not self._paused and self._look_again():
            self._begin(*default_stream(self._device))
        return SETTLED_S

    def _look_again(self) -> bool:
        """Return whether it is time to look for launches that have settled."""
        now = time.monotonic()
        if self._service.storage.lasts or now < self._next:
            return False
        self._next = now + SETTLED_S
        return True

    @property
    def held(self) -> int:
        """Bytes: of the device, and of what was read back as it will be when it is decoded."""
        return self._unread + DECODED * self._kept

    def records(self, launch: object) -> int | None:
        """Return how many records a warp needs, by those that came back of launches like this.

        None as long as nothing had to be read back for want of memory: no need to know.
        """
        return self._made.get(launch)

    def attempted(self, launch: object) -> int:
        """Return how many records a warp of launches like this made, kept or not; 0: not known."""
        return self._attempted.get(launch, 0)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Read nothing meanwhile: segments that have memory keep it."""
        self._service.call(self._pause)
        try:
            yield
        finally:
            with self._lock:
                self._paused -= 1

    def _pause(self) -> None:
        with self._lock:
            self._paused += 1

    def keep(self, wanted: Callable[[Taken], bool]) -> None:
        """Watch only some of the segments from now on; reading is paused."""
        with self._lock:
            every = [*self._group, *self._waiting]
            self._group.clear()
            self._waiting = deque(each for each in every if wanted(each))
            self._unread = sum(each.segment.nbytes for each in self._waiting)

    def _most(self) -> int:
        """Return how many bytes of segments may be unread before some are to be read.

        From the first ones that were on, less is enough: buffers are smaller then, and who makes
        more records than before is to be known soon.
        """
        if self._made:
            return BEGIN_BYTES
        if self._unread > BEGIN_BYTES and not self._begin_bytes:
            free = free_bytes(self._device)
            # They are a part of what there was.
            share = 0 if free is None else (free + self._unread) // SHARE
            self._begin_bytes = max(BEGIN_BYTES, min(UNREAD_BYTES, share))
        return max(BEGIN_BYTES, self._begin_bytes)

    def step(self) -> None:
        """Have those read whose launches were on the stream that is the current one now.

        The launching thread does that before its next launch: it finds the stream alive, and an
        event in it is behind all of those launches. Where it is faster than what is read, it waits
        for that: else memory would grow with launches.
        """
        self._service.look()
        short = self._unread > self._most()
        if self._paused or not (short or self._look_again()) or self._captures():
            return
        self._begin(*current_stream(self._device), short=short)
        if self._unread > self._most() + BEGIN_BYTES:
            self._wait()

    def _captures(self) -> bool:
        return not self._service.storage.lasts and is_capturing(self._device)

    def _wait(self) -> None:
        """Wait until less is unread, but not for a kernel that waits for what is launched next."""
        began = time.monotonic()
        until, least = began + PATIENCE_S * self._moves, self._unread
        self._moves = False
        while self._group and self._unread > self._most() and time.monotonic() < until:
            time.sleep(_POLL_S)
            self._service.look()
            if self._unread < least:
                until, least = time.monotonic() + PATIENCE_S, self._unread
            self._begin(*current_stream(self._device), short=True)
        self.waited_s += time.monotonic() - began

    def _begin(self, stream: Any, number: int, *, short: bool = False) -> None:
        """Have a group read that was launched on a stream, where none is under way.

        Unless memory is short, only of launches that have settled: what reads takes Python's lock.
        """
        with self._lock:
            if self._group:
                return
            self._short, past = short, time.monotonic() - (0 if short else SETTLED_S)
            for _ in range(min(_AT_ONCE, len(self._waiting))):
                each = self._waiting.popleft()
                over = each.at <= past and each.is_over(number)
                (self._group if over else self._waiting).append(each)
            if not self._group:
                return
        try:
            # Not in this thread: it may be inside the program's own call into the CUDA runtime.
            event = None if stream is None else self._service.call(stream.record_event)
        except RuntimeError:  # a kernel has failed: told at the end
            with self._lock:
                self._waiting.extendleft(reversed(self._group))
                self._group.clear()
            return
        self._service.post(partial(self._read, event))

    def _read(self, event: Any) -> float | None:
        """Read one segment of the group; return when to come again, if that is not all."""
        if not self._group:
            return None
        if self._paused:
            return _POLL_S
        try:
            if event is not None and not event.query():
                return _POLL_S
            self._lift(self._group[0])
        except Exception:  # noqa: BLE001 - no memory, a kernel that failed: told at the end
            self._group.clear()
        with self._lock:
            if self._group:
                self._group.popleft()
        return 0.0 if self._group else None

    def _lift(self, taken: Taken) -> None:
        """Copy out what a launch left, and have its memory used again."""
        import torch

        segment, storage = taken.segment, self._service.storage
        found = lift(storage, segment)
        if found is None:  # it is read when the session ends
            return
        lifted, parts = found
        piece = segment.data
        with self._lock:
            if lifted.most is not None:
                most = max(lifted.most, self._attempted.get(taken.launch, 0))
                self._attempted[taken.launch] = most
                if self._short:
                    self._made[taken.launch] = most
            self._moves = True
            self._unread -= segment.nbytes
            self._kept += lifted.nbytes
            taken.lifted, taken.notice = lifted, None
            segment.data = torch.empty(0, dtype=torch.uint8, device=self._device)
        if storage.reuses:
            storage.clear(piece, parts)
            if taken.kind.selection is not None:
                self._shelf.choose(piece, taken.kind.selection)
            self._shelf.give_back(taken.kind, piece)
