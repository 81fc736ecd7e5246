"""Parquet: traces as files (``.parquet``, ``ParquetExporter``), or as a partitioned data set of
many.

DuckDB, Polars, Spark and Arrow read such a data set as one table::

DIR/file=rank0.pftrace/kernel=gemm/part.parquet DIR/file=rank0.pftrace/kernel=softmax/part.parquet
DIR/file=rank1.pftrace/kernel=gemm/part.parquet

The folders' names are two more columns, as Hive has them, by which a reader leaves files unread.
All files have one schema, also where a trace lacks some columns. A trace's folder appears whole or
not at all: the files in DIR are sound at any time, and further traces add to them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import quote

import numpy as np

from ikp.core.args import TEXT, ArgColumn, Args
from ikp.core.table import COLUMNS, TOTAL_COLUMNS, Categories, trace_table
from ikp.core.trace import Events, Trace, make_columns, no_totals
from ikp.errors import ExportError
from ikp.exporters.files import FileExporter, check
from ikp.paths import DRAFT, draft_prefix, may_be_swept

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow

    from ikp.core.trace import Column


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


FILE, KERNEL = "file", "kernel"
"""The columns that are in folders' names."""
_PART: Final = "part.parquet"
_TYPES: Final = {
    **dict.fromkeys(("launch", "rank", "warp", "sm"), "int32"),
    **dict.fromkeys(("label", "role", "region", "kind", "clock"), "string"),
    **dict.fromkeys(("payload", "share"), "float64"),
}
"""Arrow types of the columns that are not int64."""
_NAMES: Final = (*dict.fromkeys((*COLUMNS, *TOTAL_COLUMNS)), "args")


def schema() -> pyarrow.Schema:
    """Return the one schema of all files.

    Rows are events, or totals, which have ``count``, ``total_ns`` and ``share`` instead of times.
    ``args`` holds the further arguments of an event by their names, as text: these differ from
    trace to trace.
    """
    import pyarrow as pa

    types = {name: pa.type_for_alias(_TYPES.get(name, "int64")) for name in _NAMES}
    types["args"] = pa.map_(pa.string(), pa.string())
    return pa.schema(types)


def write_partition(trace: Trace, folder: Path, name: str, *, force: bool = False) -> int:
    """Add a trace to the data set in ``folder``, under the file name ``name``; return its rows.

    Raises:
        ExportError: the data set has a file of that name and ``force`` is false, the folder can't
            be written, or the trace contradicts itself.
    """
    check(trace)
    target = _place(folder, name)
    if not force:
        refuse_present(folder, [name])
    try:
        with _draft(folder) as draft:
            fresh = draft / "new"
            fresh.mkdir()
            rows = _write_kernels(trace, fresh)
            if force and target.exists():
                target.rename(draft / "old")
            fresh.rename(target)
    except FileExistsError as error:
        raise ExportError(_present(folder, name)) from error
    except OSError as error:
        raise ExportError(
            f"{target} can't be written: {error.strerror or error}. The data set is as it was "
            "before this file: make room, or check the folder's permissions, and add it again."
        ) from error
    return rows


def refuse_present(folder: Path, names: Iterable[str]) -> None:
    """Refuse files that a data set has already.

    Raises:
        ExportError: it has one of them.
    """
    for name in names:
        if _place(folder, name).exists():
            raise ExportError(_present(folder, name))


def check_folder(folder: Path) -> None:
    """Make the folder of a data set, or check that an existing one holds nothing else.

    Drafts beside it that killed writers left are removed.

    Raises:
        ExportError: it can't be made, or other things are in it.
    """
    try:
        folder.mkdir(exist_ok=True)
        others = [one.name for one in folder.iterdir() if not one.name.startswith(f"{FILE}=")]
        sweep(folder)
    except OSError as error:
        raise ExportError(
            f"{folder} can't be the folder of a data set: {error.strerror or error}. Name one in a "
            "folder that is there."
        ) from error
    if others:
        raise ExportError(
            f"{folder} holds other things than a data set, such as {min(others)!r}, which "
            "readers would stumble over: name a new folder."
        )


def _place(folder: Path, name: str) -> Path:
    return folder / f"{FILE}={folder_name(name)}"


def folder_name(value: str) -> str:
    """Return a column's value as the name of a folder; a very long one cut, with a hash."""
    if not value:
        return "__HIVE_DEFAULT_PARTITION__"
    text = quote(value, safe=" ")
    if len(text) <= _LONGEST:
        return text
    whole = text[:_LONGEST].rpartition("%")  # an escape may be cut
    head = text[:_LONGEST] if len(whole[2]) > 1 else whole[0]
    return f"{head}~{hashlib.sha256(value.encode()).hexdigest()[:8]}"


