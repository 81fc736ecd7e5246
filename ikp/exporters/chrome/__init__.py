"""``ChromeExporter``: Chrome JSON traces (``.json``), for ``chrome://tracing`` and Perfetto.

The format knows processes and threads and no more, so SMs are processes, and CTA slots and warps
are threads. Times are microseconds from the first event, with three decimals: exact nanoseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from ikp.exporters.files import FileExporter, packed

if TYPE_CHECKING:
    from ikp.core.trace import Trace


class ChromeExporter(FileExporter):
    """Writes Chrome JSON traces; those with ``.gz`` at the end compressed."""

    suffixes = (".json", ".json.gz", ".chrome_trace")

    def prepare(self) -> None:
        """Import the writer, before there is a trace to write."""
        import ikp.exporters.chrome._writer  # noqa: F401

    def _put(self, trace: Trace, file: BinaryIO, name: str) -> None:
        from ikp.exporters.chrome._writer import write

        with packed(file, name) as out:
            write(trace, out, name)
