"""``timed``: events around the program's own launches, to compare recorded and plain ones.

The plain launches are the program's own, between the chosen ones or after them. The difference of
both is what recording took: what an event takes is in both. Where recorded and plain launches came
in turn, each is compared with its neighbour: how the program's launches change, or the GPU's clock,
cancels.

A few pairs know a short kernel's difference within some points only. So once a kernel has no launch
left to record, further ones have records in turn, until the difference is known well enough. They
write to memory that is not read: such a launch is timed, and its records are not kept.

The hook holds an idle GPU until a timed launch is queued. Where it can't, as the launch itself
waits for the GPU, between the events is time of the host: such a launch has no time. If that is so
of all recorded ones, the plain ones alone are reported.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from ikp.core.run_figures import TIMED
from ikp.core.segment import Tensor
from ikp.driver import cuda
from ikp.errors import IkpError

if TYPE_CHECKING:
    from ikp.backends._pairs import Time
    from ikp.backends.repeats import KnownLaunch
    from ikp.core.run_figures import TimedLaunches

MOST: Final = 9
"""Launches of each kind that are timed. The first one is left out: its code is in no cache."""
ASKED: Final = 160
"""Launches of a function, recorded no more, after which none is timed, of any grid."""
FURTHER: Final = 64
"""Launches of a grid in turn, half of them with records that are not read."""
_AT_ONCE: Final = 8
"""Launches in turn after which it is looked whether the difference is known well enough."""
WELL_KNOWN: Final = 0.01
"""The error of the difference, in plain launches, at which no more launches are timed."""

QUIET: Final = 24
"""Launches in a row of which none is kept, in a program whose launches overlap."""
_WAITED: Final = 4096
"""Launches after which it is not waited for them any more."""

_Shape = tuple[int, int, int]


class _Events(NamedTuple):
    """The events around one launch, and its place among all timed ones."""

    first: int
    last: int
    place: int


class _Further(NamedTuple):
    """What further launches of a kernel and grid need to have records."""

    known: KnownLaunch  # that they repeat
    number: int  # of the plain function, which no other function ever has
    block: _Shape | None  # threads; None where the function has one shape of blocks alone


@dataclass(slots=True)
class _Launches:
    """The timed launches of one kernel and grid."""

    label: str
    facts: MutableMapping[str, str]  # of the session that recorded it first
    recorded: list[_Events] = field(default_factory=list)
    plain: list[_Events] = field(default_factory=list)
    further: _Further | None = None
    unread: Tensor | None = None  # the memory of further launches
    turns: int = 0  # further launches, plain ones too
    is_well_known: bool = False

    def goes_on(self, *, further: bool) -> bool:
        """Return whether a later launch is to be timed.

        Args:
            further: whether none is to be recorded any more, and some may have records.
        """
        if not further or self.further is None:
            return _has_place(self.plain)
        return self.turns < FURTHER and not self.is_well_known

    def turn(self, grid: _Shape) -> None:
        """Note that a further launch was timed."""
        self.turns += 1
        if self.turns % _AT_ONCE == 0:
            made = _compared(grid, self.recorded, self.plain)
            if made is not None and made.in_turn:
                self.is_well_known = made.error_us < WELL_KNOWN * made.plain_us


@dataclass(slots=True)
class _TimedFunction:
    """The launches of one plain function, and of its copies with records."""

    grids: dict[_Shape, _Launches] = field(default_factory=dict)
    asked: int = 0  # plain launches


class _Next(threading.local):
    events: _Events | None = None  # of this thread's latest timed launch


@dataclass(slots=True)
class Timed:
    """The timed launches of this process, by the plain function and its context.

    ``reports`` is the number of the next report: launches are timed anew after each.
    """

    reports: int = 1
    _functions: dict[tuple[int, int], _TimedFunction] = field(default_factory=dict)
    _off: bool = False
    _overlap: bool = False
    _quiet: int = 0  # launches asked about since one was recorded
    _waited: int = 0
    _next: _Next = field(default_factory=_Next)
    _places: Iterator[int] = field(default_factory=count)

    def recorded(
        self,
        function: int,
        grid: _Shape,
        label: str,
        facts: MutableMapping[str, str] | None,
    ) -> bool:
        """Time this thread's next launch, of a kernel with records, if it is one of the first.

        No CUDA graph captures it.

        Args:
            function: the plain function's handle.
            grid: blocks.
            label: under which it is recorded.
            facts: of the session that records it; None for none.

        Returns:
            Whether it is timed.
        """
        if facts is None or self._off:
            return False
        self._quiet = 0
        key = function, cuda.context_number()
        grids = self._functions.setdefault(key, _TimedFunction()).grids
        each = grids.setdefault(grid, _Launches(label, facts))
        return not self._overlap and self._time(each.recorded)

    def repeats(
        self,
        function: int,
        grid: _Shape,
        known: KnownLaunch,
        number: int,
        block: _Shape | None = None,
    ) -> None:
        """Have further launches of a function and grid repeat a recorded one, which is timed.

        Args:
            function: the plain function's handle.
            grid: blocks.
            known: the recorded launch.
            number: of the plain function, which no other function ever has.
            block: threads; None where the function has one shape of blocks alone.
        """
        here = self._functions.get((function, cuda.context_number()))
        each = None if here is None else here.grids.get(grid)
        if each is not None and each.further is None:
            each.further = _Further(known, number, block)

    def refused(self, function: int) -> None:
        """Have no further launch of a function with records: the driver has refused one.

        Args:
            function: the plain function's handle.
        """
        known = self._functions.get((function, cuda.context_number()))
        for each in () if known is None else known.grids.values():
            each.further = None

    def keep_plain(self, label: str) -> None:
        """Have no further launch of a label with records: one with records has failed."""
        for each in self._every():
            if each.label == label:
                each.further = None

    def further(
        self,
        function: int,
        number: int,
        grid: _Shape,
        block: _Shape,
        stream: int,
        take: Callable[[Callable[[], Tensor | None], int], Tensor | None],
    ) -> tuple[KnownLaunch, tuple[int, ...]] | None:
        """Time this thread's next launch, of a kernel that is recorded no more, with records.

        Args:
            function: the plain function's handle.
            number: of the plain function.
            grid: blocks.
            block: threads.
            stream: of the launch.
            take: takes memory on a stream, as a function that is given does. Raises an IkpError.

        Returns:
            The launch that it is to repeat, and its launch parameters, whose memory is not read;
            None where it is to be plain.
        """
        here = self._functions.get((function, cuda.context_number()))
        each = None if here is None or not self._is_quiet else here.grids.get(grid)
        further = None if each is None else each.further  # another thread may end it at any time
        if here is None or each is None or further is None or here.asked >= ASKED:
            return None
        known = further.known
        turns = each.goes_on(further=True) and each.turns.bit_count() % 2  # Thue and Morse
        alike = further.number == number and further.block in (None, block)
        if not turns or not alike or not known.is_usable() or self._captured(stream):
            return None
        if each.unread is None:
            with suppress(IkpError):
                each.unread = take(known.repeat.unread, stream)
        if each.unread is None:
            each.further = None
            return None
        here.asked += 1
        if not self._time(each.recorded, MOST + FURTHER):
            return None
        each.turn(grid)
        return known, known.repeat.words(each.unread)

    def plain(self, function: int, grid: _Shape, stream: int, *, further: bool = False) -> bool:
        """Time this thread's next launch, of a plain kernel, if it is one of the first.

        Args:
            function: its handle.
            grid: blocks.
            stream: of the launch.
            further: whether none is to be recorded any more, and some may have records.

        Returns:
            Whether a later one may be timed.
        """
        if self._off or not self._functions or (self._overlap and not further):
            return False
        known = self._functions.get((function, cuda.context_number()))
        if known is None or known.asked >= ASKED:
            return False
        self._quiet += 1
        if not self._is_quiet:
            self._waited += 1
            return self._waited < _WAITED
        known.asked += 1
        each = known.grids.get(grid)
        if each is not None and each.goes_on(further=further) and not self._captured(stream):
            turns = further and each.further is not None
            if self._time(each.plain, MOST + FURTHER if turns else MOST) and turns:
                each.turn(grid)
        return any(each.goes_on(further=further) for each in known.grids.values())

    def overlap(self) -> None:
        """Time no launch that is kept from now on: the program has launches that overlap (PDL).

        An event between two kernels makes the second wait for the first. Further launches are timed
        once no launch is kept: the trace shows the others as they are.
        """
        self._overlap = True

    @property
    def _is_quiet(self) -> bool:
        """Whether further launches may be timed."""
        return not self._off and (not self._overlap or self._quiet > QUIET)

    def _captured(self, stream: int) -> bool:
        try:
            return cuda.capturing(stream)
        except IkpError:
            return True

    def _time(self, events: list[_Events], most: int = MOST) -> bool:
        if len(events) >= most:
            return False
        made: list[int] = []
        try:
            made += [cuda.event()]
            made += [cuda.event()]
            self._off = not cuda.time_next(*made)
        except (IkpError, AttributeError):  # a driver without events, or a broken context
            self._off = True
        if self._off:
            _destroy(made)
        else:
            events.append(_Events(made[0], made[1], next(self._places)))
            self._next.events = events[-1]
        return not self._off

    def ended(self, *, failed: bool) -> None:
        """Have no later launch timed in place of this thread's last one, which may have failed.

        A launch that failed has not recorded the events, or not both.
        """
        latest, self._next.events = self._next.events, None
        if latest is None:
            return
        cuda.time_next(0, 0)
        if failed:
            for each in self._every():
                for events in (each.recorded, each.plain):
                    if latest in events:
                        events.remove(latest)
            _destroy(latest[:2])

    def _every(self) -> Iterator[_Launches]:
        every = tuple(self._functions.values())
        return (each for known in every for each in tuple(known.grids.values()))

    def report(self) -> None:
        """Add what launches of both kinds took to their sessions' facts; forget all launches."""
        found, self._functions = self._functions, {}
        self.reports += 1
        every = (each for function in found.values() for each in function.grids.items())
        for grid, each in every:
            made = _compared(grid, each.recorded, each.plain)
            if made is not None:
                key = f"{TIMED}{each.label}"
                lines = [*each.facts.get(key, "").splitlines(), made.text()]
                each.facts[key] = "\n".join(lines)
            over = [_destroyed(events) for events in (each.recorded, each.plain)]
            if each.unread is not None and not all(over):
                _pinned.append(each.unread)


