"""Statistics and traces as HTML tables for notebooks; all text in them is escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ikp.analysis import render
from ikp.analysis.counting_regions import stats
from ikp.analysis.summary import summary
from ikp.terminal import shortened

if TYPE_CHECKING:
    from ikp.analysis.stats import Stats
    from ikp.core.trace import Trace

NAME, NUMBER = ' style="text-align:left"', ' style="text-align:right"'


def as_html(found: Stats) -> str:
    """Return a table with a line for each launch label, and the evidence below it."""
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
