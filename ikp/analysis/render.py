"""A :class:`~ikp.analysis.stats.Stats` as text, CSV, JSON or a rich table."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ikp.analysis.stats import RegionStats, Stats

UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))


def duration(ns: float | None) -> str:
    """Return a duration in the unit that reads best: ``"512 ns"``, ``"12.34 us"``."""
    if ns is None:
        return ""
    for scale, unit in UNITS:
        if abs(ns) >= scale:
            return f"{ns / scale:.2f} {unit}"
    return f"{ns:.0f} ns" if ns == int(ns) else f"{ns:.1f} ns"


def percent(share: float | None) -> str:
    """Return ``"12.3 %"``, or nothing where there is no share."""
    return "" if share is None else f"{100 * share:.1f} %"


@dataclass(frozen=True, slots=True)
class _Shown:
    """One column of the table that people read."""

    title: str
    cell: Callable[[RegionStats], str]
    left: bool = False


def _spread(name: str) -> Callable[[RegionStats], str]:
    """Return what shows one figure of how ranges differ: ``-`` where only their sum is known."""

    def cell(row: RegionStats) -> str:
        value: float | None = getattr(row, name)
        return "-" if value is None and row.total_ns is not None else duration(value)

    return cell


def _region(row: RegionStats) -> str:
    return row.region if row.kind == "range" else f"{row.region} ({row.kind})"


COLUMNS = (
    _Shown("launch", lambda row: row.launch, left=True),
    _Shown("region", _region, left=True),
    _Shown("group", lambda row: row.group, left=True),
    _Shown("count", lambda row: f"{row.count:,}"),
    _Shown("total", lambda row: duration(row.total_ns)),
    _Shown("mean", lambda row: duration(row.mean_ns)),
    _Shown("p50", _spread("p50_ns")),
    _Shown("p99", _spread("p99_ns")),
    _Shown("min", _spread("min_ns")),
    _Shown("max", _spread("max_ns")),
    _Shown("share", lambda row: percent(row.share)),
)
GROUP = next(column for column in COLUMNS if column.title == "group")
SHARE_NOTE = (
    "share: of the time the launch's warps ran, from init to finish; nested ranges overlap."
)


def as_text(stats: Stats) -> str:
    """Return an aligned table of plain text, followed by the evidence."""
    columns = _columns(stats)
    cells = [[c.title for c in columns], *_cells(stats)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(_padded, line, widths, columns)).rstrip() for line in cells]
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join([*lines, "", *facts(stats), *warnings(stats)])


def as_rich(stats: Stats) -> RenderableType:
    """Return a rich table, followed by the evidence."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold", pad_edge=False, box=None)
    for column in _columns(stats):
        table.add_column(
            column.title, justify="left" if column.left else "right", no_wrap=not column.left
        )
    for line in _cells(stats):
        table.add_row(*map(Text, line))
    return Group(
        table,
        Text(),
        *(Text(line, style="dim") for line in facts(stats)),
        *(Text(line, style="yellow") for line in warnings(stats)),
    )


def show(stats: Stats) -> None:
    """Print a table in colour on a terminal, and as aligned plain text elsewhere."""
    if not sys.stdout.isatty():
        sys.stdout.write(f"{as_text(stats)}\n")
        return
    from rich.console import Console

    Console().print(stats)


def as_json(content: dict[str, Any]) -> str:
    """Return ``content`` as indented JSON."""
    return json.dumps(content, indent=2)


def as_csv(row_type: type, rows: Iterable[RegionStats]) -> str:
    """Return dataclass rows as CSV with a header line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(f.name for f in fields(row_type))
    writer.writerows(astuple(row) for row in rows)
    return out.getvalue()


def facts(stats: Stats) -> list[str]:
    """Return the lines under the table: what the share is of, and what was recorded."""
    lines = [SHARE_NOTE] if any(row.share is not None for row in stats.rows) else []
    return [*lines, *(evidence.facts() for evidence in stats.evidence), *stats.about]


def warnings(stats: Stats) -> list[str]:
    """Return the lines that say what was lost."""
    return [line for evidence in stats.evidence for line in evidence.warnings()]


def _cells(stats: Stats) -> list[list[str]]:
    return [[column.cell(row) for column in _columns(stats)] for row in stats.rows]


def _columns(stats: Stats) -> list[_Shown]:
    grouped = any(row.group for row in stats.rows)
    return [column for column in COLUMNS if grouped or column is not GROUP]


def _padded(cell: str, width: int, column: _Shown) -> str:
    return cell.ljust(width) if column.left else cell.rjust(width)
