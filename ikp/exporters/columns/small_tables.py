"""A trace's launches, regions, roles, slots and totals, unpacked and checked; not its events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from itertools import chain, repeat
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
from ikp.exporters.columns.packing import (
    ARG_TYPES,
    BESIDE,
    PLACES,
    VALUES,
    Facts,
    Integers,
)
from ikp.exporters.protobuf.varints import DamagedError

_Kind = TypeVar("_Kind", Launch, ClockFit, Region)

KINDS: Final = {name: kind for kind, name in ARG_TYPES.items()}
"""numpy's kinds, by their names in files."""


def _check_counts(columns: Facts) -> None:
    """Refuse launches with a number of records, or of bytes, that can't be."""
    counts = [columns[name] for name in _COUNTS if columns.get(name)]
    if any(not 0 <= min(each) <= max(each) < _TOO_MANY for each in counts):
        raise DamagedError("a launch has a number of records or of bytes that can't be true")


def launches_of(facts: Facts) -> tuple[Launch, ...]:
    """Return the launches.

    Raises:
        DamagedError: something is missing, or too large.
    """
    table = facts.get("launches")
    if not isinstance(table, dict):
        raise DamagedError("the table of launches is damaged")
    try:
        columns = {name: _unfolded(column, _VALUES_OF.get(name)) for name, column in table.items()}
        columns.setdefault("notes", [()] * _rows({"launches": columns}, "launches"))
        made = _made(Launch, columns)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise DamagedError("the evidence of a launch is incomplete") from error
    _check_geometry(columns)
    _check_counts(columns)
    if odd := {one.bits for one in columns["clock"]} - {32, 64}:
        raise DamagedError(f"a launch has a clock of {min(odd)} bits, not 32 or 64")
    return tuple(made)


def _unfolded(column: Any, made: Callable[[Any], list[Any]] | None) -> list[Any]:
    """Return a column's values, one for each row.

    Args:
        column: a list, or a folded one: its values, and each row's place among them.
        made: makes values of what JSON has in their place.

    Raises:
        TypeError: it is something else.
        IndexError: a place has no value.
        KeyError: it has no values, or no places.
    """
    folded = isinstance(column, dict)
    values, places = (column[VALUES], column[PLACES]) if folded else (column, ())
    if not isinstance(values, list) or {*map(type, places)} - {int}:
        raise TypeError("it is no column")
    if made is not None:
        values = made(values)
    if not folded:
        return values
    if places and min(places) < 0:
        raise IndexError("a place below the first")
    return [*map(values.__getitem__, places)]


def _tuples(values: list[Any]) -> list[Any]:
    return [tuple(one) if type(one) is list else one for one in values]


def _check_geometry(columns: Facts) -> None:
    """Check the launches' sizes and ranks.

    Raises:
        DamagedError: no launch has one of them.
    """
    sizes = {*columns.get("warps_per_block", ())}
    sizes.update(*{*columns["grid"]}, *{*columns["block"]})
    numbers = sizes | {one or 0 for one in {*columns.get("rank", ())}}
    if numbers and not -_MOST <= min(numbers) <= max(numbers) <= _MOST:
        raise DamagedError("a launch has a grid, a block or a rank of more than 32 bits")
    if sizes and min(sizes) < 1:
        raise DamagedError("a launch has an empty grid or block")


def regions_of(facts: Facts) -> tuple[Region, ...]:
    """Return the regions.

    Raises:
        DamagedError: something is missing.
    """
    _rows(facts, "regions")
    try:
        return tuple(_made(Region, facts["regions"]))
    except TypeError as error:
        raise DamagedError("the table of regions is incomplete") from error


def _rows(facts: Facts, name: str) -> int:
    """Return how many rows a table has."""
    columns = facts.get(name)
    if not isinstance(columns, dict) or not _are(list(columns.values()), list):
        raise DamagedError(f"the table of {name} is damaged")
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise DamagedError(f"the table of {name} is incomplete")
    return lengths.pop() if lengths else 0


def _clocks(rows: list[Facts]) -> list[ClockFit]:
    """Return the clocks of launches: nearly always, all have the same fields."""
    names = {*map(tuple, rows)}
    if len(names) > 1:
        return [made for one in rows for made in _clocks([one])]
    values = zip(*(one.values() for one in rows), strict=True)
    return _made(ClockFit, dict(zip(next(iter(names), ()), values, strict=True)))


_VALUES_OF: Final[dict[str, Callable[[Any], list[Any]]]] = {
    **dict.fromkeys(("grid", "block", "notes"), _tuples),
    "clock": _clocks,
}
"""What makes the values of a field of launches of those that JSON has."""


def _known_columns(types: Mapping[str, Any], columns: Facts) -> Facts:
    """Return the columns that fields are known for; TypeError where a value fits none."""
    found = {name: column for name, column in columns.items() if name in types}
    if not found and any(columns.values()):
        raise TypeError("no field is known")
    for name, column in found.items():
        if not _all_fit(column, types[name]):
            raise TypeError(f"a {name} is of another type")
    return found


def _made(kind: type[_Kind], columns: Facts) -> list[_Kind]:
    """Return an object for each row of a table, from the columns that ``kind`` has a field for.

    Raises:
        TypeError: a value is of another type than its field, or a field is missing.
    """
    found = _known_columns(_HINTS[kind], columns)
    rows = len(next(iter(found.values()), ()))
    if not rows:
        return []
    made = list(map(object.__new__, repeat(kind, rows)))
    for each in fields(kind):
        if each.name not in found and each.default is MISSING:
            raise TypeError(f"there is no {each.name}")
        # Column by column, as the frozen class's own __init__ sets one field after the other, in
        # twice the time: a file has tens of thousands of launches.
        put = getattr(kind, each.name).__set__
        deque(map(put, made, found.get(each.name) or repeat(each.default)), maxlen=0)
    return made


