"""Ranges and instants as lines of JSON, many at a time."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind, PayloadType
from ikp.core.args import ArgColumn
from ikp.core.trace import Events as Table
from ikp.core.trace import Trace
from ikp.exporters.chrome.flows import between, flow_lines
from ikp.exporters.chrome.tracks import Threads, as_json, names_as_json
from ikp.exporters.text import (
    Part,
    at_once,
    integers,
    join,
    lay,
    texts,
    thousandths,
    where,
)
from ikp.exporters.timeline.batches import Arrows, Batch

Ints = NDArray[np.int64]


class Events:
    """Writes a trace's events, and gives threads to those that overlap others of their warp."""

    def __init__(self, trace: Trace, threads: Threads, origin: int) -> None:
        self._trace, self._threads, self._origin = trace, threads, origin
        self._regions = texts(names_as_json([region.name for region in trace.regions]))
        self._blocks = integers(trace.slots.block)
        self._cycles = np.array([one.clock.kind == "cycles" for one in trace.launches], bool)
        self._args = {name: as_json(name) for name in trace.args}
        self._arrows = Arrows.of(trace)
        self._rows = at_once(200 + self._regions.shape[1] + sum(map(len, self._args.values())))

    def make(self, batch: Batch) -> Iterator[bytes]:
        """Yield the lines of a batch, each warp's events in order of opening."""
        events = batch.events
        for each in batch.new:
            yield from self._threads.add(each)
        known, heads = self._heads(batch.track)
        opening = np.argsort(batch.opens)
        for begin in range(0, len(opening), self._rows):
            rows = opening[begin : begin + self._rows]
            chosen = Table(*(getattr(events, name)[rows] for name in Table.__slots__))
            args = {
                name: column.take(batch.rows[rows]) for name, column in self._trace.args.items()
            }
            lines = self._lines(chosen, heads[known[rows]], args)
            if self._arrows is None:
                yield join(*lines)
            else:
                ends = [chosen.start_ns - self._origin, chosen.end_ns - self._origin]
                more = flow_lines(self._arrows, batch.rows[rows], heads[known[rows]], *ends)
                yield between(lay(*lines), more)

    def _heads(self, track: Ints) -> tuple[Ints, Part]:
        """Return what events begin with: a row for each, and the rows."""
        uuids, row = np.unique(track, return_inverse=True)
        return row, texts([b"%s," % self._threads.heads[uuid] for uuid in uuids.tolist()])

    def _lines(self, events: Table, heads: Part, args: dict[str, ArgColumn]) -> list[bytes | Part]:
        slot = events.slot.astype(np.intp)
        ranges = events.kind == int(Kind.RANGE)
        duration = events.end_ns - events.start_ns
        return [
            *_either(ranges, b'{"ph":"X",', b'{"ph":"i","s":"t",'),
            heads,
            b'"ts":',
            thousandths(events.start_ns - self._origin),
            *_only(ranges, b',"dur":', thousandths(duration)),
            b',"name":',
            self._regions[events.region],
            b',"args":{"block":',
            self._blocks[slot],
            *self._ticks(events, slot, ranges, duration),
            *_payload(events),
            *(_argument(self._args[name], column) for name, column in args.items()),
            b"}},\n",
        ]

    def _ticks(
        self, events: Table, slot: NDArray[np.intp], ranges: NDArray[np.bool_], duration: Ints
    ) -> list[bytes | Part]:
        """Return the ticks under the name for what they count, where the duration isn't they."""
        ticks = integers(events.ticks)
        if self._cycles.all() and ranges.all():
            return [b',"cycles":', ticks]
        cycles = self._cycles[self._trace.slots.launch[slot]]
        shown = (events.ticks != duration) | (ranges & cycles)
        return [
            where(shown & cycles, b',"cycles":'),
            where(shown & ~cycles, b',"ticks":'),
            where(shown, ticks),
        ]


def _either(chosen: NDArray[np.bool_], yes: bytes, no: bytes) -> list[bytes | Part]:
    """Return one text where ``chosen`` says so, and the other elsewhere."""
    return [yes] if chosen.all() else [where(chosen, yes), where(~chosen, no)]


def _only(chosen: NDArray[np.bool_], name: bytes, value: Part) -> list[bytes | Part]:
    """Return a field that only the chosen rows have."""
    return [name, value] if chosen.all() else [where(chosen, lay(name, value))]


def _payload(events: Table) -> list[bytes | Part]:
    """Return the argument of those events that have a payload, as a number of its type."""
    types = events.payload_type
    found: list[bytes | Part] = []
    for kind in np.unique(types).tolist():
        if kind == PayloadType.NONE:
            continue
        chosen = types == kind
        values = _numbers(PayloadType(kind), np.where(chosen, events.payload, np.uint32(0)))
        found += _only(chosen, b',"payload":', values)
    return found


def _numbers(kind: PayloadType, bits: NDArray[np.uint32]) -> Part:
    if kind is PayloadType.U32:
        return integers(bits)
    if kind is PayloadType.I32:
        return integers(bits.view(np.int32))
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return json_reals(bits.view(np.float32).astype(np.float64))


MAX_DECIMALS = 18
"""Digits behind the point that Perfetto's JSON reader takes without overflowing."""


def _json_real(value: float) -> str:
    if not isfinite(value):
        return f'"{value}"'
    text = repr(value)
    decimals = len(text) - 1 - text.find(".")
    return text if "e" in text or decimals <= MAX_DECIMALS else f"{value:.16e}"


def json_reals(values: NDArray[np.float64]) -> Part:
    """Return floats as JSON; what JSON has no number for as a string."""
    return texts([_json_real(value).encode() for value in values.tolist()])


def _argument(name: bytes, column: ArgColumn) -> Part:
    values = column.values
    field = b",%s:" % name
    if values.dtype.kind == "i":
        text = integers(values)
    elif values.dtype.kind == "f":
        text = json_reals(values)
    elif values.dtype.kind == "b":
        text = texts([b"false", b"true"])[values.astype(np.intp)]
    else:
        distinct, code = np.unique(values, return_inverse=True)
        text = texts(names_as_json(distinct.tolist()))[code]
    return where(column.given, lay(field, text))
