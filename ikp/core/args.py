"""Arguments of events: columns of numbers or texts, with gaps; arrows (flows) between events.

Flows are arrows from one event to another. An event that arrows start from has a number of its own,
its argument ``flow_out``. An event at which an arrow ends has the number of the event that the
arrow comes from as ``flow_in``; those of further arrows that end at it are ``flow_in_2``,
``flow_in_3``, ... So arrows stay with their events however a trace is edited, and a table of events
joined with itself, ``flow_in`` with ``flow_out``, is the table of arrows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.errors import UsageError

Scalar = int | float | bool | str
Args = Mapping[str, "ArgColumn"]


@dataclass(frozen=True, slots=True, eq=False)
class ArgColumn:
    """One argument of many events, a row each.

    ``values`` is int64, float64, bool, or object with a ``str`` in each row. Where ``given`` is
    false the event has no such argument, and the value is 0, false or empty. Texts in numpy's
    ``<U``, each as wide as the longest one, become objects.
    """

    values: NDArray[Any]
    given: NDArray[np.bool_]

    def __post_init__(self) -> None:
        """Keep texts by reference: one long text makes no other row longer."""
        if self.values.dtype.kind == "U":
            object.__setattr__(self, "values", self.values.astype(np.object_))

    def __len__(self) -> int:
        return len(self.given)

    def take(self, rows: NDArray[Any] | slice) -> ArgColumn:
        """Return the given rows."""
        return ArgColumn(self.values[rows], self.given[rows])

    def value(self, row: int) -> Scalar | None:
        """Return one event's argument as a plain value; None where it has none."""
        return self.values[[row]].tolist()[0] if self.given[row] else None

    def tolist(self) -> list[Scalar | None]:
        """Return all rows as plain values."""
        pairs = zip(self.values.tolist(), self.given.tolist(), strict=True)
        return [value if given else None for value, given in pairs]


TEXT: Final = "O"
"""numpy's dtype kind of a column of texts."""
KINDS: Final = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64, "U": np.object_}
"""The dtype in which a column of each of numpy's dtype kinds is kept."""


def blank(dtype: np.dtype[Any]) -> Scalar:
    """Return the value of rows without the argument: 0, false or an empty text."""
    found: Scalar = "" if dtype.kind == TEXT else np.zeros(1, dtype)[0].item()
    return found


