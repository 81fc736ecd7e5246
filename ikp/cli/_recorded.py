"""``ikp demo --recorded``: shows a trace of a real kernel that ships with ikp, on any machine."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from ikp.cli._explain import print_verdict
from ikp.cli._reading import next_command, read_trace
from ikp.paths import checked_target
from ikp.registry import check_target
from ikp.terminal import printable, show

TRACE: Final = Path(__file__).parent / "recorded" / "attention.pftrace"
"""``ikp run --detail ops`` on an H100: the first warp of each block, of one launch of three."""
_ROWS: Final = 8
_KERNEL: Final = (
    "the causal attention of flash-linear-attention 0.5.2, as it is: the first warp of each block"
)
_CHANGE: Final = (
    "With long blocks first, as the first finding advises, it took 50.8 us in place of 74.4 on an "
    "H100, without ikp (2026-11-26)."
)


def show_recorded(path: Path, *, force: bool) -> None:
    """Print the table and the verdict of the recorded kernel, and write its trace and its page.

    Args:
        path: of the trace; the page is written beside it.
        force: whether files of these names are replaced.

    Raises:
        ExportError: a file exists and ``force`` is false, or can't be written.
    """
    page = path.with_name(f"{path.stem}.html")
    check_target(path, force)
    checked_target(page, force)
    trace = read_trace(TRACE)
    facts = trace.provenance
    click.echo(f"recorded on {facts['devices']}, {facts['recorded'][:10]}: {_KERNEL}.", err=True)
    show(trace.stats().top(_ROWS, "self"))
    click.echo()
    print_verdict(trace.explain())
    path.write_bytes(TRACE.read_bytes())
    trace.report().save(page, force=True)
    click.echo(
        f"\n{_CHANGE}\nwrote {printable(str(path))} and {printable(str(page))}.",
        err=True,
    )
    next_command("ikp", "view", path, why="the timeline, in your browser")
