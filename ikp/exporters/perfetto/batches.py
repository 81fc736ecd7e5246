"""Cuts a trace's events into batches of whole slots and says where each event's packets go."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind
from ikp.core.lanes import arrange
from ikp.core.trace import Events, Trace
from ikp.exporters.perfetto.args import OwnArgs
from ikp.exporters.perfetto.events import Batch
from ikp.exporters.perfetto.file_clock import Clock
from ikp.exporters.perfetto.flows import Flows
from ikp.exporters.perfetto.schema import Arg
from ikp.exporters.protobuf.varints import Column, varints
from ikp.exporters.timeline.arrows import Arrows
from ikp.exporters.timeline.launches import Track
from ikp.exporters.timeline.tracks import Layout, distinct

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

EVENTS_AT_ONCE: Final = 1 << 15
"""Events encoded together, if slots allow it: their packets fit into a core's cache."""


def cuts(bounds: Ints, events: int) -> list[tuple[int, int]]:
    """Return ranges of slots that hold about as many events each.

    Slot i holds events ``bounds[i]`` to ``bounds[i + 1]``. A slot is never cut: the order in which
    its events open and close concerns all of them.
    """
    parts = []
    low = 0
    while low < len(bounds) - 1:
        high = int(np.searchsorted(bounds, bounds[low] + events, "right")) - 1
        high = max(high, low + 1)
        if bounds[high] > bounds[low]:
            parts.append((low, high))
        low = high
    return parts


class Batches:
    """Makes batches of a trace's events, and tracks for those that overlap."""

    def __init__(
        self,
        trace: Trace,
        layout: Layout,
        bounds: Ints,
        clock: Clock,
        first_name: int,
        args: OwnArgs,
        arrows: Arrows | None,
        first_flow: int,
    ) -> None:
        self._trace = trace
        self._layout = layout
        self._bounds = bounds
        self._clock = clock
        self._overlaps = Overlaps(layout)
        self._args = args
        self._arrows = arrows
        self._first_flow = first_flow
        self._names = varints(first_name + np.arange(len(trace.regions)))
        self._blocks = varints(trace.slots.block)
        self._tracks = varints(layout.slot_track)
        self._cycles = np.array([one.clock.kind == "cycles" for one in trace.launches], bool)

    def make(self, low: int, high: int) -> tuple[Batch, list[Track]]:
        """Return the events of slots ``low`` to ``high``, and the tracks they are the first on."""
        first, last = int(self._bounds[low]), int(self._bounds[high])
        events, order = by_end(part(self._trace.events, first, last))
        ranges = events.kind == int(Kind.RANGE)
        stream = arrange(events.slot, events.start_ns, events.end_ns, ranges)
        slot = events.slot.astype(np.intp)
        track, new = self._tracks.take(slot), list[Track]()
        if stream.lane.any():
            tracks, new = self._overlaps.place(slot, stream.lane)
            track = varints(tracks)
        name, ticks = self._ticks(events, slot, ranges)
        batch = Batch(
            start=self._clock.times(events.start_ns),
            end=self._clock.times(events.end_ns),
            is_range=ranges,
            name=self._names.take(events.region.astype(np.intp)),
            block=self._blocks.take(slot),
            track=track,
            ticks=ticks,
            ticks_name=name,
            payload=events.payload,
            payload_type=events.payload_type,
            args=self._args.messages(first + order),
            opens=stream.opens,
            closes=stream.closes,
            flows=self._flows(first + order),
        )
        return batch, new

    def _flows(self, rows: NDArray[np.intp]) -> Flows | None:
        return None if self._arrows is None else Flows.of(self._arrows, rows, self._first_flow)

    def _ticks(
        self, events: Events, slot: NDArray[np.intp], ranges: Bools
    ) -> tuple[Arg | Column, Column]:
        """Return what the ticks are called, and themselves where the duration doesn't tell them."""
        ticks = varints(events.ticks)
        if self._cycles.all() and ranges.all():
            return Arg.CYCLES, ticks
        cycles = self._cycles[self._trace.slots.launch[slot]]
        shown = (events.ticks != events.end_ns - events.start_ns) | (ranges & cycles)
        names = varints(np.where(cycles, Arg.CYCLES, Arg.TICKS))
        return names.where(shown), ticks.where(shown)


class Overlaps:
    """Gives each further lane of a warp a track of its own, below the warp's."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._found: dict[tuple[int, int], int] = {}  # (warp's track, lane) -> track

    def place(self, slot: NDArray[np.intp], lane: Ints) -> tuple[Ints, list[Track]]:
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


def part(events: Events, low: int, high: int) -> Events:
    """Return the events from ``low`` up to ``high``."""
    return Events(*(getattr(events, field.name)[low:high] for field in fields(events)))


def by_end(events: Events) -> tuple[Events, NDArray[np.intp]]:
    """Return the events of each slot in order of their ends, which is how they were recorded.

    Also return which row each one was.
    """
    slot, end = events.slot, events.end_ns
    order = np.arange(len(events))
    if not np.any((end[1:] < end[:-1]) & (slot[1:] == slot[:-1])):
        return events, order
    order = np.lexsort((end, slot))
    return Events(*(getattr(events, field.name)[order] for field in fields(events))), order