def coded(texts: NDArray[np.object_]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the distinct texts in order, and the index of each row's text among them."""
    rows = texts.tolist()
    distinct = sorted(set(rows))
    place = {text: number for number, text in enumerate(distinct)}
    return distinct, np.fromiter(map(place.__getitem__, rows), np.int64, len(rows))


def arg_column(name: str, values: Iterable[Any] | ArgColumn, count: int) -> ArgColumn:
    """Return ``values`` as a column; None and NaN mean that an event has no such argument.

    Raises:
        UsageError: there are not ``count`` values, or they are of several types or of none that
            an argument can have.
    """
    column = values if isinstance(values, ArgColumn) else _column(name, values)
    if column.given.ndim != 1 or len(column) != count:
        raise UsageError(
            f"argument {name!r} has {len(column)} values, the trace {count} events: give one value "
            "for each event, None for those without."
        )
    return column


def _column(name: str, values: Iterable[Any]) -> ArgColumn:
    array = values if isinstance(values, np.ndarray) else _array(name, list(values))
    return _of_objects(name, array.tolist()) if array.dtype == object else _plain(name, array)


def _array(name: str, values: list[Any]) -> NDArray[Any]:
    """Return a list as an array of objects, which keeps each value's own type."""
    array = np.empty(len(values), object)
    try:
        array[:] = values
    except ValueError as error:
        raise UsageError(f"argument {name!r} has values that are not single values.") from error
    return array


def _plain(name: str, array: NDArray[Any]) -> ArgColumn:
    dtype = KINDS.get(array.dtype.kind)
    if dtype is None:
        raise UsageError(f"argument {name!r} has values of type {array.dtype}: {_ALLOWED}.")
    if array.dtype == np.uint64 and len(array) and int(array.max()) > MOST:
        raise UsageError(f"argument {name!r} has values above {MOST}: they take 64 bits, signed.")
    values: NDArray[Any] = array.astype(dtype)
    given = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(len(values), bool)
    return _blanked(values, given)


_ALLOWED: Final = "an argument is an integer of 64 bits, a float, a bool or a string"
MOST: Final = (1 << 63) - 1


def _of_objects(name: str, objects: Sequence[Any]) -> ArgColumn:
    plain = [one.item() if isinstance(one, np.generic) else one for one in objects]
    there = [one is not None and one == one for one in plain]  # noqa: PLR0124  NaN isn't itself
    dtype = _type_of(name, {type(one) for one, given in zip(plain, there, strict=True) if given})
    nothing = blank(np.dtype(dtype))
    filled = [one if given else nothing for one, given in zip(plain, there, strict=True)]
    try:
        return _blanked(np.array(filled, dtype), np.array(there, bool))
    except OverflowError as error:
        raise UsageError(f"argument {name!r} has values beyond 64 bits, signed.") from error


def _type_of(name: str, types: set[type]) -> type[np.generic]:
    for kinds, dtype in _TYPES:
        if types <= kinds:
            return dtype
    found = ", ".join(sorted(kind.__name__ for kind in types))
    raise UsageError(f"argument {name!r} has values of type {found}: {_ALLOWED}, in all events.")


_TYPES: Final[tuple[tuple[set[type], type[np.generic]], ...]] = (
    ({bool}, np.bool_),
    ({int}, np.int64),
    ({int, float}, np.float64),
    ({str}, np.object_),
)


def _blanked(values: NDArray[Any], given: NDArray[np.bool_]) -> ArgColumn:
    if not given.all():
        values = values.copy()
        values[~given] = blank(values.dtype)
    return ArgColumn(values, given)


def take_args(args: Args, rows: NDArray[Any] | slice) -> dict[str, ArgColumn]:
    """Return the given rows of every argument."""
    return {name: column.take(rows) for name, column in args.items()}


def join_args(parts: Sequence[tuple[Args, int]]) -> dict[str, ArgColumn]:
    """Concatenate the arguments of several tables of events.

    ``parts`` holds each table's arguments and number of events. The events of a table without an
    argument have no value of it.

    Raises:
        UsageError: one argument has different types in two tables.
    """
    names = dict.fromkeys(name for args, _ in parts for name in args)
    return {
        name: _joined(name, [(args.get(name), count) for args, count in parts]) for name in names
    }


def _joined(name: str, parts: list[tuple[ArgColumn | None, int]]) -> ArgColumn:
    # An argument that no event has can be of any type.
    used = [column if column is not None and column.given.any() else None for column, _ in parts]
    dtype = _common_type(name, {column.values.dtype for column in used if column is not None})
    columns = [
        _without_values(count, dtype) if column is None else column
        for column, (_, count) in zip(used, parts, strict=True)
    ]
    return ArgColumn(
        np.concatenate([each.values for each in columns]),
        np.concatenate([each.given for each in columns]),
    )


def _common_type(name: str, types: set[np.dtype[Any]]) -> np.dtype[Any]:
    if len({dtype.kind for dtype in types}) > 1:
        raise UsageError(
            f"argument {name!r} has values of different types in the traces to be joined: give it "
            "another name in one of them."
        )
    return np.result_type(*types) if types else np.dtype(np.bool_)


def _without_values(count: int, dtype: np.dtype[Any]) -> ArgColumn:
    return ArgColumn(np.full(count, blank(dtype), dtype), np.zeros(count, bool))


OUT: Final = "flow_out"
IN: Final = "flow_in"
_NAME: Final = re.compile(f"{OUT}|{IN}(_[1-9][0-9]*)?")


def is_flow(name: str) -> bool:
    """Return whether an argument of this name holds numbers of arrows."""
    return _NAME.fullmatch(name) is not None


def incoming(number: int) -> str:
    """Return the argument for the arrows that are the ``number``-th to end at their events."""
    return IN if number == 1 else f"{IN}_{number}"


def arrows(args: Args) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows of the events at which arrows start, and of those at which they end.

    An arrow of which one event was left out of the trace is left out, too.
    """
    nothing = np.zeros(0, np.intp)
    if OUT not in args:
        return nothing, nothing
    numbers, rows = _given(args[OUT])
    order = np.argsort(numbers, kind="stable")
    numbers, rows = numbers[order], rows[order]
    found = [(nothing, nothing)]
    for name, column in args.items():
        if is_flow(name) and name != OUT:
            wanted, targets = _given(column)
            first = np.searchsorted(numbers, wanted)
            count = np.searchsorted(numbers, wanted, "right") - first
            found.append((rows[spread(first, count)], np.repeat(targets, count)))
    sources, targets = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return sources, targets


def spread(first: NDArray[np.intp], count: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return ``count[i]`` successive numbers from each ``first[i]`` on, one list after another."""
    before = np.cumsum(count) - count
    places: NDArray[np.intp] = np.arange(int(count.sum())) + np.repeat(first - before, count)
    return places


def _given(column: ArgColumn) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    rows = np.flatnonzero(column.given)
    return column.values[rows].astype(np.int64), rows


def highest(args: Args) -> int:
    """Return the highest number that events have for their arrows; 0 where there are none."""
    numbers = [_given(column)[0] for name, column in args.items() if is_flow(name)]
    return max((int(each.max()) for each in numbers if len(each)), default=0)


def renumbered(args: Args, by: int) -> dict[str, ArgColumn]:
    """Return arguments with the numbers of arrows raised by ``by``, so that they meet no others.

    For joining traces, each of which numbers its arrows from its own zero.
    """
    return {
        name: replace(column, values=np.where(column.given, column.values + by, 0))
        if is_flow(name) and column.values.dtype.kind == "i"
        else column
        for name, column in args.items()
    }
