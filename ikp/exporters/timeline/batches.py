"""A trace's events, some whole slots at a time, and where in a viewer each one stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind
from ikp.core.lanes import arrange
from ikp.core.trace import Events, Trace
from ikp.exporters.timeline.launches import Track
from ikp.exporters.timeline.tracks import Layout, distinct, slot_bounds

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Batch:
    """Events of some slots, each slot's in order of their ends, which is that of recording."""

    events: Events
    rows: Rows  # which of the trace each one is
    ranges: NDArray[np.bool_]  # instants where not
    track: Ints
    opens: Ints  # its place among the batch's events as they open and close
    closes: Ints  # the same place for an instant
    new: list[Track]  # those on which nothing stood before


class Batches:
    """The batches of a trace: about so many events each, if slots allow it."""

    def __init__(self, trace: Trace, layout: Layout, events: int) -> None:
        self._trace = trace
        self._cuts = cuts(slot_bounds(trace), events)
        self._overlaps = _Overlaps(layout)

    def __len__(self) -> int:
        return len(self._cuts)

    def __iter__(self) -> Iterator[Batch]:
        for low, high in self._cuts:
            events, rows = by_end(self._trace.events, low, high)
            ranges = events.kind == int(Kind.RANGE)
            stream = arrange(events.slot, events.start_ns, events.end_ns, ranges)
            track, new = self._overlaps.place(events.slot.astype(np.intp), stream.lane)
            yield Batch(events, rows, ranges, track, stream.opens, stream.closes, new)


class _Overlaps:
    """Gives each further lane of a warp a track of its own, below the warp's."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._found: dict[tuple[int, int], int] = {}  # (warp's track, lane) -> track

    def place(self, slot: Rows, lane: Ints) -> tuple[Ints, list[Track]]:
        """Return the track of each event, and the tracks that these events are the first on."""
        if not lane.any():
            return self._layout.slot_track[slot], []
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
    """Return parts of the events that hold about so many each, from one up to another.

    Slot i holds events ``bounds[i]`` to ``bounds[i + 1]``. A slot is never cut: the order in which
    its events open and close concerns all of them.
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


def by_end(events: Events, low: int, high: int) -> tuple[Events, Rows]:
    """Return the events from ``low`` up to ``high``, those of each slot in order of their ends.

    Also return which row each one was.
    """
    slot, end = events.slot[low:high], events.end_ns[low:high]
    rows: slice | Rows = slice(low, high)
    order = np.arange(low, high)
    if np.any((end[1:] < end[:-1]) & (slot[1:] == slot[:-1])):
        rows = order = low + np.lexsort((end, slot))
    return Events(*(getattr(events, name)[rows] for name in Events.__slots__)), order
