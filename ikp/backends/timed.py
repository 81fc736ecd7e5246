"""``timed``: events around the program's own launches; medians of recorded and plain ones.

The plain launches are the program's own, between the chosen ones or after them. The difference of
both is what recording took: what an event takes is in both. Where recorded and plain launches came
in turn, each is compared with its neighbour: how the program's launches change, or the GPU's clock,
cancels. Else the medians of all are compared.

The hook holds an idle GPU until a timed launch is queued. Where it can't, as the launch itself
waits for the GPU, between the events is time of the host: such a launch has no time. If that is so
of all recorded ones, the plain ones alone are reported.
"""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

from ikp.core.run_figures import TIMED, TimedLaunches
from ikp.driver import cuda
from ikp.errors import IkpError

MOST: Final = 9
"""Launches of each kind that are timed. The first one is left out: its code is in no cache."""
ASKED: Final = 100
"""Plain launches of a function after which no more is timed, of any grid."""
LEAST: Final = 3
"""Launches of each kind without which they are not compared."""

_Shape = tuple[int, int, int]


class _Events(NamedTuple):
    """The events around one launch, and its place among all timed ones."""

    first: int
    last: int
    place: int


class _Time(NamedTuple):
    """How long a launch took, with what events take, and its place among all timed ones."""

    place: int
    us: float


@dataclass(slots=True)
class _Launches:
    """The timed launches of one kernel and grid."""

    label: str
    facts: MutableMapping[str, str]  # of the session that recorded it first
    recorded: list[_Events] = field(default_factory=list)
    plain: list[_Events] = field(default_factory=list)


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
        key = function, cuda.context_number()
        grids = self._functions.setdefault(key, _TimedFunction()).grids
        return self._time(grids.setdefault(grid, _Launches(label, facts)).recorded)

    def plain(self, function: int, grid: _Shape, stream: int) -> bool:
        """Time this thread's next launch, of a plain kernel, if it is one of the first.

        Returns:
            Whether a later one may be timed.
        """
        if self._off or not self._functions:
            return False
        known = self._functions.get((function, cuda.context_number()))
        if known is None or known.asked >= ASKED:
            return False
        known.asked += 1
        if grid in known.grids and not self._captured(stream):
            self._time(known.grids[grid].plain)
        return any(_has_place(each.plain) for each in known.grids.values())

    def stop(self) -> None:
        """Time no launch from now on: the program has launches that overlap (PDL).

        An event between two kernels makes the second wait for the first.
        """
        self._off = True

    def _captured(self, stream: int) -> bool:
        try:
            return cuda.capturing(stream)
        except IkpError:
            return True

    def _time(self, events: list[_Events]) -> bool:
        if len(events) >= MOST:
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
        return (each for known in self._functions.values() for each in known.grids.values())

    def report(self) -> None:
        """Add what launches of both kinds took to their sessions' facts; forget all launches."""
        found, self._functions = self._functions, {}
        self.reports += 1
        every = (each for function in found.values() for each in function.grids.items())
        for grid, each in every:
            recorded, plain = _times(each.recorded), _times(each.plain)
            made = _in_turn(grid, recorded, plain) or _apart(grid, recorded, plain)
            if made is not None:
                key = f"{TIMED}{each.label}"
                lines = [*each.facts.get(key, "").splitlines(), made.text()]
                each.facts[key] = "\n".join(lines)


def _in_turn(
    grid: _Shape, recorded: Sequence[_Time], plain: Sequence[_Time]
) -> TimedLaunches | None:
    """Return recorded launches beside plain ones next to them; None where too few are."""
    kinds = [(each, True) for each in recorded] + [(each, False) for each in plain]
    pairs: list[tuple[float, float]] = []
    left: tuple[_Time, bool] | None = None  # the one before, if it is in no pair
    for time, is_recorded in sorted(kinds):
        if left is None or left[1] == is_recorded:
            left = time, is_recorded
            continue
        pairs.append((time.us, left[0].us) if is_recorded else (left[0].us, time.us))
        left = None
    if len(pairs) < LEAST:
        return None
    longer = [one - other for one, other in pairs]
    with_records = statistics.median(one for one, _ in pairs)
    without = with_records - statistics.median(longer)
    counts = len(pairs), len(pairs)
    return TimedLaunches(grid, with_records, without, _error(longer), counts, in_turn=True)


def _apart(grid: _Shape, recorded: Sequence[_Time], plain: Sequence[_Time]) -> TimedLaunches | None:
    """Return the medians of both kinds; None where too few plain launches have a time."""
    some, others = [each.us for each in recorded], [each.us for each in plain]
    if len(others) < LEAST:
        return None
    enough = len(some) >= LEAST
    return TimedLaunches(
        grid,
        statistics.median(some) if enough else None,
        statistics.median(others),
        _error(others) + (_error(some) if enough else 0.0),
        (len(some), len(others)),
    )


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


def _times(events: list[_Events]) -> list[_Time]:
    """Return the times between events, less the first one's; destroy events that have happened.

    Launches that an idle GPU waited for have none.
    """
    times = []
    for each in events:
        took = cuda.elapsed_us(*each[:2])
        if took is not None:  # else another thread's launch may yet record them
            times.append(_Time(each.place, took))
            _destroy(each[:2])
    return [each for each in times[1:] if each.us > 0]


def _destroy(events: Iterable[int]) -> None:
    with suppress(IkpError, AttributeError):  # a driver without events
        for each in events:
            cuda.destroy_event(each)


def _error(times: Sequence[float]) -> float:
    """Return how far the median of some times is off at most, in 95 of 100 cases.

    Of 3 to 9 normal ones it is 1.7 to 2.3 times their quartiles' distance over their number's root.
    """
    low, _, high = statistics.quantiles(times, n=4)
    return float(2 * (high - low) / math.sqrt(len(times)))


timed = Timed()
"""The timed launches of this process."""
