"""``deduct_overhead``: a timeline without the cost of recording, as ``ikp.calibrate`` measured it.

A warp that records loses time twice per range: the clock is read when it opens, and read again and
stored when it closes. The measured cost is deducted from the gaps between one point of a warp's
timeline and the next, and all later points of the warp move ahead by as much. A gap gives no more
than its length: no range becomes negative, and no two points change their order. A cost that the
gap after a record can't give is taken from the gaps that follow, as far as the store of a record
may be late: the pass over the PTX lets at most ``PENDING`` wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind
from ikp.core.lanes import arrange
from ikp.core.overhead import Overhead
from ikp.core.trace import AnyTrace, Launch, Trace
from ikp.edit._parts import noted
from ikp.errors import UsageError

DEDUCTED = "overhead_deducted"
"""The provenance of the deduction: costs, and the time that they took."""
PENDING = 4
"""Records whose stores may be late at once (``schedule.MAX_PENDING``)."""

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]


def deduct_overhead(trace: AnyTrace, *overheads: Overhead) -> AnyTrace:
    """Return the trace without the time that recording added to it, as far as that was measured.

    Each range loses the duration of an empty one, and the cost of the ranges and instants in it;
    all later points of the warp move ahead. The deducted cost is that of records beside other work
    of the warp, which hides most of it: a warp without work lost more, and keeps that in its times.
    Other warps and blocks stay where they are: that one block waited for another's records is not
    undone.

    The cost of operations without a record is not deducted: ranges that were never closed, records
    that ``where=`` left out, and those that a full slot dropped, of which only the number is known.

    Args:
        trace: the trace.
        overheads: results of ``ikp.calibrate``, one for each device and clock in the trace.

    Raises:
        UsageError: overhead was deducted before, none was measured for a launch's device and
            clock, or a launch has no timeline.
    """
    if DEDUCTED in trace.provenance:
        raise UsageError(
            f"recording's overhead was deducted from this trace before "
            f"({trace.provenance[DEDUCTED]}): deduct it once, from the trace as it was recorded."
        )
    if summed := [launch for launch in trace.launches if launch.mode != "timeline"]:
        raise UsageError(
            f"{summed[0].label!r} was recorded with mode={summed[0].mode!r}, which has no timeline "
            "that overhead could be deducted from."
        )
    of_launch = [_matching(launch, overheads) for launch in trace.launches]
    points = _points(trace, of_launch)
    shift = _shifts(points)
    result = _moved(trace, points, shift)
    text = _told(trace, result, of_launch)
    result = replace(result, provenance={**result.provenance, DEDUCTED: text})
    return noted(result, "deduct_overhead()")


def _matching(launch: Launch, overheads: Sequence[Overhead]) -> Overhead:
    for overhead in overheads:
        if not isinstance(overhead, Overhead):
            raise UsageError(
                f"deduct_overhead takes what ikp.calibrate returned, not {overhead!r}."
            )
        if (overhead.device, overhead.clock) == (launch.device, launch.clock.name):
            return overhead
    known = "; ".join(f"{one.clock} on {one.device}" for one in overheads) or "nothing"
    clock = launch.clock.name
    raise UsageError(
        f"what recording {launch.label!r} cost is not known: it ran on {launch.device} with the "
        f"clock {clock}, and measured was {known}. "
        + (
            "Kernels in Triton's interpreter can't be calibrated."
            if launch.clock.kind == "host"
            else f"Measure it on that device: ikp.calibrate(clock={clock!r})."
        )
    )


@dataclass(frozen=True, slots=True)
class _TimelinePoints:
    """All points of all timelines: of each slot its start, its events in order, and its end.

    ``cost`` is the time that recording took right after each. Columns are of equal length but for
    the last four, which hold the points at which slots start and end, and events open and close.
    """

    time: _Ints  # ns
    cost: _Floats  # ns
    most: _Floats  # ns that may be late at each point
    slot_start: _Ints
    slot_end: _Ints
    opens: _Ints
    closes: _Ints


def _points(trace: Trace, of_launch: list[Overhead]) -> _TimelinePoints:
    events, slots = trace.events, trace.slots
    order = np.lexsort((events.end_ns, events.slot))
    slot = events.slot[order].astype(np.int64)
    start, end = events.start_ns[order], events.end_ns[order]
    is_range = events.kind[order] == int(Kind.RANGE)
    # Lanes don't matter here, so no depth is too deep.
    stream = arrange(slot, start, end, is_range, max_depth=len(slot) + 1)
    # Each slot has two points of its own: in front of its events', and behind them.
    opens, closes = stream.opens + 2 * slot + 1, stream.closes + 2 * slot + 1
    of_slot = np.bincount(slot, 1 + is_range, minlength=len(slots)).astype(np.int64)
    slot_end = np.cumsum(of_slot + 2) - 1
    slot_start = slot_end - of_slot - 1
    time = np.zeros(2 * len(slots) + len(stream), np.int64)
    time[slot_start], time[slot_end] = slots.start_ns, slots.end_ns
    time[closes] = end
    time[opens] = start

    rate = _rates(trace)
    at_start = rate * [one.at_start for one in of_launch]
    at_end = rate * [one.at_end for one in of_launch]
    instant = rate * [one.at_instant for one in of_launch]
    launch = slots.launch[slot]
    cost = np.zeros(len(time))
    cost[closes] = np.where(is_range, at_end[launch], instant[launch])
    cost[opens[is_range]] = at_start[launch[is_range]]
    most = np.zeros(len(time))
    most[closes] = PENDING * np.maximum(at_end, instant)[launch]
    most[opens] = most[closes]
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return _TimelinePoints(time, cost, most, slot_start, slot_end, opens[back], closes[back])


def _rates(trace: Trace) -> _Floats:
    """Return each launch's nanoseconds per tick."""
    return np.array([launch.clock.ns_per_tick for launch in trace.launches], np.float64)


