"""``Stats``: a trace's statistics as data, a row per launch label and region, with evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from typing import Any, Final, TypedDict

from ikp.analysis.evidence import Evidence, plural
from ikp.errors import UsageError
from ikp.json_schema import headed
from ikp.patterns import Names, choose
from ikp.printing import Printed, as_csv, as_json

VERSION: Final = 1
"""Version of the JSON of ``ikp stats``."""
BY = ("rank", "sm", "block", "warp", "role", "iteration", "window")
_SORT_KEYS = {
    "total": "total_ns",
    "self": "self_ns",
    "mean": "mean_ns",
    "count": "count",
    "p50": "p50_ns",
    "p95": "p95_ns",
    "p99": "p99_ns",
    "order": "",  # unsorted
}


@dataclass(frozen=True, slots=True)
class RegionStats:
    """One region in all launches of one label. Figures that a row lacks are None.

    ``_ns`` are nanoseconds. ``_cycles`` are SM cycles as the clock counted them, for labels all of
    whose launches were timed with ``clock="cycles"``. Percentiles are of single ranges. Instants
    have a count alone; where totals were recorded and no timeline, there are no percentiles, no
    least and most, and no self time.

    ``launches`` is how many launches have this label, whether or not the region occurred in each.
    ``share`` is ``total_ns`` over the residence time of the label's warps: the sum of
    ``end_ns - start_ns`` over their slots. A range inside another counts in both, so shares
    of nested ranges add up to more than 1. ``self_ns`` leaves out what was in ranges that opened
    later on the same warp; ``self_share`` is that over the residence time. With the time in no
    range (:attr:`Stats.residence`), self shares add up to 1. Shares are None where the residence
    time is 0.

    ``group`` is ``"rank 1"``, ``"SM 3"``, ``"block 12"``, ``"warp 0"`` or a role where the
    statistics are of each of these: the shares are then of the residence time of the group's warps.
    Or it is ``"iteration 7"`` or ``"10 us to 20 us"``: the shares are then of the residence time of
    all the label's warps. Else it is empty.
    """

    launch: str
    region: str
    kind: str  # "range" | "instant"
    launches: int
    count: int
    total_ns: int | None = None
    self_ns: int | None = None
    mean_ns: float | None = None
    p50_ns: float | None = None
    p95_ns: float | None = None
    p99_ns: float | None = None
    min_ns: int | None = None
    max_ns: int | None = None
    share: float | None = None
    self_share: float | None = None
    total_cycles: int | None = None
    mean_cycles: float | None = None
    p50_cycles: float | None = None
    p95_cycles: float | None = None
    group: str = ""


FIELDS = tuple(one.name for one in fields(RegionStats))
"""The columns of CSV."""


@dataclass(frozen=True, slots=True)
class Residence:
    """The time that shares are of: how long the warps of one label (and group) ran.

    ``in_no_range_ns`` is the part of ``residence_ns`` at which no range of the warp was open; None
    where one of these warps has totals, which don't say which ranges overlapped. Dropped ranges
    count as not open.
    """

    launch: str
    group: str
    warps: int
    residence_ns: int
    in_no_range_ns: int | None


@dataclass(frozen=True, slots=True)
class Histogram:
    """How the durations of a row's ranges spread: ``counts[i]`` of them took ``edges_ns[i]`` to
    ``edges_ns[i + 1]``, bins of equal ratio from the shortest to the longest.
    """

    launch: str
    region: str
    group: str
    edges_ns: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Stats(Printed):
    """A table of :class:`RegionStats` with the evidence for it, one :class:`Evidence` per label.

    ``print(stats)`` shows a plain table, as wide as the terminal allows; rich shows a coloured one,
    notebooks one in HTML.
    """

    rows: tuple[RegionStats, ...]
    evidence: tuple[Evidence, ...]
    about: tuple[str, ...] = ()  # lines on the trace as a whole: finalize time, edits
    residence: tuple[Residence, ...] = ()  # by label and group
    histograms: tuple[Histogram, ...] = ()  # where they were asked for
    chosen: bool = field(default=False, compare=False)  # by name or rank: each row is shown

    def __repr__(self) -> str:
        kernels = len({row.launch for row in self.rows})
        return f"<ikp.Stats: {plural(len(self.rows), 'row')} of {plural(kernels, 'kernel')}>"

    def __iter__(self) -> Iterator[RegionStats]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, region: str) -> RegionStats:
        """Return the only row of the region with this name.

        Raises:
            KeyError: no row, or rows of several launch labels or kinds, have this name.
        """
        found = [row for row in self.rows if row.region == region]
        if len(found) != 1:
            raise KeyError(f"{len(found)} rows have the region name {region!r}, not 1")
        return found[0]

    def select(
        self,
        *,
        region: Names | None = None,
        launch: Names | None = None,
        kind: str | None = None,
    ) -> Stats:
        """Return the rows of some regions, launch labels or a kind; their figures stay.

        Args:
            region: a name, a pattern as the shell has them (``load*``), several, or a function of
                a name.
            launch: the same for labels.
            kind: ``"range"`` or ``"instant"``.

        Raises:
            UsageError: nothing is left; the message lists what there is.
        """
        chosen = _by_label(self, launch) if launch is not None else self
        if region is not None:
            chosen = replace(_by_region(chosen, region), chosen=True)
        return _by_kind(chosen, kind) if kind is not None else chosen

    def sorted_by(self, key: str) -> Stats:
        """Return the rows sorted within each label by ``"total"``, ``"self"``, ``"mean"``,
        ``"count"``, ``"p50"``, ``"p95"`` or ``"p99"``, largest first; rows without that figure come
        last. ``"order"`` leaves them unsorted.

        Raises:
            UsageError: another key.
        """
        if key not in _SORT_KEYS:
            raise UsageError(f"can't sort by {key!r}: use one of {', '.join(_SORT_KEYS)}.")
        labels = {e.launch: i for i, e in enumerate(self.evidence)}
        rows = sorted(
            self.rows, key=lambda row: (labels[row.launch], *_largest_first(row, _SORT_KEYS[key]))
        )
        return replace(self, rows=tuple(rows))

    def top(self, count: int, key: str = "total") -> Stats:
        """Return the ``count`` rows of all labels that are largest by ``key``, and say so below.

        Raises:
            UsageError: another key than those of :meth:`sorted_by`, or ``count`` is below 1.
        """
        if count < 1:
            raise UsageError(f"a table has at least one row: top({count}).")
        ordered = self.sorted_by(key).rows
        largest = sorted(ordered, key=lambda row: _largest_first(row, _SORT_KEYS[key]))[:count]
        if len(largest) == len(ordered):
            return replace(self.sorted_by(key), chosen=True)
        chosen = set(map(id, largest))
        which = "the first" if key == "order" else f"the largest by {key}"
        note = f"{count:,} of {plural(len(ordered), 'row')} shown: {which}."
        rows = tuple(row for row in ordered if id(row) in chosen)
        return replace(self, rows=rows, about=(note, *self.about), chosen=True)

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"rows": [...], "evidence": [...], "about": [...], "residence": [...],
        "histograms": [...]}``: plain values, in ns and cycles.
        """
        found = asdict(self)
        del found["chosen"]  # how it is shown
        return found

    def to_json(self) -> str:
        """Return the JSON of ``ikp stats``, indented: one table, of no file."""
        return as_json(stats_document([((), self)]))

    def to_csv(self) -> str:
        """Return the rows as CSV with a header line; an absent figure is an empty field."""
        return as_csv(FIELDS, map(astuple, self.rows))


