"""Where the Perfetto UI is, and from where it may fetch a trace."""

from __future__ import annotations

from typing import Final

UI: Final = "https://ui.perfetto.dev"
HOST: Final = "127.0.0.1"
PORT: Final = 9001
"""The one port that the UI's content security policy allows."""
