"""The layout of chunks of packed columns, and the functions that write a trace's tables in it.

A chunk holds some rows of a table, behind a head that says what they are and where each column
lies::

    "ikpc" | size of the head, 4 bytes | CRC-32 of the head, 4 bytes | head, as JSON | columns

The head has its own checksum, and one of each column: any of them is read without the others.

A column's whole numbers are kept in as few bytes as the largest of them needs: as themselves or as
the steps from one to the next, if these take fewer. The lowest bytes of all numbers lie together,
then the next ones, and so on: most higher bytes are alike, and deflate takes them for next to
nothing.

A chunk of events holds all events of some slots. For each slot it has their number and the start of
the first one. For each event it has the time since the end of the one before it, and its duration.
An event's ticks follow from its duration and the clock's rate, but for a small rest: only that rest
is kept.

Launches, regions, roles, names of arguments and provenance are few: they are plain values. Each
field of all launches, or regions, is one list, so that equal values lie together. Where a file has
many launches, a list of a few values is folded: each value once, and for each launch its number.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import PayloadType
from ikp.core.args import TEXT, ArgColumn, coded
from ikp.core.trace import ClockFit, Events, Launch, Region, Slots, Totals, Trace

Ints = NDArray[np.int64]
Facts = dict[str, Any]
"""Plain values by name, nested as in JSON."""
Integers = NDArray[np.integer[Any]]

RAW: Final = -15
"""Window bits of a deflate stream without zlib's header and checksum."""
_FAST: Final = 1
"""Levels above are slower, and gain little where rows are so much alike."""
JSON: Final = "json"
NUMBERS: Final = ("u1", "i1", "u2", "i2", "u4", "i4", "i8")
"""Types that numbers are packed as: signed or not, and how many bytes."""
_NARROWEST: Final = ("u1", "i1")


@dataclass(frozen=True, slots=True)
class ColumnEntry:
    """A column's entry in a chunk's head."""

    name: str
    rows: int  # of JSON: its bytes
    type: str  # one of ``NUMBERS``; empty where all rows are ``value``
    steps: bool  # each row is the step from the one before it, the first one from ``value``
    value: int
    size: int  # in the chunk
    crc: int

    def facts(self) -> list[str | int]:
        """Return all of it, for a chunk's head."""
        rest = (self.rows, self.type, self.steps, self.value, self.size, self.crc)
        return [self.name, *rest]


Packed = tuple[ColumnEntry, bytes]


def pack(name: str, values: NDArray[Any], *, steps: bool = True) -> Packed:
    """Pack whole numbers, or booleans; with ``steps``, as steps where these take less room."""
    if not len(values):
        return ColumnEntry(name, 0, "", False, 0, 0, 0), b""
    numbers: Integers = values.view(np.uint8) if values.dtype == np.bool_ else values
    plain = _type(numbers)
    if not plain:
        return ColumnEntry(name, len(numbers), "", False, int(numbers[0]), 0, 0), b""
    if steps and plain not in _NARROWEST:
        wide = numbers.astype(np.int64, copy=False)
        between = np.diff(wide, prepend=wide[:1])
        narrow = _type(between)
        if width_of(narrow) < width_of(plain):
            return _packed(name, between, narrow, True, int(wide[0]))
    return _packed(name, numbers, plain, False, 0)


def _packed(name: str, values: Integers, kind: str, steps: bool, first: int) -> Packed:
    content = deflated(_planes(values.astype(f"<{kind}", copy=False)))
    return ColumnEntry(
        name, len(values), kind, steps, first, len(content), checksum(content)
    ), content


def _type(values: Integers) -> str:
    """Return the smallest type for some numbers; nothing if all are equal."""
    least, most = int(values.min()), int(values.max())
    if least == most:
        return ""
    if least < 0:
        span = max(-least - 1, most)
        return next(f"i{size}" for size in (1, 2, 4, 8) if span < 1 << 8 * size - 1)
    return next((f"u{size}" for size in (1, 2, 4) if most < 1 << 8 * size), "i8")


def width_of(kind: str) -> int:
    """Return how many bytes a number of a type takes; 0 where there is no type."""
    return int(kind[1:] or 0)


