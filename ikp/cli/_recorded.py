"""``ikp demo --recorded``: shows a trace of a real kernel that ships with ikp, on any machine."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from ikp.cli._explain import print_verdict
from ikp.cli._reading import next_command, read_trace
from ikp.paths import checked_target, replacing
from ikp.registry import check_target
from ikp.terminal import printable, show

_FOLDER: Final = Path(__file__).parent / "recorded"
TRACE: Final = _FOLDER / "attention.pftrace"
"""``ikp run --detail ops`` on an H100: the first warp of each block, of one launch of three."""
BEFORE: Final = _FOLDER / "before.pftrace"
"""Three launches of the same kernel, with the kernel's own range alone."""
AFTER: Final = _FOLDER / "after.pftrace"
"""Three launches of the kernel with long blocks first: two lines were changed."""
_ROWS: Final = 8
_KERNEL: Final = (
    "the causal attention of flash-linear-attention 0.5.2, as it is: the first warp\nof each block"
)


def show_recorded(path: Path, *, force: bool) -> None:
    """Print the recorded kernel's table and verdict, and what the advised change did; write files.

    Args:
        path: of the trace. Beside it are written its page, and traces from before and after the
            change.
        force: whether files of these names are replaced.

    Raises:
        ExportError: a file exists and ``force`` is false, or can't be written.
    """
    from ikp.analysis.diff.compare import diff

    page = path.with_name(f"{path.stem}.html")
    before, after = (path.with_name(f"{path.stem}-{each.name}") for each in (BEFORE, AFTER))
    copies = {path: TRACE, before: BEFORE, after: AFTER}
    for each in copies:
        check_target(each, force)
    checked_target(page, force)
    trace = read_trace(TRACE)
    facts = trace.provenance
    where = f"recorded on {facts['devices']}, {facts['recorded'][:10]}:"
    click.echo(f"{where}\n{_KERNEL}.", err=True)
    show(trace.stats().top(_ROWS, "self"))
    click.echo()
    print_verdict(trace.explain())
    click.echo("\nWith long blocks first, as the first finding advises:")
    show(diff([read_trace(BEFORE)], [read_trace(AFTER)]))
    for copy, shipped in copies.items():
        with replacing(copy, force=force) as file:
            file.write(shipped.read_bytes())
    trace.report().save(page, force=force)
    written = ", ".join(printable(str(each)) for each in (*copies, page))
    click.echo(f"\nwrote {written}.", err=True)
    next_command("ikp", "diff", before, after, why="what the change did")
    next_command(
        "ikp", "view", "--finding", 1, path, why="where the first finding is, in your browser"
    )
