"""Units to count single events by: their iteration, or the window of time that they begin in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.render import duration
from ikp.analysis.written_time import written_time
from ikp.core.abi import PayloadType
from ikp.core.warps import launch_bounds
from ikp.errors import UsageError

if TYPE_CHECKING:
    from ikp.core.trace import Trace

Ints = NDArray[np.int64]

ITERATION: Final = "iteration"
WINDOW: Final = "window"
WINDOWS: Final = 16
"""Windows of the longest launch, where no width is given."""
_MOST: Final = 10_000


def by_events(by: str | None) -> bool:
    """Return whether ``by`` names units of single events: iterations or windows."""
    return by is not None and (by == ITERATION or by.partition(":")[0] == WINDOW)


def event_units(trace: Trace, by: str) -> tuple[list[str], Ints]:
    """Return the names of the units, in order, and the unit of each event.

    Raises:
        UsageError: the trace has totals, which have no times; ``by`` can't be read; or there
            would be more than 10,000 units.
    """
    if len(trace.totals):
        raise UsageError(
            f"no statistics by {by!r} of totals, which don't say when: record a timeline."
        )
    return _iterations(trace) if by == ITERATION else _windows(trace, by)


def _iterations(trace: Trace) -> tuple[list[str], Ints]:
    types = trace.events.payload_type
    counted = (types == PayloadType.U32) | (types == PayloadType.I32)
    values = np.where(counted, trace.payload, -np.inf)
    found, unit = np.unique(values, return_inverse=True)
    _check(len(found), "payloads: they count no iterations. Choose regions that have iterations")
    names = ["no iteration" if one == -np.inf else f"iteration {one:.0f}" for one in found.tolist()]
    return names, unit.astype(np.int64)


def _windows(trace: Trace, by: str) -> tuple[list[str], Ints]:
    slots, events = trace.slots, trace.events
    begin, end = launch_bounds(trace)
    longest = int((end - begin)[end >= begin].max(initial=1))
    width = _width(by, longest)
    unit = (events.start_ns - begin[slots.launch[events.slot]]) // width
    number = int(unit.max(initial=0)) + 1
    _check(number, f"windows of {duration(width)}: name a longer one, as in 'window:10us'")
    names = [f"{duration(i * width)} to {duration((i + 1) * width)}" for i in range(number)]
    return names, np.maximum(unit, 0)


def _width(by: str, longest: int) -> int:
    if by == WINDOW:
        return max(1, -(-longest // WINDOWS))
    written = written_time(by.partition(":")[2])
    width = round(written.ns() or 0) if written else 0
    if width < 1:
        raise UsageError(f"no statistics by {by!r}: a window is 'window', or 'window:10us'.")
    return width


def _check(units: int, what: str) -> None:
    if units > _MOST:
        raise UsageError(f"there would be {units:,} {what}.")
