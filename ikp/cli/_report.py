"""``ikp report``: writes a trace as one HTML page, or its pictures."""

from __future__ import annotations

from pathlib import Path

import click

from ikp.cli._reading import read_trace
from ikp.cli._trace_file import TRACE
from ikp.paths import checked_target
from ikp.terminal import printable


@click.command("report", short_help="A trace as one page: findings, pictures, tables.")
@click.argument("file", metavar="FILE", type=TRACE)
@click.argument("after", required=False, type=TRACE)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Where to write: .html, or .png, .svg or .pdf for pictures. [default: FILE.html]",
)
@click.option("--no-sources", is_flag=True, help="Leave out the source lines of findings.")
@click.option("--force", is_flag=True, help="Overwrite it if it exists.")
def command(
    file: Path, after: Path | None, output: Path | None, no_sources: bool, force: bool
) -> None:
    """Write the trace in FILE as one page, which needs no network.

    It holds the kernels by time, the findings with their warps drawn and their source lines, each
    SM over time, the waves, the regions with histograms, iterations, the tree, and what was lost.
    With a second file, AFTER, the page is of that one: it says what moved from FILE to it, and
    draws the warps of both on one scale.
    """
    shown = after or file
    target = output or shown.with_name(f"{shown.name.partition('.')[0] or 'ikp'}.html")
    checked_target(target, force)  # before the work of reading
    before = read_trace(file) if after else None
    page = read_trace(shown).report(before, sources=not no_sources)
    page.save(target, force=force)
    click.echo(f"{printable(str(target))}: open it in a browser.", err=True)
