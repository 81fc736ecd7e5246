"""Traces as CSV (``.csv``): one row per event, for spreadsheets, DuckDB and shell tools."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np

from ikp.core.args import ArgColumn
from ikp.core.rows import row_count
from ikp.core.table import Categories, trace_table
from ikp.core.trace import Column, Trace
from ikp.exporters.files import FileExporter, packed
from ikp.exporters.text import Part, at_once, integers, join, reals, texts, where
from ikp.progress import track

_Written = Column | ArgColumn | tuple[Column, Part]
"""Numbers, or which text stands in each row, and the texts."""


class CsvExporter(FileExporter):
    """Writes the columns of ``Trace.to_pandas()``; an empty field stands for what is missing.

    Losses and clock fits have no place in a table: keep a .pftrace beside it.
    """

    suffixes = (".csv", ".csv.gz")

    def _put(self, trace: Trace, file: BinaryIO, name: str) -> None:
        columns = {key: _known(column) for key, column in trace_table(trace).items()}
        with packed(file, name) as out:
            out.write(_fields([tuple(columns)])[0] + b"\n")
            starts = range(0, row_count(trace)[0], _rows(columns))
            for low in track(starts, len(starts), f"writing {name}"):
                rows = slice(low, low + _rows(columns))
                parts = [
                    part for column in columns.values() for part in (b",", _part(column, rows))
                ]
                out.write(join(*parts[1:], b"\n"))


def _known(column: Column | Categories | ArgColumn) -> _Written:
    """Return names as what stands in the file; other columns as they are."""
    if isinstance(column, Categories):
        return column.codes, texts(_fields([(name,) for name in column.names]))
    if isinstance(column, ArgColumn) and column.values.dtype.kind == "U":
        distinct, codes = np.unique(column.values, return_inverse=True)
        named = texts(_fields([(name,) for name in distinct.tolist()]))
        return np.where(column.given, codes, len(named)), np.vstack(
            [named, np.zeros_like(named[:1])]
        )
    return column


def _rows(columns: dict[str, _Written]) -> int:
    widths = (
        column[1].shape[1] if isinstance(column, tuple) else 20 for column in columns.values()
    )
    return at_once(sum(widths))


def _part(column: _Written, rows: slice) -> Part:
    if isinstance(column, tuple):
        codes, names = column
        return np.asarray(names[codes[rows]])
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
