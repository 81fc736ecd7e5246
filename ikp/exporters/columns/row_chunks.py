"""Slots and totals as packed columns, and back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind
from ikp.core.trace import Column, Slots, Totals, make_columns
from ikp.exporters.columns.chunk import Chunk
from ikp.exporters.columns.pieces import Integers, Packed, pack
from ikp.exporters.protobuf.damage import DamagedError

_Table = TypeVar("_Table", Slots, Totals)

_BESIDE: Final = {"end_ns": "start_ns", "attempted": "kept"}
"""Columns that are kept as what they are above another one."""


def pack_rows(table: Slots | Totals, rows: slice) -> list[Packed]:
    """Pack some rows of a table."""
    packed = []
    for each in fields(table):
        values = getattr(table, each.name)[rows]
        if each.name in _BESIDE:
            values = values - getattr(table, _BESIDE[each.name])[rows]
        packed.append(pack(each.name, values))
    return packed


def unpack_rows(kind: type[_Table], chunks: list[Chunk]) -> _Table:
    """Return the table of which the chunks hold rows.

    Raises:
        DamagedError: a column is damaged, or holds what it can't.
    """
    names = [each.name for each in fields(kind)]
    parts: dict[str, list[Column]] = {name: [] for name in names}
    for chunk in chunks:
        rows = chunk.size("rows")
        found: dict[str, Any] = {name: chunk.numbers(name, rows) for name in names}
        for name, other in _BESIDE.items():
            if name in found:
                with np.errstate(over="ignore"):
                    found[name] = found[name].astype(np.int64) + found[other]
        for name in names:
            parts[name].append(found[name])
    empty = make_columns(kind, **dict.fromkeys(names, ()))
    return kind(
        **{name: _together(name, parts[name], getattr(empty, name).dtype) for name in names}
    )


def _together(name: str, parts: list[Column], dtype: np.dtype[Any]) -> Column:
    out = np.empty(sum(map(len, parts)), dtype)
    low = 0
    for part in parts:
        out[low : low + len(part)] = fitting(name, part, dtype)
        low += len(part)
    return out


def fitting(name: str, values: Integers, dtype: np.dtype[Any]) -> Integers:
    """Return numbers that the dtype holds.

    Raises:
        DamagedError: it doesn't.
    """
    if len(values):
        limits = np.iinfo(np.uint8 if dtype == np.bool_ else dtype)
        most = 1 if dtype == np.bool_ else int(limits.max)
        if not int(limits.min) <= int(values.min()) <= int(values.max()) <= most:
            raise DamagedError(f"a {name} has an impossible number")
    return values


def check_slots(slots: Slots, launches: int, roles: int) -> None:
    """Refuse slots that name what there is not.

    Raises:
        DamagedError: says what.
    """
    if outside(slots.launch, 0, launches):
        raise DamagedError("a slot names a launch that there is not")
    if outside(slots.role, 0, roles):
        raise DamagedError("a slot names a role that there is not")
    if len(slots) and int(slots.start_ns.min()) < 0:
        raise DamagedError("a time is negative")


def check_totals(totals: Totals, slots: int, regions: int) -> None:
    """Refuse totals that name what there is not, or stand in another order than they must.

    Raises:
        DamagedError: says what.
    """
    if outside(totals.slot, 0, slots) or bool(np.any(totals.slot[1:] < totals.slot[:-1])):
        raise DamagedError("a total names a slot that there is not, or they are not in order")
    if outside(totals.region, 0, regions) or outside(totals.kind, Kind.RANGE, Kind.INSTANT + 1):
        raise DamagedError("a total names a region that there is not, or is of no known kind")
    if any(len(each) and each.min() < 0 for each in (totals.count, totals.ticks, totals.total_ns)):
        raise DamagedError("a total is negative")


def outside(values: NDArray[Any], low: int, high: int) -> bool:
    """Tell whether any number is not from ``low`` up to ``high``."""
    return bool(len(values)) and not low <= int(values.min()) <= int(values.max()) < high
