"""Bytes to columns: segments to the slots and events of their launches, vectorised and validated.

Nothing here trusts the bytes. What can't be a segment of this ABI raises; a record or slot that
can't be true is skipped and counted in the launch's notes.

Small launches are decoded many at a time, the records of a large one in chunks, straight into the
columns: so neither the number of launches nor their size costs more than it must.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from ikp.core.decoding._batch import (
    CHUNK_RECORDS,
    EVENT_COLUMNS,
    Batch,
    Columns,
    Decoded,
    decode_batch,
)
from ikp.core.decoding._codes import Codes, NameTables
from ikp.core.decoding.launch_header import Source, read_layout
from ikp.core.totals import make_totals
from ikp.core.trace import Column, Events, Region, Slots, Totals, Trace, make_columns, no_totals


def decode(
    sources: Iterable[Source],
    names: Mapping[int, str] | None = None,
    provenance: dict[str, str] | None = None,
    told: Callable[[float], None] = lambda _: None,
) -> Trace:
    """Decode segments into one trace. A segment that no kernel wrote to gives no launch.

    Args:
        sources: one per segment, in the order of launch. They are let go as they are decoded, so
            an iterator that reads one after another needs room for a few.
        names: region names known to the backends, by id.
        provenance: what the trace should say of its making.
        told: told again and again how many sources are done, the part of a large one included.

    Raises:
        DecodeError: a segment is truncated, foreign, or of another ABI version.
        RegionError: two names share an id.
    """
    tables, regions, roles = NameTables(names or {}), Codes(), Codes()
    decoded, done = [], 0
    for batch, sources_read in _batches(sources, tables):
        part = sources_read - done
        decoded.append(
            decode_batch(batch, regions, roles, lambda share: told(done + share * part))  # noqa: B023
        )
        done = sources_read
    found, of_region = _index_regions(tables, regions)
    role_names, of_role = _index_roles(tables, roles)
    return Trace(
        launches=tuple(launch for each in decoded for launch in each.launches),
        regions=found,
        slots=_slots(decoded, of_role),
        events=_events(decoded, of_region),
        provenance=dict(provenance or {}),
        roles=role_names,
        totals=_totals(decoded, of_region),
    )


def _batches(sources: Iterable[Source], tables: NameTables) -> Iterator[tuple[Batch, int]]:
    """Yield launches to be decoded together, and how many sources that makes in all."""
    batch, count = Batch(), 0
    for source in sources:
        layout = read_layout(source)
        if layout is not None:
            table = tables.number(source.regions)
            if not batch.fits(layout):
                yield batch, count
                batch = Batch()
            batch.add(source, layout, table)
        count += 1
        if batch.full:
            yield batch, count
            batch = Batch()
    if batch.layouts:
        yield batch, count


def _index_regions(
    tables: NameTables, codes: Codes
) -> tuple[tuple[Region, ...], NDArray[np.int32]]:
    """Return the regions that occur, and where among them that of each code is.

    Launches may give one number different names: those are different regions.
    """
    found = [tables.region(key) for key in codes.seen.tolist()]
    regions = sorted(set(found), key=lambda region: (region.id, region.name))
    index = {region: i for i, region in enumerate(regions)}
    return tuple(regions), np.array([index[region] for region in found], np.int32)


def _index_roles(tables: NameTables, codes: Codes) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Return the names of the roles that occur, and where among them that of each code is."""
    found = [tables.role(key) for key in codes.seen.tolist()]
    names = ("", *sorted(set(found) - {""}))
    index = {name: i for i, name in enumerate(names)}
    return names, np.array([index[name] for name in found], np.int32)


def _slots(decoded: list[Decoded], of_role: NDArray[np.int32]) -> Slots:
    first = 0
    for each in decoded:
        each.slots["launch"] = each.slots["launch"] + first
        each.slots["role"] = of_role[each.slots["role"]]
        first += len(each.launches)
    parts = {name: [each.slots.pop(name) for each in decoded] for name in Slots.__slots__}
    return make_columns(Slots, **{name: _joined(part) for name, part in parts.items()})


def _joined(parts: list[Column]) -> Column:
    return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.empty(0)])


def _events(decoded: list[Decoded], of_region: NDArray[np.int32]) -> Events:
    """Return all events; columns are joined one at a time, and what they were made of freed."""
    first = 0
    for each in decoded:
        each.events["slot"] += first
        _renumber(each.events["region"], of_region)
        first += each.warps
    columns = {}
    for name, dtype in EVENT_COLUMNS.items():
        parts = [each.events.pop(name) for each in decoded]
        columns[name] = _joined(parts) if parts else np.empty(0, dtype)
    return make_columns(Events, **columns)


def _renumber(codes: NDArray[np.int32], place: NDArray[np.int32]) -> None:
    """Put the place of each code in its stead."""
    if (place == np.arange(len(place))).all():
        return
    for start in range(0, len(codes), CHUNK_RECORDS):
        part = codes[start : start + CHUNK_RECORDS]
        part[:] = place[part]


def _totals(decoded: list[Decoded], of_region: NDArray[np.int32]) -> Totals:
    parts: list[Columns] = []
    first = 0
    for each in decoded:
        parts += [totals | {"slot": totals["slot"] + first} for totals in each.totals]
        first += each.warps
    if not parts:
        return no_totals()
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return make_totals(**columns | {"region": of_region[columns["region"]]})
