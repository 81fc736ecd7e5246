"""Self time of ranges: a warp's time belongs to the range that opened last and is still open.

So a range's self time is its time less the union of the ranges that opened in it, on the same warp,
while those ran. Where ranges nest, those are the ranges inside it; where they overlap, the later
one takes what both cover. Each nanosecond belongs to one range or to none, so self times and the
time in no range add up to the time that the warp ran. Instants take no time, nor do ranges of no
length.

Ranges are in the order of their ends, as they are recorded. So the ranges inside a range come right
before it, from the first one on that closes after the range has opened. Self times and depths of
ranges that nest take one pass per level, without a sort.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind

if TYPE_CHECKING:
    from ikp.core.trace import Column, Slots, Trace


Ints = NDArray[np.int64]
Rows = NDArray[np.intp]

MOST_LEVELS: Final = 32
"""How deep ranges may nest: each level is a pass over all that hold others."""


_MOST_BITS: Final = 62


def moments(slot: NDArray[np.integer], start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return numbers that order starts and ends by slot, then time; slots are in order."""
    least = int(start.min())
    low, high = start - least, end - least
    bits = int(high.max()).bit_length()
    place = (slot - slot[0]).astype(np.int64)
    if bits + int(place[-1]).bit_length() > _MOST_BITS:  # ranks of times are in the same order
        _, rank = np.unique(np.concatenate([start, end]), return_inverse=True)
        low, high = rank[: len(start)].astype(np.int64), rank[len(start) :].astype(np.int64)
        bits = len(rank).bit_length()
    place <<= bits
    low |= place
    high |= place
    return low, high


@dataclass(frozen=True, slots=True)
class _Level:
    """The ranges left after the innermost ones were removed, once for each level before this.

    ``holds`` says which of them hold others, ``holders`` are the rows of these, and ``first`` is
    the first range in each.
    """

    holds: NDArray[np.bool_]
    holders: Rows
    first: Rows


def _levels(opens: Ints, closes: Ints) -> list[_Level] | None:
    """Return the levels, from the inside out; None if some ranges overlap, or are out of order."""
    if np.any(closes[1:] < closes[:-1]):
        return None
    found: list[_Level] = []
    while len(found) < MOST_LEVELS:
        holds = np.zeros(len(opens), np.bool_)
        np.greater(closes[:-1], opens[1:], out=holds[1:])
        holders = np.flatnonzero(holds)
        if not len(holders):
            return found
        first = np.searchsorted(closes, opens[holders], "right")
        if np.any(opens[first] < opens[holders]):
            return None
        found.append(_Level(holds, holders, first))
        opens, closes = opens[holders], closes[holders]
    return None


def nested_times(opens: Ints, closes: Ints, took: Ints) -> Ints | None:
    """Return the self time of each range; None if some overlap, or are in another order.

    ``opens`` and ``closes`` are :func:`moments`.

    A range that holds no other keeps its time. That time is subtracted from the ranges that hold
    it, and the next level has only these.
    """
    levels = _levels(opens, closes)
    if levels is None:
        return None
    own, rows = took.copy(), np.arange(len(took))
    left = own
    for level in levels:
        alone = np.where(level.holds, 0, left)
        until = np.cumsum(alone)
        inside = until[level.holders] - until[level.first] + alone[level.first]
        left = left[level.holders] - inside
        rows = rows[level.holders]
        own[rows] = left
    return own


def nested_depths(opens: Ints, closes: Ints) -> Ints | None:
    """Return how many others each range lies in; None as for :func:`nested_times`."""
    levels = _levels(opens, closes)
    if levels is None:
        return None
    change = np.zeros(len(opens), np.int64)
    if levels:
        np.add.at(change, levels[0].first, 1)
        change[levels[0].holders] -= 1
    return np.cumsum(change)


EVENTS_AT_ONCE: Final = 1 << 16
"""Events processed in one pass: whole slots, so a slot with more is a pass of its own. Arrays of
this length fit into a cache."""


def self_times(trace: Trace) -> tuple[Ints, Ints]:
    """Return the self time of each event, and the time that each slot was in any range.

    Both in nanoseconds. Edits can make ranges that reach beyond their slot's ``init`` and
    ``finish``: the time of a slot counts only their part between the two.
    """
    events, slots = trace.events, trace.slots
    own, inside = np.zeros(len(events), np.int64), np.zeros(len(slots), np.int64)
    takes_time = (events.kind == Kind.RANGE) & (events.end_ns > events.start_ns)
    chosen = None if takes_time.all() else np.flatnonzero(takes_time)
    for rows in whole_slots(events.slot, chosen):
        slot, start, end = events.slot[rows], events.start_ns[rows], events.end_ns[rows]
        own[rows] = _self_times(slots, slot, start, end, inside)
    return own, inside


def _self_times(slots: Slots, slot: Column, start: Ints, end: Ints, inside: Ints) -> Ints:
    """Return the self times of whole slots' ranges; put the time in any range into ``inside``."""
    own = nested_times(*moments(slot, start, end), end - start)
    first = np.concatenate([[0], np.flatnonzero(slot[1:] != slot[:-1]) + 1])
    if own is not None and _lie_in(slots, slot[first], first, start, end):
        inside[slot[first]] = np.add.reduceat(own, first)
        return own
    own = np.zeros(len(start), np.int64)
    time, owner = owned(slot, start, end)
    np.add.at(own, owner, time[1] - time[0])
    np.add.at(inside, slot[owner], _within(slots, slot[owner], time))
    return own


