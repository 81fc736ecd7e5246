"""The reclaim of segments during a session: buffers of finished launches are read and used again.

A buffer to which the program holds no reference can't be launched with again. If its kernel is
done, its records can be copied out and the memory used for the next launch, while others still
run: so a long session's memory does not grow. The launching thread records an event and goes on;
the service (``ikp.session.service``) polls the event. Only a program that launches faster than its
launches are read waits, and not for kernels that make no progress.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ikp.core.segment import Segment, SegmentRows, Tensor
from ikp.errors import PatchError
from ikp.session.arena import SegmentKind, Shelf
from ikp.session.copies import Replayed
from ikp.session.device import HOST, Device, NoBytes
from ikp.session.handed import Notice, StockNotice
from ikp.session.lifting import Drain, Drained, Lifted, Whole, copies_of, lift_all
from ikp.session.memory import DEFAULT_BYTES, SHARE, free_bytes
from ikp.session.service import Service
from ikp.session.storage import current_stream, default_stream, is_capturing

BEGIN_BYTES = 256 << 20
"""Bytes of all buffers up to which memory is never short, and launches get more than they may need
while it is not known how much that is."""
UNREAD_BYTES = 1536 << 20
"""Bytes up to which memory is not short if they are a small share of the device's free memory."""
_AT_ONCE = 64
_TOGETHER = 16
"""The most segments that are copied together: others want the service meanwhile."""
_SHORTLY = 4
"""The same where memory is far from short: the next launch may wait for Python's lock meanwhile."""
_LEAVES = 9
"""For so many times as long as reading takes, it rests; the less, the fuller memory is."""
_REST_S = 0.005
"""The interval at which a rest looks whether memory is short."""
_PAUSE_S = 0.001
"""So long after a launch, the program makes a pause of launches: reading waits for one."""
_LOOK_S = 0.002
"""The interval at which a pause is looked for."""
_NO_PAUSE_S = 0.05
"""The longest wait for a pause."""
_FULLER_S = 0.002
"""The interval at which launches are looked for where memory is half full."""
_POLL_S = 0.001
"""The interval at which the end of launches is polled."""
SETTLED_S = 0.05
"""Age at which a launch on a GPU is read though memory is not short: a kernel that fails later
would take all records in the GPU's memory with it."""
PATIENCE_S = 0.5
"""The longest wait of a launch for memory while no segment is read."""
DECODED = 4
"""The size of a decoded trace by that of the bytes read back."""


after_reading: list[Callable[[], None]] = []
"""Called where segments have been read: C's exit() destroys what torch has made for that."""


@dataclass(slots=True, eq=False)
class Taken:
    """A segment that was handed out, with a weak reference to the tensor that the program holds.

    ``heard`` says that a kernel has written to it before it was emptied.
    """

    segment: Segment
    handed: Callable[[], Tensor | None]
    notice: Notice | StockNotice | None  # None where no kernel records into it
    kind: SegmentKind
    heard: bool = False
    launch: object = None  # a key: launches with equal keys need equal buffers
    at: float = field(default_factory=time.monotonic)  # when it was taken
    drain: Drain | None = None  # of a stream, until it is lifted
    lifted: Lifted | Replayed | Drained | Whole | None = None  # on the host: its memory is free

    def is_void(self) -> bool:
        """Return whether a launcher took it, and was interrupted before it launched the kernel."""
        notice = self.notice
        never = notice is not None and not notice.streams and not self.heard
        return never and bool(self.segment.kernel) and self.handed() is None

    def is_over(self, stream: int) -> bool:
        """Return whether all its launches were on one stream, and there can be no others."""
        return (
            self.handed() is None
            and self.notice is not None
            and not self.notice.captured
            and self.notice.streams == {stream}
        )


