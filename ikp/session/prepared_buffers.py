"""``Prepared``: buffers for ``prof.buffer``, made ahead as wholes: segment, notice and argument.

Most launches by hand repeat an earlier one's request, and find nothing out. What they ask each time
is the kill switch, the process, the device, and the capture. All else that may change revokes what
was made ahead, or is looked at once it is too old.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ikp.session.known_launch import LASTS_S, revocations

if TYPE_CHECKING:
    from ikp.session.arena import SegmentKind, Shelf
    from ikp.session.harvest import Taken


class Prepared:
    """Buffers made ahead. Any thread may take one.

    Args:
        made: the ``prof`` argument of each, and what is noted of it.
        kind: of the segments.
        holds: whether a launch here and now would get such a buffer.
        revoked: how often stocks had been revoked before these were made.
    """

    def __init__(
        self,
        made: list[tuple[Any, Taken]],
        kind: SegmentKind,
        holds: Callable[[], bool],
        revoked: int,
    ) -> None:
        self.count, self.nbytes, self._kind = len(made), kind.nbytes, kind
        self.made_s, self.ended = time.monotonic(), False
        self._until, self._revoked, self._holds = self.made_s + LASTS_S, revoked, holds
        self._free, self._seen = deque(made), 0
        self._given: deque[Taken] = deque()  # since the last ``collect``
        self._back: list[Taken] = []  # that no launch has taken, once these have ended

    def take(self) -> Any:
        """Return the ``prof`` argument of a buffer; None where one is to be made anew."""
        now = time.monotonic()
        if revocations[0] != self._revoked or now >= self._until or not self._holds():
            return None
        try:
            prof, taken = self._free.popleft()
        except IndexError:
            return None
        taken.at = now
        self._given.append(taken)
        return prof

    @property
    def used(self) -> int:
        """How many were taken."""
        return self.count - len(self._free) - len(self._back)

    def collect(self) -> list[Taken]:
        """Return what was taken since the last call, in its order."""
        made = []
        with suppress(IndexError):
            while True:
                made.append(self._given.popleft())
        self._seen += len(made)
        return made

    @property
    def left(self) -> int:
        """How many were not taken when ``collect`` last looked."""
        return self.count - self._seen

    def end(self) -> bool:
        """Have no more taken; return whether all that were are known of: one may be under way."""
        self.ended = True
        with suppress(IndexError):
            while True:  # another thread may take one meanwhile
                self._back.append(self._free.pop()[1])
        return self._seen + len(self._back) == self.count

    def give_back(self, shelf: Shelf) -> None:
        """Shelve what was not taken; after ``end``."""
        while self._back:
            shelf.give_back(self._kind, self._back.pop().segment.data)
        self.count = self._seen
