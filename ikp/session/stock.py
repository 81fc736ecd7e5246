"""``Stock``: segments taken ahead, for launches that are made without a question to Python.

Which of them were launched with, and when, is read from an array that the launching code writes.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ikp.core.segment import Segment, Tensor
from ikp.session.handed import StockNotice
from ikp.session.harvest import Taken
from ikp.session.known_launch import LASTS_S

if TYPE_CHECKING:
    from ikp.session.arena import SegmentKind, Shelf

STOCK_BYTES: Final = 256 << 20
"""The most bytes of a session's segments that were taken ahead, and are not launched with yet."""
_FIRST: Final = 4
_MOST: Final = 256
"""How many buffers are taken ahead at first, and at most."""
_SOON_S: Final = 0.05
"""For launches with larger gaps, none is taken ahead."""


@dataclass(slots=True)
class StockPace:
    """How many buffers launches alike take ahead: more, the more of them come soon."""

    at: float = 0.0  # when the latest launch came for which there was no buffer
    most: int = 0

    def wanted(self, now: float, used: int) -> int:
        """Return how many buffers to take now; 0 where launches are too rare.

        Args:
            now: when the launch came that found no buffer.
            used: how many launches have had a buffer since the launch before that.
        """
        soon = now - self.at <= _SOON_S + LASTS_S
        self.at = now
        self.most = min(_MOST, max(_FIRST, 2 * used)) if soon else 0
        return self.most


class Stock:
    """Segments for launches alike, by one thread, on one stream.

    Args:
        pieces: the segments' memory, zeroed.
        kind: of the segments.
        segment: of one such launch; those of the others differ in their memory alone.
        launch: a key: launches with equal keys need equal buffers.
        stream: the driver's handle.
    """

    def __init__(
        self,
        pieces: list[Tensor],
        kind: SegmentKind,
        segment: Segment,
        launch: object,
        stream: int,
    ) -> None:
        self.count, self.nbytes = len(pieces), kind.nbytes
        self.addresses = (ctypes.c_uint64 * self.count)(*[int(each.data_ptr()) for each in pieces])
        self.times = (ctypes.c_int64 * self.count)()
        """When each was launched with, in ns of ``CLOCK_MONOTONIC``: 0 for not yet, below 0 where
        the launch was refused."""
        self.stop: Callable[[], int] = lambda: self._seen
        """Has no more launches take segments, and returns how many were taken."""
        self.launched: Callable[[int], None] = lambda _: None
        """Is called with the number of further launches."""
        self.made_s = time.monotonic()
        self.ended = False
        self._left, self._seen = deque(pieces), 0
        self._kind, self._segment, self._launch = kind, segment, launch
        self._notice = StockNotice(frozenset((stream,)))
        self._every_time = np.frombuffer(memoryview(self.times), np.int64)

    @property
    def latest_s(self) -> float:
        """When the latest launch was made, in seconds of ``time.monotonic``; 0 for none yet."""
        return float(self._every_time.max()) * 1e-9

    def collect(self, most: int) -> list[Taken]:
        """Return the launches since the last call, in their order, at most so many."""
        made: list[Taken] = []
        seen, left, kind, launch, notice = (
            *(self._seen, self._left, self._kind),
            *(self._launch, self._notice),
        )
        on = self._segment.on
        for at in self.times[seen : min(self.count, seen + most)]:
            if not at:
                break
            seen += 1
            piece = left.popleft()
            if at > 0:
                made.append(Taken(on(piece), _nothing, notice, kind, False, launch, at * 1e-9))
        self._seen = seen
        if made:
            self.launched(len(made))
        return made

    @property
    def left(self) -> int:
        """How many segments were not launched with when ``collect`` last looked."""
        return self.count - self._seen

    def end(self) -> bool:
        """Have no more launches take segments; return whether all that did are known of.

        One may be under way: its segment must stay until it is made.
        """
        self.ended = True
        return self.stop() <= self._seen

    def give_back(self, shelf: Shelf) -> None:
        """Shelve what no launch has taken; after ``end``."""
        while self._left:
            shelf.give_back(self._kind, self._left.popleft())


def _nothing() -> None:
    """Return the tensor that a program holds of such a segment: none."""
