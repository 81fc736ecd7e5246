"""``Repeat``: a launch that repeats a recorded one, of the same kernel, grid, stream and thread.

Its patched code is loaded, and which buffer it gets is known: a launch takes the next such buffer,
and is on its way. Where anything else has changed, it is recorded as the first one was.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ikp.backends.loaded import functions
from ikp.backends.patched import PER_THREAD, RecordedLaunch
from ikp.core.segment import Selection, Tensor
from ikp.session.known_launch import LASTS_S, SlowError, now, revocations

if TYPE_CHECKING:
    from ikp.backends.loaded import Module
    from ikp.sass.cubins.extra_argument import ExtraArgument
    from ikp.session.current import Session
    from ikp.session.handed import Held
    from ikp.session.stock import Stock
    from ikp.unedited.plan import Plan


class Ahead:
    """Buffers for launches of one thread that Python makes itself.

    Args:
        stock: the buffers.
        behind: the launch parameters behind the address.
        revoked: how often stocks had been revoked before it was taken.
    """

    __slots__ = ("_free", "_left", "_revoked", "_until", "behind", "stock")

    def __init__(self, stock: Stock, behind: tuple[int, ...], revoked: int) -> None:
        self.stock, self.behind, self._revoked = stock, behind, revoked
        self._until = time.monotonic() + LASTS_S
        self._free, self._left = deque(range(stock.count)), 0
        stock.stop = self._stop

    @property
    def used(self) -> int:
        """How many buffers were taken."""
        return self.stock.count - self._left - len(self._free)

    def take(self) -> int | None:
        """Return the number of a buffer; None where the launch is to be asked about."""
        if revocations[0] != self._revoked or time.monotonic() >= self._until:
            return None
        try:
            return self._free.popleft()
        except IndexError:
            return None

    def _stop(self) -> int:
        with suppress(IndexError):
            while True:  # the launching thread may take one meanwhile
                self._free.pop()
                self._left += 1
        return self.stock.count - self._left


class Repeat:
    """What follows from a recorded launch, for launches alike in the same session.

    It keeps neither the session nor a buffer alive.

    Args:
        module: the patched kernel.
        prof: the launch's buffer.
        shape: blocks, warps of a block, and which of them record.
        device: the number of the device.
    """

    __slots__ = ("_behind", "_device", "_request", "_shape", "module")

    def __init__(
        self,
        module: Module,
        prof: Any,
        shape: tuple[tuple[int, int, int], int, Selection],
        device: int,
    ) -> None:
        request = getattr(getattr(prof.data, "ikp_notice", None), "request", None)
        again = getattr(request, "again", None)
        self._request = None if again is None else weakref.ref(request)
        self._shape, self._device, self.module = shape, device, module
        self._behind: dict[tuple[int, bool], tuple[int, ...]] = {}
        """Launch parameters behind the address: by bytes of a buffer, and whether it records."""

    @property
    def lasts(self) -> bool:
        """Whether there is anything to use again: the session keeps its request for the buffer."""
        return self._request is not None

    def take(self, stream: int) -> tuple[Held, tuple[int, ...]] | None:
        """Take the buffer of a launch that no CUDA graph captures.

        Args:
            stream: the driver's handle.

        Returns:
            The buffer's memory, to be held until the launch is made, and the launch parameters in
            words of 64 bits; None where the session records no launch now.

        Raises:
            SlowError: the launch is to be recorded as the first one was.
        """
        request = None if self._request is None else self._request()
        if request is None:
            raise SlowError
        before = now.device, now.stream
        now.device, now.stream = self._device, 0 if stream == PER_THREAD else stream
        try:
            held = request.again(request)
        finally:
            now.device, now.stream = before
        if held is None:
            return None
        notice = held.ikp_notice
        if notice is not None:
            notice.asks = False  # torch for the stream
            notice.launched(stream, captured=False)
        return held, (held.address, *self._words(held.nbytes, notice is not None))

    def unread(self) -> Tensor | None:
        """Take memory for launches that are timed alone, whose records the session does not read.

        Returns:
            The memory, which no later launch may outlive; None where the session records none now.

        Raises:
            SlowError: the device would have to be asked.
        """
        request = None if self._request is None else self._request()
        return None if request is None or request.unread is None else request.unread(request)

    def words(self, memory: Tensor) -> tuple[int, ...]:
        """Return the launch parameters of a launch that records to such memory."""
        return int(memory.data_ptr()), *self._words(int(memory.numel()), True)

    @property
    def records(self) -> bool:
        """Whether the session of the launch is open yet."""
        return self._request is not None and self._request() is not None

    @property
    def shape(self) -> tuple[tuple[int, int, int], int, Selection]:
        """Blocks, warps of a block, and which of them record."""
        return self._shape

    def ahead(self, stream: int, most: int) -> tuple[Stock, tuple[int, ...]] | None:
        """Take buffers of launches to come, which no CUDA graph captures.

        Args:
            stream: the driver's handle.
            most: how many are wanted.

        Returns:
            The buffers, and the launch parameters behind the address; None where each launch is to
            be asked about.
        """
        request = None if self._request is None else self._request()
        if request is None or request.ahead is None:
            return None
        before = now.device, now.stream
        now.device, now.stream = self._device, 0 if stream == PER_THREAD else stream
        try:
            made = request.ahead(request, most, stream)
        except SlowError:  # torch is to be asked how much memory is left
            made = None
        finally:
            now.device, now.stream = before
        return None if made is None else (made, self._words(made.nbytes, True))

    def _words(self, nbytes: int, records: bool) -> tuple[int, ...]:
        """Return the launch parameters behind the address of a buffer."""
        behind = self._behind.get((nbytes, records))
        if behind is None:
            behind = self.module.words_behind(nbytes, records, *self._shape)
            self._behind[nbytes, records] = behind
        return behind


@dataclass(frozen=True, slots=True)
class KnownLaunch:
    """A recorded launch. Its kernel has no constants, and takes the launch parameters."""

    session: weakref.ref[Session]
    label: str
    plain: int  # the function
    argument: ExtraArgument
    repeat: Repeat
    replaces: int = 0
    """How many of the kernel's own arguments the launch parameters replace, of a word each."""

    def is_usable(self) -> bool:
        """Return whether its session is open yet, and its patched code is loaded."""
        return self.repeat.records and self.repeat.module.function in functions


@dataclass(frozen=True, slots=True)
class LeftLaunch:
    """Launches alike that their launcher leaves to the driver's hook: decided on there, and made.

    ``kernel`` has the names by which the launcher counts it, ``context`` is the number of the
    driver's context, and ``anew`` returns a launch that repeats none, recorded by ``plan``.
    """

    kernel: Any
    known: KnownLaunch
    context: int
    plan: Plan
    anew: Callable[[], RecordedLaunch]

    def is_of(self, function: int) -> bool:
        """Return whether they are launches of this function."""
        return function == self.known.plain
