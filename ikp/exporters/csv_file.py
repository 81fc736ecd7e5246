"""``CsvExporter``: traces as CSV (``.csv``), a row per event or total."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ikp.core.args import TEXT, ArgColumn, coded
from ikp.core.table import Categories, trace_table
from ikp.core.trace import Column, Trace, row_count
from ikp.exporters.files import FileExporter, packed
from ikp.exporters.text import Part, Texts, at_once, cut, integers, join, reals, texts, where
from ikp.progress import track

_Written = Column | ArgColumn | tuple[Column, Texts]
"""Numbers, or the number of each row's text, and the texts."""
_NUMBER = 20
"""Characters of a number."""


class CsvExporter(FileExporter):
    """Writes the columns of ``Trace.to_pandas()``; a missing value is an empty field.

    Losses and clock fits have no place in a table: keep a .pftrace beside it.
    """

    suffixes = (".csv", ".csv.gz")

    def _put(self, trace: Trace, file: BinaryIO, name: str) -> None:
        columns = {key: _known(column) for key, column in trace_table(trace).items()}
        with packed(file, name) as out:
            out.write(_fields([tuple(columns)])[0] + b"\n")
            step = at_once(_NUMBER * len(columns))
            count = row_count(trace)[0]
            starts = range(0, count, step)
            for low in track(starts, len(starts), f"writing {name}"):
                for part in cut(_sizes(columns, range(low, min(low + step, count)))):
                    out.write(_lines(columns, slice(low + part.start, low + part.stop)))


def _known(column: Column | Categories | ArgColumn) -> _Written:
    """Return a column of names as codes and CSV fields; other columns as they are."""
    if isinstance(column, Categories):
        return column.codes, Texts(_fields([(name,) for name in column.names]))
    if isinstance(column, ArgColumn) and column.values.dtype.kind == TEXT:
        distinct, codes = coded(column.values)
        named = _fields([(name,) for name in distinct])
        return np.where(column.given, codes, len(named)), Texts([*named, b""])
    return column


def _sizes(columns: dict[str, _Written], rows: range) -> NDArray[np.int64]:
    """Return about how many bytes each of some rows takes."""
    found = np.full(len(rows), _NUMBER * len(columns))
    for column in columns.values():
        if isinstance(column, tuple):
            codes, named = column
            found += named.sizes[codes[rows.start : rows.stop]]
    return found


def _lines(columns: dict[str, _Written], rows: slice) -> bytes:
    parts = [part for column in columns.values() for part in (b",", _part(column, rows))]
    return join(*parts[1:], b"\n")


def _part(column: _Written, rows: slice) -> Part:
    if isinstance(column, tuple):
        codes, named = column
        return named[codes[rows]]
    if isinstance(column, ArgColumn):
        return where(column.given[rows], _numbers(column.values[rows]))
    return _numbers(column[rows])


def _numbers(values: Column) -> Part:
    if values.dtype.kind == "b":
        words: Part = texts([b"False", b"True"])[values.astype(np.intp)]
        return words
    if values.dtype.kind != "f":
        return integers(values)
    given = ~np.isnan(values)
    whole = given & (values == np.trunc(values)) & (np.abs(values) < _MOST_WHOLE)
    whole &= (values != 0) | ~np.signbit(values)  # no integer is -0
    if (whole == given).all():  # payloads mostly count something
        return where(given, integers(np.where(given, values, 0).astype(np.int64)))
    return where(given, reals(np.where(given, values, 0)))


_MOST_WHOLE = 1 << 53
"""Below this, a float that is whole is that integer."""


def _fields(rows: Sequence[tuple[str, ...]]) -> list[bytes]:
    """Return each row of texts as CSV, quoted where it must be."""
    found = []
    for row in rows:
        out = io.StringIO()
        csv.writer(out).writerow(row)
        found.append(out.getvalue().removesuffix("\r\n").encode() if any(row) else b"")
    return found
