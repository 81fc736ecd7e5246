"""``ikp.Trace``, a trace with methods for users (statistics, verdict, report, save), and ``load``.

Other packages make and change plain columns, ``ikp.core.trace.Trace``. Functions that return a
trace to a user return this class, and functions that make one trace of another keep it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING

from ikp import registry
from ikp.core import trace as core
from ikp.errors import ExportError, UsageError
from ikp.printing import Printer, bind
from ikp.uncollected import uncollected

if TYPE_CHECKING:
    import pandas

    from ikp.analysis.explain.verdict import Verdict
    from ikp.analysis.page.reporting import TracePage
    from ikp.analysis.stats import Stats
    from ikp.core.objects import Instant, Range
    from ikp.patterns import Names


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Trace(core.Trace):
    """The records of one session, with the notes and figures of how they were recorded.

    Two traces are equal only if they are the same object: compare their columns.

    ``provenance`` holds plain strings that say how the trace was made (versions, device, host
    time); exporters write it into the file. ``roles`` are the names that warps set with
    ``ikp.role``; the first, of warps without one, is empty. ``args`` holds further facts about
    single events, a column of ``len(events)`` rows each, which ``ikp.edit.add_args`` adds, and the
    arrows that ``ikp.edit.connect`` draws.
    Launches of ``mode="totals"`` have no events, but ``totals``.
    """

    def __repr__(self) -> str:
        from ikp.analysis.summary import summary

        return summary(self)

    def _repr_html_(self) -> str:
        from ikp.analysis.summary import trace_html

        return trace_html(self)

    def ranges(self) -> Iterator[Range]:
        """Yield each range as an object, slot by slot, within a slot in the order of their ends."""
        from ikp.core.objects import ranges

        return ranges(self)

    def instants(self) -> Iterator[Instant]:
        """Yield each instant as an object, slot by slot, within a slot in order."""
        from ikp.core.objects import instants

        return instants(self)

    def stats(self, by: str | None = None, *, histogram: bool = False) -> Stats:
        """Return counts, times, cycles, self times and shares per launch label and region.

        With ``by`` one of ``"rank"``, ``"sm"``, ``"block"``, ``"warp"`` and ``"role"``, of each of
        these apart; or by ``"iteration"``, the payload, or by ``"window"`` of time, of the length
        in ``"window:10us"``. With ``histogram``, also histograms of the ranges' durations. Totals
        have no percentiles and no self times: those are None.
        """
        from ikp.analysis.counting_regions import stats

        return stats(self, by, histogram=histogram)

    def print_stats(self) -> None:
        """Print :meth:`stats` on stdout: on a terminal in colour, and no wider than that is."""
        from ikp.terminal import show

        show(self.stats())

    def explain(self, launch: Names | int | None = None) -> Verdict:
        """Return the verdict on a kernel: findings, ranked by the most time that each could win.

        It prints as one screen; :meth:`~Verdict.to_json` has the numbers. ``launch`` is a label, as
        a pattern, or a launch's number; without it, the label whose launches took longest is
        taken, and of its launches the one of median duration.

        Raises:
            UsageError: ``launch`` names none.
        """
        from ikp.analysis.explain.explaining import explain

        return explain(self, launch)

    def report(self, before: Trace | None = None, *, sources: bool = True) -> TracePage:
        """Return the trace as a page: kernels by time, findings drawn warp by warp, tables.

        ``.save("x.html")`` writes it, as one file that needs no network; ``.save("x.png")`` its
        pictures. A notebook shows it. With ``before``, it also has the changes from that trace to
        this one, and the warps of both on one scale. Without ``sources``, it has no source lines.

        Raises:
            UsageError: ``before`` is a path: ``save`` takes that.
        """
        if isinstance(before, (str, PathLike)):
            raise UsageError(
                f"trace.report() takes a trace to compare with, not a path. To write the page: "
                f"trace.report().save({fspath(before)!r})."
            )
        from ikp.analysis.page.reporting import report

        return report(self, before, sources=sources)

    def save(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write the trace in the format of the path's suffix.

        ``.pftrace`` (Perfetto) holds all of a trace, and is what ``ikp.load`` reads back. The
        others are for other tools: ``.json`` and ``.json.gz`` (Chrome), ``.hatchet``
        (proton-viewer), ``.speedscope.json`` and ``.folded`` (flame graphs), ``.csv``,
        ``.parquet``, and those of installed plugins.

        Raises:
            ExportError: no exporter knows the suffix, the file exists and ``force`` is false, the
                path can't be written, or the trace has totals, which a plugin's exporter writes
                only if its attribute ``totals`` is true.
        """
        exporter = registry.exporter_for_path(path)
        if not getattr(exporter, "totals", False) and len(self.totals):
            raise ExportError(
                f"{path} can't hold totals: the exporter for its suffix writes events alone. Save "
                "a .pftrace, .hatchet, .json, .csv or .parquet, or record a timeline."
            )
        exporter.write(self, path, force=force)

    def view(self) -> None:
        """Serve the trace on loopback and print the Perfetto UI address that opens it."""
        from ikp.viewer.show import view_trace

        view_trace(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return one row per event, or per total, as a DataFrame.

        Needs ``pip install 'ikp[pandas]'``.
        """
        from ikp.analysis.frame import to_pandas

        return to_pandas(self)


@uncollected()
def load(path: str | PathLike[str]) -> Trace:
    """Return the trace in a file that ``ikp`` wrote.

    Raises:
        ExportError: there is no such file, its format can't be read back, or it is not a trace.
    """
    try:
        exporter = registry.exporter_for_path(path)
    except ExportError as unknown:
        _, broken, plugins = str(unknown).partition(" Not loaded: ")
        raise ExportError(
            f"{fspath(path)} is no trace by its name: ikp reads .pftrace, .pftrace.gz, and what "
            f"installed plugins read. If it is one, give it that suffix.{broken}{plugins}"
        ) from unknown
    read = getattr(exporter, "read", None)
    if read is None:
        raise ExportError(
            f"{fspath(path)} can't be read back: {type(exporter).__name__} only writes. ikp reads "
            ".pftrace files: give the one that it was made from."
        )
    if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file fails on names that are too long
        raise ExportError(f"{fspath(path)} is not a file: check the path.")
    return core.of_class(Trace, read(path))


def _of_stats() -> Printer:
    from ikp.analysis.render import as_text, sheet
    from ikp.analysis.summary import as_html

    return Printer(as_text, sheet, as_html)


def _of_diff() -> Printer:
    from ikp.analysis.diff.render import as_html, as_text, sheet

    return Printer(as_text, sheet, as_html)


def _of_verdict() -> Printer:
    from rich.text import Text

    from ikp.analysis.explain import fitting, screen

    return Printer(
        screen.as_text, lambda one: Text(str(one)), screen.verdict_html, json=fitting.as_json
    )


def _of_snapshot() -> Printer:
    from rich.text import Text

    from ikp.analysis.snapshot_text import as_text

    return Printer(as_text, lambda one: Text(str(one)))


def _of_finding() -> Printer:
    from rich.text import Text

    from ikp.analysis.explain import screen

    return Printer(screen.finding_text, lambda one: Text(str(one)), screen.finding_html)


bind("ikp.analysis.stats.Stats", _of_stats)
bind("ikp.analysis.diff.difference.Diff", _of_diff)
bind("ikp.analysis.explain.verdict.Verdict", _of_verdict)
bind("ikp.analysis.explain.verdict.Finding", _of_finding)
bind("ikp.analysis.snapshot.Snapshot", _of_snapshot)