def to_json(value: object) -> bytes:
    """Return plain values as compact JSON."""
    return json.dumps(value, separators=(",", ":"), default=int).encode()


def pack_json(name: str, text: bytes) -> Packed:
    """Pack a text that :func:`to_json` returned."""
    content = deflated(text)
    return ColumnEntry(name, len(text), JSON, False, 0, len(content), checksum(content)), content


def deflated(content: bytes | NDArray[np.uint8], window_bits: int = RAW) -> bytes:
    """Return bytes deflated, reproducibly; with zlib's header where ``window_bits`` > 0.

    isal (1.6 to 1.9.1) hashes the third byte that it compresses with its state's address, so that
    the matches found depend on where the state lies in memory. It does not where a stream goes on,
    nor with so few bytes as the first ones here: so these are compressed alone.
    """
    from isal import isal_zlib

    stream = isal_zlib.compressobj(_FAST, isal_zlib.DEFLATED, window_bits)
    flat = np.frombuffer(content, np.uint8)
    first = stream.compress(flat[:_ALONE])
    if len(flat) > _ALONE:
        first += stream.flush(isal_zlib.Z_SYNC_FLUSH)
    return bytes(first + stream.compress(flat[_ALONE:]) + stream.flush())


_ALONE: Final = 8
"""From 4 on isal finds the first byte again, from 17 on it looks up the third. They take 5 more."""


def checksum(content: bytes | memoryview | NDArray[np.uint8], before: int = 0) -> int:
    """Return the CRC-32 of some bytes, continued from the CRC-32 ``before`` them."""
    from isal import isal_zlib

    return int(isal_zlib.crc32(content, before))


def _planes(values: Integers) -> NDArray[np.uint8]:
    width = values.itemsize
    if width == 1:
        return values.view(np.uint8)
    split = values.view(np.uint8).reshape(len(values), width)
    planes = np.empty((width, len(values)), np.uint8)
    for number in range(width):
        planes[number] = split[:, number]
    return planes


MAGIC: Final = b"ikpc"
PREFIX: Final = struct.Struct("<4sII")


def build(kind: str, about: dict[str, Any], parts: Sequence[Packed]) -> bytes:
    """Return a chunk of packed columns; ``about`` holds the other entries of its head."""
    facts = {"kind": kind, **about, "columns": [piece.facts() for piece, _ in parts]}
    head = json.dumps(facts, separators=(",", ":")).encode()
    prefix = PREFIX.pack(MAGIC, len(head), checksum(head))
    return b"".join([prefix, head, *(content for _, content in parts)])


RATE_BITS: Final = 20
"""The rate of ticks is kept as a whole number of 2**-20 ticks for each ns."""
MOST_RATE: Final = 1 << 40
DIRECT: Final = {"region": np.int32, "kind": np.uint8, "payload_type": np.uint8}


def pack_events(
    events: Events, args: Mapping[str, ArgColumn], launch: NDArray[Any]
) -> tuple[dict[str, Any], list[Packed]]:
    """Pack the events of some slots; return the entries of their chunk's head, and columns.

    ``launch`` is the launch of each slot of the trace.
    """
    start, end = events.start_ns, events.end_ns
    first = np.append(0, np.flatnonzero(events.slot[1:] != events.slot[:-1]) + 1)
    slots = events.slot[first]
    span, gap = end - start, np.empty_like(start)
    gap[1:] = start[1:] - end[:-1]
    gap[first] = 0
    rate = _rate(events.ticks, span)
    with np.errstate(over="ignore"):
        ticks = events.ticks - ((span * rate) >> RATE_BITS)
    typed = events.payload_type != int(PayloadType.NONE)  # ten times as fast as with the member
    payload = events.payload if typed.all() else events.payload[np.flatnonzero(typed)]
    about = {
        "rows": len(start),
        "slots": [int(slots[0]), int(slots[-1])],
        "launches": [int(launch[slots].min()), int(launch[slots].max())],
        "time": [int(start.min()), int(end.max())],
        "rate": int(rate),
    }
    packed = [
        pack("slot", slots),
        pack("count", np.diff(first, append=len(start))),
        pack("origin", start[first]),
        pack("gap", gap, steps=False),
        pack("span", span, steps=False),
        pack("ticks", ticks, steps=False),
        *(pack(name, getattr(events, name), steps=False) for name in DIRECT),
        pack("payload", payload),
    ]
    for number, column in enumerate(args.values()):
        packed += _pack_arg(number, column)
    return about, packed


