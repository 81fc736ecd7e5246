"""``ParquetExporter``: traces as Parquet (``.parquet``), a row per event or total."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ikp.core.args import TEXT, ArgColumn
from ikp.core.table import Categories, trace_table
from ikp.exporters.files import FileExporter

if TYPE_CHECKING:
    from types import ModuleType

    from ikp.core.trace import Column, Trace


class ParquetExporter(FileExporter):
    """Writes the columns of ``Trace.to_pandas()``; needs ``pip install 'ikp[parquet]'``.

    A column has one type in all files, also where a trace lacks it: many files make a data set.

    The file's metadata holds, under ``ikp``, the evidence as JSON: launches with their losses and
    clock fits, and the provenance.
    """

    suffixes = (".parquet",)

    def __init__(self) -> None:
        if find_spec("pyarrow") is None:  # raised before a kernel runs whose trace would be lost
            raise ModuleNotFoundError("pyarrow is not installed", name="pyarrow")

    def prepare(self) -> None:
        """Import pyarrow, before there is a trace to write."""
        from pyarrow import parquet  # noqa: F401

    def _put(self, trace: Trace, file: BinaryIO, _name: str) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        columns = {key: arrow_array(pa, column) for key, column in trace_table(trace).items()}
        table = pa.table(columns).replace_schema_metadata({"ikp": json.dumps(_evidence(trace))})
        parquet.write_table(table, file, compression="zstd")


def arrow_array(pa: ModuleType, column: Column | Categories | ArgColumn) -> Any:
    """Return a column as an Arrow array, with null for missing values."""
    if isinstance(column, Categories):
        return pa.DictionaryArray.from_arrays(column.codes, pa.array(column.names, pa.string()))
    if isinstance(column, ArgColumn):
        if not column.given.any() and column.values.dtype.kind == "b":
            return pa.nulls(len(column))  # of no type: any other file's fits beside it
        kind = pa.string() if column.values.dtype.kind == TEXT else None
        return pa.array(column.values, kind, mask=~column.given)
    if column.dtype.kind == "f":
        return pa.array(column, mask=np.isnan(column))
    return pa.array(column)


def _evidence(trace: Trace) -> dict[str, object]:
    return {
        "launches": [{**asdict(one), "dropped": one.dropped} for one in trace.launches],
        "provenance": trace.provenance,
    }
