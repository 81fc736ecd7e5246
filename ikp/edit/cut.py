"""``cut``: the launches, warps and events of a trace that ran in a window of time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ikp.core.trace import AnyTrace
from ikp.core.warps import first_start, joined_warps
from ikp.edit._parts import noted, take_launches, take_slots
from ikp.edit.select import select
from ikp.errors import UsageError


def cut(trace: AnyTrace, begin_ns: float | None, end_ns: float | None) -> AnyTrace:
    """Return the launches, warps and events that ran in a window, if only in part.

    ``select(window_ns=...)`` keeps warps that ran at other times, since shares are of the time that
    warps ran; ``cut`` leaves them out, and launches with them. Events that reach across the
    window's ends stay whole. Times count from the first warp's start, as viewers show them.

    Args:
        trace: the trace.
        begin_ns: the window's begin in nanoseconds, None for the trace's.
        end_ns: its end.

    Raises:
        UsageError: nothing ran in the window, it ends before it begins, or there is no timeline.
    """
    return cut_read(trace, begin_ns, end_ns, len(trace.events))


def cut_read(
    trace: AnyTrace, begin_ns: float | None, end_ns: float | None, events: int
) -> AnyTrace:
    """Return the same of a trace of so many events, of which all are there that may be of it."""
    low = -np.inf if begin_ns is None else begin_ns
    high = np.inf if end_ns is None else end_ns
    left = select(trace, window_ns=(begin_ns, end_ns))
    if events != len(trace.events):
        what = f"select(window_ns={(begin_ns, end_ns)}) kept {len(left.events)} of {events} events"
        left = noted(replace(left, provenance=trace.provenance), what)
    warps, zero = joined_warps([left.slots, left.others]), first_start(left)
    there = (warps.end_ns - zero >= low) & (warps.start_ns - zero <= high)
    if not there.any():
        lasts = int(warps.end_ns.max()) - zero if len(warps) else 0
        raise UsageError(
            f"nothing ran from {low:,.0f} to {high:,.0f} ns: the trace lasts {lasts:,} ns."
        )
    left = take_slots(left, *np.split(there, [len(left.slots)]))
    return take_launches(left, np.unique(warps.launch[there]).tolist())
