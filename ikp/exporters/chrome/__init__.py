"""Chrome JSON traces (``.json``): for ``chrome://tracing``, Perfetto, and what else reads them.

The format knows processes and threads and no more, so SMs are processes, and lanes and warps are
threads. Times are microseconds from the first event, with three decimals: exact nanoseconds.
"""

from __future__ import annotations

from os import PathLike, fspath
from typing import TYPE_CHECKING

from ikp.plugins import INTERFACE

if TYPE_CHECKING:
    from ikp.core.trace import Trace


class ChromeExporter:
    """Writes Chrome JSON traces; those with ``.gz`` at the end compressed."""

    interface = INTERFACE
    totals = True
    suffixes = (".json", ".json.gz", ".chrome_trace")

    def prepare(self) -> None:
        """Import what writing takes."""
        import ikp.exporters.chrome.writer
        import ikp.exporters.files  # noqa: F401

    def write(self, trace: Trace, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write ``trace`` to ``path``: all of it, or nothing, and then what was there stays.

        Raises:
            ExportError: the file exists and ``force`` is false, the path can't be written, or the
                trace contradicts itself.
        """
        from ikp.exporters.chrome.writer import write
        from ikp.exporters.files import packed, replacing

        with replacing(path, force=force) as file, packed(file, fspath(path)) as out:
            write(trace, out, fspath(path))
