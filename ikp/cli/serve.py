"""Serves one file on loopback to the Perfetto UI, and nothing else to anyone else.

The UI at https://ui.perfetto.dev runs in the browser: it fetches the file from this machine and
uploads nothing. Its content security policy lets it fetch from http://127.0.0.1:9001 alone.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from urllib.parse import quote, unquote, urlsplit

from ikp.cli.ui import HOST, PORT, UI
from ikp.errors import UsageError


class FileServer(ThreadingHTTPServer):
    """Serves ``path`` to the Perfetto UI; ``fetched`` is set once it was sent whole.

    Threads, because browsers open spare connections and keep them idle.
    """

    daemon_threads = True

    def __init__(self, path: Path, port: int) -> None:
        self.path = path
        self.fetched = Event()
        super().__init__((HOST, port), _Handler)

    @property
    def url(self) -> str:
        """Where the file is."""
        return f"http://{HOST}:{self.server_port}/{quote(self.path.name)}"

    @property
    def ui_url(self) -> str:
        """What to open in a browser."""
        return f"{UI}/#!/?url={quote(self.url, safe=':/')}"


@contextmanager
def serving(path: Path, port: int = PORT) -> Iterator[FileServer]:
    """Serve ``path`` for as long as the ``with`` block lasts; port 0 takes any free port.

    Raises:
        UsageError: the port can't be had.
    """
    server = _bind(path, port)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _bind(path: Path, port: int) -> FileServer:
    try:
        return FileServer(path, port)
    except (OSError, OverflowError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        what = "is taken, perhaps by another `ikp view`: stop that one" if taken else str(error)
        raise UsageError(
            f"can't listen on {HOST} port {port}: {what}. Another port can be given with --port, "
            f"but {UI} may fetch from port {PORT} only; other ports serve a Perfetto UI of your "
            "own. `ikp view --print FILE` tells how to open the file with no server."
        ) from error


class _Handler(BaseHTTPRequestHandler):
    """Answers for the one file, to pages of the Perfetto UI, under this machine's own name."""

    server: FileServer

    def do_GET(self) -> None:
        """Send the file."""
        if not self._admitted():
            return
        with self.server.path.open("rb") as file:
            self._head(self.server.path.stat().st_size)
            shutil.copyfileobj(file, self.wfile)
        self.server.fetched.set()

    def do_HEAD(self) -> None:
        """Send the file's size."""
        if self._admitted():
            self._head(self.server.path.stat().st_size)

    def do_OPTIONS(self) -> None:
        """Answer Chrome's question whether a public page may fetch from this machine."""
        if self._admitted():
            self.send_response(HTTPStatus.NO_CONTENT)
            self._cors()
            self.send_header("Access-Control-Allow-Private-Network", "true")
            self.end_headers()

    def _admitted(self) -> bool:
        """Refuse other paths, and other host names: a page could make its own name point here."""
        host = self.headers.get("Host", "").rpartition(":")[0]
        if host not in {HOST, "localhost"}:
            self.send_error(HTTPStatus.FORBIDDEN)
        elif unquote(urlsplit(self.path).path) != f"/{self.server.path.name}":
            self.send_error(HTTPStatus.NOT_FOUND)
        elif not self.server.path.is_file():
            self.send_error(HTTPStatus.GONE)
        else:
            return True
        return False

    def _head(self, size: int) -> None:
        self.send_response(HTTPStatus.OK)
        self._cors()
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(size))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def _cors(self) -> None:
        self.send_header("Access-Control-Allow-Origin", UI)
        self.send_header("Vary", "Origin")

    def log_message(self, *_: object) -> None:
        """Stay silent: the terminal is the user's."""
