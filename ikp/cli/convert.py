"""``ikp convert``: a trace file in another format, or a part of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ikp.cli.files import next_command, read_trace

if TYPE_CHECKING:
    from ikp.core.trace import Trace


@click.command("convert", short_help="Write a trace in another format, or a part of it.")
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite OUT if it exists.")
@click.option("--region", metavar="GLOB", multiple=True, help="Only regions named so: load*.")
@click.option("--launch", metavar="GLOB", multiple=True, help="Only launches labelled so.")
@click.option("--role", metavar="GLOB", multiple=True, help="Only warps of this role.")
@click.option("--block", type=int, multiple=True, help="Only this block, by its linear id.")
@click.option("--warp", type=int, multiple=True, help="Only this warp of each block.")
@click.option("--sm", type=int, multiple=True, help="Only this SM.")
@click.option(
    "--kind", type=click.Choice(["range", "instant"]), help="Only ranges, or only instants."
)
def command(source: Path, target: Path, force: bool, **choice: Any) -> None:
    """Write the trace in IN, a .pftrace, to OUT, in the format of its suffix.

    \b
    .pftrace            Perfetto, all of the trace; the one format that ikp reads
    .json, .json.gz     Chrome trace, for chrome://tracing and Perfetto
    .hatchet            for proton-viewer -m cycles and -m normalized_cycles
    .csv, .parquet      a table with a row per event

    The options choose a part; one given several times means any of them.
    """  # noqa: D301 - click's mark for lines to leave as they are
    from ikp.core.checked import check_target

    check_target(target, force)  # before the work of reading
    trace = _chosen(read_trace(source), {name: given for name, given in choice.items() if given})
    trace.save(target, force=force)
    click.echo(f"{target}: {len(trace.events):,} events of {len(trace.slots):,} warps.", err=True)
    _next(source, target)


def _chosen(trace: Trace, choice: dict[str, Any]) -> Trace:
    from ikp.edit import select

    return select(trace, **choice) if choice else trace


def _next(source: Path, target: Path) -> None:
    """Name the command that shows the new file."""
    name = target.name
    if name.endswith(".hatchet"):
        next_command("proton-viewer", "-m", "normalized_cycles", target, why="cycles of a warp")
    elif name.endswith((".pftrace", ".perfetto-trace", ".json", ".json.gz")):
        next_command("ikp", "view", target, why="the timeline, in your browser")
    else:
        next_command("ikp", "stats", source, why="the numbers, from the trace itself")