_MOST: Final = (1 << 31) - 1
"""CUDA's largest grid, and the largest number of a table's column of 32 bits."""
_COUNTS: Final = (
    *("capacity", "segment_bytes", "attempted", "kept"),
    *("unfinished", "needed_bytes", "relaunches", "number"),
)
_TOO_MANY: Final = 1 << 62  # sums and differences of two counts fit into 64 bits


def _is_argument(one: dict[Any, Any]) -> bool:
    """Whether an object has the name and the type of an argument, both texts."""
    return set(one) == {"name", "type"} and _are([*one.values()], str)


def args_of(facts: Facts) -> list[dict[str, str]]:
    """Return names and types of the trace's own arguments.

    Raises:
        DamagedError: there is something else.
    """
    args = facts.get("args", [])
    if not _are(args, dict) or not all(map(_is_argument, args)):
        raise DamagedError("the table of arguments is incomplete")
    if len({one["name"] for one in args}) < len(args):
        raise DamagedError("two arguments have one name")
    if odd := {one["type"] for one in args} - KINDS.keys():
        raise DamagedError(f"an argument has the type {min(odd)!r}")
    return list(args)


def roles_of(facts: Facts) -> tuple[str, ...]:
    """Return the names of roles.

    Raises:
        DamagedError: there is something else.
    """
    roles = facts.get("roles")
    if not _are(roles, str) or not roles:
        raise DamagedError("the table of roles is damaged")
    return tuple(roles)


def provenance_of(facts: Facts) -> dict[str, str]:
    """Return the provenance of the trace.

    Raises:
        DamagedError: there is something else.
    """
    provenance = facts.get("provenance", {})
    if not isinstance(provenance, dict) or not _are(list(provenance.values()), str):
        raise DamagedError("the provenance is damaged")
    return provenance


def _are(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(isinstance(one, kind) for one in values)


_HINTS: Final[dict[type[Any], dict[str, Any]]] = {
    kind: get_type_hints(kind) for kind in (Launch, ClockFit, Region)
}


def _all_fit(column: list[object], kind: Any) -> bool:
    """Return whether the values of a column are of a field's type: a class, a union, or a tuple.

    Files have tens of thousands of launches, and values of a few types.
    """
    origin, inner = _parts(kind)
    types = {*map(type, column)}
    if origin is not tuple:
        return all(_fits(one, kind) for one in types)
    if types != {tuple}:
        return not types
    tuples: Any = column
    if inner[-1] is Ellipsis:
        return _all_fit([*chain.from_iterable(tuples)], inner[0])
    if {*map(len, tuples)} != {len(inner)}:
        return False
    places = zip(*tuples, strict=True)
    return all(_all_fit([*some], one) for some, one in zip(places, inner, strict=True))


def _fits(type_: type, kind: Any) -> bool:
    """Return whether values of a type are of a class, or of one of a union."""
    _, inner = _parts(kind)
    if inner:
        return any(_fits(type_, one) for one in inner)
    return issubclass(type_, (int, float) if kind is float else kind)


@cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a type's origin and arguments; cached, as all launches of a file have the same few."""
    return get_origin(kind), get_args(kind)


_Table = TypeVar("_Table", Slots, Totals)


def unpack_rows(kind: type[_Table], chunks: list[Chunk]) -> _Table:
    """Return the table whose rows the chunks hold.

    Raises:
        DamagedError: a column is damaged, or holds an impossible number.
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
    """Return the numbers, which the dtype must hold.

    Raises:
        DamagedError: it doesn't hold one of them.
    """
    if len(values):
        limits = np.iinfo(np.uint8 if dtype == np.bool_ else dtype)
        most = 1 if dtype == np.bool_ else int(limits.max)
        if not int(limits.min) <= int(values.min()) <= int(values.max()) <= most:
            raise DamagedError(f"a {name} has an impossible number")
    return values


def check_slots(slots: Slots, launches: int, roles: int) -> None:
    """Refuse slots that name launches or roles that there are not.

    Raises:
        DamagedError: says which.
    """
    if outside(slots.launch, 0, launches):
        raise DamagedError("a slot names a launch that there is not")
    if outside(slots.role, 0, roles):
        raise DamagedError("a slot names a role that there is not")
    if len(slots) and int(slots.start_ns.min()) < 0:
        raise DamagedError("a time is negative")


def check_totals(totals: Totals, slots: int, regions: int) -> None:
    """Refuse totals that name slots or regions that there are not, or are out of order.

    Raises:
        DamagedError: says what is wrong.
    """
    if outside(totals.slot, 0, slots) or bool(np.any(totals.slot[1:] < totals.slot[:-1])):
        raise DamagedError("a total names a slot that there is not, or they are not in order")
    if outside(totals.region, 0, regions) or outside(totals.kind, Kind.RANGE, Kind.INSTANT + 1):
        raise DamagedError("a total names a region that there is not, or is of no known kind")
    if any(len(each) and each.min() < 0 for each in (totals.count, totals.ticks, totals.total_ns)):
        raise DamagedError("a total is negative")


def outside(values: NDArray[Any], low: int, high: int) -> bool:
    """Return whether any number is below ``low``, or not below ``high``."""
    return bool(len(values)) and not low <= int(values.min()) <= int(values.max()) < high
