"""Events and totals as viewers take them: ``Batches`` of events with their tracks, ``Arrows``,
``Sums``.

Viewers draw an arrow from the start of one event to the start of another; Perfetto reverses an
arrow that would go back in time. So where the target had begun before its source did (a wait for a
copy that was issued later), the arrow ends at an instant of its own, named ``arrow``, at the end of
the target. A target that is over by then gets none: times were changed, or are too coarse.

Totals are one slice per warp that recorded them, from init to finish. The slice's argument
``totals`` is a dict of the regions: ``totals.dot.count``, ``totals.dot.cycles``, ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind
from ikp.core.args import ArgColumn, Scalar, arrows, is_flow, spread
from ikp.core.lanes import arrange
from ikp.core.rows import shares
from ikp.core.sorting import distinct, order_by
from ikp.core.trace import Column, Events, Trace
from ikp.exporters.timeline.blocks import slot_bounds
from ikp.exporters.timeline.tracks import Layout, Track

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]
Places = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Events of some slots, each slot's in order of their ends, which is that of recording."""

    events: Events
    rows: Rows  # each one's row in the trace
    ranges: NDArray[np.bool_]  # instants where not
    track: Ints
    opens: Ints  # its place among the batch's events as they open and close
    closes: Ints  # the same place for an instant
    new: list[Track]  # tracks that had no event before


class Batches:
    """The batches of a trace: about so many events each, if slots allow it.

    They hold the slots in the given order; without one, in that of the trace.
    """

    def __init__(
        self, trace: Trace, layout: Layout, events: int, order: Ints | None = None
    ) -> None:
        self._trace = trace
        self._bounds = slot_bounds(trace)
        self._moved: Ints | None = None  # by slot in that order: how far its events are moved
        if order is not None:
            first, counts = self._bounds[order], np.diff(self._bounds)[order]
            self._bounds = np.append(0, np.cumsum(counts))
            self._moved = first - self._bounds[:-1]
        self._cuts = cuts(self._bounds, events)
        self._layout = layout
        self._overlaps = _Overlaps(layout)

    def __len__(self) -> int:
        return len(self._cuts)

    def __iter__(self) -> Iterator[Batch]:
        for low, high in self._cuts:
            rows, place = self._part(low, high)
            events, rows = by_end(self._trace.events, rows, place)
            ranges = events.kind == int(Kind.RANGE)
            stream = arrange(place, events.start_ns, events.end_ns, ranges)
            slot = events.slot.astype(np.intp)
            track, new = self._layout.slot_track[slot], list[Track]()
            if stream.lane.any():
                track, new = self._overlaps.place(slot, stream.lane)
            yield Batch(events, rows, ranges, track, stream.opens, stream.closes, new)

    def _part(self, low: int, high: int) -> tuple[slice | Rows, Places]:
        """Return which of the trace's events are a batch's, and a number of their slots."""
        if self._moved is None:
            return slice(low, high), self._trace.events.slot[low:high]
        slots = slice(*np.searchsorted(self._bounds, [low, high]))
        counts = np.diff(self._bounds[slots.start : slots.stop + 1])
        place = np.repeat(np.arange(len(counts)), counts)
        return np.arange(low, high) + self._moved[slots][place], place


class _Overlaps:
    """Gives the overlapping ranges of a warp tracks of their own, below the warp's."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._found: dict[tuple[int, int], int] = {}  # (warp's track, lane) -> track

    def place(self, slot: Rows, lane: Ints) -> tuple[Ints, list[Track]]:
        """Return the track of each event, and the tracks that these events are the first on."""
        row, one = distinct(slot, lane)
        warps, lanes = self._layout.slot_track[slot[one]], lane[one]
        uuids, new = [], []
        for warp, number in zip(warps.tolist(), lanes.tolist(), strict=True):
            free = self._layout.next_uuid + len(self._found)
            uuids.append(self._found.setdefault((warp, number), free) if number else warp)
            if uuids[-1] == free:
                new.append(Track(free, f"overlap {number}", warp, number))
        return np.array(uuids)[row], new


def cuts(bounds: Ints, events: int) -> list[tuple[int, int]]:
    """Return parts of the events, as (first, end), that hold about so many each.

    Slot i holds events ``bounds[i]`` to ``bounds[i + 1]``. A slot is never cut: its events are
    ordered together as they open and close.
    """
    parts = []
    low = 0
    while low < len(bounds) - 1:
        high = int(np.searchsorted(bounds, bounds[low] + events, "right")) - 1
        high = max(high, low + 1)
        if bounds[high] > bounds[low]:
            parts.append((int(bounds[low]), int(bounds[high])))
        low = high
    return parts


def by_end(events: Events, rows: slice | Rows, place: Places | None = None) -> tuple[Events, Rows]:
    """Return some events, those of each slot in order of their ends, and the row of each one.

    ``place`` numbers the slots of ``rows``, ascending; None takes the slots' own numbers.
    """
    order = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
    end, place = events.end_ns[rows], events.slot[rows] if place is None else place
    if np.any((end[1:] < end[:-1]) & (place[1:] == place[:-1])):
        rows = order = order[np.lexsort((end, place))]
    return Events(*(getattr(events, name)[rows] for name in Events.__slots__)), order


def by_track(trace: Trace, layout: Layout) -> Ints | None:
    """Return an order of slots in which those of a track follow each other; None if it costs more.

    It pays where most slots have few events: then equal values are together, and times ascend. With
    more events per slot, gathering them costs more than it saves.
    """
    few = len(trace.events) < _FEW_EVENTS * len(trace.slots)
    return order_by(layout.slot_track) if few else None


_FEW_EVENTS: Final = 16


ARROW: Final = b"arrow"
"""Name of the instants at which arrows end that can't end at the start of their target."""