class TableJson(TypedDict):
    """A table of some files as JSON."""

    files: list[str]
    rows: list[RegionStats]
    evidence: list[Evidence]
    about: list[str]
    residence: list[Residence]
    histograms: list[Histogram]


class StatsJson(TypedDict):
    """The JSON of ``ikp stats``, without the head."""

    tables: list[TableJson]


def stats_document(tables: Iterable[tuple[Iterable[str], Stats]]) -> dict[str, Any]:
    """Return the JSON of tables, each with the files that it is of."""
    found = [{"files": list(files), **table.to_dict()} for files, table in tables]
    return headed("stats", VERSION, {"tables": found})


def _largest_first(row: RegionStats, name: str) -> tuple[float, str, str]:
    if not name:
        return 0.0, "", ""
    value: float | None = getattr(row, name)
    return (1.0 if value is None else -float(value), row.region, row.group)


def _by_label(table: Stats, launch: Names) -> Stats:
    labels = [e.launch for e in table.evidence]
    kept = {
        label
        for label, wanted in zip(labels, choose(labels, launch, "launch"), strict=True)
        if wanted
    }
    return replace(
        table,
        rows=tuple(row for row in table.rows if row.launch in kept),
        evidence=tuple(e for e in table.evidence if e.launch in kept),
        residence=tuple(one for one in table.residence if one.launch in kept),
    )


def _by_region(table: Stats, region: Names) -> Stats:
    names = list(dict.fromkeys(row.region for row in table.rows))
    if not names:
        raise UsageError(f"no region matches {region!r}: nothing was recorded.")
    wanted = dict(zip(names, choose(names, region, "region"), strict=True))
    return replace(table, rows=tuple(row for row in table.rows if wanted[row.region]))


def _by_kind(table: Stats, kind: str) -> Stats:
    if kind not in {"range", "instant"}:
        raise UsageError(f"kind={kind!r} is unknown: use 'range' or 'instant'.")
    rows = tuple(row for row in table.rows if row.kind == kind)
    if not rows:
        raise UsageError(f"no {kind} was recorded in what was chosen.")
    return replace(table, rows=rows)
