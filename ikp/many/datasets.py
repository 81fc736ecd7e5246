"""``to_dataset``: many trace files as one partitioned Parquet data set, written file by file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path

from ikp.analysis.tally import Lost
from ikp.errors import ExportError, UsageError
from ikp.exporters.parquet import check_folder, refuse_present, sweep, write_partition
from ikp.many.over_files import Change
from ikp.many.workers import Files, each, named
from ikp.progress import track
from ikp.trace import load


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome of writing a data set: its files and rows, and the files that it lacks."""

    files: int
    rows: int
    lost: tuple[Lost, ...] = ()
    without: int = 0  # files of which ``change`` chose nothing


def to_dataset(
    files: Files,
    folder: str | PathLike[str],
    *,
    change: Change | None = None,
    workers: int = 1,
    force: bool = False,
    keep_going: bool = False,
) -> Written:
    """Write traces as a Parquet data set: a folder that DuckDB, Polars, Spark and Arrow read.

    ``FOLDER/file=rank0.pftrace/kernel=gemm/part.parquet``: a row per event or total, in one schema.
    A trace's files appear together or not at all, so the folder holds a sound data set at any time,
    also after an error; later calls add to it. Files of one name in several folders are
    distinguished by these. Needs ``pip install 'ikp[parquet]'``.

    Args:
        files: paths of traces.
        folder: of the data set, which holds nothing else. It is made if it does not exist.
        change: a function applied to each trace first, as for ``tally``. A file in which it chooses
            nothing is left out.
        workers: processes to write in; 1 is this one.
        force: replace files that the data set already has.
        keep_going: leave out files that can't be read, or whose worker dies.

    Raises:
        ExportError: a file can't be read, or the folder can't be written or has such a file.
        UsageError: an argument can't mean anything, or pyarrow is not installed.
        WorkerError: a worker died.
    """
    paths = named(files)
    target = Path(os.path.realpath(fspath(folder)))
    _needs_pyarrow()
    check_folder(target)
    names = distinct_names(paths)
    if not force:
        refuse_present(target, names.values())
    # A process may die after it has written a file and before it reports so: it is written again.
    again = force or workers > 1
    work = partial(_written, names=names, folder=target, change=change, force=again, go=keep_going)
    found = each(work, names, workers, _lost if keep_going else None)
    try:
        return _sum(track(found, len(names), "Writing"))
    finally:
        sweep(target)


def _written(
    path: str, *, names: dict[str, str], folder: Path, change: Change | None, force: bool, go: bool
) -> Written:
    """Write one file; an error of writing is raised even with ``go``: others would fail, too."""
    try:
        trace = load(path)
    except ExportError as error:
        if not go:
            raise
        return _lost(path, str(error))
    if change is not None:
        try:
            trace = change(trace)
        except UsageError:
            return Written(0, 0, without=1)
    return Written(1, write_partition(trace, folder, names[path], force=force))


def _lost(path: str, why: str) -> Written:
    return Written(0, 0, (Lost(path, why),))


def _sum(parts: Iterator[Written]) -> Written:
    files = rows = without = 0
    lost: list[Lost] = []
    for one in parts:
        files, rows, without = files + one.files, rows + one.rows, without + one.without
        lost += one.lost
    return Written(files, rows, tuple(lost), without)


def distinct_names(paths: list[str]) -> dict[str, str]:
    """Return each file's name in the data set: its own, or, if two are equal, its relative path.

    Raises:
        UsageError: there is no file, or one is named twice.
    """
    if not paths:
        raise UsageError("there is no file to write: name at least one.")
    real = [os.path.realpath(path) for path in paths]
    if len(set(real)) < len(real):
        twice = next(path for i, path in enumerate(real) if path in real[:i])
        raise UsageError(f"{twice} is named twice: a data set has each file once.")
    names = [Path(path).name for path in paths]
    if len(set(names)) < len(names):
        common = os.path.commonpath(real)
        names = [os.path.relpath(path, common) for path in real]
    return dict(zip(paths, names, strict=True))


def _needs_pyarrow() -> None:
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise UsageError(
            "a Parquet data set needs pyarrow, which is not installed. Do: "
            "pip install 'ikp[parquet]'"
        )
