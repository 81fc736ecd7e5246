"""``ikp merge``: joins the traces of several processes into one."""

from __future__ import annotations

from pathlib import Path

import click

from ikp.cli._reading import next_command, read_trace
from ikp.terminal import printable


@click.command("merge", short_help="Join the traces of several processes into one.")
@click.argument(
    "sources", metavar="IN...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite OUT if it exists.")
def command(sources: tuple[Path, ...], target: Path, force: bool) -> None:
    """Write the launches of all traces IN to OUT, in the format of its suffix.

    `ikp run` writes a trace for each process and each window. Times stay as they are: launches of
    several GPUs line up as exactly as each trace is aligned with the host's clock (`ikp stats`).

    \b
      ikp merge ikp-serve.pftrace ikp-serve.child*.pftrace all.pftrace
    """  # noqa: D301 - click's mark for lines to leave as they are
    from ikp.core.rows import row_count
    from ikp.edit.join import concat
    from ikp.registry import check_target

    check_target(target, force)  # before the work of reading
    whole = concat([read_trace(each) for each in sources])
    whole.save(target, force=force)
    count, what = row_count(whole)
    click.echo(
        f"{printable(str(target))}: {len(whole.launches):,} launches of {len(sources)} files, "
        f"{count:,} {what}s.",
        err=True,
    )
    next_command("ikp", "view", target, why="the timeline, in your browser")