def _lie_in(slots: Slots, slot: Column, first: NDArray[np.intp], start: Ints, end: Ints) -> bool:
    """Return whether no range reaches beyond its slot; ``first`` is each slot's first range."""
    opened, closed = np.minimum.reduceat(start, first), np.maximum.reduceat(end, first)
    return bool(np.all((opened >= slots.start_ns[slot]) & (closed <= slots.end_ns[slot])))


def whole_slots(
    slot: Column, rows: NDArray[np.intp] | None = None
) -> Iterator[slice | NDArray[np.intp]]:
    """Cut some rows, or all, into parts of whole slots."""
    of_row = slot if rows is None else slot[rows]
    if np.any(of_row[1:] < of_row[:-1]):
        order = np.argsort(of_row, kind="stable")
        rows, of_row = order if rows is None else rows[order], of_row[order]
    low = 0
    while low < len(of_row):
        last = of_row[min(low + EVENTS_AT_ONCE, len(of_row)) - 1]
        high = int(np.searchsorted(of_row, last, "right"))
        yield slice(low, high) if rows is None else rows[low:high]
        low = high


def _within(slots: Slots, slot: Ints, time: Ints) -> Ints:
    """Return how much of each piece of time lies between its slot's start and end."""
    low, high = np.maximum(time[0], slots.start_ns[slot]), np.minimum(time[1], slots.end_ns[slot])
    result: Ints = np.maximum(high - low, 0)
    return result


def owned(slot: Column, start: Ints, end: Ints) -> tuple[Ints, NDArray[np.intp]]:
    """Cut the time of all ranges where one opens or closes; return each piece and its range.

    The pieces are begins and ends in nanoseconds, 2 x pieces. Those in no range are left out.
    """
    opens, closes, by_opening = _places(*moments(slot, start, end))
    count = len(start)
    time = np.empty(2 * count, np.int64)
    time[opens], time[closes] = start, end
    change = np.ones(2 * count, np.int8)
    change[closes] = -1
    depth = np.cumsum(change, dtype=np.int64)
    if np.array_equal(depth[opens], depth[closes] + 1):  # each one closes as the innermost
        owner = _innermost(opens, depth, change)
    else:
        owner = _latest(closes[by_opening], by_opening, change)
    covered = np.flatnonzero(depth[:-1])
    return np.stack([time[covered], time[covered + 1]]), owner[covered]


def _places(opening: Ints, closing: Ints) -> tuple[Ints, Ints, NDArray[np.intp]]:
    """Return each range's opening and closing in the sequence of both, and the opening order.

    At one moment, ranges close before others open. Of ranges that open together the one recorded
    last comes first, since it holds the others. Of ranges that close together, the one that opened
    last comes first.
    """
    count = len(opening)
    by_opening = count - 1 - np.argsort(opening[::-1], kind="stable")
    rank = np.empty(count, np.int64)
    rank[by_opening] = np.arange(count)
    by_closing = np.lexsort((-rank, closing))
    opens, closes = np.empty(count, np.int64), np.empty(count, np.int64)
    opened, closed = opening[by_opening], closing[by_closing]
    opens[by_opening] = np.arange(count) + np.searchsorted(closed, opened, "right")
    closes[by_closing] = np.arange(count) + np.searchsorted(opened, closed, "left")
    return opens, closes, by_opening


def _innermost(opens: Ints, depth: Ints, change: NDArray[np.int8]) -> NDArray[np.intp]:
    """Return the innermost open range after each opening or closing, where ranges nest.

    It is the last range that opened at the level then reached.
    """
    opener = np.zeros(len(depth), np.intp)
    opener[opens] = np.arange(len(opens))
    level = depth.astype(np.int16) if depth.max() < 1 << 15 else depth  # sorts in linear time
    order = np.argsort(level, kind="stable")
    last = np.maximum.accumulate(np.where(change[order] > 0, np.arange(len(order)), 0))
    owner = np.empty(len(depth), np.intp)
    owner[order] = opener[order[last]]
    return owner


def _latest(
    closes: Ints, by_opening: NDArray[np.intp], change: NDArray[np.int8]
) -> NDArray[np.intp]:
    """Return the open range that opened last, after each opening or closing; any if none is open.

    ``closes`` are in the order of opening. Going back from the last range that opened, groups of
    ranges that are all closed are skipped: ``most[k][i]`` is the last close of the ``2**k`` ranges
    up to the i-th.
    """
    most, size = [closes.astype(np.int32 if len(change) < 1 << 31 else np.int64)], 1
    while size < len(closes):
        longer = most[-1].copy()
        np.maximum(longer[size:], most[-1][:-size], out=longer[size:])
        most.append(longer)
        size *= 2
    place = np.arange(len(change))
    found = np.cumsum(change > 0) - 1
    for level in reversed(range(len(most))):
        found = np.where(most[level][found] <= place, np.maximum(found - (1 << level), 0), found)
    latest: NDArray[np.intp] = by_opening[found]
    return latest
