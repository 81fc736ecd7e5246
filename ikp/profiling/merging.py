"""``Merged``: the traces of several processes as one, with what other profilers saw of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from ikp.analysis.evidence import agreement
from ikp.core.host_clock import BOOT
from ikp.core.host_trace import HostTrace
from ikp.edit.join import concat
from ikp.errors import UsageError
from ikp.exporters.perfetto import PerfettoExporter
from ikp.host_traces.placing import place
from ikp.trace import Trace

_ONE_AXIS: Final = "one_axis"
"""The provenance of how well times of several GPUs agree."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The traces of several files in one, and what the host of each did.

    ``lines`` say of which files no arrows lead to launches, and why.
    """

    trace: Trace
    hosts: tuple[HostTrace, ...] = ()
    records: tuple[dict[int, int], ...] = ()  # by host: by launch, the index of its record
    lines: tuple[str, ...] = ()

    @classmethod
    def of(cls, sources: Sequence[Path], traces: Sequence[Trace]) -> Self:
        """Return the traces of files, read already, as one.

        Launches and their records are matched again: each file's with its own.

        Raises:
            ExportError: what a host did can't be read.
            UsageError: the traces can't be joined.
        """
        hosts: list[HostTrace] = []
        records: list[dict[int, int]] = []
        lines: list[str] = []
        first = 0
        for path, trace in zip(sources, traces, strict=True):
            found = PerfettoExporter().read_beside(path) if is_picture(path) else []
            for host in found:
                record, beside = dict[int, int](), host
                try:
                    placed = place(trace, host, "clocks")
                    record, beside = placed.record, placed.host
                except UsageError as error:
                    lines.append(f"{path}: no arrows to its launches: {error}")
                hosts.append(replace(beside, source=f"{host.source}, {path.stem}"))
                records.append({first + launch: index for launch, index in record.items()})
            first += len(trace.launches)
        return cls(_on_one_axis(concat(traces), traces), tuple(hosts), tuple(records), tuple(lines))

    @property
    def within(self) -> str:
        """In words how well times of several GPUs agree; empty where that is not known."""
        return self.trace.provenance.get(_ONE_AXIS, "")

    def save(self, target: Path, *, force: bool) -> None:
        """Write all to a file in the format of its suffix; hosts go into a ``.pftrace`` alone.

        Raises:
            ExportError: the file can't be written.
        """
        if self.hosts and is_picture(target):
            hosts, records = self.hosts, self.records
            PerfettoExporter().write_beside(self.trace, target, hosts, records, force=force)
        else:
            self.trace.save(target, force=force)


def _on_one_axis(trace: Trace, parts: Sequence[Trace]) -> Trace:
    """Return a trace that says how well times of its GPUs agree, and nothing of its parts' own."""
    known = {name: text for name, text in trace.provenance.items() if name != _ONE_AXIS}
    if all(BOOT in each.provenance for each in parts) and (within := agreement(trace)):
        known[_ONE_AXIS] = within
    return replace(trace, provenance=known)


def is_picture(path: Path) -> bool:
    """Return whether a file of this name can hold what the host did, too."""
    return path.name.endswith(PerfettoExporter.suffixes)
