"""A loopback HTTP server of one trace file to one Perfetto UI; it refuses all other requests.

The UI at https://ui.perfetto.dev runs in the browser: it fetches the file from this machine and
uploads nothing. Its content security policy lets it fetch from http://127.0.0.1:9001 alone.
"""

from __future__ import annotations

import errno
import mimetypes
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from ikp.errors import UsageError
from ikp.viewer.ui import HOST, PORT, UI, Page

_PERFETTO: Final = Page(UI)


class FileServer(ThreadingHTTPServer):
    """A server of ``path`` to the Perfetto UI; ``fetched`` is set once it was sent whole.

    ``query`` holds further parameters of the UI. It uses threads, because browsers open spare
    connections and keep them idle.
    """

    daemon_threads = True

    def __init__(self, path: Path, port: int, page: Page, query: dict[str, str]) -> None:
        self.path = path
        self.query = query
        self.fetched = Event()
        super().__init__((HOST, port), _Handler)
        here = f"http://{HOST}:{self.server_port}"
        self.page = page if page.files is None else replace(page, address=here)

    @property
    def url(self) -> str:
        """The address of the file."""
        return f"http://{HOST}:{self.server_port}/{quote(self.path.name)}"

    @property
    def ui_url(self) -> str:
        """The address to open in a browser."""
        return self.page.showing(self.url, self.query)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a connection that the browser closed, which it may at any time."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def serving(
    path: Path, port: int = PORT, page: Page = _PERFETTO, query: dict[str, str] | None = None
) -> Iterator[FileServer]:
    """Serve ``path`` for as long as the ``with`` block lasts; port 0 takes any free port.

    ``page`` is the UI that may fetch it, and which is served, too, if it is a folder.

    Raises:
        UsageError: the port can't be had.
    """
    server = _bind(path, port, page, query or {})
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _bind(path: Path, port: int, page: Page, query: dict[str, str]) -> FileServer:
    try:
        return FileServer(path, port, page, query)
    except (OSError, OverflowError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        what = "is taken, perhaps by another `ikp view`: stop that one" if taken else str(error)
        raise UsageError(
            f"can't listen on {HOST} port {port}: {what}. Another port can be given with --port, "
            f"but {UI} may fetch from port {PORT} only; `--offline` and UIs of your own that allow "
            "it take any. `ikp view --print FILE` says how to open the file with no server."
        ) from error


class _Handler(BaseHTTPRequestHandler):
    """A handler of requests for the one file, from pages of the one UI, under this host's name."""

    server: FileServer

    def do_GET(self) -> None:
        """Send the file, or one of the UI's."""
        if (path := self._admitted()) is None:
            return
        with path.open("rb") as file:
            self._head(path, os.fstat(file.fileno()).st_size)
            shutil.copyfileobj(file, self.wfile)
        if path == self.server.path:
            self.server.fetched.set()

    def do_HEAD(self) -> None:
        """Send the file's size."""
        if (path := self._admitted()) is not None:
            self._head(path, path.stat().st_size)

    def do_OPTIONS(self) -> None:
        """Answer Chrome's question whether a public page may fetch from this machine."""
        if self._admitted() is not None:
            self.send_response(HTTPStatus.NO_CONTENT)
            self._cors()
            self.send_header("Access-Control-Allow-Private-Network", "true")
            self.end_headers()

    def _admitted(self) -> Path | None:
        """Return the requested file; refuse other files, pages and host names.

        A page could make its own host name resolve to this machine.
        """
        host = self.headers.get("Host", "").rpartition(":")[0]
        if host not in {HOST, "localhost"} or not self._from_our_page():
            self.send_error(HTTPStatus.FORBIDDEN)
            return None
        try:
            name = unquote(urlsplit(self.path).path)
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return None
        if name == f"/{self.server.path.name}":
            path: Path | None = self.server.path
        else:
            path = self._file_of_ui(name)
        if path is None or not path.is_file():
            self.send_error(HTTPStatus.NOT_FOUND if path is None else HTTPStatus.GONE)
            return None
        return path

    def _from_our_page(self) -> bool:
        """Return whether the UI asks: browsers send the origin of a page of another server."""
        page = self.server.page
        origin = self.headers.get("Origin")
        return origin == page.origin or (origin is None and page.files is not None)

    def _file_of_ui(self, name: str) -> Path | None:
        folder = self.server.page.files
        if folder is None or "\0" in name:
            return None
        path = (folder / (name.lstrip("/") or "index.html")).resolve()
        return path if path.is_relative_to(folder.resolve()) and path.is_file() else None

    def _head(self, path: Path, size: int) -> None:
        self.send_response(HTTPStatus.OK)
        self._cors()
        kind = None if path == self.server.path else mimetypes.guess_type(path.name)[0]
        self.send_header("Content-Type", kind or "application/octet-stream")
        self.send_header("Content-Length", str(size))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def _cors(self) -> None:
        if self.server.page.files is None:
            self.send_header("Access-Control-Allow-Origin", self.server.page.origin)
            self.send_header("Vary", "Origin")
        else:
            self.send_header("Content-Security-Policy", _NOWHERE_ELSE)

    def log_message(self, *_: object) -> None:
        """Stay silent: the terminal is the user's."""


_NOWHERE_ELSE: Final = "default-src 'self' 'unsafe-inline' 'unsafe-eval' blob: data:"
"""The content security policy of a UI that this server serves: it may fetch from here alone."""
