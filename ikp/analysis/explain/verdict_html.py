"""A verdict and a finding as HTML for notebooks; all text in them is escaped."""

from __future__ import annotations

from html import escape

from ikp.analysis.explain.screen import finding_lines, launch_lines
from ikp.analysis.explain.verdict import Finding, Verdict
from ikp.terminal import printable


def verdict_html(verdict: Verdict) -> str:
    """Return the launch, its findings as a list, and what is not known, folded."""
    head, *rest = launch_lines(verdict)
    parts = [f"<p><b>{escape(head)}</b>{_small(rest)}</p>"]
    found = "\n".join(f"<li>{finding_html(one)}</li>" for one in verdict.findings)
    parts.append(f"<ol>\n{found}\n</ol>" if found else "<p>No finding.</p>")
    if verdict.unknown:
        lines = (f"{one.what}: {one.rationale} {one.mark}".strip() for one in verdict.unknown)
        items = "".join(f"<li>{escape(printable(line))}</li>" for line in lines)
        parts.append(f"<details><summary>Not known</summary><ul>{items}</ul></details>")
    return "\n".join(parts)


def finding_html(one: Finding) -> str:
    """Return a finding: its title, and below it its bound, its place and its suggestion."""
    title, *rest = finding_lines(one)
    return f"<b>{escape(title)}</b>{_small(rest)}"


def _small(lines: list[str]) -> str:
    return "".join(f"<br><small>{escape(line.strip())}</small>" for line in lines)
