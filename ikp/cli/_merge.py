"""``ikp merge``: joins the traces of several processes into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ikp.cli._reading import next_command, read_trace
from ikp.cli._trace_file import TRACE
from ikp.errors import UsageError
from ikp.terminal import printable

if TYPE_CHECKING:
    from ikp.trace import Trace


@click.command("merge", short_help="Join the traces of several processes into one.")
@click.argument("sources", metavar="IN...", nargs=-1, required=True, type=TRACE)
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@click.option(
    "--connect",
    "connected",
    metavar="PUT:WAIT",
    multiple=True,
    help="Draw arrows from events of one region to those of another with the same payload, also "
    "from rank to rank, and print how long the messages took. May be repeated.",
)
@click.option("--force", is_flag=True, help="Overwrite OUT if it exists.")
def command(
    sources: tuple[Path, ...], target: Path, connected: tuple[str, ...], force: bool
) -> None:
    """Write the launches of all traces IN to OUT, in the format of its suffix.

    What other profilers saw of the host (`ikp run --host`, `ikp join`) goes along into a .pftrace.
    `ikp run` writes a trace for each process and each window. Times stay as they are: launches of
    several GPUs line up as exactly as each trace is aligned with the host's clock (`ikp stats`).

    \b
      ikp merge ikp-serve.pftrace ikp-serve.child*.pftrace all.pftrace
    """  # noqa: D301 - click's mark for lines to leave as they are
    from ikp.analysis.evidence import SEVERAL_HOSTS
    from ikp.core.host_clock import of_several_hosts
    from ikp.core.trace import row_count
    from ikp.profiling.merging import Merged
    from ikp.registry import check_target, opens_in_viewer

    check_target(target, force)  # before the work of reading
    pairs = [_pairs(each) for each in connected]
    merged = Merged.of(sources, [read_trace(each) for each in sources])
    whole = _connected(merged.trace, pairs)
    replace(merged, trace=whole).save(target, force=force)
    for line in merged.lines:
        click.echo(printable(line), err=True)
    count, what = row_count(whole)
    click.echo(
        f"{printable(str(target))}: {len(whole.launches):,} launches of {len(sources)} files, "
        f"{count:,} {what}s.",
        err=True,
    )
    if said := merged.within or SEVERAL_HOSTS * of_several_hosts(whole.provenance):
        click.echo(said, err=True)
    if opens_in_viewer(target):
        next_command("ikp", "view", target, why="the timeline, in your browser")


def _pairs(text: str) -> list[tuple[str, str]]:
    """Return the pairs of regions that PUT:WAIT may mean: names may have colons themselves.

    Raises:
        UsageError: it means none.
    """
    colons = [at for at, char in enumerate(text) if char == ":"]
    pairs = [(text[:at], text[at + 1 :]) for at in colons]
    pairs = [each for each in pairs if all(each)]
    if not pairs:
        raise UsageError(f"--connect {text}: give two regions, as in --connect put:wait.")
    return pairs


def _connected(trace: Trace, connected: Sequence[Sequence[tuple[str, str]]]) -> Trace:
    """Return a trace with arrows between regions, and print what messages took.

    Args:
        trace: of all ranks.
        connected: by option, the pairs of regions that it may mean.

    Raises:
        UsageError: the trace has no such regions, or no events of them belong together.
    """
    from ikp.analysis.arrivals import Arrivals, by_ranks
    from ikp.edit import connect

    names = {one.name for one in trace.regions}
    for pairs in connected:
        put, wait = max(pairs, key=lambda pair: len(names.intersection(pair)))
        try:
            trace = connect(trace, put, wait, within="trace")
        except UsageError as error:
            raise UsageError(f"--connect {put}:{wait}: {error}") from error
    for line in by_ranks(trace, Arrivals.of(trace)) if connected else ():
        click.echo(printable(line), err=True)
    return trace