_LONGEST: Final = 200


def _present(folder: Path, name: str) -> str:
    return (
        f"{folder} has a file {name} already: pass force=True to replace it (on the command line: "
        "--force), or leave it out."
    )


@contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    """Make a hidden folder beside the data set, where no reader looks; it is gone afterwards.

    It is locked, so that other processes see that its writer lives.
    """
    draft = Path(tempfile.mkdtemp(prefix=draft_prefix(), suffix=DRAFT, dir=folder.parent))
    handle = os.open(draft, os.O_RDONLY)
    try:
        with suppress(OSError):  # not every file system has locks: then it is never swept
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield draft
    finally:
        os.close(handle)
        shutil.rmtree(draft, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove drafts that killed writers left beside a data set."""
    for draft in folder.parent.glob(f".*{DRAFT}"):
        with suppress(OSError):
            if not may_be_swept(draft):
                continue
            handle = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(draft, ignore_errors=True)
            finally:
                os.close(handle)


def _write_kernels(trace: Trace, folder: Path) -> int:
    """Write a file for each launch label; return the rows of all."""
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.concat_tables([_arrow(part) for part in _parts(trace)])
    launch = table.column("launch").to_numpy()
    numbers = dict[str, list[int]]()
    for number, one in enumerate(trace.launches):
        numbers.setdefault(one.label, []).append(number)
    for label, members in numbers.items():
        rows = np.flatnonzero(np.isin(launch, members))
        part = table if len(rows) == len(table) else table.take(pa.array(rows))
        part = part.replace_schema_metadata({"ikp": json.dumps(_evidence_of(trace, members))})
        kernel = folder / f"{KERNEL}={folder_name(label)}"
        kernel.mkdir()
        with (kernel / _PART).open("xb") as file:
            parquet.write_table(part, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
    return len(table)


def _parts(trace: Trace) -> list[Trace]:
    """Return a trace of the events, and one of the totals; most traces have only one of them."""
    if not len(trace.totals):
        return [trace]
    nothing = make_columns(Events, **dict.fromkeys(Events.__slots__, ()))
    totals = replace(trace, events=nothing, args={})
    return [replace(trace, totals=no_totals()), totals] if len(trace.events) else [totals]


def _arrow(trace: Trace) -> pyarrow.Table:
    """Return the rows of a trace in the one schema.

    Names are text, not Arrow's dictionaries: some readers make categories of dictionaries, which
    differ from file to file.
    """
    import pyarrow as pa

    found = trace_table(replace(trace, args={}))
    count = len(trace.events) or len(trace.totals)
    columns: dict[str, Any] = {}
    for field in schema():
        kind = field.type
        if field.name == "args":
            columns[field.name] = _arguments(trace.args, count, kind)
            continue
        column = found.get(field.name)
        array = pa.nulls(count, kind) if column is None else arrow_array(pa, column)
        columns[field.name] = array if array.type == kind else array.cast(kind)
    return pa.table(columns)


def _arguments(args: Args, count: int, kind: pyarrow.DataType) -> pyarrow.Array:
    """Return each event's further arguments as a map from name to text; null without any."""
    import pyarrow as pa

    own = {name: column for name, column in args.items() if column.given.any()}
    if not own:
        return pa.nulls(count, kind)
    given = np.stack([column.given for column in own.values()], axis=1)
    row, which = np.nonzero(given)
    texts = pa.concat_arrays([_texts(column) for column in own.values()])
    keys = pa.array(list(own), pa.string()).take(pa.array(which))
    values = texts.take(pa.array(which * count + row))
    ends = np.append(0, np.cumsum(given.sum(axis=1))).astype(np.int32)
    offsets = pa.array(ends, mask=np.append(~given.any(axis=1), False))
    return pa.MapArray.from_arrays(offsets, keys, values)


def _texts(column: ArgColumn) -> pyarrow.Array:
    import pyarrow as pa

    array = arrow_array(pa, column)
    return array if array.type == pa.string() else array.cast(pa.string())


def _evidence_of(trace: Trace, members: list[int]) -> dict[str, object]:
    """Return the evidence of some launches, each with its number in the trace, and provenance."""
    return {
        "launches": [
            {"launch": i, **asdict(trace.launches[i]), "dropped": trace.launches[i].dropped}
            for i in members
        ],
        "provenance": trace.provenance,
    }
