"""What the packets of a batch of events hold, as columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ikp.core.trace import Trace
from ikp.exporters.perfetto.args import OwnArgs
from ikp.exporters.perfetto.events import EventColumns
from ikp.exporters.perfetto.file_clock import Clock
from ikp.exporters.perfetto.flows import Flows
from ikp.exporters.perfetto.schema import Arg
from ikp.exporters.protobuf.varints import Column, varints
from ikp.exporters.timeline.arrows import Arrows
from ikp.exporters.timeline.batches import Batch


class Encoder:
    """Turns events into columns."""

    def __init__(
        self,
        trace: Trace,
        clock: Clock,
        first_name: int,
        args: OwnArgs,
        arrows: Arrows | None,
        first_flow: int,
    ) -> None:
        self._trace = trace
        self._clock = clock
        self._args = args
        self._arrows = arrows
        self._first_flow = first_flow
        self._names = varints(first_name + np.arange(len(trace.regions)))
        self._blocks = varints(trace.slots.block)
        self._cycles = np.array([one.clock.kind == "cycles" for one in trace.launches], bool)

    def columns(self, batch: Batch) -> EventColumns:
        """Return the columns of a batch."""
        events = batch.events
        slot = events.slot.astype(np.intp)
        name, ticks = self._ticks(batch, slot)
        return EventColumns(
            start=self._clock.times(events.start_ns),
            end=self._clock.times(events.end_ns),
            is_range=batch.ranges,
            name=self._names.take(events.region.astype(np.intp)),
            block=self._blocks.take(slot),
            track=varints(batch.track),
            ticks=ticks,
            ticks_name=name,
            payload=events.payload,
            payload_type=events.payload_type,
            args=self._args.messages(batch.rows),
            opens=batch.opens,
            closes=batch.closes,
            flows=self._flows(batch.rows),
        )

    def _flows(self, rows: NDArray[np.intp]) -> Flows | None:
        return None if self._arrows is None else Flows.of(self._arrows, rows, self._first_flow)

    def _ticks(self, batch: Batch, slot: NDArray[np.intp]) -> tuple[Arg | Column, Column]:
        """Return what the ticks are called, and themselves where the duration doesn't tell them."""
        events, ranges = batch.events, batch.ranges
        ticks = varints(events.ticks)
        if self._cycles.all() and ranges.all():
            return Arg.CYCLES, ticks
        cycles = self._cycles[self._trace.slots.launch[slot]]
        shown = (events.ticks != events.end_ns - events.start_ns) | (ranges & cycles)
        names = varints(np.where(cycles, Arg.CYCLES, Arg.TICKS))
        return names.where(shown), ticks.where(shown)
