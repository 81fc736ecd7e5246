"""A :class:`~ikp.analysis.stats.Stats` as a table of text, or for rich; and durations as text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from ikp import terminal
from ikp.analysis.classes import readable
from ikp.analysis.evidence import Evidence
from ikp.terminal import Column, Line, Sheet, lay_out, printable, shortened

if TYPE_CHECKING:
    from ikp.analysis.stats import RegionStats, Residence, Stats

_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))


def duration(ns: float | None) -> str:
    """Return a duration in the unit that reads best: ``"512 ns"``, ``"12.34 us"``."""
    if ns is None:
        return ""
    for scale, unit in _UNITS:
        if abs(ns) >= scale:
            return f"{ns / scale:.2f} {unit}"
    return f"{ns:.0f} ns" if ns == int(ns) else f"{ns:.1f} ns"


def _percent(share: float | None) -> str:
    """Return ``"12.3 %"``, or nothing where there is no share."""
    return "" if share is None else f"{100 * share:.1f} %"


def _cycles(count: float | None) -> str:
    """Return ``"1,014"``, or nothing where there are none."""
    return "" if count is None else f"{count:,.0f}"


@dataclass(frozen=True, slots=True)
class _Shown:
    """One column of the table of text. Of those with ``spare``, the largest goes first."""

    title: str
    cell: Callable[[RegionStats], str]
    spare: int = 0
    name: bool = False

    @property
    def column(self) -> Column:
        """The column as the layout takes it."""
        return Column(self.title, self.spare, self.name)


def _spread(name: str, text: Callable[[float | None], str]) -> Callable[[RegionStats], str]:
    """Return a cell function for a figure of single ranges: ``-`` if only their sum is known."""
    whole = "total_ns" if name.endswith("_ns") else "total_cycles"

    def cell(row: RegionStats) -> str:
        value: float | None = getattr(row, name)
        return "-" if value is None and getattr(row, whole) is not None else text(value)

    return cell


def _region(row: RegionStats) -> str:
    return row.region if row.kind == "range" else f"{row.region} ({row.kind})"


COLUMNS = (
    _Shown("region", _region, name=True),
    _Shown("group", lambda row: row.group, name=True),
    _Shown("count", lambda row: f"{row.count:,}"),
    _Shown("share", lambda row: _percent(row.share)),
    _Shown("self", _spread("self_share", _percent)),
    _Shown("total", lambda row: duration(row.total_ns), spare=6),
    _Shown("mean", lambda row: duration(row.mean_ns), spare=5),
    _Shown("p50", _spread("p50_ns", duration)),
    _Shown("p95", _spread("p95_ns", duration), spare=2),
    _Shown("p99", _spread("p99_ns", duration), spare=4),
    _Shown("min", _spread("min_ns", duration), spare=8),
    _Shown("max", _spread("max_ns", duration), spare=7),
    _Shown("p50 cycles", _spread("p50_cycles", _cycles), spare=1),
    _Shown("p95 cycles", _spread("p95_cycles", _cycles), spare=3),
)
_NOTES = {
    "share": "share: of the time the launch's warps ran, from init to finish; nested ranges "
    "overlap.",
    "self": "self: the same, less the ranges that opened inside; adds up to 100 % with the time in "
    "no range.",
}
_INDENT = "  "


@dataclass(frozen=True, slots=True)
class _Section:
    """The part of a table for one launch label. ``rows`` are numbers of the statistics' rows."""

    label: str
    rows: list[int] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    residence: list[Residence] = field(default_factory=list)


def sections(stats: Stats) -> list[_Section]:
    """Return the labels that have rows, and those under which nothing was recorded at all."""
    found: dict[str, _Section] = {}

    def of(label: str) -> _Section:
        return found.setdefault(label, _Section(label))

    for evidence in stats.evidence:
        of(evidence.launch).evidence.append(evidence)
    for residence in stats.residence:
        of(residence.launch).residence.append(residence)
    for number, row in enumerate(stats.rows):
        of(row.launch).rows.append(number)
    return [one for one in found.values() if one.rows or any(not e.kept for e in one.evidence)]


def _lines(stats: Stats, wide: int | None) -> Iterator[Line]:
    """Yield the lines of a table that fits into ``wide`` cells, and of the evidence below it.

    Each launch label has a line of its own above its rows. Without a width nothing is left out.
    """
    name = printable if wide is None else shortened
    stats = readable(stats)
    shown = columns(stats)
    inner = None if wide is None else wide - len(_INDENT)
    cells = [[name(c.cell(row)) if c.name else c.cell(row) for c in shown] for row in stats.rows]
    head, lines = lay_out([c.column for c in shown], cells, inner)
    for one in stats.evidence:
        if lost := _named(one, name).lost():
            yield from _wrapped(f"{lost}: the figures are of the others.", "yellow", wide)
    yield _INDENT + head, "bold"
    yield "-" * (len(_INDENT) + max(map(len, head.split("\n")))), "dim"
    for section in sections(stats):
        yield from _wrapped(heading(section, name), "bold", wide)
        yield from ((textwrap.indent(lines[row], _INDENT), "") for row in section.rows)
        yield from ((_INDENT + line, "") for line in _outside(stats, section, name))
    yield "", ""
    for line in facts(stats, name):
        yield from _wrapped(line, "dim", wide)
    for line in warnings(stats, name):
        yield from _wrapped(line, "yellow", wide)


