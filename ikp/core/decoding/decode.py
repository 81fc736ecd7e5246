"""The decoder of segments: their bytes to a trace's slots, events and totals, vectorised.

The bytes are not trusted. Bytes that can't be a segment of this ABI raise an error; a record or
slot that can't be true is skipped and counted in the launch's notes.

Small launches are decoded many at a time, the records of a large one in chunks, straight into the
columns: so neither the number of launches nor their size costs more than it must.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import REGION_MASK, OverflowMode
from ikp.core.decoding._batch import EVENT_COLUMNS, Decoded, LaunchBatch, decode_batch
from ikp.core.decoding._records import CHUNK_RECORDS, ID_BITS, Codes
from ikp.core.decoding.launch_header import SegmentSource
from ikp.core.decoding.slots import Columns
from ikp.core.decoding.stream import in_order
from ikp.core.regions import fallback_name, merge
from ikp.core.rows import make_totals
from ikp.core.trace import Column, Events, Region, Slots, Trace, make_columns, no_totals


def decode(
    sources: Iterable[SegmentSource],
    names: Mapping[int, str] | None = None,
    provenance: dict[str, str] | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> Trace:
    """Decode segments into one trace. A segment that no kernel wrote to gives no launch.

    Args:
        sources: one per segment, in the order of launch. Each is released when it is decoded, so
            an iterator that reads one after another needs memory for a few.
        names: region names known to the backends, by id.
        provenance: the trace's provenance.
        progress: called repeatedly with the number of launches done since, or part of one.

    Raises:
        DecodeError: a segment is truncated, foreign, or of another ABI version.
        RegionError: two names share an id.
    """
    tables, regions, roles = _NameTables(names or {}), Codes(), Codes()
    decoded = [decode_batch(batch, regions, roles, progress) for batch in _batches(sources, tables)]
    found, of_region = _index_regions(tables, regions)
    role_names, of_role = _index_roles(tables, roles)
    slots, others = _slots(decoded, of_role)
    events = _events(decoded, of_region)
    totals = _totals(decoded, of_region)
    return Trace(
        launches=tuple(launch for each in decoded for launch in each.launches),
        regions=found,
        slots=make_columns(Slots, **slots),
        others=make_columns(Slots, **others),
        events=make_columns(Events, **events),
        provenance=dict(provenance or {}),
        roles=role_names,
        totals=make_totals(**totals) if totals else no_totals(),
    )


def _batches(sources: Iterable[SegmentSource], tables: _NameTables) -> Iterator[LaunchBatch]:
    """Yield launches to be decoded together."""
    batch = LaunchBatch()
    for source in sources:
        if (layout := source.layout) is None:
            continue
        table = tables.number(source.regions) if source.regions else 0
        if layout.whole and not tables.has(table, layout.whole):
            layout = replace(layout, notes=(*layout.notes, _unknown(layout.whole)))
        if not batch.fits(layout):
            yield batch
            batch = LaunchBatch()
        if layout.overflow is OverflowMode.STREAM:
            source = in_order(source, layout)  # noqa: PLW2901 - the same launch's
        batch.add(source, layout, table)
        if batch.full:
            yield batch
            batch = LaunchBatch()
    if batch.layouts:
        yield batch


def _unknown(region: int) -> str:
    return (
        f"the range of each whole warp is of a region without a name, {region}: the kernel was "
        "compiled elsewhere, or something else wrote to the segment"
    )


def _index_regions(
    tables: _NameTables, codes: Codes
) -> tuple[tuple[Region, ...], NDArray[np.int32]]:
    """Return the regions that occur, and the index among them of each code.

    Launches may give one number different names: those are different regions.
    """
    found = [Region(key & REGION_MASK, tables.name(key)) for key in codes.seen.tolist()]
    regions = sorted(set(found), key=lambda region: (region.id, region.name))
    index = {region: i for i, region in enumerate(regions)}
    return tuple(regions), np.array([index[region] for region in found], np.int32)


def _index_roles(tables: _NameTables, codes: Codes) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Return the names of the roles that occur, and the index among them of each code."""
    found = [tables.name(key) if key & REGION_MASK else "" for key in codes.seen.tolist()]
    names = ("", *sorted(set(found) - {""}))
    index = {name: i for i, name in enumerate(names)}
    return names, np.array([index[name] for name in found], np.int32)


def _slots(decoded: list[Decoded], of_role: NDArray[np.int32]) -> tuple[Columns, Columns]:
    """Return all slots, and the warps that left no records."""
    first = 0
    for each in decoded:
        each.slots["launch"] = each.slots["launch"] + first
        each.others["launch"] = each.others["launch"] + first
        each.slots["role"] = of_role[each.slots["role"]]
        first += len(each.launches)
    return _all([each.slots for each in decoded]), _all([each.others for each in decoded])


def _all(tables: list[Columns]) -> Columns:
    """Return all rows of some tables, which are emptied."""
    parts = {name: [each.pop(name) for each in tables] for name in Slots.__slots__}
    return {name: _joined(part) for name, part in parts.items()}


def _joined(parts: list[Column]) -> Column:
    return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.empty(0)])


def _events(decoded: list[Decoded], of_region: NDArray[np.int32]) -> Columns:
    """Return all events; columns are joined one at a time, and their parts freed."""
    first = 0
    for each in decoded:
        each.events["slot"] += first
        _renumber(each.events["region"], of_region)
        first += each.warps
    columns = {}
    for name, dtype in EVENT_COLUMNS.items():
        parts = [each.events.pop(name) for each in decoded]
        columns[name] = _joined(parts) if parts else np.empty(0, dtype)
    return columns


def _renumber(codes: NDArray[np.int32], place: NDArray[np.int32]) -> None:
    """Replace each code by its entry in ``place``, in the array itself."""
    if (place == np.arange(len(place))).all():
        return
    for start in range(0, len(codes), CHUNK_RECORDS):
        part = codes[start : start + CHUNK_RECORDS]
        part[:] = place[part]


def _totals(decoded: list[Decoded], of_region: NDArray[np.int32]) -> Columns:
    """Return the columns of all totals; none where there are none."""
    parts: list[Columns] = []
    first = 0
    for each in decoded:
        parts += [totals | {"slot": totals["slot"] + first} for totals in each.totals]
        first += each.warps
    if not parts:
        return {}
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return columns | {"region": of_region[columns["region"]]}


class _NameTables:
    """Tables of region names by id: one shared by most launches, and those of single launches."""

    def __init__(self, known: Mapping[int, str]) -> None:
        self._known = known
        self._tables: list[Mapping[int, str]] = [merge([known])]
        self._numbers: dict[tuple[tuple[int, str], ...], int] = {}

    def number(self, own: Mapping[int, str]) -> int:
        """Return the number of the table of a launch with names of its own; others have table 0.

        Raises:
            RegionError: two different names share one id.
        """
        key = tuple(sorted(own.items()))
        if key not in self._numbers:
            self._tables.append(merge([self._known, dict(key)]))
            self._numbers[key] = len(self._tables) - 1
        return self._numbers[key]

    def has(self, table: int, region: int) -> bool:
        """Return whether a table has a name for a region's id."""
        return region in self._tables[table]

    def name(self, key: int) -> str:
        """Return the name that a number has in a table; see :class:`Codes`."""
        table, number = self._tables[key >> ID_BITS], key & REGION_MASK
        return table[number] if number in table else fallback_name(number)