def _rate(ticks: Ints, span: Ints) -> np.int64:
    """Return the mean rate of ticks, in units of 2**-20 ticks per ns; 0 where it is too large."""
    whole = float(span.sum(dtype=np.float64))
    rate = float(ticks.sum(dtype=np.float64)) / whole * (1 << RATE_BITS) if whole else 0.0
    return np.int64(round(rate) if abs(rate) < MOST_RATE else 0)


def _pack_arg(number: int, column: ArgColumn) -> list[Packed]:
    values = column.values[column.given]
    kind = values.dtype.kind
    packed = [pack(f"given {number}", column.given)]
    if kind == TEXT:
        texts, codes = coded(values)
        packed.append(pack_json(f"texts {number}", to_json(texts)))
        values = codes
    elif kind == "f":
        values = np.ascontiguousarray(values).view(np.int64)
    packed.append(pack(f"arg {number}", values))
    return packed


BESIDE: Final = {"end_ns": "start_ns", "attempted": "kept"}
"""Columns that are kept as their difference to another one."""


def pack_rows(table: Slots | Totals, rows: slice) -> tuple[dict[str, Any], list[Packed]]:
    """Pack some rows of a table; return the entries of their chunk's head, and columns."""
    packed = []
    for each in fields(table):
        values = getattr(table, each.name)[rows]
        if each.name in BESIDE:
            values = values - getattr(table, BESIDE[each.name])[rows]
        packed.append(pack(each.name, values))
    return {"rows": rows.stop - rows.start, "first": rows.start}, packed


ARG_TYPES: Final = {"i": "int", "f": "float", "b": "bool", TEXT: "str"}
"""Names of numpy's kinds in files."""


def facts_of(trace: Trace) -> Facts:
    """Return a trace's facts beside its tables: launches, regions, roles, arguments, provenance."""
    launches = _lists(Launch, trace.launches)
    if len(trace.launches) >= MANY:
        launches = {name: _folded(column) for name, column in launches.items()}
    clock = launches["clock"]
    launches["clock"] = (
        [*map(vars_of, clock)]
        if isinstance(clock, list)
        else {**clock, VALUES: [*map(vars_of, clock[VALUES])]}
    )
    return {
        "launches": launches,
        "regions": _lists(Region, trace.regions),
        "roles": list(trace.roles),
        "args": described(trace.args),
        "provenance": trace.provenance,
    }


MANY: Final = 64
"""Launches from which on lists of their fields are folded."""
VALUES: Final = "values"
PLACES: Final = "places"
_FEW: Final = 4
"""A list is folded if it has at least so many times as many entries as values."""


def _folded(column: list[Any]) -> list[Any] | Facts:
    """Return a list as its values, each once, and each entry's place among them, if these are few.

    Values that are equal, but of several types, stay apart: 1 and True.
    """
    numbers: dict[tuple[type, Any], int] = {}
    places = [numbers.setdefault((type(one), one), len(numbers)) for one in column]
    if len(numbers) * _FEW > len(column):
        return column
    return {VALUES: [value for _, value in numbers], PLACES: places}


def _lists(kind: type[Any], rows: Sequence[object]) -> Facts:
    return {each.name: [getattr(row, each.name) for row in rows] for each in fields(kind)}


def vars_of(one: Launch | ClockFit) -> Facts:
    """Return all fields as they are: ``asdict`` copies them deeply, which takes its time."""
    return {name: getattr(one, name) for name in _NAMES[type(one)]}


_NAMES: Final = {kind: tuple(each.name for each in fields(kind)) for kind in (Launch, ClockFit)}


def described(args: Mapping[str, ArgColumn]) -> list[dict[str, str]]:
    """Return names and types of arguments."""
    return [
        {"name": name, "type": ARG_TYPES[column.values.dtype.kind]} for name, column in args.items()
    ]
