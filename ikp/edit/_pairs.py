"""The matching of two regions' events, for arrows: by equal payload, warp by warp, in time order.

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

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.args import spread
from ikp.core.trace import Trace
from ikp.errors import UsageError

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
