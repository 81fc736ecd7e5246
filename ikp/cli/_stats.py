"""``ikp stats``: prints a table of ranges in trace files, each or merged, or of address probes."""

from __future__ import annotations

from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ikp.cli._options import choosing, format_option, given
from ikp.cli._reading import check_file, next_command, read_trace
from ikp.cli._trace_file import TRACE
from ikp.errors import UsageError
from ikp.terminal import columns, printable, show, write

if TYPE_CHECKING:
    from ikp.analysis.stats import Stats
    from ikp.trace import Trace

_Tables = list[tuple[tuple[Path, ...], "Stats"]]
_OF_ROWS = ("region", "launch", "kind")
"""The options that choose rows. The others choose the warps that are counted."""


@click.command("stats", short_help="How long each range of a trace took.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=TRACE)
@format_option(
    "table",
    "json",
    "csv",
    text="json and csv hold raw nanoseconds and cycles.",
)
@choosing
@click.option(
    "--by",
    metavar="WHAT",
    help="Each rank, sm, block, warp, role, iteration (payload) or window (of time; window:10us) "
    "apart.",
)
@click.option("--histogram", is_flag=True, help="How the durations of each range spread.")
@click.option(
    "--sort",
    type=click.Choice(["total", "self", "mean", "count", "p50", "p95", "p99", "order"]),
    help="Largest first, within each launch label.  [default: total; iterations and windows in "
    "order]",
)
@click.option("--top", type=click.IntRange(1), metavar="N", help="Only the N largest by --sort.")
@click.option(
    "--addresses",
    is_flag=True,
    help="The accesses to memory instead, of a program run with --probe addresses: sectors, bank "
    "conflicts, active lanes.",
)
@click.option("--merge", is_flag=True, help="Count all files together, one after the other.")
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Processes that --merge counts in.  [default: 1]",
)
@click.option(
    "--keep-going",
    is_flag=True,
    help="With --merge: leave out files that can't be read, and say so.",
)
def command(
    files: tuple[Path, ...],
    output: str,
    by: str | None,
    histogram: bool,
    sort: str | None,
    top: int | None,
    addresses: bool,
    merge: bool,
    workers: int | None,
    keep_going: bool,
    **choice: Any,
) -> None:
    """Print count, share, self time, percentiles and cycles of each range in FILE.

    FILE is a trace written by ikp, such as a .pftrace; nothing else is needed. Launches with one
    label are taken together. The share is of the time that the launch's warps ran; self leaves out
    the ranges that opened inside. Below the table are the losses and the fit of the clocks. A
    narrow terminal shows fewer columns, json and csv all.

    Names of regions, launches and roles are patterns as the shell has them, such as 'load*'; an
    option given several times means any of them. --region, --launch and --kind choose rows and
    leave their figures as they are; the others choose the warps that are counted.

    Files are read one by one. With --merge all are one table, of however many files: percentiles
    are then of a sketch, whose error is given below the table; all else is exact.
    """
    from ikp.analysis.event_units import by_events

    joined = merge and len(files) > 1
    if not merge:
        _refuse_unmerged(workers, keep_going)
    if histogram and joined:
        raise UsageError("--histogram is of the durations of one file: leave out --merge.")
    if addresses:
        _print_addresses(files, output)
        return
    chosen, sort = given(choice), sort or ("order" if by_events(by) else "total")
    if joined:
        found = _merged(files, by, chosen, workers or 1, keep_going)
        if output == "csv":  # a format without losses and errors of percentiles
            click.echo("\n".join(map(printable, found.about)), err=True)
        _print([(files, _rows(found, sort, top, chosen))], output)
    else:
        table = partial(_table, by=by, sort=sort, top=top, choice=chosen, histogram=histogram)
        _print([((path,), table(path)) for path in files], output)
    next_command("ikp", "view", files[0], why="the timeline, in your browser")


def _refuse_unmerged(workers: int | None, keep_going: bool) -> None:
    if workers or keep_going:
        raise UsageError("--workers and --keep-going are for many files in one table: add --merge.")


def _print_addresses(files: tuple[Path, ...], output: str) -> None:
    """Print the tables of address probes.

    Raises:
        UsageError: a file has none.
    """
    from ikp.analysis.access_table import access_table, addresses_document
    from ikp.printing import as_json

    if output == "csv":
        raise UsageError("--addresses has figures of several kinds: use --format json.")
    tables = {path: access_table(read_trace(path).provenance) for path in files}
    for path, table in tables.items():
        if not (table.kernels or table.refused):
            raise UsageError(
                f"{path} has no addresses: record them with ikp run --probe addresses."
            )
    if output == "json":
        click.echo(as_json(addresses_document((str(path), each) for path, each in tables.items())))
    else:
        for table in tables.values():
            show(table)


def _table(
    path: Path,
    *,
    by: str | None,
    sort: str,
    top: int | None,
    choice: dict[str, Any],
    histogram: bool,
) -> Stats:
    from ikp.analysis.counting_regions import stats

    trace, warps = read_trace(path), _of_warps(choice)
    try:
        chosen = _chosen(trace, warps) if warps else trace
        return _rows(stats(chosen, by, histogram=histogram), sort, top, choice)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _chosen(trace: Trace, warps: dict[str, Any]) -> Trace:
    from ikp.edit import select

    return select(trace, **warps)


def _merged(
    files: tuple[Path, ...], by: str | None, choice: dict[str, Any], workers: int, keep_going: bool
) -> Stats:
    """Return the table of all files, each of which is read, counted and released."""
    from ikp.many import tally_files

    if not keep_going:
        for path in files:
            check_file(path)
    warps = _of_warps(choice)
    change = partial(_chosen, warps=warps) if warps else None
    return tally_files(
        files, by, change=change, workers=min(workers, len(files)), keep_going=keep_going
    ).stats()


def _of_warps(choice: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in choice.items() if name not in _OF_ROWS}


def _rows(table: Stats, sort: str, top: int | None, choice: dict[str, Any]) -> Stats:
    """Return the rows that the options choose, sorted."""
    chosen = table.select(**{name: choice[name] for name in _OF_ROWS if name in choice})
    return chosen.sorted_by(sort) if top is None else chosen.top(top, sort)


def _print(tables: _Tables, output: str) -> None:
    if output == "json":
        from ikp.analysis.stats import stats_document
        from ikp.printing import as_json

        click.echo(as_json(stats_document((map(str, paths), each) for paths, each in tables)))
    elif output == "csv":
        text = _csv(tables)
        click.echo(text if columns() is None else printable(text, keep="\n"), nl=False)
    else:
        _show(tables)


def _csv(tables: _Tables) -> str:
    """Return a header and rows; of several files with the file as first column."""
    if len(tables) == 1:
        return tables[0][1].to_csv()
    from ikp.analysis.stats import FIELDS
    from ikp.printing import as_csv

    lines = [(path, *astuple(row)) for (path,), table in tables for row in table]
    return as_csv(("file", *FIELDS), lines)


def _show(tables: _Tables) -> None:
    for number, (paths, table) in enumerate(tables):
        if len(tables) > 1:
            write(f"{'' if not number else chr(10)}== {printable(str(paths[0]))}\n")
        show(table)
