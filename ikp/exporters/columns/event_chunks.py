"""``EventTable``: events unpacked from chunks of columns; ``packing.py`` describes their layout."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind, PayloadType
from ikp.core.args import TEXT, ArgColumn, blank
from ikp.core.trace import Events
from ikp.exporters.columns.chunk import Chunk
from ikp.exporters.columns.packing import DIRECT, MOST_RATE, RATE_BITS, Integers
from ikp.exporters.columns.small_tables import fitting, outside
from ikp.exporters.protobuf.varints import DamagedError

Ints = NDArray[np.int64]
Columns = dict[str, NDArray[Any]]

ALL: Final = tuple(Events.__slots__)


@dataclass(slots=True)
class EventTable:
    """Columns of events; each chunk fills in some rows."""

    rows: int
    wanted: Collection[str] = ALL
    args: tuple[str, ...] = ()  # numpy's kind of each argument
    slots: int = 0
    regions: int = 0
    columns: Columns = field(default_factory=dict)
    filled: int = 0

    def __post_init__(self) -> None:
        for name in self.wanted:
            self.columns[name] = np.empty(self.rows, _DTYPES[name])
        for number, kind in enumerate(self.args):
            self.columns[f"given {number}"] = np.empty(self.rows, np.bool_)
            dtype = np.dtype(_ARGS[kind])
            self.columns[f"arg {number}"] = np.full(self.rows, blank(dtype), dtype)

    def fill(self, chunk: Chunk) -> None:
        """Append a chunk's events.

        Raises:
            DamagedError: they contradict themselves, or the chunk's head.
        """
        count = chunk.size("rows")
        rows = slice(self.filled, self.filled + count)
        if rows.stop > self.rows:
            raise DamagedError("there are more events than its head says")
        self.filled = rows.stop
        one = _ChunkReader(chunk, count)
        wanted = set(self.wanted)
        out = {name: column[rows] for name, column in self.columns.items()}
        if wanted & {"slot", "start_ns", "end_ns"}:
            self._fill_slots(one, out)
        if wanted & {"start_ns", "end_ns"}:
            _fill_times(one, out)
        if "ticks" in wanted:
            _fill_ticks(one, out)
        for name in wanted & DIRECT.keys():
            out[name][:] = self._checked(name, chunk.numbers(name, count), one)
        if "payload" in wanted:
            _fill_payload(one, out)
        for number, kind in enumerate(self.args):
            self._fill_arg(one, number, kind, out)

    def _fill_slots(self, one: _ChunkReader, out: Columns) -> None:
        slots, counts = one.slots
        if outside(slots, 0, self.slots):
            raise DamagedError("an event names a slot that there is not")
        if "slot" in out:
            out["slot"][:] = np.repeat(slots.astype(np.int32), counts)

    def _checked(self, name: str, values: Integers, one: _ChunkReader) -> Integers:
        most = {"region": self.regions, "kind": Kind.INSTANT + 1, "payload_type": len(PayloadType)}
        if outside(values, Kind.RANGE if name == "kind" else 0, most[name]):
            raise DamagedError(f"an event's {name} is one that there is not")
        if name == "kind" and "start_ns" in self.wanted:
            instants = values == Kind.INSTANT
            if instants.any() and one.span[instants].any():
                raise DamagedError("an instant has a duration")
        return values

    def _fill_arg(self, one: _ChunkReader, number: int, kind: str, out: Columns) -> None:
        given = fitting("given", one.chunk.numbers(f"given {number}", one.rows), _BOOL)
        given = given.astype(np.bool_)
        out[f"given {number}"][:] = given
        values = one.chunk.numbers(f"arg {number}", int(np.count_nonzero(given)))
        found: NDArray[Any] = values
        if kind == "f":
            found = values.astype(np.int64).view(np.float64)
        elif kind == "b":
            found = fitting("argument", values, _BOOL)
        elif kind == TEXT:
            found = _texts(one.chunk, number)
            if outside(values, 0, len(found)):
                raise DamagedError("an argument has a text that there is not")
            found = found[values]
        out[f"arg {number}"][given] = found.astype(np.dtype(_ARGS[kind]), copy=False)

    def arg(self, number: int) -> ArgColumn:
        """Return one argument of all events."""
        return ArgColumn(self.columns[f"arg {number}"], self.columns[f"given {number}"])


def _texts(chunk: Chunk, number: int) -> NDArray[np.object_]:
    texts = chunk.json(f"texts {number}")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise DamagedError("the texts of an argument are damaged")
    return np.array(texts, np.object_)


_BOOL: Final = np.dtype(np.bool_)
_ARGS: Final[dict[str, type[Any]]] = {
    "i": np.int64,
    "f": np.float64,
    "b": np.bool_,
    TEXT: np.object_,
}
_DTYPES: Final[dict[str, type[Any]]] = {
    "slot": np.int32,
    **DIRECT,
    "start_ns": np.int64,
    "end_ns": np.int64,
    "ticks": np.int64,
    "payload": np.uint32,
}


class _ChunkReader:
    """One chunk's columns, each unpacked once."""

    def __init__(self, chunk: Chunk, rows: int) -> None:
        self.chunk, self.rows = chunk, rows
        self._span: Ints | None = None
        self._slots: tuple[Integers, Ints] | None = None

    @property
    def span(self) -> Ints:
        """How long each event took."""
        if self._span is None:
            self._span = self.chunk.numbers("span", self.rows).astype(np.int64)
            if len(self._span) and int(self._span.min()) < 0:
                raise DamagedError("an event ends before it starts")
        return self._span

    @property
    def slots(self) -> tuple[Integers, Ints]:
        """The slots with events in the chunk, and how many events each has."""
        if self._slots is None:
            slots = self.chunk.numbers("slot")
            counts = self.chunk.numbers("count", len(slots)).astype(np.int64)
            if outside(counts, 1, self.rows + 1) or int(counts.sum()) != self.rows:
                raise DamagedError("its slots have not as many events as a chunk says")
            ends = self.chunk.pair("slots")
            ordered = bool(np.all(slots[1:] > slots[:-1]))
            if not ordered or (len(slots) and (int(slots[0]), int(slots[-1])) != ends):
                raise DamagedError("the slots of a chunk are not those that it says")
            self._slots = slots, counts
        return self._slots


