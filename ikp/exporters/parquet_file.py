"""Traces as Parquet (``.parquet``): a row per event or total, for pandas, Polars, DuckDB, Spark."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.util import find_spec
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from ikp.core.args import ArgColumn
from ikp.core.table import Categories, trace_table
from ikp.exporters.files import replacing
from ikp.exporters.timeline.checks import check
from ikp.plugins import INTERFACE

if TYPE_CHECKING:
    from ikp.core.trace import Trace


class ParquetExporter:
    """Writes the columns of ``Trace.to_pandas()``; needs ``pip install 'ikp[parquet]'``.

    A column has one type in all files, whatever a trace lacks: a data set can be made of many.

    The file's metadata holds, under ``ikp``, the evidence as JSON: launches with their losses and
    clock fits, and the provenance.
    """

    interface = INTERFACE
    totals = True
    suffixes = (".parquet",)

    def __init__(self) -> None:
        if find_spec("pyarrow") is None:  # told before a kernel runs whose trace would be lost
            raise ModuleNotFoundError("pyarrow is not installed", name="pyarrow")

    def prepare(self) -> None:
        """Import what writing takes."""
        from pyarrow import parquet  # noqa: F401

    def write(self, trace: Trace, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write ``trace`` to ``path``: all of it, or nothing, and then what was there stays.

        Raises:
            ExportError: the file exists and ``force`` is false, the path can't be written, or the
                trace contradicts itself.
            UsageError: the trace has both events and totals.
        """
        import pyarrow as pa
        from pyarrow import parquet

        check(trace)
        columns = {name: _array(pa, column) for name, column in trace_table(trace).items()}
        table = pa.table(columns).replace_schema_metadata({"ikp": json.dumps(_evidence(trace))})
        with replacing(path, force=force) as file:
            parquet.write_table(table, file, compression="zstd")


def _array(pa: Any, column: Any) -> Any:
    if isinstance(column, Categories):
        return pa.DictionaryArray.from_arrays(column.codes, pa.array(column.names, pa.string()))
    if isinstance(column, ArgColumn):
        if not column.given.any() and column.values.dtype.kind == "b":
            return pa.nulls(len(column))  # of no type: any other file's fits beside it
        return pa.array(column.values, mask=~column.given)
    if column.dtype.kind == "f":
        return pa.array(column, mask=np.isnan(column))
    return pa.array(column)


def _evidence(trace: Trace) -> dict[str, Any]:
    return {
        "launches": [{**asdict(one), "dropped": one.dropped} for one in trace.launches],
        "provenance": trace.provenance,
    }
