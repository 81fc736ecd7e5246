"""``ikp convert``: writes a trace file, or a part of it, in another format; many files as one data
set.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ikp.cli._options import Window, choosing, given, window_option
from ikp.cli._reading import check_file, next_command, read_trace, salvage_trace
from ikp.cli._trace_file import TRACE
from ikp.errors import ExportError, UsageError
from ikp.registry import opens_in_viewer
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
    from ikp.edit.select import cut_read

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


def _only_for_folders(target: str) -> UsageError:
    return UsageError(
        f"{target} names a file: several files, --workers and --keep-going are for a data set. "
        "Give a folder, with a slash at its end."
    )


@click.command("convert", short_help="Write a trace in another format, or a part of it.")
@click.argument("sources", metavar="IN...", nargs=-1, required=True, type=TRACE)
@click.argument("target", metavar="OUT", type=click.Path())
@click.option("--force", is_flag=True, help="Overwrite OUT, or a file of DIR, if it exists.")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Processes that write DIR/.")
@click.option(
    "--keep-going", is_flag=True, help="Leave out of DIR/ what can't be read, and say so."
)
@click.option("--salvage", is_flag=True, help="Read what is sound in a damaged .pftrace.")
@choosing
@window_option("Only what ran in this time: 10us:250us, from the start of the trace.")
def command(
    sources: tuple[Path, ...],
    target: str,
    force: bool,
    workers: int | None,
    keep_going: bool,
    salvage: bool,
    window: Window | None,
    **choice: Any,
) -> None:
    """Write the trace in IN, a .pftrace, to OUT, in the format of its suffix.

    \b
    .pftrace            Perfetto, all of the trace; the one format that ikp reads
    .json, .json.gz     Chrome trace, for chrome://tracing and Perfetto
    .hatchet            for proton-viewer -m time/us, and -m cycles where the clock counts them
    .speedscope.json    a flame graph, for https://www.speedscope.app
    .folded             the same as folded stacks, for flamegraph.pl and others
    .csv, .parquet      a table with a row per event
    DIR/                a Parquet data set of one or many files, which DuckDB, Polars, Spark and
                        Arrow read as it is; it grows by what is added later

    --salvage says what is lost, and takes files apart that were joined. The other options choose a
    part. Names are patterns as the shell has them, such as 'load*'; an option given several times
    means any of them.
    """  # noqa: D301 - click's mark for lines to leave as they are
    from ikp.registry import check_target

    change = partial(cut_out, choice=given(choice), window=window)
    if means_folder(target):
        if salvage:
            raise UsageError("--salvage makes one file whole: a .pftrace, which DIR/ can get then.")
        convert_many(
            sources, target, change, force=force, workers=workers or 1, keep_going=keep_going
        )
        return
    if len(sources) > 1 or workers or keep_going:
        raise _only_for_folders(target)
    check_target(target, force)  # before the work of reading
    trace = _of_window(sources[0], window, change) if window and not salvage else None
    if trace is None:
        trace = _of_whole(sources[0], Path(target), change, salvage=salvage)
    _write(trace, sources[0], Path(target), force)


def _of_whole(
    source: Path, target: Path, change: Callable[[Trace], Trace], *, salvage: bool
) -> Trace:
    """Return what is chosen of a trace file that is read as a whole."""
    whole = salvage_trace(source) if salvage else read_trace(source)
    trace = change(whole)
    _refuse_nothing(whole, trace, target)
    return trace


def _of_window(source: Path, window: Window, change: Callable[..., Trace]) -> Trace | None:
    """Return the chosen part of a file, of which only chunks are read that may hold some of it.

    None if there is nothing of it, or the file's format has no such chunks: to read all says why.
    """
    from ikp.core.trace import of_class, row_count
    from ikp.registry import exporter_for_path
    from ikp.trace import Trace
    from ikp.viewer.part import TracePart, read_part

    check_file(source)
    found = read_part(exporter_for_path(source), source, TracePart(window_ns=window))
    if found is None:
        return None
    near, events = found
    try:
        trace = change(of_class(Trace, near), events=events)
    except UsageError:
        return None
    return trace if row_count(trace)[0] else None


def _refuse_nothing(whole: Trace, trace: Trace, target: Path) -> None:
    """Refuse to write a trace without rows, or to replace a file by one without warps.

    Raises:
        ExportError: the file would be empty.
    """
    from ikp.core.trace import holds_nothing, row_count

    there = f", and {target} stays as it was" if target.exists() else ""
    count, what = row_count(whole)
    if count and not row_count(trace)[0]:
        raise ExportError(f"none of {count:,} {what}s is chosen: nothing is written{there}.")
    if there and holds_nothing(trace):
        raise ExportError(f"the trace holds no warp: nothing is written{there}.")


def _write(trace: Trace, source: Path, target: Path, force: bool) -> None:
    from ikp.core.trace import row_count

    trace.save(target, force=force)
    count, what = row_count(trace)
    click.echo(
        f"{printable(str(target))}: {count:,} {what}s of {len(trace.slots):,} warps.", err=True
    )
    _next(source, target, trace)


def _next(source: Path, target: Path, trace: Trace) -> None:
    """Print the command that shows the new file."""
    name = target.name
    if name.endswith((".speedscope.json", ".speedscope", ".folded")):
        next_command("npx", "speedscope", target, why="a flame graph, in your browser")
    elif name.endswith(".hatchet"):
        # A file without cycles has no such column, and the viewer refuses to show it.
        if any(trace.launches[i].clock.kind == "cycles" for i in set(trace.slots.launch.tolist())):
            next_command("proton-viewer", "-m", "normalized_cycles", target, why="cycles of a warp")
        else:
            next_command("proton-viewer", "-m", "time/us", target, why="time of all warps")
    elif opens_in_viewer(target):
        next_command("ikp", "view", target, why="the timeline, in your browser")
    else:
        next_command("ikp", "stats", source, why="the numbers, from the trace itself")
