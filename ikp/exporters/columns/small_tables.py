"""A trace's tables but that of its events, from what ``packing.py`` made of them."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind
from ikp.core.trace import (
    ClockFit,
    Column,
    Launch,
    Region,
    Slots,
    Totals,
    make_columns,
)
from ikp.exporters.columns.chunk import Chunk
from ikp.exporters.columns.packing import ARG_TYPES, BESIDE, Facts, Integers
from ikp.exporters.protobuf.damage import DamagedError

_Kind = TypeVar("_Kind", Launch, ClockFit, Region)

KINDS: Final = {name: kind for kind, name in ARG_TYPES.items()}
"""numpy's kinds, by what they are called in files."""


def launches_of(facts: Facts) -> tuple[Launch, ...]:
    """Return the launches.

    Raises:
        DamagedError: something is missing.
    """
    return tuple(map(to_launch, _rows(facts, "launches")))


def regions_of(facts: Facts) -> tuple[Region, ...]:
    """Return the regions.

    Raises:
        DamagedError: something is missing.
    """
    try:
        return tuple(Region(**known(Region, one)) for one in _rows(facts, "regions"))
    except TypeError as error:
        raise DamagedError("the table of regions is incomplete") from error


def _rows(facts: Facts, name: str) -> list[Facts]:
    columns = facts.get(name)
    if not isinstance(columns, dict) or not _are(list(columns.values()), list):
        raise DamagedError(f"the table of {name} is damaged")
    if len({len(column) for column in columns.values()}) > 1:
        raise DamagedError(f"the table of {name} is incomplete")
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def to_launch(facts: Facts) -> Launch:
    """Rebuild a launch from what is told of it.

    Raises:
        DamagedError: something is missing.
    """
    facts = {"notes": (), **facts}
    try:
        for name in ("grid", "block", "notes"):
            facts[name] = tuple(facts[name]) if isinstance(facts[name], list) else facts[name]
        facts["clock"] = ClockFit(**known(ClockFit, facts["clock"]))
        return Launch(**known(Launch, facts))
    except (KeyError, TypeError, AttributeError) as error:
        raise DamagedError("the evidence of a launch is incomplete") from error


def args_of(facts: Facts) -> list[dict[str, str]]:
    """Return names and types of the trace's own arguments.

    Raises:
        DamagedError: something else stands there.
    """
    args = facts.get("args", [])
    if not _are(args, dict) or not all(set(one) == {"name", "type"} for one in args):
        raise DamagedError("the table of arguments is incomplete")
    if not _are([text for one in args for text in one.values()], str):
        raise DamagedError("the table of arguments is incomplete")
    if len({one["name"] for one in args}) < len(args):
        raise DamagedError("two arguments have one name")
    if odd := {one["type"] for one in args} - KINDS.keys():
        raise DamagedError(f"an argument has the type {min(odd)!r}")
    return list(args)


def roles_of(facts: Facts) -> tuple[str, ...]:
    """Return the names of roles.

    Raises:
        DamagedError: something else stands there.
    """
    roles = facts.get("roles")
    if not _are(roles, str) or not roles:
        raise DamagedError("the table of roles is damaged")
    return tuple(roles)


def provenance_of(facts: Facts) -> dict[str, str]:
    """Return where the trace comes from.

    Raises:
        DamagedError: something else stands there.
    """
    provenance = facts.get("provenance", {})
    if not isinstance(provenance, dict) or not _are(list(provenance.values()), str):
        raise DamagedError("the provenance is damaged")
    return provenance


def _are(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(isinstance(one, kind) for one in values)


def known(kind: type[_Kind], facts: Facts) -> Facts:
    """Return the facts that ``kind`` has a field for, each of that field's type.

    Raises:
        TypeError: one is of another type.
    """
    types = _HINTS[kind]
    found = {name: value for name, value in facts.items() if name in types}
    for name, value in found.items():
        if not _fits(value, types[name]):
            raise TypeError(f"{name} is {value!r}")
    return found


_HINTS: Final[dict[type[Any], dict[str, Any]]] = {
    kind: get_type_hints(kind) for kind in (Launch, ClockFit, Region)
}


def _fits(value: object, kind: Any) -> bool:
    """Tell whether a value is of a field's type: a class, a union, or a tuple."""
    origin, inner = _parts(kind)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        wanted = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return len(value) == len(wanted) and all(map(_fits, value, wanted))
    if inner:
        return any(_fits(value, one) for one in inner)
    return isinstance(value, (int, float) if kind is float else kind)


@cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return what a type is made of; a file of many launches asks for the same few each time."""
    return get_origin(kind), get_args(kind)


_Table = TypeVar("_Table", Slots, Totals)


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
        for name, other in BESIDE.items():
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
