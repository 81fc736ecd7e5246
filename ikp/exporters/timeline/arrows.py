"""Which arrows a timeline can show, and where each one starts and ends.

Viewers draw an arrow from the start of one event to the start of another; Perfetto turns one round
that would go back in time. So where the target had begun before its source did (a wait for what
was issued later), the arrow ends at an instant of its own, named ``arrow``, at the end of the
target. A target that is over by then gets none: times were changed, or are too coarse to tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.flows import arrows, spread
from ikp.core.trace import Trace

Ints = NDArray[np.int64]

ARROW: Final = b"arrow"
"""Name of the instants at which arrows end that can't end at the start of their target."""


@dataclass(frozen=True, slots=True)
class Lists:
    """The numbers of some arrows of each event; those of event i begin at ``first[i]``."""

    first: Ints
    numbers: Ints

    @classmethod
    def of(cls, rows: NDArray[np.intp], numbers: Ints, events: int) -> Lists:
        """Sort arrows by the row of their event."""
        order = np.argsort(rows, kind="stable")
        count = np.bincount(rows, minlength=events)
        return cls(np.concatenate([[0], np.cumsum(count)]), numbers[order])

    def take(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], Ints]:
        """Return the arrows of the given events: where in ``rows`` its event is, and its number."""
        first = self.first[rows]
        count = self.first[rows + 1] - first
        return np.repeat(np.arange(len(rows)), count), self.numbers[spread(first, count)]


@dataclass(frozen=True, slots=True)
class Arrows:
    """The arrows of a trace, which are numbered from 1, by event."""

    leaving: Lists  # that start there
    arriving: Lists  # that end there
    late: Lists  # that end at an instant at its end

    @classmethod
    def of(cls, trace: Trace) -> Arrows | None:
        """Find a trace's arrows; None if it has none to show."""
        source, target = arrows(trace)
        start, end, count = trace.events.start_ns, trace.events.end_ns, len(trace.events)
        shown = end[target] > start[source]
        source, target = source[shown], target[shown]
        if not len(source):
            return None
        numbers = np.arange(1, len(source) + 1)
        late = start[target] <= start[source]
        return cls(
            Lists.of(source, numbers, count),
            Lists.of(target[~late], numbers[~late], count),
            Lists.of(target[late], numbers[late], count),
        )
