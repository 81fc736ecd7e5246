"""The arguments of many events, taken apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind
from ikp.exporters.perfetto._schema import Annotation, Arg
from ikp.exporters.protobuf.split import Data, Fields, Ints, split

Columns = dict[str, NDArray[Any]]
"""Columns of equal length, by name."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of many events, one row each."""

    event: Ints
    name: Ints  # interned, schema.Arg
    field: Ints  # schema.Annotation: which of the value's fields is set
    value: NDArray[np.uint64]
    parts: Fields  # what lies inside the arguments that are lists or dicts

    def of(self, name: Arg, events: int, default: int = 0) -> Ints:
        """Return one integer argument of each event; ``default`` where it is missing."""
        column = np.full(events, default, np.int64)
        rows = self.name == name
        column[self.event[rows]] = self.value[rows].view(np.int64)
        return column


UNSET: Final = -(1 << 63)
"""Stands for an argument that is missing because it would repeat another."""


def arguments_of(data: Data, annotations: Fields) -> Arguments:
    """Take arguments apart: annotations of events, or entries of lists and dicts."""
    fields = split(data, annotations.start, annotations.size)
    count = len(annotations.message)
    number = fields.number
    is_scalar = (number >= Annotation.BOOL_VALUE) & (number <= Annotation.DOUBLE_VALUE)
    scalar = fields.only(is_scalar | (number == Annotation.STRING_VALUE_IID))
    is_list = (number == Annotation.DICT_ENTRIES) | (number == Annotation.ARRAY_VALUES)
    kind, value = np.zeros(count, np.int64), np.zeros(count, np.uint64)
    kind[scalar.message], value[scalar.message] = scalar.number, scalar.value
    return Arguments(
        event=annotations.message,
        name=fields.column(Annotation.NAME_IID, count).view(np.int64),
        field=kind,
        value=value,
        parts=fields.only(is_list),
    )


def sum_rows(
    data: Data, columns: dict[str, Ints], arguments: Arguments, first_region: int
) -> Columns:
    """Return one row for each entry of a warp's sums; argument ``first_region + i`` is region i."""
    elements = arguments.parts.numbered(Annotation.DICT_ENTRIES)
    elements = elements.only(arguments.name[elements.message] == Arg.TOTALS)
    of_event = arguments.event[elements.message]
    inner = split(data, elements.start, elements.size)
    rows = len(of_event)
    found = arguments_of(data, inner.numbered(Annotation.DICT_ENTRIES))
    times, cycles = found.of(Arg.INSTANTS, rows, UNSET), found.of(Arg.CYCLES, rows, UNSET)
    ranges = times == UNSET
    region = inner.column(Annotation.NAME_IID, rows).view(np.int64) - first_region
    return {
        "track": columns["track"][of_event],
        "block": arguments.of(Arg.BLOCK, len(columns["track"]), -1)[of_event],
        "region": region,
        "kind": np.where(ranges, Kind.RANGE, Kind.INSTANT),
        "count": np.where(ranges, found.of(Arg.COUNT, rows), times),
        "ticks": np.where(cycles == UNSET, found.of(Arg.TICKS, rows), cycles),
        "total_ns": found.of(Arg.TOTAL_NS, rows),
    }
