"""``show`` and ``view_trace``: a trace served to the Perfetto UI, until fetched or Ctrl-C."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING

from ikp import terminal
from ikp.viewer.first_look import FirstLook, first_look
from ikp.viewer.ui import HOST, PORT, UI, Page

if TYPE_CHECKING:
    from ikp.core.trace import Trace
    from ikp.viewer._serve import FileServer


def view_trace(trace: Trace, *, port: int = PORT) -> None:
    """Write ``trace`` to a temporary file and serve it until the UI has fetched it, or Ctrl-C.

    Raises:
        UsageError: the port can't be had.
    """
    from ikp.exporters.perfetto import PerfettoExporter

    with TemporaryDirectory(prefix="ikp-") as folder:
        path = Path(folder) / "trace.pftrace"
        PerfettoExporter().write(trace, path)
        show(path, first_look(path), port=port, page=Page(UI), browser=True, once=True)


def show(path: Path, view: FirstLook, *, port: int, page: Page, browser: bool, once: bool) -> None:
    """Serve ``path`` and print the address, until it was fetched (``once``) or Ctrl-C.

    Raises:
        UsageError: the port can't be had.
    """
    import webbrowser

    from ikp.viewer._serve import serving

    with serving(path, port, page, view.query) as server:
        try:
            terminal.write(f"{server.ui_url}\n")
            if sys.stdout is not None:  # closed before Python began
                sys.stdout.flush()
            _explain(server, view, once)
            if browser and _has_display():
                webbrowser.open(server.ui_url)
            (server.fetched if once else Event()).wait()
        except KeyboardInterrupt:  # also right after the address is printed, before the rest
            _tell("\n")


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
    _tell("".join(f"{line}\n" for line in lines))


def _tell(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)


def _has_display() -> bool:
    """Return whether a browser would have a window: without one, it takes over the terminal."""
    return sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