@dataclass(frozen=True, slots=True)
class Lists:
    """The numbers of some arrows of each event; those of event i begin at ``first[i]``."""

    first: Ints
    numbers: Ints

    @classmethod
    def of(cls, rows: Rows, numbers: Ints, events: int) -> Lists:
        """Sort arrows by the row of their event."""
        order = np.argsort(rows, kind="stable")
        count = np.bincount(rows, minlength=events)
        return cls(np.concatenate([[0], np.cumsum(count)]), numbers[order])

    def take(self, rows: Rows) -> tuple[Rows, Ints]:
        """Return the arrows of the given events: the event's place in ``rows``, and the number."""
        first = self.first[rows]
        count = self.first[rows + 1] - first
        return np.repeat(np.arange(len(rows)), count), self.numbers[spread(first, count)]


@dataclass(frozen=True, slots=True)
class Arrows:
    """The arrows of a trace, which are numbered from 1, by event."""

    leaving: Lists  # that start at the event's start
    arriving: Lists  # that end at its start
    late: Lists  # that end at an instant at its end

    @classmethod
    def of(cls, trace: Trace) -> Arrows | None:
        """Find a trace's arrows; None if it has none to show."""
        if not any(map(is_flow, trace.args)):
            return None
        source, target = arrows(trace.args)
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


NAME: Final = "totals"
"""Name of the slices, and of their argument."""


@dataclass(frozen=True, slots=True)
class Sums:
    """One entry for each region of a warp, and each kind: sorted by warp."""

    names: tuple[str, ...]  # of all regions
    slot: Ints
    region: Ints
    facts: dict[str, ArgColumn]  # values of the entries: of ranges "count", ..., or "instants"

    @classmethod
    def of(cls, trace: Trace) -> Sums:
        """Return the entries of a trace that has totals."""
        totals = trace.totals
        ranges = totals.kind == int(Kind.RANGE)
        in_cycles = np.array([one.clock.kind == "cycles" for one in trace.launches], bool)
        cycles = in_cycles[trace.slots.launch[totals.slot]]
        share = shares(trace)
        facts = {
            "count": _column(totals.count, ranges),
            "instants": _column(totals.count, ~ranges),
            "cycles": _column(totals.ticks, ranges & cycles),
            "ticks": _column(totals.ticks, ranges & ~cycles),
            "total_ns": _column(totals.total_ns, ranges),
            "share": _column(share, ~np.isnan(share)),  # of the warp's time; readers need it not
        }
        names = tuple(region.name or "(no name)" for region in trace.regions)
        return cls(names, totals.slot.astype(np.int64), totals.region.astype(np.int64), facts)

    def __len__(self) -> int:
        return len(self.slot)

    def slices(self) -> tuple[Ints, Ints]:
        """Return the slot of each slice, and its first entry."""
        first = np.flatnonzero(np.diff(self.slot, prepend=-1))
        return self.slot[first], first

    def by_slot(self, digits: int) -> Iterator[tuple[int, dict[str, dict[str, Scalar]]]]:
        """Yield the slot of each slice, and its entries as a dict; regions of one name are one.

        Shares have ``digits`` digits behind the point.
        """
        columns = {name: column.tolist() for name, column in self.facts.items()}
        columns["share"] = [one and round(float(one), digits) for one in columns["share"]]
        slots, first = self.slices()
        bounds = [*first.tolist(), len(self)]
        region = self.region.tolist()
        for i, slot in enumerate(slots.tolist()):
            entries: dict[str, dict[str, Scalar]] = {}
            for row in range(bounds[i], bounds[i + 1]):
                entry = entries.setdefault(self.names[region[row]], {})
                for name, column in columns.items():
                    if (value := column[row]) is not None:
                        entry[name] = value
            yield slot, entries


def _column(values: Column, given: NDArray[np.bool_]) -> ArgColumn:
    return ArgColumn(np.where(given, values, 0), given)
