"""A ``Diff`` as text: a table per kernel, verdicts on limits and notes, for a terminal or a log."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from html import escape
from itertools import chain, starmap
from typing import Final

from ikp.analysis.classes import MOST
from ikp.analysis.diff.difference import Change, Diff, KernelChange, Limit, Row
from ikp.analysis.render import duration
from ikp.terminal import Column, Line, Sheet, lay_out, printable, shortened

DESIGNS: Final = {
    "alternating": "alternating, compared pair by pair",
    "in order": "compared one by one, in order",
    "apart": "compared as two groups",
    "runs": "compared run by run",
}
"""Which launches are compared with which, in words."""
_COLUMNS: Final = (
    Column("region", name=True),
    Column("role", spare=1, name=True),
    Column("count", spare=2),
    Column("p50", spare=3),
    Column("of a warp's time", spare=4),
    Column("change"),
    Column("bounds", spare=5),
    Column("verdict", name=True),
)
_INDENT: Final = "  "
_CANT_TELL: Final = "can't tell"
_STYLES: Final = {"longer": "red", "shorter": "green"}
_MOST_PARTS: Final = 3


def sheet(diff: Diff) -> Sheet:
    """Return the table of a difference."""
    return Sheet(partial(_lines, diff))


def as_text(diff: Diff) -> str:
    """Return the table as plain text."""
    return sheet(diff).text()


def as_html(diff: Diff) -> str:
    """Return the table for a notebook."""
    return f"<pre>{escape(sheet(diff).text(120))}</pre>"


def _lines(diff: Diff, wide: int | None) -> Iterator[Line]:
    show = amount(diff.unit)
    name = printable if wide is None else shortened

    def lines(text: str, style: str) -> Iterator[Line]:
        return ((part, style) for part in _wrapped(text, wide))

    for kernel in diff.kernels:
        yield from chain.from_iterable(starmap(lines, _kernel(kernel, show, name, wide)))
        yield "", ""
    for side, names in (("before", diff.only_before), ("after", diff.only_after)):
        for one in names:
            yield f"only {side}: {name(one)}", ""
    for limit in diff.limits:
        yield from lines(line_of(limit, show), _style(limit))
    if diff.kernels:
        bounds = f"bounds: {100 * diff.confidence:.3g} % sure that all of them hold, together."
        yield from lines(bounds, "dim")
    for note in diff.notes:
        yield from lines(printable(note), "yellow")


def _kernel(
    kernel: KernelChange, show: Callable[[float], str], name: Callable[[str], str], wide: int | None
) -> Iterator[Line]:
    yield heading(kernel, name), "bold"
    yield _INDENT + summary(kernel, show), _STYLES.get(kernel.duration.verdict, "")
    if moves := moved(kernel, show, name):
        yield _INDENT + moves, ""
    kernel, more = readable(kernel)
    titles, cells = table(kernel, show, name)
    inner = None if wide is None else wide - len(_INDENT)
    shape = [column for column in _COLUMNS if column.title in titles]
    head, lines = lay_out(shape, cells, inner)
    if cells:
        yield textwrap.indent(head, _INDENT), "dim"
    for row, line in zip(kernel.rows, lines, strict=True):
        yield textwrap.indent(line, _INDENT), _STYLES.get(row.time.verdict, "") if row.time else ""
    if more:
        yield _INDENT + more, "dim"
    for note in kernel.notes:
        yield _INDENT + printable(note), "yellow"


def readable(kernel: KernelChange) -> tuple[KernelChange, str]:
    """Return the rows that are shown, those whose time differs most, and how many others are."""
    rows = kernel.rows
    if len(rows) <= MOST:
        return kernel, ""
    order = sorted(rows, key=lambda row: -abs(row.time.difference) if row.time else 0.0)
    largest = set(map(id, order[:MOST]))
    others = Counter(
        f"only {row.only}" if row.only else row.time.verdict if row.time else "counted alone"
        for row in order[MOST:]
    )
    parts = [
        f"{n:,} {_CANT_TELL if word == 'unknown' else word}" for word, n in others.most_common()
    ]
    shown = replace(kernel, rows=tuple(row for row in rows if id(row) in largest))
    text = f"and {len(rows) - MOST:,} rows more, whose time differs less: {', '.join(parts)}."
    return shown, f"{text} --format json has all."


def table(
    kernel: KernelChange, show: Callable[[float], str], name: Callable[[str], str] = printable
) -> tuple[list[str], list[list[str]]]:
    """Return the titles of the columns that are not empty, and the cells of each row."""
    cells = [_cells(row, kernel, show, name) for row in kernel.rows]
    used = [
        i
        for i, column in enumerate(_COLUMNS)
        if column.title in ("region", "change", "verdict") or any(row[i] for row in cells)
    ]
    return [_COLUMNS[i].title for i in used], [[row[i] for i in used] for row in cells]


def heading(kernel: KernelChange, name: Callable[[str], str] = printable) -> str:
    """Return the kernel's name, its number of launches, and how they were compared."""
    label = name(kernel.before)
    if kernel.after != kernel.before:
        label += f" -> {name(kernel.after)}"
    count = " and ".join(f"{each:,}" for each in kernel.launches)
    out = sum(kernel.left_out)
    left = f"; {out:,} far out left out" if out else ""
    how = f", {DESIGNS[kernel.design]}" if min(kernel.launches) > 1 else ""
    return f"{label}: {count} launches{how}{left}"


