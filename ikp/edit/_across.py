"""``connect`` and ``span``: arrows, or ranges, between events of two regions with equal payloads.

For dependences between warps: a producer's copy and the consumer's wait for it, a release and the
acquire after it. The kernel records both with the same payload; they are matched on the host, warp
by warp, in time order.

There is one matching problem for each payload and each two warps, of which one recorded the source
region and the other the target region. In each, the n-th event belongs to the n-th. One side may
have more events: a slot was full, a window of time was cut out, another warp did the work. Then as
many are paired as can be if none ends before its source has started; and of all such pairings, the
one with the least time between the two is taken.

The matched events can be found for each side alone: of the later ones the earliest that find an
earlier one left, of the earlier ones the latest that find a later one left. (The matchable sets are
a matroid on either side; one matching holds both choices, by the theorem of Mendelsohn and
Dulmage.) "Left" is the length of a queue, which is a sum that does not fall below 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind
from ikp.core.args import OUT, ArgColumn, highest, incoming, join_args, spread
from ikp.core.regions import checked_name, region_id
from ikp.core.rows import MOST_TICKS, take_events
from ikp.core.trace import AnyTrace, Events, Region, Trace, make_columns
from ikp.edit._parts import needs_timeline, noted
from ikp.errors import RegionError, UsageError

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]
_Bools = NDArray[np.bool_]

WITHIN: Final = ("warp", "block", "launch", "trace")
_MOST: Final = 1 << 24
"""Most rows of all matching problems together; a row takes about 100 bytes."""


def pairs(trace: Trace, sources: Rows, targets: Rows, within: str) -> tuple[Rows, Rows]:
    """Return the events that belong together: rows of sources, and of their targets.

    Each target occurs at most once, a source once for each warp that has a target of it.

    Raises:
        UsageError: too many warps share a payload.
    """
    key, value = _keys(trace, np.concatenate([sources, targets]), within)
    is_target = np.arange(len(key)) >= len(sources)
    row = np.concatenate([sources, targets])
    starts, ends = (~np.isnan(value) & side for side in (~is_target, is_target))
    events = trace.events
    early = _EventLanes.of(events.slot, key[starts], row[starts], events.start_ns)
    late = _EventLanes.of(events.slot, key[ends], row[ends], events.end_ns)
    return _last_to_start(events.start_ns, *_matched(early, late, *_partners(early, late)))


def _keys(trace: Trace, rows: Rows, within: str) -> tuple[Ints, NDArray[np.float64]]:
    """Return a key for each event, equal for events that may belong together, and its payload."""
    slot = trace.events.slot[rows].astype(np.int64)
    launch = trace.slots.launch.astype(np.int64)
    scopes = {
        "warp": np.arange(len(launch)),
        "block": (launch << 32) + trace.slots.block,
        "launch": launch,
        "trace": np.zeros_like(launch),
    }
    value = trace.payload[rows]
    payloads, code = np.unique(value, return_inverse=True)
    scope = np.unique(scopes[within], return_inverse=True)[1]
    return scope[slot] * len(payloads) + code, value


@dataclass(frozen=True, slots=True)
class _EventLanes:
    """Events lane by lane, in order of time: a lane is one warp's events of one key."""

    row: Rows  # of each event
    time: Ints
    key: Ints  # of each lane
    first: Rows
    count: Rows

    @classmethod
    def of(cls, slot: Ints, key: Ints, row: Rows, time: Ints) -> _EventLanes:
        """Sort the events of the given rows."""
        slot, time = slot[row], time[row]
        order = np.lexsort((row, time, slot, key))
        slot, key = slot[order], key[order]
        first = np.flatnonzero((np.diff(key, prepend=-1) != 0) | (np.diff(slot, prepend=-1) != 0))
        count = np.diff(first, append=len(order))
        return cls(row[order], time[order], key[first], first, count)


def _partners(early: _EventLanes, late: _EventLanes) -> tuple[Rows, Rows]:
    """Return all pairs of lanes of one key."""
    first = np.searchsorted(late.key, early.key)
    count = np.searchsorted(late.key, early.key, "right") - first
    events = early.count * count
    ends = np.append(0, np.cumsum(late.count))
    events += ends[first + count] - ends[first]
    if int(events.sum()) > _MOST:
        raise UsageError(
            f"there are too many events with the same payload to look for those that belong "
            f"together: {int(events.sum())} comparisons, of which {_MOST} are done. Choose a "
            "smaller part (within='block', ikp.edit.select), or record payloads that distinguish "
            "more events."
        )
    return np.repeat(np.arange(len(early.key)), count), spread(first, count)


def _matched(early: _EventLanes, late: _EventLanes, one: Rows, other: Rows) -> tuple[Rows, Rows]:
    """Match the events of each pair of lanes."""
    sides = [_laid_out(lanes, chosen) for lanes, chosen in ((early, one), (late, other))]
    row, time, pair = (np.concatenate(columns) for columns in zip(*sides, strict=True))
    is_late = np.arange(len(row)) >= len(sides[0][0])
    order = np.lexsort((is_late, time, pair))
    row, pair, is_late = row[order], pair[order], is_late[order]
    targets = _served(pair, is_late)
    sources = _served(pair[::-1], ~is_late[::-1])[::-1]
    return row[sources], row[targets]


def _laid_out(lanes: _EventLanes, chosen: Rows) -> tuple[Rows, Ints, Ints]:
    count = lanes.count[chosen]
    at = spread(lanes.first[chosen], count)
    return lanes.row[at], lanes.time[at], np.repeat(np.arange(len(chosen)), count)


def _served(group: Ints, takes: _Bools) -> _Bools:
    """Return which of the events that take from their group's queue find an event in it.

    The other events are put in. An event finds the queue empty if it makes the sum of all so far
    fall to a new low below 0.
    """
    new = np.diff(group, prepend=-1) != 0
    step = np.where(takes, -1, 1)
    total = np.cumsum(step)
    total -= (total - step)[new][np.cumsum(new) - 1]
    # One running minimum for all groups, each of which begins below the one in front of it.
    base = -np.cumsum(new) * (len(group) + 1)
    floor = np.minimum.accumulate(np.minimum(total, 0) + base) - base
    before = np.where(new, 0, np.concatenate([[0], floor])[:-1])
    found: _Bools = takes & (floor == before)
    return found


def _last_to_start(start: Ints, sources: Rows, targets: Rows) -> tuple[Rows, Rows]:
    """Keep for each target the source that was the last to start: it was waited for."""
    order = np.lexsort((sources, start[sources], targets))
    sources, targets = sources[order], targets[order]
    last = np.diff(targets, append=-1) != 0
    return sources[last], targets[last]


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