def heading(section: _Section, name: Callable[[str], str] = printable) -> str:
    """Return the line above the rows of a label, on its launches as a whole."""
    parts = [_launched(one) for one in section.evidence]
    outside = _in_no_range(section.residence)
    if outside is not None:
        lossy = any(one.dropped or one.unfinished for one in section.evidence)
        parts.append(f"{'at most ' if lossy else ''}{_percent(outside)} of it in no range")
    return f"{name(section.label)}: {', '.join(parts)}" if parts else name(section.label)


def _launched(one: Evidence) -> str:
    took = duration(one.duration_ns)
    if one.launches > 1:
        least, most = duration(one.duration_min_ns), duration(one.duration_max_ns)
        took = f"{one.launches:,} launches of {took} ({least} to {most})"
    blocks = f"{_numbers(one.blocks)} block{'' if one.blocks == (1,) else 's'}"
    warps = f"{_numbers(one.warps_per_block)} warp{'' if one.warps_per_block == (1,) else 's'}"
    rate = f"{one.ghz:.2f} GHz, " if one.ghz else ""
    ran = f"{duration(one.residence_ns)} of warp time"
    if one.warps < one.recordable:
        ran += f" ({one.warps:,} of {one.recordable:,} warps recorded)"
    elif one.blocks_recorded < one.blocks_launched:  # with warps that the kernel started itself
        ran += f" ({one.blocks_recorded:,} of {one.blocks_launched:,} blocks recorded)"
    return f"{took}, {blocks} of {warps}, {rate}{ran}"


def _numbers(values: tuple[int, ...]) -> str:
    least, most = min(values), max(values)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _in_no_range(parts: list[Residence]) -> float | None:
    known = [one.in_no_range_ns for one in parts if one.in_no_range_ns is not None]
    whole = sum(one.residence_ns for one in parts)
    return sum(known) / whole if whole and len(known) == len(parts) else None


def _outside(stats: Stats, section: _Section, name: Callable[[str], str]) -> list[str]:
    """Return, for groups with rows, how long their warps were in no range: a line each."""
    groups = {stats.rows[row].group for row in section.rows} - {""}
    parts = [one for one in section.residence if one.group in groups]
    shares = [(one.group, _in_no_range([one])) for one in parts]
    named = [(name(group), share) for group, share in shares if share is not None]
    size = max((terminal.width(group) for group, _ in named), default=0)
    return [
        f"{group}{' ' * (size - terminal.width(group))}  {_percent(share)} in no range"
        for group, share in named
    ]


def _wrapped(text: str, style: str, wide: int | None) -> Iterator[Line]:
    lines = [text]
    if wide is not None:
        lines = textwrap.wrap(
            text,
            max(20, wide),
            subsequent_indent=_INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )
    yield from ((line, style) for line in lines or [""])


def sheet(stats: Stats) -> Sheet:
    """Return an aligned table, followed by the evidence."""
    return Sheet(partial(_lines, stats))


def as_text(stats: Stats, wide: int | None = None) -> str:
    """Return the table as plain text, as wide as given or as the terminal that stdout is."""
    return sheet(stats).text(wide)


def facts(stats: Stats, name: Callable[[str], str] = printable) -> Iterator[str]:
    """Yield the lines under the table: what the shares are of, and what was recorded how well."""
    if any(row.share is not None for row in stats.rows):
        yield _NOTES["share"]
    if any(row.self_share is not None for row in stats.rows):
        yield _NOTES["self"]
    if stats.histograms:
        yield "histogram: durations in 16 bins of equal ratio, from min to max."
    yield from (_named(one, name).facts() for one in stats.evidence)
    yield from filter(None, (_named(one, name).recording() for one in stats.evidence))
    yield from stats.about


def warnings(stats: Stats, name: Callable[[str], str] = printable) -> Iterator[str]:
    """Yield the lines that say what was lost."""
    for one in stats.evidence:
        yield from _named(one, name).warnings()


def _named(one: Evidence, name: Callable[[str], str]) -> Evidence:
    return replace(one, launch=name(one.launch))


def columns(stats: Stats) -> list[_Shown]:
    """Return the columns of the table, without those that would be empty."""
    absent = set()
    shown: tuple[_Shown, ...] = COLUMNS
    if stats.histograms:
        bars = {(one.launch, one.region, one.group): one.counts for one in stats.histograms}
        shown = (*COLUMNS, _Shown("histogram", lambda row: _spark(row, bars), spare=9))
    if not any(row.group for row in stats.rows):
        absent.add("group")
    if not any(row.total_cycles is not None for row in stats.rows):
        absent |= {"p50 cycles", "p95 cycles"}
    return [column for column in shown if column.title not in absent]


_BARS = " ▁▂▃▄▅▆▇█"


def _spark(row: RegionStats, bars: Mapping[tuple[str, str, str], Sequence[int]]) -> str:
    """Return a row's histogram as a line of bars; each count above 0 has one."""
    counts = bars.get((row.launch, row.region, row.group)) if row.kind == "range" else None
    if not counts:
        return ""
    most = max(counts)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // most)] for count in counts)
