"""``ikp stats``: the numbers in a trace file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ikp.cli.files import next_command, read_trace

if TYPE_CHECKING:
    from ikp.analysis.stats import Stats


@click.command("stats", short_help="How long each range of a trace took.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "output",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="json and csv hold raw nanoseconds.",
)
@click.option("--region", metavar="REGEX", help="Only regions whose name matches.")
@click.option("--launch", metavar="LABEL", help="Only launches with this label.")
@click.option(
    "--by",
    type=click.Choice(["rank", "sm", "block", "warp", "role"]),
    help="Each of these apart.",
)
@click.option(
    "--sort",
    type=click.Choice(["total", "mean", "count", "p99"]),
    default="total",
    show_default=True,
    help="Largest first, within each launch label.",
)
def command(
    file: Path, output: str, region: str | None, launch: str | None, by: str | None, sort: str
) -> None:
    """Print count, total, mean, percentiles and share of each range in FILE.

    FILE is a trace written by ikp, such as a .pftrace; nothing else is needed. Launches with one
    label are taken together. The share is of the time that the launch's warps ran. Below the table
    stands what was lost and how well the clocks fitted.
    """
    from ikp.analysis.stats import stats

    table = stats(read_trace(file), by).select(region=region, launch=launch).sorted_by(sort)
    _print(table, output)
    next_command("ikp", "view", file, why="the timeline, in your browser")


def _print(table: Stats, output: str) -> None:
    from ikp.analysis.render import show

    if output == "json":
        click.echo(table.to_json())
    elif output == "csv":
        click.echo(table.to_csv(), nl=False)
    else:
        show(table)