def summary(kernel: KernelChange, show: Callable[[float], str]) -> str:
    """Return the change of the kernel's duration, in a line."""
    change = kernel.duration
    return (
        f"kernel: {show(change.before)} -> {show(change.after)}, {relative(change)}"
        f"{bounds(change)}: {verdict(change)}"
    )


def moved(
    kernel: KernelChange, show: Callable[[float], str], name: Callable[[str], str] = printable
) -> str:
    """Return the change of a warp's time, and the regions that surely moved, the largest first."""
    rows = [row for row in kernel.rows if row.time and row.time.verdict in ("longer", "shorter")]
    rows.sort(key=lambda row: -abs(row.time.difference) if row.time else 0)
    parts = [
        f"{name(_called(row))} {_signed(row.time.difference, show)}"
        for row in rows[:_MOST_PARTS]
        if row.time
    ]
    if not parts:
        return ""
    more = f", and {len(rows) - len(parts):,} more" if len(rows) > len(parts) else ""
    whole = _signed(kernel.residence.difference, show)
    return f"a warp's time: {whole}, of that {', '.join(parts)}{more}"


def _called(row: Row) -> str:
    return f"{row.region} ({row.role})" if row.role else row.region


def _cells(
    row: Row, kernel: KernelChange, show: Callable[[float], str], name: Callable[[str], str]
) -> list[str]:
    region = name(row.region) + (" (instant)" if row.kind == "instant" else "")
    cells = [region, name(row.role), _counts(row), _medians(row, show)]
    if row.only:
        return [*cells, "", "", "", f"only {row.only}"]
    if row.time is None:
        return [*cells, "", "", "", ""]
    times = _two(show(row.time.before), show(row.time.after))
    span = _span(row.time)
    said = row.time.why and row.time.why == kernel.duration.why  # above, in the kernel's line
    word = _CANT_TELL if said else verdict(row.time, kernel.residence.before)
    return [*cells, times, relative(row.time), span, word]


def _counts(row: Row) -> str:
    if row.count is None:
        return ""
    return _two(*(f"{each:,.1f}".removesuffix(".0") for each in row.count))


def _medians(row: Row, show: Callable[[float], str]) -> str:
    if row.p50 is None or row.p50 == (None, None):
        return ""
    return _two(*("-" if each is None else show(each) for each in row.p50))


def _two(one: str, other: str) -> str:
    return one if one == other else f"{one} -> {other}"


def amount(unit: str) -> Callable[[float], str]:
    """Return the function that formats a time of this unit."""
    return duration if unit == "ns" else partial(_cycles)


def _cycles(count: float) -> str:
    return f"{count:,.0f} cycles"


def _signed(value: float, show: Callable[[float], str]) -> str:
    return f"{'-' if value < 0 else '+'}{show(abs(round(value, 1)))}"


def relative(change: Change) -> str:
    """Return a difference in percent: ``"+3.1 %"``."""
    part = change.part(change.difference)
    return "" if part is None else percent(part)


def percent(part: float) -> str:
    """Return a part of 1 as a signed percentage, with more digits the smaller it is."""
    digits = 2 if abs(part) < 0.01 else 1 if abs(part) < 1 else 0
    text = f"{100 * part:+,.{digits}f} %"
    return "0 %" if not text.strip("+-0.% ") else text


def _span(change: Change) -> str:
    low, high = change.part(change.low), change.part(change.high)
    return "" if low is None or high is None else f"{percent(low)} to {percent(high)}"


def bounds(change: Change) -> str:
    """Return the bounds in brackets, if there are any."""
    span = _span(change)
    return f" ({span})" if span else ""


def verdict(change: Change, whole: float | None = None) -> str:
    """Return a verdict in words; ``whole`` is a warp's time, of which the change is a part."""
    if change.verdict != "unknown":
        return change.verdict
    if change.why:
        return f"{_CANT_TELL}: {change.why}"
    worst = max(abs(change.low or 0), abs(change.high or 0))
    share = f": less than {100 * worst / whole:.2g} % of a warp" if whole else ""
    return f"{_CANT_TELL}{share}"


def line_of(limit: Limit, show: Callable[[float], str]) -> str:
    """Return the verdict on a limit, in a line."""
    place = f" in {printable(limit.kernel)}" + (f", {printable(limit.role)}" if limit.role else "")
    word = {"over": "OVER", "within": "within", "unknown": "can't tell"}[limit.verdict]
    if limit.before is None or limit.after is None:
        return f"limit {limit.text}: {word}{place}: {printable(limit.why)}"
    write = (lambda value: f"{value:,.0f}") if limit.figure == "count" else show
    part = "" if limit.relative is None else f", {percent(limit.relative)}"
    facts = f"{_two(write(limit.before), write(limit.after))}{part}"
    region = f" {printable(limit.region)}" if limit.region not in limit.text else ""
    reason = f" ({printable(limit.why)})" if limit.why else ""
    return f"limit {limit.text}: {word}:{region} {facts}{place}{reason}"


def _style(limit: Limit) -> str:
    return {"over": "bold red", "unknown": "yellow"}.get(limit.verdict, "green")


def _wrapped(text: str, wide: int | None) -> list[str]:
    if wide is None or "\n" in text or text.startswith(_INDENT * 2):
        return text.split("\n")
    if len(text) <= wide:
        return [text]
    return textwrap.wrap(
        text,
        max(20, wide),
        subsequent_indent=_INDENT * 2,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )
