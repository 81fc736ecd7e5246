"""Native Perfetto traces (``.pftrace``): the format that holds a whole trace, and gives it back.

Written with the ``perfetto`` package's protobufs; the packets of which there are millions are
encoded by vectorised numpy, byte for byte as the package would.
"""

from __future__ import annotations

from functools import cache
from os import PathLike
from typing import TYPE_CHECKING, BinaryIO

from ikp.exporters.files import FileExporter

if TYPE_CHECKING:
    from ikp.core.trace import Trace


class PerfettoExporter(FileExporter):
    """Writes and reads native Perfetto traces."""

    suffixes = (".pftrace", ".perfetto-trace")
    packages = ("isal", "perfetto", "google.protobuf")  # prepare() imports parts of them

    @staticmethod
    @cache  # each session asks
    def prepare() -> None:
        """Import what writing takes."""
        import isal.isal_zlib  # noqa: F401
        import perfetto.protos.perfetto.trace.perfetto_trace_pb2  # noqa: F401

        import ikp.exporters.perfetto._writer  # noqa: F401
        from ikp.exporters.protobuf import joining

        joining.prepare()

    def _put(self, trace: Trace, file: BinaryIO, name: str) -> None:
        from ikp.exporters.perfetto._writer import write

        write(trace, file, name)

    def read(self, path: str | PathLike[str]) -> Trace:
        """Rebuild the trace that :meth:`write` wrote to ``path``.

        Raises:
            ExportError: the file can't be read, is damaged, or was not written by ``ikp``.
        """
        from ikp.exporters.perfetto.reader import read

        return read(path)

    def salvage(self, path: str | PathLike[str]) -> list[tuple[Trace, list[str]]]:
        """Return what is sound of each trace in a damaged file, and what is lost, in words.

        Raises:
            ExportError: the file can't be read, or holds nothing that is sound.
        """
        from ikp.exporters.perfetto.reader import salvage

        return salvage(path)
