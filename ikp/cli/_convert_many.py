"""``ikp convert FILE... DIR/``: trace files as one partitioned Parquet data set."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from ikp.cli._reading import check_file
from ikp.errors import UsageError
from ikp.terminal import printable


def means_folder(target: str) -> bool:
    """Tell whether OUT is to be a data set: it ends as folders do, or is one."""
    return target.endswith("/") or Path(target).is_dir()


def convert_many(
    sources: tuple[Path, ...],
    target: str,
    choice: dict[str, Any],
    *,
    force: bool,
    workers: int,
    keep_going: bool,
) -> None:
    """Write the files into the data set, and say what it got and lacks."""
    from ikp.analysis.evidence import plural
    from ikp.edit import select
    from ikp.many import to_dataset

    if not keep_going:
        for path in sources:
            check_file(path)
    change = partial(select, **choice) if choice else None
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
        click.echo(f"ikp: not converted: {one.told()}", err=True)
    if not done.files:
        raise UsageError("nothing was written: no file could be read, or holds what was chosen.")
    click.echo(f"Read it with duckdb.sql(\"from '{folder}/**/*.parquet'\"), or", err=True)
    click.echo(f"polars.scan_parquet('{folder}'), pandas.read_parquet('{folder}').", err=True)
