"""``ikp convert FILE... DIR/``: writes trace files as one partitioned Parquet data set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ikp.cli._reading import check_file
from ikp.cli._window import Window
from ikp.errors import UsageError
from ikp.terminal import printable

if TYPE_CHECKING:
    from ikp.trace import Trace


def means_folder(target: str) -> bool:
    """Return whether OUT is to be a data set: it ends with a slash, or is a folder."""
    try:
        return target.endswith("/") or Path(target).is_dir()
    except OSError:  # not a possible path: writing to it raises the error
        return False


def cut_out(
    trace: Trace, choice: dict[str, Any], window: Window | None, events: int | None = None
) -> Trace:
    """Return the part of a trace that the options choose, which has ``events`` in its file."""
    from ikp.edit import select
    from ikp.edit.cut import cut_read

    if window:
        trace = cut_read(trace, *window, len(trace.events) if events is None else events)
    return select(trace, **choice) if choice else trace


def convert_many(
    sources: tuple[Path, ...],
    target: str,
    change: Callable[[Trace], Trace],
    *,
    force: bool,
    workers: int,
    keep_going: bool,
) -> None:
    """Write the files into the data set; print its rows and the files that are missing."""
    from ikp.analysis.evidence import plural
    from ikp.many import to_dataset

    if not keep_going:
        for path in sources:
            check_file(path)
    done = to_dataset(
        list(sources),
        target,
        change=change,
        workers=min(workers, len(sources)),
        force=force,
        keep_going=keep_going,
    )
    folder = printable(target.rstrip("/") or "/")
    click.echo(f"{folder}: {done.rows:,} rows of {plural(done.files, 'file')}.", err=True)
    if done.without:
        click.echo(f"{done.without:,} files hold nothing that was chosen.", err=True)
    for one in done.lost:
        click.echo(f"ikp: not converted: {one.message()}", err=True)
    if not done.files:
        raise UsageError("nothing was written: no file could be read, or holds what was chosen.")
    click.echo(f"Read it with duckdb.sql(\"from '{folder}/**/*.parquet'\"), or", err=True)
    click.echo(f"polars.scan_parquet('{folder}'), pandas.read_parquet('{folder}').", err=True)