class Harvest:
    """The reclaim of one device: reads segments of finished launches, and shelves their memory."""

    def __init__(self, device: Device, service: Service, shelf: Shelf) -> None:
        self._device, self._service, self._shelf = device, service, shelf
        self._lock = threading.Lock()
        self._waiting: deque[Taken] = deque()
        self._unread = 0  # bytes of segments that have memory
        self._kept = 0  # bytes read back
        self._begin_bytes = 0  # unread bytes from which on memory is short; 0 until it is computed
        self._made: dict[object, int] = {}  # records of the busiest warp, by what launches share
        self._attempted: dict[object, int] = {}  # the same, whether memory is short or not
        self.sizes = 0  # how often these figures changed, or there was no more room
        self._roomy = False  # a buffer of more than its launch may need was made since
        self.crowded = False  # memory may be short
        self._group: deque[Taken] = deque()  # segments being read now
        self._paused = 0
        self._short = False  # the group is read because memory is short
        self._watched = False  # the service looks for launches that have settled
        self._rests = 0.0  # until when no segment is read, unless memory is short
        self._latest = 0.0  # when a segment was taken
        self._found = 0.0  # when the latest group was found, or a part of it read
        self.next_look = 0.0  # when to look for settled launches; 0 where each launch is to
        self._moves = True  # a segment was read since a launch last waited for one in vain
        self.waited_s = 0.0  # by launches, for memory
        self._noted = 0.0  # when launches that were not known of were last added
        self.collect: Callable[[], bool | None] = lambda: None
        """Adds some launches that are not known of yet; returns whether there are more now, or None
        where no more can come."""
        self.launched_s: Callable[[], float] = lambda: 0.0
        """Returns when the latest launch was made that is not known of, or an earlier one."""

    def add(self, *taken: Taken) -> None:
        """Watch segments, the latest last."""
        with self._lock:
            self._waiting.extend(taken)
            self._unread += sum([each.kind.nbytes for each in taken])
            self.crowded = self._unread > BEGIN_BYTES
            if self._roomy and not self._has_room():
                self._roomy = False
                self.sizes += 1
            self._latest = taken[-1].at
        if not self._watched:
            self.watch()

    def watch(self) -> None:
        """Have the service look for launches that have settled, until there are none."""
        with self._lock:
            begins = not (self._watched or self._service.storage.lasts)
            self._watched |= begins
        if begins:
            self._service.post(self._watch)

    def _watch(self) -> float | None:
        """Read segments settled on the default stream, which is never destroyed; in the service."""
        if not self.crowded and self._is_launching(self.launched_s(), self._noted):
            return _LOOK_S  # to note launches takes Python's lock, too
        more = self.collect()
        if not more:
            self._noted = time.monotonic()
        with self._lock:
            if not self._waiting and more is None:
                self._watched = False
                return None
        fuller = self._is_fuller()
        if not self._paused and (self._look_again() or fuller):
            self._begin(*default_stream(self._device), settled=not fuller)
        if more:
            return _PAUSE_S
        return _FULLER_S if fuller and self._group else SETTLED_S

    def _is_launching(self, latest: float, since: float) -> bool:
        """Return whether to wait for a pause of launches, of which one was waited for since."""
        until = min(latest + _PAUSE_S, since + _NO_PAUSE_S)
        return time.monotonic() < until and not self._service.storage.lasts

    def _is_fuller(self) -> bool:
        """Return whether half of what may be unread is: launches are read before they settle."""
        return self.crowded and 2 * self._unread > self._most()

    @property
    def is_short(self) -> bool:
        """Whether memory is short."""
        return self._unread > self._most()

    def _look_again(self) -> bool:
        """Return whether it is time to look for launches that have settled."""
        now = time.monotonic()
        if self._service.storage.lasts or now < self.next_look:
            return False
        self.next_look = now + SETTLED_S
        return True

    @property
    def held(self) -> int:
        """Bytes of unread segments on the device, and of read-back ones as they will be decoded."""
        return self._unread + DECODED * self._kept

    def records(self, launch: object) -> int | None:
        """Return the records of the busiest warp of earlier launches with this key.

        None as long as no segment was read because memory was short: the size needs no limit.
        """
        return self._made.get(launch)

    def roomy(self, launch: object) -> bool:
        """Return whether a launch gets more than it may need: none like it was read.

        ``sizes`` changes once there is no room for more such launches.
        """
        with self._lock:
            found = launch not in self._attempted and self._has_room()
            self._roomy |= found
        return found

    def _has_room(self) -> bool:
        return self._unread + DEFAULT_BYTES["timeline"] <= BEGIN_BYTES

    def attempted(self, launch: object) -> int:
        """Return how many records a warp of launches like this made, kept or not; 0: not known."""
        return self._attempted.get(launch, 0)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Read no segment within the context: segments that have memory keep it."""
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
            self._group = deque()  # another one: what reads the old one must not read the next
            self._waiting = deque(each for each in every if wanted(each))
            self._unread = sum(each.segment.nbytes for each in self._waiting)
            self.crowded = self._unread > BEGIN_BYTES

    def _most(self) -> int:
        """Return how many bytes of segments may be unread before some are to be read.

        Once buffers are smaller, the least will do: a launch with more records than before is to be
        noticed soon.
        """
        if self._made:
            return BEGIN_BYTES
        if self._unread > BEGIN_BYTES and not self._begin_bytes:
            free = free_bytes(self._device)
            # The unread bytes were free before.
            share = 0 if free is None else (free + self._unread) // SHARE
            self._begin_bytes = max(BEGIN_BYTES, min(UNREAD_BYTES, share))
            self._shelf.keep(self._begin_bytes + BEGIN_BYTES)
        return max(BEGIN_BYTES, self._begin_bytes)

    def step(self) -> None:
        """Have the segments read whose launches were on the stream that is current now.

        The launching thread calls this before its next launch: the stream is alive, and an event in
        it comes after all of those launches. Where the thread is faster than the reading, it waits:
        else memory would grow with launches.
        """
        self._service.look()
        short = self._unread > self._most()
        if self._paused or not (short or self._look_again()) or self._captures():
            return
        fuller = self._is_fuller()
        self._begin(*current_stream(self._device), short=short, settled=not fuller)
        if self._unread > self._most() + BEGIN_BYTES:
            self._wait()

    def _captures(self) -> bool:
        return not self._service.storage.lasts and is_capturing(self._device)

    def _wait(self) -> None:
        """Wait until less is unread, but not for a kernel that itself waits for the next launch."""
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

    def _begin(
        self, stream: Any, number: int, *, short: bool = False, settled: bool = True
    ) -> None:
        """Have a group of segments launched on a stream read, unless a group is being read.

        Args:
            stream: None for the host.
            number: its handle.
            short: whether memory is short.
            settled: whether only launches that have settled are read, unless memory is short.
        """
        with self._lock:
            if self._group:
                return
            self._found = time.monotonic()
            self._short, past = short, self._found - (SETTLED_S if settled and not short else 0)
            for _ in range(min(_AT_ONCE, len(self._waiting))):
                each = self._waiting.popleft()
                over = each.at <= past and each.is_over(number)
                (self._group if over else self._waiting).append(each)
            if not self._group:
                return
        try:
            # Not in this thread: it may be inside the program's own call into the CUDA runtime.
            event = None if stream is None else self._service.call(stream.record_event)
        except (PatchError, RuntimeError):  # a kernel has failed: reported when the session ends
            with self._lock:
                self._waiting.extendleft(reversed(self._group))
                self._group.clear()
            return
        self._service.post(partial(self._read, self._group, event))

    def _read(self, group: deque[Taken], event: Any) -> float | None:
        """Read some segments of a group; return the seconds until the next call, or None.

        The event says that the group's launches are over, and of no other launches.

        Reading holds Python's lock for much of its time. Unless memory is short, it waits for a
        pause of launches, and leaves the program most of the time.
        """
        if not group or group is not self._group:
            return None
        if self._paused:
            return _POLL_S
        began, together = time.monotonic(), 0
        if self._unread <= self._most():
            if began < self._rests:
                return _REST_S
            if self._is_launching(max(self._latest, self.launched_s()), self._found):
                return _LOOK_S
        try:
            if event is not None and not event.query():
                return _POLL_S
            together = min(_TOGETHER if self.crowded else _SHORTLY, len(group))
            self._lift([group[at] for at in range(together)])
        except Exception:  # noqa: BLE001 - no memory, a failed kernel: reported at the end
            group.clear()
        for each in after_reading:
            each()
        with self._lock:
            for _ in range(min(together, len(group))):
                group.popleft()
        self._found = now = time.monotonic()
        full = self._unread / self._most() if self.crowded else 0.0
        self._rests = now + _LEAVES * max(0.0, 1 - 2 * full) * (now - began)
        return 0.0 if group else None

    def _lift(self, some: list[Taken]) -> None:
        """Copy launches' segments to the host, and shelve their memory."""
        storage = self._service.storage
        free: list[tuple[Taken, Tensor, list[SegmentRows]]] = []
        whole = [each for each in some if each.drain is None]
        lifted = dict(
            zip(map(id, whole), lift_all(storage, [each.segment for each in whole]), strict=True)
        )
        for taken in some:
            found = lifted[id(taken)] if taken.drain is None else taken.drain.lift()
            if found is not None:  # else the segment is read when the session ends
                free.append((taken, taken.segment.data, found[1]))
                self._lifted(taken, found[0])
        if storage.reuses:
            storage.clear_all([(piece, parts) for _, piece, parts in free])
            for taken, piece, _ in free:
                self._give_back(taken.kind, piece)

    def leave(self, taken: list[Taken]) -> None:
        """Copy the records of launches to the host, all of which have ended, for good.

        Args:
            taken: the launches on the device, whose memory is about to end.
        """
        self._service.call(partial(self._leave, taken))

    def _leave(self, taken: list[Taken]) -> None:
        with self._lock:
            self._paused += 1
            self._group.clear()
            self._waiting.clear()
            self._unread = 0
        there = [each for each in taken if each.lifted is None and not each.is_void()]
        for at in range(0, len(there), _TOGETHER):
            for each, lifted in self._for_good(there[at : at + _TOGETHER]):
                each.lifted, each.drain = lifted, None
                self._kept += lifted.nbytes
        for each in taken:
            each.segment.data = NoBytes(HOST)

    def _for_good(self, some: list[Taken]) -> Iterator[tuple[Taken, Lifted | Drained | Whole]]:
        """Yield launches with their records, all bytes of them where no parts are known."""
        storage = self._service.storage
        whole = [each for each in some if each.drain is None]
        yield from zip(whole, copies_of(storage, [each.segment for each in whole]), strict=True)
        for each in some:
            if each.drain is not None:
                yield each, each.drain.so_far()

    def _give_back(self, kind: SegmentKind, piece: Tensor) -> None:
        """Shelve the cleared memory of a segment."""
        if kind.selection is not None:
            self._shelf.choose([piece], kind.selection)
        self._shelf.give_back(kind, piece)

    def _lifted(self, taken: Taken, lifted: Lifted | Drained) -> None:
        """Note a launch's bytes on the host: its memory is free."""
        segment = taken.segment
        with self._lock:
            if lifted.most is not None:
                most = max(lifted.most, self._attempted.get(taken.launch, 0))
                known = self._attempted.get(taken.launch), self._made.get(taken.launch)
                self._attempted[taken.launch] = most
                mode = "totals" if segment.spec.totals else "timeline"
                if self._short and segment.nbytes > DEFAULT_BYTES[mode]:
                    self._made[taken.launch] = most
                self.sizes += known != (most, self._made.get(taken.launch))
            self._moves = True
            self._unread -= segment.nbytes
            self.crowded = self._unread > BEGIN_BYTES
            self._kept += lifted.nbytes
            taken.lifted, taken.notice, taken.drain = lifted, None, None
            segment.data = NoBytes(self._device)
