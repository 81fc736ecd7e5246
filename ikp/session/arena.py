"""An allocator of zeroed segments on one device: chunks, and a shelf of segments made ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import index
from typing import Any, Final

from ikp.core import abi
from ikp.core.segment import WORDS_AT, SegmentRows, Selection, Tensor
from ikp.errors import BufferError, PatchError, UsageError
from ikp.session.device import Device
from ikp.session.handed import made_ahead
from ikp.session.memory import SHARE, free_bytes
from ikp.session.service import Service
from ikp.session.storage import Storage

CHUNK_BYTES = 64 << 20
_LARGEST_CHUNK = 256 << 20
"""The most bytes of a chunk for more than one segment."""
WINDOW = 1 << 32
"""Kernels keep the high half of an address constant: a segment lies inside one such window."""
READY_BYTES = 512 << 20
"""Most bytes of ready segments in all; a quarter of it at most is made ahead for one kind."""
KEPT_BYTES = 1280 << 20
"""Most bytes of ready segments, those included that were used; more where more may be unread.
To zero new memory takes longer than to read a small launch."""
_MOST_READY: Final = 256


def checked_size(nbytes: Any) -> int:
    """Return the size of a segment of at least ``nbytes``, in whole vector stores.

    Raises:
        UsageError: the size can't be that of a segment.
    """
    least, most = abi.MIN_SEGMENT_BYTES, abi.MAX_SEGMENT_BYTES
    if not hasattr(nbytes, "__index__") or not least <= nbytes <= most:
        raise UsageError(
            f"a buffer of {nbytes!r} bytes can't be used: the size is {least} to "
            f"{most} bytes. The default fits most kernels; leave size out, or "
            f"let ikp.capture find it."
        )
    return -(-index(nbytes) // abi.ALIGNMENT) * abi.ALIGNMENT


class Arena:
    """Zeroed memory on one device, from which segments are carved. One thread uses it at a time.

    Memory is zeroed, and the zeroing waited for, when a chunk is allocated: a kernel on any stream
    finds it zero. A chunk is freed with the last of its segments. Where one large segment after
    another is taken, chunks get room for more of them.
    """

    def __init__(self, storage: Storage, device: Device) -> None:
        self._storage, self._device = storage, device
        self._chunk: Tensor = None
        self._used = 0
        self._size = 0  # of the segment that the latest chunk was for
        self._together = 1  # how many of these the chunk had room for, if it is a large chunk

    def take(self, nbytes: int) -> Tensor:
        """Return a zeroed uint8 tensor of ``nbytes``, aligned for vector stores.

        Raises:
            BufferError: the device has too little memory left.
        """
        piece = self._carve(nbytes)
        return self._carve_new(nbytes) if piece is None else piece

    def take_some(self, nbytes: int, most: int) -> list[Tensor]:
        """Return one to ``most`` tensors as ``take`` does, from one chunk, made at once.

        Raises:
            BufferError: the device has too little memory left for one.
        """
        first = self.take(nbytes)
        start = self._chunk.data_ptr() + self._used
        room = min(self._chunk.numel() - self._used, WINDOW - 1 - start % WINDOW)
        more = min(most - 1, room // nbytes)
        if more <= 0:
            return [first]
        rest = self._chunk[self._used : self._used + more * nbytes]
        self._used += more * nbytes
        return [first, *rest.split(nbytes)]

    def drop(self) -> None:
        """Carve nothing from the current chunk any more."""
        self._chunk = None

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
        # A chunk for many segments if there is memory; twice the size always has room on one side
        # of a window's border.
        failure: Exception | None = None
        for size in (self._chunk_bytes(nbytes), nbytes, 2 * nbytes + abi.ALIGNMENT):
            try:
                self._allocate(size)
            except (RuntimeError, MemoryError, PatchError) as error:
                failure = error
                continue
            if (piece := self._carve(nbytes)) is not None:
                return piece
        try:
            raise BufferError(
                f"no memory for a recording buffer of {nbytes / 2**20:.1f} MiB on {self._device}: "
                f"{failure}. Give a smaller size: prof.buffer(label, size=...)."
            ) from failure
        finally:
            del failure  # else it and this frame hold each other

    def _chunk_bytes(self, nbytes: int) -> int:
        """Return the size of a new chunk, with room for more segments if many of one size came."""
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
        self._chunk, self._used = None, 0  # the old chunk must be free for the next one
        self._storage.sweep()
        self._chunk = self._storage.zeroed(size)


@dataclass(frozen=True, slots=True)
class SegmentKind:
    """The kind of a segment: segments of one kind are interchangeable."""

    nbytes: int
    selection: Selection | None  # whose words are in the launch header; None where there are none


@dataclass(slots=True, eq=False)
class ReadySegments:
    """The zeroed segments of one kind that wait for launches. Any thread may take one."""

    kind: SegmentKind
    pieces: deque[Tensor] = field(default_factory=deque)
    ahead: int = 1  # how many are made at once
    filling: bool = False  # the service is to make some
    handed: bool = False  # programs are to hold them: all have the tensor for that made ahead


class Shelf:
    """Ready segments of one device. Any thread may take one; all else runs in the service.

    A launch takes a ready segment. Where few are left, the service makes more, twice as many each
    time. Only where none is left, the launching thread waits for one.
    """

    def __init__(self, service: Service, device: Device) -> None:
        self._service = service
        self._arena = Arena(service.storage, device)
        self._every: dict[SegmentKind, ReadySegments] = {}
        self._kept_bytes = KEPT_BYTES

    def ready(self, kind: SegmentKind) -> ReadySegments:
        """Return the ready segments of a kind: one object for all launches."""
        return self._every.setdefault(kind, ReadySegments(kind))

    def take(self, ready: ReadySegments, *, handed: bool = False) -> Tensor:
        """Return a zeroed segment.

        Args:
            ready: segments of its kind.
            handed: whether a program is to hold it, by the tensor that ``hand_out`` returns.

        Raises:
            BufferError: the device has too little memory left.
        """
        if handed and not ready.handed:
            self._service.call(partial(self._hand, ready))
        try:
            piece = ready.pieces.popleft()
        except IndexError:
            return self._service.call(partial(self._make, ready))
        if 2 * len(ready.pieces) < ready.ahead and not ready.filling and ready.ahead > 1:
            self._refill(ready)
        return piece

    def take_some(self, ready: ReadySegments, most: int) -> list[Tensor]:
        """Return zeroed segments that are at hand, and have the service make more for later.

        No program is to hold them, nor later ones, until one is handed out again.
        """
        ready.handed = False
        made: list[Tensor] = []
        with suppress(IndexError):
            while len(made) < most:
                made.append(ready.pieces.popleft())
        if 2 * len(ready.pieces) < ready.ahead and not ready.filling and ready.ahead > 1:
            self._refill(ready)
        return made

    def give_back(self, kind: SegmentKind, piece: Tensor) -> None:
        """Put back a segment that is zero again; in the service."""
        if self._lying() + kind.nbytes <= self._kept_bytes:
            ready = self.ready(kind)
            ready.pieces.append(made_ahead(piece) if ready.handed else piece)

    def keep(self, nbytes: int) -> None:
        """Keep so many bytes of ready segments that were used, if that is more than before."""
        self._kept_bytes = max(self._kept_bytes, nbytes)

    def _lying(self) -> int:
        """Return the bytes of all ready segments."""
        return sum(each.kind.nbytes * len(each.pieces) for each in tuple(self._every.values()))

    def _hand(self, ready: ReadySegments) -> None:
        """Make the tensors that programs hold, from now on; in the service."""
        ready.handed = True
        for piece in tuple(ready.pieces):
            made_ahead(piece)

    def _refill(self, ready: ReadySegments) -> None:
        if not ready.filling:
            ready.filling = True
            self._service.post(partial(self._fill, ready))

    def _make(self, ready: ReadySegments) -> Tensor:
        """Make a segment, and others for the launches after this one."""
        with suppress(IndexError):
            return ready.pieces.popleft()  # made meanwhile
        if self._lying() > KEPT_BYTES:  # of kinds that were launched before
            self._drop_ready()
        try:
            (piece,) = self._carved(ready, 1)
        except BufferError:
            if not self._drop_ready():
                raise
            (piece,) = self._carved(ready, 1)
        if self._service.storage.reuses:
            self._refill(ready)
        return piece

    def drop(self) -> None:
        """Hold no memory any more: it is about to end."""
        self._drop_ready()
        self._arena.drop()

    def _drop_ready(self) -> bool:
        """Free the ready segments of all kinds; return whether there were any."""
        some = [each for each in tuple(self._every.values()) if each.pieces]
        for each in some:
            each.pieces.clear()
        return bool(some)

    def _fill(self, ready: ReadySegments) -> None:
        """Make segments until as many as wanted are ready; in the service."""
        kind, pieces = ready.kind, ready.pieces
        most = max(2, min(_MOST_READY, READY_BYTES // 4 // kind.nbytes))
        ready.ahead = min(2 * ready.ahead, most)
        with suppress(BufferError, PatchError, RuntimeError):  # raised again by the next ``_make``
            while len(pieces) < ready.ahead:
                room = (READY_BYTES - self._lying()) // kind.nbytes
                if room <= 0:
                    break
                pieces.extend(self._carved(ready, min(ready.ahead - len(pieces), room)))
        ready.filling = False

    def _carved(self, ready: ReadySegments, most: int) -> list[Tensor]:
        """Return one to ``most`` new segments."""
        kind = ready.kind
        made = self._arena.take_some(kind.nbytes, most)
        if kind.selection is not None:
            self.choose(made, kind.selection)
        return list(map(made_ahead, made)) if ready.handed else made

    def choose(self, pieces: Sequence[Tensor], selection: Selection) -> None:
        """Write the selection of warps and blocks to launch headers; in the service."""
        self._service.storage.write_all(pieces, WORDS_AT, selection.words().view("u1"))

    def empty(self, kind: SegmentKind, piece: Tensor) -> None:
        """Zero a segment and write its selection again; in the service."""
        self._service.storage.clear(piece, [SegmentRows(0, kind.nbytes)])
        if kind.selection is not None:
            self.choose([piece], kind.selection)
