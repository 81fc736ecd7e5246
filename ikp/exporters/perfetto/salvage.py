"""Salvage of a damaged ``.pftrace``, on request: traces from the chunks whose checksums are right,
and what is lost of each trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.args import ArgColumn, join_args
from ikp.core.rows import take_totals
from ikp.core.trace import Events, Slots, Totals, Trace, faults, make_columns, row_count
from ikp.errors import ExportError
from ikp.exporters.columns import small_tables
from ikp.exporters.columns.chunk import Chunk
from ikp.exporters.columns.event_chunks import ALL, Columns, EventTable
from ikp.exporters.columns.packing import MAGIC
from ikp.exporters.columns.small_tables import check_slots, check_totals, unpack_rows
from ikp.exporters.perfetto._schema import COLUMNAR
from ikp.exporters.perfetto._walk import ByteBudget
from ikp.exporters.perfetto.column_file import room, rows_told
from ikp.exporters.protobuf.varints import DamagedError

_REASONS: Final = 5
"""Reasons that are reported; more of them say nothing new."""


@dataclass(slots=True)
class _Found:
    """The chunks of one trace."""

    head: Chunk
    chunks: list[Chunk] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def of(self, kind: str) -> list[Chunk]:
        return [one for one in self.chunks if one.kind == kind]


def salvage(path: str | PathLike[str], content: bytes) -> list[tuple[Trace, list[str]]]:
    """Return each trace of which a file holds something, and what is lost of it, in words.

    Packets are not looked at: a viewer may show something else.

    Raises:
        ExportError: there is nothing to read.
    """
    budget = ByteBudget(path, len(content))
    traces, lost = [], list[str]()
    for found in _traces(content, budget):
        try:
            traces.append((_trace(found, budget), found.lost))
        except DamagedError as error:
            lost.append(f"a trace of which nothing can be read: {error}")
    if not traces:
        reasons = "".join(f" {one}." for one in lost)
        raise ExportError(
            f"{path} holds nothing that can be salvaged: its columns are missing, damaged, or of a "
            f"later layout, or it is a file of another kind.{reasons}"
        )
    traces[0][1].extend(lost)
    return traces


def _traces(content: bytes, budget: ByteBudget) -> Iterator[_Found]:
    """Yield the traces of which there is at least the beginning."""
    found: _Found | None = None
    at = content.find(MAGIC)
    while at >= 0:
        try:
            chunk = Chunk.at(
                lambda start, size: content[start : start + size], at, None, budget.take
            )
        except DamagedError:  # or what a column happens to hold
            chunk = None
        if chunk is not None and chunk.kind == "trace":
            if found is not None:
                yield found
            found = _Found(chunk) if chunk.about.get("format") in COLUMNAR else None
        elif chunk is not None and found is not None:
            found.chunks.append(chunk)
        at = content.find(MAGIC, at + 1)
    if found is not None:
        yield found


def _trace(found: _Found, budget: ByteBudget) -> Trace:
    budget.take(found.head.room)
    facts = found.head.json("facts")
    if not isinstance(facts, dict):
        raise DamagedError("its facts are damaged")
    args = small_tables.args_of(facts)
    trace = Trace(
        launches=small_tables.launches_of(facts),
        regions=small_tables.regions_of(facts),
        slots=make_columns(Slots, **dict.fromkeys(Slots.__slots__, ())),
        events=make_columns(Events, **dict.fromkeys(ALL, ())),
        provenance=small_tables.provenance_of(facts),
        roles=small_tables.roles_of(facts),
    )
    found.chunks = [one for one in found.chunks if _sound(one, len(args), found, budget)]
    slots, known = _slots(found, trace, "slots")
    others, _ = _slots(found, trace, "others")
    trace = replace(trace, slots=slots, others=others, totals=_totals(found, trace, known))
    events, columns = _events(found, trace, args, known)
    trace = replace(trace, events=events, args=columns)
    tables: dict[str, Slots | Events | Totals]
    tables = {"slots": slots, "others": others, "events": events, "totals": trace.totals}
    for kind, rows in tables.items():
        if len(rows) < (size := rows_told(found.head, kind)):
            found.lost.insert(0, f"{size - len(rows):,} of {size:,} {_CALLED.get(kind, kind)}")
    records = rows_told(found.head, "events") + rows_told(found.head, "totals")
    if records and not row_count(trace)[0]:
        raise DamagedError("; ".join(found.lost))
    if wrong := faults(trace):
        raise DamagedError("; ".join(wrong))
    if found.lost:
        said = "; ".join(found.lost)
        trace = replace(trace, provenance={**trace.provenance, "salvaged": f"without {said}"})
    return trace


def _sound(chunk: Chunk, args: int, found: _Found, budget: ByteBudget) -> bool:
    needed = -1
    with _telling(found, chunk):
        needed = room(chunk, args)
        budget.take(needed)
    return needed >= 0


@contextmanager
def _telling(found: _Found, chunk: Chunk) -> Iterator[None]:
    """Leave out a chunk that turns out to be damaged, and say why."""
    try:
        yield
    except DamagedError as error:
        reason = f"a chunk of {chunk.kind}: {error}"
        if reason not in found.lost and len(found.lost) < _REASONS:
            found.lost.append(reason)


_CALLED: Final = {"others": "warps without records"}


def _slots(found: _Found, trace: Trace, kind: str) -> tuple[Slots, NDArray[np.int64]]:
    """Return the slots, or the others, that are left, and the number that each one had."""
    parts, numbers, after = [trace.slots], [np.zeros(0, np.int64)], 0
    for chunk in found.of(kind):
        with _telling(found, chunk):
            first = chunk.size("first")
            _refuse_twice(first < after)
            part = unpack_rows(Slots, [chunk])
            check_slots(part, len(trace.launches), len(trace.roles))
            after = first + len(part)
            parts.append(part)
            numbers.append(np.arange(first, after))
    return make_columns(Slots, **_joined(parts, Slots.__slots__)), np.concatenate(numbers)


def _totals(found: _Found, trace: Trace, known: NDArray[np.int64]) -> Totals:
    parts, after = [trace.totals], -1
    for chunk in found.of("totals"):
        with _telling(found, chunk):
            part = unpack_rows(Totals, [chunk])
            check_totals(part, found.head.size("slots"), len(trace.regions))
            _refuse_twice(not len(part) or int(part.slot[0]) < after)
            after = int(part.slot[-1])
            slot, there = _renumbered(part.slot, known)
            parts.append(take_totals(replace(part, slot=slot), there))
    return make_columns(Totals, **_joined(parts, Totals.__slots__))


def _events(
    found: _Found, trace: Trace, args: list[dict[str, str]], known: NDArray[np.int64]
) -> tuple[Events, dict[str, ArgColumn]]:
    kinds, after = tuple(small_tables.KINDS[one["type"]] for one in args), -1
    parts, columns = [trace.events], list[tuple[dict[str, ArgColumn], int]]()
    slots, regions = found.head.size("slots"), len(trace.regions)
    for chunk in found.of("events"):
        with _telling(found, chunk):
            table = EventTable(chunk.size("rows"), ALL, kinds, slots, regions)
            table.fill(chunk)
            old = table.columns["slot"]
            _refuse_twice(not table.rows or int(old[0]) <= after)
            after = int(old[-1])
            table.columns["slot"], there = _renumbered(old, known)
            parts.append(Events(*(table.columns[name][there] for name in ALL)))
            own = {one["name"]: table.arg(i).take(there) for i, one in enumerate(args)}
            columns.append((own, len(parts[-1])))
    return make_columns(Events, **_joined(parts, ALL)), join_args(columns)


def _refuse_twice(repeats: bool) -> None:
    if repeats:
        raise DamagedError("it is there twice, or holds nothing")


def _renumbered(
    slot: NDArray[np.int32], known: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return the new number of each row's slot, and which rows have one."""
    at = np.searchsorted(known, slot)
    there = np.append(known, -1)[at] == slot
    return at.astype(np.int32), there


def _joined(parts: Sequence[Slots | Totals | Events], names: Sequence[str]) -> Columns:
    return {name: np.concatenate([getattr(one, name) for one in parts]) for name in names}