def _fill_times(one: _ChunkReader, out: Columns) -> None:
    slots, counts = one.slots
    origin = one.chunk.numbers("origin", len(slots)).astype(np.int64)
    steps = one.chunk.numbers("gap", one.rows) + one.span
    if not len(steps):
        return
    last = np.cumsum(counts)
    first = last - counts
    # Each slot begins at its origin, independent of where the steps of the slot before it end.
    ends = origin + np.add.reduceat(steps, first)
    steps[first[:1]] += origin[:1]
    steps[first[1:]] += origin[1:] - ends[:-1]
    end = np.cumsum(steps, out=out.get("end_ns"))
    start = np.subtract(end, one.span, out=out.get("start_ns"))
    least, most = int(start.min()), int(end.max())
    if (least, most) != one.chunk.pair("time") or least < 0 or int(end.min()) < 0:
        raise DamagedError("the times of a chunk are not those that it says")


def _fill_ticks(one: _ChunkReader, out: Columns) -> None:
    rate = one.chunk.about.get("rate")
    if type(rate) is not int or abs(rate) >= MOST_RATE:
        raise DamagedError("a chunk doesn't say its rate")
    usual = np.multiply(one.span, np.int64(rate), out=out["ticks"])
    usual >>= RATE_BITS
    usual += one.chunk.numbers("ticks", one.rows)


def _fill_payload(one: _ChunkReader, out: Columns) -> None:
    types = out.get("payload_type")
    if types is None:
        types = one.chunk.numbers("payload_type", one.rows)
    typed = types != PayloadType.NONE
    values = one.chunk.numbers("payload", int(np.count_nonzero(typed)))
    values = fitting("payload", values, np.dtype(np.uint32))
    if len(values) == one.rows:
        out["payload"][:] = values
        return
    out["payload"][:] = 0
    out["payload"][typed] = values
