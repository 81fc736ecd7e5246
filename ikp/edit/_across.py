"""``connect`` and ``span``: arrows, or ranges, between events of two regions with equal payloads.

For dependences between warps: a producer's copy and the consumer's wait for it, a release and the
acquire after it. The kernel records both with the same payload; they are matched on the host.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Final, Literal

import numpy as np

from ikp.core.abi import Kind
from ikp.core.args import OUT, ArgColumn, highest, incoming, join_args
from ikp.core.regions import checked_name, region_id
from ikp.core.rows import MOST_TICKS, take_events
from ikp.core.trace import AnyTrace, Events, Region, Trace, make_columns
from ikp.edit._pairs import WITHIN, Ints, Rows, pairs
from ikp.edit._parts import needs_timeline, noted
from ikp.errors import RegionError, UsageError

Within = Literal["warp", "block", "launch", "trace"]
Moment = Literal["start", "end"]

_SHOWN: Final = 6
"""Payloads that an error names as examples."""


def connect(trace: AnyTrace, source: str, target: str, *, within: Within = "block") -> AnyTrace:
    """Return the trace with arrows from events of one region to those of another.

    An arrow joins two events with the same payload: ``connect(trace, "issue", "wait")`` those of a
    producer's ``ikp.range("issue", k)`` and of each consumer warp's ``ikp.range("wait", k)``.
    Perfetto and Chrome traces show them; in tables, the number in a target's ``flow_in`` is the one
    in its source's ``flow_out``. A target that has arrows already gets ``flow_in_2``, and so on;
    a source keeps its number, and a target may be the source of further ones.

    The payload should distinguish copies that are under way at one time: an iteration, a tile, or
    the stage of a ring will do. Of events with one payload the n-th of a warp goes to the n-th of
    another, in the order of time. None goes to one that ended before it started. Where several
    ways are left, as many are joined as can be, with the least time between them. Each target has
    one source: of those in several warps the last to start, for which it had to wait. A source may
    have targets in many warps.

    Args:
        trace: the trace, whole: parts of it, as ``select`` makes, may lack events of a pair.
        source: the region at which arrows start: ranges, or instants.
        target: the region at which they end.
        within: how far an arrow may go: ``"warp"`` (of a block), ``"block"``, ``"launch"``, or
            ``"trace"``, from launch to launch.

    Raises:
        UsageError: the trace has no such region, no event of it has a payload, the two are one, no
            two events belong together, or too many share a payload; or there is no timeline.
    """
    needs_timeline(trace, "connect joins events", "Record a timeline.")
    sources, targets, counts = _pairs(trace, source, target, within)
    distinct, which = np.unique(sources, return_inverse=True)
    column = _column(trace, OUT)
    values, given = column.values.copy(), column.given.copy()
    fresh = distinct[~given[distinct]]
    values[fresh] = highest(trace.args) + 1 + np.arange(len(fresh))
    given[fresh] = True
    name = _free(trace, targets)
    ends = _column(trace, name)
    arriving, there = ends.values.copy(), ends.given.copy()
    arriving[targets], there[targets] = values[distinct][which], True
    args = {**trace.args, OUT: ArgColumn(values, given), name: ArgColumn(arriving, there)}
    note = f"connect({source!r}, {target!r}, within={within!r}) drew {len(sources)} arrows"
    note += f" from {len(distinct)} of {counts[0]} to {counts[1]} events"
    return noted(replace(trace, args=args), note)


def span(
    trace: AnyTrace,
    name: str,
    begin: str,
    end: str,
    *,
    within: Within = "block",
    begin_at: Moment = "start",
    end_at: Moment = "end",
    until: Literal["first", "last"] = "first",
) -> AnyTrace:
    """Return the trace with further ranges, each from an event of one region to one of another.

    For operations that begin in one warp and end in another: ``span(trace, "in flight", "issue",
    "wait")`` makes a range from the start of each ``issue`` to the end of the first ``wait`` for
    it. Events belong together as for :func:`connect`.

    The new ranges are of the warp of the first event, with its payload; as several may be in flight
    at once, viewers show them on rows of their own. Their ticks are their nanoseconds at the rate
    of the launch's clock. They count in statistics as any range does. The trace's provenance says
    that they were made, and how many events found no end and made none.

    Args:
        trace: the trace, whole.
        name: of the new region.
        begin: the region of the events with which ranges begin: ranges, or instants.
        end: the region of the events with which they end.
        within: how far apart the two may be: ``"warp"``, ``"block"``, ``"launch"``, ``"trace"``.
        begin_at: the moment of the first event that counts: its ``"start"``, when a copy is issued,
            or its ``"end"``.
        end_at: the moment of the other: its ``"end"``, when a wait is over, or its ``"start"``.
        until: the end of the range where several warps have one: the ``"first"``, when one warp has
            seen the data arrive, or the ``"last"``, when all have.

    Raises:
        UsageError: as for ``connect``; or ``name`` can't be a new region's, or no range would end
            after it began.
    """
    needs_timeline(trace, "span makes ranges", "Record a timeline.")
    region = _new_region(trace, name)
    moments = {"start": trace.events.start_ns, "end": trace.events.end_ns}
    _check("begin_at", begin_at, moments)
    _check("end_at", end_at, moments)
    _check("until", until, ("first", "last"))
    sources, targets, (count, _) = _pairs(trace, begin, end, within)
    begins, ends = moments[begin_at], moments[end_at][targets]
    sources, ends = _one_each(sources, ends, begins, first=until == "first")
    if not len(sources):
        raise UsageError(
            f"no range from the {begin_at} of {begin!r} to the {end_at} of {end!r} would end after "
            "it began: choose other moments, with begin_at= and end_at=."
        )
    made = _ranges(trace, sources, begins[sources], ends)
    options = f"within={within!r}, begin_at={begin_at!r}, end_at={end_at!r}, until={until!r}"
    note = f"span({name!r}, {begin!r}, {end!r}, {options}) made {len(sources)} ranges"
    note += f"; {count - len(sources)} of {count} {begin!r} had no end"
    return noted(_inserted(replace(trace, regions=(*trace.regions, region)), made), note)


def _one_each(sources: Rows, ends: Ints, begins: Ints, *, first: bool) -> tuple[Rows, Ints]:
    """Return each source once, with its first or last end, if that is not before it begins."""
    order = np.lexsort((ends if first else -ends, sources))
    sources, ends = sources[order], ends[order]
    one = np.diff(sources, prepend=-1) != 0
    one &= ends >= begins[sources]
    return sources[one], ends[one]


def _pairs(
    trace: Trace, source: str, target: str, within: str
) -> tuple[Rows, Rows, tuple[int, int]]:
    """Return the rows of events that belong together, and the number of events of each region.

    Raises:
        UsageError: no two events belong together, or a region has no events with payloads.
    """
    _check("within", within, WITHIN)
    if source == target:
        raise UsageError(f"{source!r} can't be joined with itself: name two regions.")
    rows = _rows(trace, source), _rows(trace, target)
    sources, targets = pairs(trace, *rows, within)
    if not len(sources):
        some = [", ".join(_payloads(trace, each)) for each in rows]
        wider = WITHIN[WITHIN.index(within) + 1 :]
        further = f", or look further, with within= one of {', '.join(map(repr, wider))}"
        raise UsageError(
            f"no {source!r} and {target!r} belong together: none with one payload, in one {within}"
            f", of which the second ended after the first started. Payloads are {some[0]} and "
            f"{some[1]}. Record the same in both{further if wider else ''}."
        )
    return sources, targets, (len(rows[0]), len(rows[1]))


def _check(what: str, value: str, known: Iterable[str]) -> None:
    if value not in list(known):
        raise UsageError(f"{what}={value!r} is unknown: use one of {', '.join(map(repr, known))}.")


def _rows(trace: Trace, region: str) -> Rows:
    """Return a region's events.

    Raises:
        UsageError: there is no such region, or none of its events has a payload.
    """
    names = [one.name for one in trace.regions]
    if region not in names:
        known = ", ".join(sorted(map(repr, names))) or "none"
        raise UsageError(f"the trace has no region {region!r}; it has: {known}. Give one of these.")
    rows = np.flatnonzero(np.array([name == region for name in names])[trace.events.region])
    if not len(rows):
        raise UsageError(f"the trace has no events of region {region!r}.")
    if np.isnan(trace.payload[rows]).all():
        raise UsageError(
            f"no event of {region!r} has a payload, by which events are matched. "
            f"Record one in the kernel: ikp.range({region!r}, k)."
        )
    return rows


def _payloads(trace: Trace, rows: Rows) -> list[str]:
    values = np.unique(trace.payload[rows])
    values = values[~np.isnan(values)]
    some = [f"{int(one)}" if one.is_integer() else f"{one:g}" for one in values[:_SHOWN].tolist()]
    return [*some, "..."] if len(values) > _SHOWN else some


def _column(trace: Trace, name: str) -> ArgColumn:
    """Return a column of arrows; one without any where the trace has none yet."""
    count = len(trace.events)
    column = trace.args.get(name)
    if column is None or not column.given.any():
        return ArgColumn(np.zeros(count, np.int64), np.zeros(count, bool))
    return column


def _free(trace: Trace, targets: Rows) -> str:
    """Return the first column in which none of the targets has an arrow yet."""
    number = 1
    while _column(trace, incoming(number)).given[targets].any():
        number += 1
    return incoming(number)


def _new_region(trace: Trace, name: str) -> Region:
    try:
        checked_name(name)
    except RegionError as error:
        raise UsageError(str(error)) from error
    if name in [one.name for one in trace.regions]:
        raise UsageError(f"the trace has a region {name!r} already: give the new one another name.")
    number, taken = region_id(name), {one.id for one in trace.regions}
    while number in taken:
        number += 1
    return Region(number, name)


def _ranges(trace: Trace, like: Rows, start: Ints, end: Ints) -> Events:
    """Return ranges of the last region, in the warps and with the payloads of other events."""
    events = trace.events
    slot = events.slot[like]
    rate = np.array([launch.clock.ns_per_tick for launch in trace.launches])
    rate = rate[trace.slots.launch[slot]]
    with np.errstate(over="ignore"):  # a trace made by hand may have any rate
        ticks = np.divide(end - start, rate, out=np.zeros(len(like)), where=rate > 0)
    return make_columns(
        Events,
        slot=slot,
        region=np.full(len(like), len(trace.regions)),
        kind=np.full(len(like), int(Kind.RANGE)),
        start_ns=start,
        end_ns=end,
        ticks=np.rint(np.minimum(ticks, MOST_TICKS)),
        payload_type=events.payload_type[like],
        payload=events.payload[like],
    )


def _inserted(trace: AnyTrace, more: Events) -> AnyTrace:
    """Return the trace with further events, each behind those of its slot that end no later."""
    joined = Events(
        *(
            np.concatenate([getattr(trace.events, field.name), getattr(more, field.name)])
            for field in fields(Events)
        )
    )
    args = join_args([(trace.args, len(trace.events)), ({}, len(more))])
    order = np.lexsort((joined.end_ns, joined.slot))
    return take_events(replace(trace, events=joined, args=args), order)
