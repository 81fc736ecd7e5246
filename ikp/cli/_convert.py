"""``ikp convert``: a trace file in another format, or a part of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ikp.cli._part_options import choosing, given
from ikp.cli._reading import next_command, read_trace, salvage_trace
from ikp.terminal import printable

if TYPE_CHECKING:
    from ikp.trace import Trace


@click.command("convert", short_help="Write a trace in another format, or a part of it.")
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite OUT if it exists.")
@click.option("--salvage", is_flag=True, help="Read what is sound in a damaged .pftrace.")
@choosing
def command(source: Path, target: Path, force: bool, salvage: bool, **choice: Any) -> None:
    """Write the trace in IN, a .pftrace, to OUT, in the format of its suffix.

    \b
    .pftrace            Perfetto, all of the trace; the one format that ikp reads
    .json, .json.gz     Chrome trace, for chrome://tracing and Perfetto
    .hatchet            for proton-viewer -m time/us, and -m cycles where the clock counts them
    .speedscope.json    a flame graph, for https://www.speedscope.app
    .folded             the same as folded stacks, for flamegraph.pl and others
    .csv, .parquet      a table with a row per event

    --salvage says what is lost, and takes files apart that were joined. The other options choose a
    part. Names are patterns as the shell has them, such as 'load*'; an option
    given several times means any of them.
    """  # noqa: D301 - click's mark for lines to leave as they are
    from ikp.core.rows import row_count
    from ikp.registry import check_target

    check_target(target, force)  # before the work of reading
    whole = salvage_trace(source) if salvage else read_trace(source)
    trace = _chosen(whole, given(choice))
    trace.save(target, force=force)
    count, what = row_count(trace)
    click.echo(
        f"{printable(str(target))}: {count:,} {what}s of {len(trace.slots):,} warps.", err=True
    )
    _next(source, target, trace)


def _chosen(trace: Trace, choice: dict[str, Any]) -> Trace:
    from ikp.edit import select

    return select(trace, **choice) if choice else trace


def _next(source: Path, target: Path, trace: Trace) -> None:
    """Name the command that shows the new file."""
    name = target.name
    if name.endswith((".speedscope.json", ".speedscope", ".folded")):
        next_command("npx", "speedscope", target, why="a flame graph, in your browser")
    elif name.endswith(".hatchet"):
        # A file without cycles has no such column, and the viewer refuses to show it.
        if any(trace.launches[i].clock.kind == "cycles" for i in set(trace.slots.launch.tolist())):
            next_command("proton-viewer", "-m", "normalized_cycles", target, why="cycles of a warp")
        else:
            next_command("proton-viewer", "-m", "time/us", target, why="time of all warps")
    elif name.endswith((".pftrace", ".perfetto-trace", ".json", ".json.gz")):
        next_command("ikp", "view", target, why="the timeline, in your browser")
    else:
        next_command("ikp", "stats", source, why="the numbers, from the trace itself")
