"""``trace.report()``: a trace as one HTML page: kernels by time, findings drawn, a comparison."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from ikp.analysis import render
from ikp.analysis.counting_regions import stats
from ikp.analysis.diff import render as differences
from ikp.analysis.page._kernel import kernel_page
from ikp.analysis.page._longest import labels_by_time
from ikp.analysis.page._picture import legend_of
from ikp.analysis.page._story import ranking_of, story_of
from ikp.analysis.summary import summary
from ikp.core.stacks import stacks
from ikp.errors import ExportError
from ikp.paths import checked_target, replacing
from ikp.terminal import shortened

if TYPE_CHECKING:
    from jinja2 import Template

    from ikp.analysis.diff.difference import Diff, KernelChange
    from ikp.core.trace import Trace

MOST_KERNELS: Final = 8
"""Kernels that are shown whole: those that took longest in all."""
_PICTURES: Final = (".png", ".svg", ".pdf")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TracePage:
    """A trace as a page: HTML that loads nothing from elsewhere, and runs its own script alone.

    Without the script, nothing is missing but zoom. A notebook shows the page in a frame, without.
    """

    html: str
    trace: Trace

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the page; to ``.png``, ``.svg`` or ``.pdf`` its pictures, by matplotlib.

        Raises:
            ExportError: the file exists and ``force`` is false, it can't be written, or its suffix
                is none of these and not ``.html``.
            PluginError: a picture needs ``pip install 'ikp[pictures]'``.
        """
        target = checked_target(path, force)
        suffix = target.suffix.lower()
        if suffix in _PICTURES:
            from ikp.analysis.page.pictures import draw

            content = draw(self.trace, suffix.removeprefix("."))
        elif suffix in (".html", ".htm"):
            content = self.html.encode()
        else:
            raise ExportError(
                f"a report is no {suffix or 'file without a suffix'}: name a .html file, or one "
                f"of {', '.join(_PICTURES)} for pictures."
            )
        with replacing(path, force=force) as file:
            file.write(content)

    def _repr_html_(self) -> str:
        page = escape(self.html, quote=True)
        return f'<iframe srcdoc="{page}" sandbox width="100%" height="760"></iframe>'

    def __repr__(self) -> str:
        return f"<ikp.Report of {len(self.html):,} characters; see .save(path)>"


def report(trace: Trace, before: Trace | None = None, *, sources: bool = True) -> TracePage:
    """Return a trace as a page: its kernels by time, its findings drawn, and tables.

    Args:
        trace: what to show.
        before: a trace to compare it with: the page says what moved from that one to this, and
            draws findings of both in step.
        sources: whether the page holds the source lines that findings name, where the trace was
            recorded on this host and their file has not changed since.
    """
    table, tree = stats(trace, histogram=True), stacks(trace)
    labels = labels_by_time(trace)
    found = None if before is None else _difference(before, trace)
    return TracePage(
        _template().render(
            style=_own("page.css"),
            style_hash=_hash(_own("page.css")),
            script=_own("page.js"),
            script_hash=_hash(_own("page.js")),
            title=", ".join(map(shortened, labels[:3])) or "a trace of nothing",
            about=_about(trace),
            warnings=list(render.warnings(table, shortened)),
            ranking=ranking_of(trace, labels[:MOST_KERNELS]),
            story=story_of(trace, before, sources=sources),
            diff=found and [_kernel_difference(one, found.unit) for one in found.kernels],
            diff_notes=found and _diff_notes(found),
            kernels=[kernel_page(trace, table, tree, one) for one in labels[:MOST_KERNELS]],
            facts=list(render.facts(table, shortened)),
        ),
        trace,
    )


def _about(trace: Trace) -> list[str]:
    """Return the lines of a trace's ``repr``, without its hints on methods to call."""
    lines = summary(trace).strip("<>").removeprefix("ikp.Trace of ").split("\n")
    return [shortened(line.partition("; see .")[0]) for line in lines]


def _difference(before: Trace, after: Trace) -> Diff:
    from ikp.analysis.diff.compare import diff

    return diff(before, after)


def _kernel_difference(kernel: KernelChange, unit: str) -> dict[str, Any]:
    show = differences.amount(unit)
    kernel, more = differences.readable(kernel)
    columns, rows = differences.table(kernel, show, shortened)
    verdicts = [row.time.verdict if row.time else "" for row in kernel.rows]
    return {
        "heading": differences.heading(kernel, shortened),
        "summary": differences.summary(kernel, show),
        "moved": differences.moved(kernel, show, shortened),
        "verdict": kernel.duration.verdict,
        "columns": columns,
        "rows": [
            {"cells": cells, "verdict": verdict}
            for cells, verdict in zip(rows, verdicts, strict=True)
        ],
        "notes": [*filter(None, [more]), *kernel.notes],
    }


def _diff_notes(found: Diff) -> Iterator[str]:
    for side, names in (("before", found.only_before), ("after", found.only_after)):
        yield from (f"only {side}: {shortened(name)}" for name in names)
    yield f"bounds: {100 * found.confidence:.3g} % sure that all of them hold, together."
    yield from found.notes


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    makers = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    makers.filters["short"] = shortened
    makers.filters["legend"] = legend_of
    return makers.from_string(_resource("page.html"))


@cache
def _own(name: str) -> Any:
    from markupsafe import Markup

    return Markup(_resource(name))  # noqa: S704 - ikp's own text


def _resource(name: str) -> str:
    return files("ikp.analysis.page").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return a hash for the content security policy, which allows what has it and no other."""
    return f"sha256-{b64encode(sha256(str(text).encode()).digest()).decode()}"
