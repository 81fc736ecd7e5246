"""Native Perfetto traces (``.pftrace``): the format that holds a whole trace, and gives it back.

Written with the ``perfetto`` package's protobufs; the packets of which there are millions are
encoded by vectorised numpy, byte for byte as the package would.
"""

from __future__ import annotations

from functools import cache
from os import PathLike, fsdecode
from typing import TYPE_CHECKING, BinaryIO

from ikp.exporters.files import FileExporter, check, packed
from ikp.paths import replacing
from ikp.uncollected import uncollected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ikp.core.host_trace import HostTrace
    from ikp.core.trace import Trace


class PerfettoExporter(FileExporter):
    """Writes and reads native Perfetto traces."""

    suffixes = (".pftrace", ".perfetto-trace", ".pftrace.gz")
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

        with packed(file, name) as out:
            write(trace, out, name)

    @uncollected()
    def write_beside(
        self,
        trace: Trace,
        path: str | PathLike[str],
        hosts: Sequence[HostTrace],
        records: Sequence[Mapping[int, int]],
        *,
        force: bool = False,
    ) -> None:
        """Write a trace with those of other profilers beside it, which viewers show.

        Args:
            trace: the trace, which ``read`` gives back.
            path: of the file.
            hosts: the other traces, which count from a known base.
            records: for each of them, by launch, the index of its kernel record among the slices.
            force: overwrite an existing file.

        Raises:
            ExportError: as :meth:`write` does.
        """
        from ikp.exporters.perfetto._host import AddedTraces
        from ikp.exporters.perfetto._writer import write

        check(trace)
        with replacing(path, force=force) as file, packed(file, fsdecode(path)) as out:
            write(trace, out, fsdecode(path), AddedTraces(hosts, records))

    def read_beside(self, path: str | PathLike[str]) -> list[HostTrace]:
        """Return the traces of other profilers that :meth:`write_beside` wrote to ``path``.

        Raises:
            ExportError: the file is damaged.
        """
        from ikp.exporters.perfetto.host_reader import read_hosts

        return read_hosts(path)

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
