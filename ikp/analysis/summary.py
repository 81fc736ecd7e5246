"""A trace in short: its ``repr`` of three lines, and HTML tables of it for notebooks.

All text in the HTML is escaped.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from ikp.analysis import render
from ikp.analysis.classes import readable
from ikp.analysis.counting_regions import stats
from ikp.analysis.evidence import plural
from ikp.analysis.render import duration
from ikp.core.abi import Kind
from ikp.core.trace import row_count
from ikp.core.warps import launch_bounds
from ikp.terminal import printable, shortened

if TYPE_CHECKING:
    from ikp.analysis.stats import Stats
    from ikp.core.trace import Trace


NAME, NUMBER = ' style="text-align:left"', ' style="text-align:right"'


def as_html(found: Stats) -> str:
    """Return a table with a line for each launch label, and the evidence below it."""
    found = readable(found)
    shown = render.columns(found)
    head = "".join(_cell("th", one.title, one.name) for one in shown)
    body = []
    for section in render.sections(found):
        text = escape(render.heading(section, shortened))
        body.append(f'<tr><th colspan="{len(shown)}"{NAME}>{text}</th></tr>')
        body += [
            f"<tr>{''.join(_cell('td', one.cell(row), one.name) for one in shown)}</tr>"
            for row in (found.rows[number] for number in section.rows)
        ]
    below = [escape(line) for line in render.facts(found, shortened)]
    below += [f"<b>{escape(line)}</b>" for line in render.warnings(found, shortened)]
    rows = "\n".join(body)
    return (
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n"
        f"<small>{'<br>'.join(below)}</small>"
    )


def trace_html(trace: Trace) -> str:
    """Return a trace's ``repr`` and its statistics as HTML."""
    return f"<pre>{escape(summary(trace))}</pre>\n{as_html(stats(trace))}"


def _cell(tag: str, text: str, name: bool) -> str:
    return f"<{tag}{NAME if name else NUMBER}>{escape(shortened(text))}</{tag}>"


_MOST_LABELS = 3
_MOST_LETTERS = 60


def summary(trace: Trace) -> str:
    """Return three lines on any trace, empty ones included."""
    return f"<ikp.Trace of {_launches(trace)}\n {_events(trace)}\n {_time(trace)}>"


def _launches(trace: Trace) -> str:
    labels = list(dict.fromkeys(launch.label for launch in trace.launches))
    names = [_short(label) for label in labels[:_MOST_LABELS]]
    more = [f"{len(labels) - _MOST_LABELS:,} more"] if len(labels) > _MOST_LABELS else []
    devices = [_short(one) for one in dict.fromkeys(launch.device for launch in trace.launches)]
    where = f" on {' + '.join(devices[:_MOST_LABELS])}" if devices else ""
    listed = f": {', '.join([*names, *more])}" if names else ""
    return f"{plural(len(trace.launches), 'launch', 'launches')}{listed}{where}"


def _events(trace: Trace) -> str:
    ranges = int(np.count_nonzero(trace.events.kind == Kind.RANGE))
    parts = [plural(ranges, "range"), plural(len(trace.events) - ranges, "instant")]
    count, what = row_count(trace)
    if what != "event":
        parts = [plural(count, what)]
    regions = plural(len({region.name for region in trace.regions}), "region")
    warps = plural(len(trace.slots), "warp")
    return f"{', '.join(parts)} of {regions} in {warps}, {trace.dropped:,} dropped"


def _time(trace: Trace) -> str:
    if not len(trace.slots):
        return "no warp recorded"
    first, last = launch_bounds(trace)
    begin, end = int(first.min()), int(last.max())
    return f"{duration(end - begin)} from start to end; see .stats(), .view(), .save(path)"


def _short(name: str) -> str:
    return printable(name if len(name) <= _MOST_LETTERS else f"{name[:_MOST_LETTERS]}...")
