"""Arrows as Perfetto's flows: ids on the packets that open the events they join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.exporters.perfetto._schema import Event
from ikp.exporters.protobuf.varints import BYTES, FIXED64, WORD, Column, tag
from ikp.exporters.timeline.batches import ARROW, Arrows

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]

_LEAVING: Final = tag(Event.FLOW_IDS, FIXED64)
ARRIVING: Final = tag(Event.TERMINATING_FLOW_IDS, FIXED64)
NAMED: Final = tag(Event.NAME, BYTES) + bytes([len(ARROW)]) + ARROW


@dataclass(frozen=True, slots=True)
class Ids:
    """The arrows of some events, event by event: the event's number and the id of each arrow."""

    event: Rows
    id: Ints
    count: Ints  # of each event

    @classmethod
    def of(cls, found: tuple[Rows, Ints], events: int) -> Ids:
        """Return the ids of arrows that :meth:`ikp.exporters.timeline.batches.Lists.take` found."""
        return cls(*found, np.bincount(found[0], minlength=events))

    def take(self, rows: Rows) -> Ids:
        """Return the arrows of the given events."""
        place = np.full(len(self.count), -1)
        place[rows] = np.arange(len(rows))
        event = place[self.event]
        order = np.argsort(event, kind="stable")[np.count_nonzero(event < 0) :]
        return Ids(event[order], self.id[order], self.count[rows])

    def column(self, key: bytes) -> Column:
        """Return the field for the ids, once for each of them."""
        size = len(key) + WORD
        fields = np.zeros((len(self.event), size), np.uint8)
        fields[:, : len(key)] = np.frombuffer(key, np.uint8)
        fields[:, len(key) :] = self.id.astype("<u8").view(np.uint8).reshape(-1, WORD)
        most = int(self.count.max(initial=0))
        width = max(1, -(-most * size // WORD))
        nth = np.arange(len(self.event)) - np.repeat(np.cumsum(self.count) - self.count, self.count)
        rows = np.zeros((len(self.count), width * WORD), np.uint8)
        # A view of each row as so many fields: numpy copies each in one go.
        cells = np.ndarray((len(rows), most), f"V{size}", rows, strides=(rows.shape[1], size))
        cells[self.event, nth] = fields.view(f"V{size}")[:, 0]
        return Column(rows.view(np.uint64), self.count * size)


@dataclass(frozen=True, slots=True)
class Flows:
    """The arrows of a batch's events."""

    leaving: Ids
    arriving: Ids
    late: Ids

    @classmethod
    def of(cls, arrows: Arrows, rows: Rows, first_id: int) -> Flows | None:
        """Return the arrows of the given events; None if they have none.

        Arrow 1 gets the id behind ``first_id``, and so on.
        """
        lists = (one.take(rows) for one in (arrows.leaving, arrows.arriving, arrows.late))
        found = [Ids.of((event, first_id + number), len(rows)) for event, number in lists]
        return cls(*found) if any(len(one.id) for one in found) else None

    def take(self, rows: Rows) -> Flows:
        """Return the arrows of the given events."""
        return Flows(*(one.take(rows) for one in (self.leaving, self.arriving, self.late)))

    def fields(self) -> tuple[Column, Column]:
        """Return the fields of the packets that open the events: leaving and arriving flows."""
        return self.leaving.column(_LEAVING), self.arriving.column(ARRIVING)

    def alike(self) -> list[Rows]:
        """Return events by how many arrows they have: each list holds up to twice as many."""
        most = np.maximum(np.maximum(self.leaving.count, self.arriving.count), 1)
        kind = np.ceil(np.log2(most)).astype(np.int64)
        return [np.flatnonzero(kind == one) for one in np.unique(kind).tolist()]