def _has_place(events: list[_Events]) -> bool:
    """Return whether one more plain launch is to be timed.

    Launches that an idle GPU waited for take no place: their events are destroyed, but the first's.
    Each is taken out before it is looked at: several threads may launch at once.
    """
    for _ in range(len(events) - 1 if len(events) >= MOST else 0):
        with suppress(IndexError):  # another thread has taken it
            one = events.pop(1)
            took = cuda.elapsed_us(*one[:2])
            if took is not None and took <= 0:
                _destroy(one[:2])
            else:
                events.append(one)
    return len(events) < MOST


def _compared(
    grid: _Shape, recorded: Iterable[_Events], plain: Iterable[_Events]
) -> TimedLaunches | None:
    """Return launches of both kinds beside each other; None where too few have happened."""
    from ikp.backends._pairs import compared  # programs that launch nothing need none of it

    return compared(grid, _taken(recorded), _taken(plain))


def _taken(events: Iterable[_Events]) -> list[Time]:
    """Return the times between events that have happened, less the first one's.

    Launches that an idle GPU waited for have none.
    """
    from ikp.backends._pairs import Time

    every = [(each.place, cuda.elapsed_us(*each[:2])) for each in events]
    times = [Time(place, us) for place, us in every if us is not None]
    return [each for each in times[1:] if each.us > 0]


def _destroyed(events: Iterable[_Events]) -> bool:
    """Destroy the events that have happened; return whether all have.

    Others another thread's launch may yet record.
    """
    over = True
    for each in events:
        if cuda.elapsed_us(*each[:2]) is None:
            over = False
        else:
            _destroy(each[:2])
    return over


def _destroy(events: Iterable[int]) -> None:
    with suppress(IkpError, AttributeError):  # a driver without events
        for each in events:
            cuda.destroy_event(each)


_pinned: list[Tensor] = []
"""Memory that kernels may write to yet: never freed."""
timed = Timed()
"""The timed launches of this process."""