def _shifts(points: _TimelinePoints) -> _Floats:
    """Return the ns by which each point moves ahead."""
    gap = np.append(np.diff(points.time), 0)
    gap[points.slot_end] = 0
    gap = np.maximum(gap, 0).astype(np.float64)
    late = _late(points.cost - gap, points.most)
    taken = np.minimum(gap, points.cost + late)
    total: _Floats = np.cumsum(taken) - taken
    return np.asarray(total - total[_own_start(points)])


def _own_start(points: _TimelinePoints) -> _Ints:
    """Return the first point of the slot of each point."""
    length = points.slot_end - points.slot_start + 1
    return np.repeat(points.slot_start, length)


def _late(excess: _Floats, most: _Floats) -> _Floats:
    """Return how much of earlier costs is still to be deducted at each point.

    Right after point k, ``late[k] + cost[k]`` is due, the gap gives at most its length, and the
    rest is bounded: ``late[k + 1] = clip(late[k] + excess[k], 0, most[k])``. Functions of the form
    ``x -> clip(x + add, low, high)`` are closed under composition, so all of them are composed at
    once, in as many steps as the number of points has binary digits. ``most`` is 0 at a slot's
    ends: nothing passes from one slot to the next.
    """
    add, low, high = excess.copy(), np.zeros(len(excess)), most.copy()
    step = 1
    while step < len(add):
        # First the function that ends ``step`` points before, then this one.
        add[step:], low[step:], high[step:] = (
            add[:-step] + add[step:],
            np.clip(low[:-step] + add[step:], low[step:], high[step:]),
            np.clip(high[:-step] + add[step:], low[step:], high[step:]),
        )
        step *= 2
    after = np.clip(add, low, high)
    return np.append([0.0], after[:-1])[: len(after)]


def _moved(trace: AnyTrace, points: _TimelinePoints, shift: _Floats) -> AnyTrace:
    # One rounding for all points: it can't change their order.
    whole = np.floor(shift + 0.5).astype(np.int64)
    events, slots = trace.events, trace.slots
    start = events.start_ns - whole[points.opens]
    end = events.end_ns - whole[points.closes]
    rate = _rates(trace)[slots.launch[events.slot]]
    lost = shift[points.closes] - shift[points.opens]
    lost = np.divide(lost, rate, out=np.zeros_like(lost), where=rate > 0)
    ticks = np.maximum(events.ticks - np.floor(lost + 0.5).astype(np.int64), 0)
    ticks[(end == start) & (lost > 0)] = 0
    changes: dict[str, Any] = {
        "events": replace(events, start_ns=start, end_ns=end, ticks=ticks),
        "slots": replace(
            slots,
            start_ns=slots.start_ns - whole[points.slot_start],
            end_ns=slots.end_ns - whole[points.slot_end],
        ),
    }
    return replace(trace, **changes)


def _told(trace: Trace, result: Trace, of_launch: list[Overhead]) -> str:
    """Return the provenance: the costs, the time deducted, and of how much."""

    def resident(of: Trace) -> int:
        return int((of.slots.end_ns - of.slots.start_ns).sum())

    before, after = resident(trace), resident(result)
    costs = "; ".join(dict.fromkeys(f"{one} on {one.device}" for one in of_launch)) or "nothing"
    share = 100 * (before - after) / before if before else 0.0
    text = f"{costs}: {before - after} of the warps' {before} ns ({share:.2f} %)"
    if trace.dropped:
        text += f"; not that of {trace.dropped} dropped records, whose places are not known"
    return text
