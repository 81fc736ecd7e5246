"""How long each region took: counts, totals and percentiles per launch label and region.

One sort of one integer column does all of it: the group and the duration of a range are packed into
one 64-bit key, so a million ranges take some tens of milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ikp.analysis import render
from ikp.analysis.evidence import Evidence, about, collect_evidence
from ikp.core.abi import Kind
from ikp.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ikp.core.trace import Trace

Ints = NDArray[np.int64]

BY = ("rank", "sm", "block", "warp", "role")
SORT_KEYS = {"total": "total_ns", "mean": "mean_ns", "count": "count", "p99": "p99_ns"}


@dataclass(frozen=True, slots=True)
class RegionStats:
    """One region in all launches of one label. Times are nanoseconds; None for instants.

    Where totals were recorded and no timeline, percentiles, ``min_ns`` and ``max_ns`` are None.

    ``launches`` is how many launches have this label, whether or not the region occurred in each.
    ``share`` is ``total_ns`` over the residence time of the label's warps: the sum of
    ``end_ns - start_ns`` over their slots. A range inside another counts in both, so shares
    of nested ranges add up to more than 1. It is None where the residence time is 0.

    ``group`` is ``"rank 1"``, ``"SM 3"``, ``"block 12"``, ``"warp 0"`` or a role where the
    statistics are of each of these, and the share is then of the residence time of the group's
    warps. Else it is empty.
    """

    launch: str
    region: str
    kind: str  # "range" | "instant"
    launches: int
    count: int
    total_ns: int | None = None
    mean_ns: float | None = None
    p50_ns: float | None = None
    p99_ns: float | None = None
    min_ns: int | None = None
    max_ns: int | None = None
    share: float | None = None
    group: str = ""


@dataclass(frozen=True, slots=True)
class Stats:
    """A table of :class:`RegionStats` with the evidence for it, one :class:`Evidence` per label.

    ``print(stats)`` shows a plain table, rich shows a coloured one.
    """

    rows: tuple[RegionStats, ...]
    evidence: tuple[Evidence, ...]
    about: tuple[str, ...] = ()  # lines on the trace as a whole: finalize time, edits

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

    def select(self, *, region: str | None = None, launch: str | None = None) -> Stats:
        """Return the rows whose region name contains the regular expression ``region`` and whose
        launch label is ``launch``.

        Raises:
            UsageError: nothing is left; the message lists what there is.
        """
        chosen = _by_label(self, launch) if launch is not None else self
        return _by_region(chosen, region) if region is not None else chosen

    def sorted_by(self, key: str) -> Stats:
        """Return the rows sorted within each label by ``"total"``, ``"mean"``, ``"count"`` or
        ``"p99"``, largest first; rows without that figure come last.

        Raises:
            UsageError: another key.
        """
        if key not in SORT_KEYS:
            raise UsageError(f"can't sort by {key!r}: use one of {', '.join(SORT_KEYS)}.")
        labels = {e.launch: i for i, e in enumerate(self.evidence)}
        name = SORT_KEYS[key]
        rows = sorted(
            self.rows,
            key=lambda row: (
                labels[row.launch],
                -_number(getattr(row, name)),
                row.region,
                row.group,
            ),
        )
        return replace(self, rows=tuple(rows))

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"rows": [...], "evidence": [...], "about": [...]}``: plain values, in ns."""
        return {
            "rows": [asdict(row) for row in self.rows],
            "evidence": [asdict(evidence) for evidence in self.evidence],
            "about": list(self.about),
        }

    def to_json(self) -> str:
        """Return :meth:`to_dict` as indented JSON."""
        return render.as_json(self.to_dict())

    def to_csv(self) -> str:
        """Return the rows as CSV with a header line; an absent figure is an empty field."""
        return render.as_csv(RegionStats, self.rows)

    def __str__(self) -> str:
        return render.as_text(self)

    def __rich__(self) -> RenderableType:
        return render.as_rich(self)


def stats(trace: Trace, by: str | None = None) -> Stats:
    """Return count, total, mean, p50, p99, min, max and share per launch label and region.

    Percentiles interpolate linearly, as ``numpy.percentile`` does. Launches with one label are
    taken together. Instants have rows of their own, with a count and no times.

    Args:
        trace: what to count.
        by: ``"rank"``, ``"sm"``, ``"block"``, ``"warp"`` or ``"role"`` to count each of these
            apart: blocks by linear index, warps by their number in the block.

    Raises:
        UsageError: ``by`` is something else.
    """
    evidence = collect_evidence(trace)
    groups = _Groups.of(trace, [e.launch for e in evidence], by)
    rows = _range_rows(trace, groups, evidence) + _instant_rows(trace, groups, evidence)
    rows += _total_rows(trace, groups, evidence)
    return Stats(tuple(rows), evidence, about(trace)).sorted_by("total")


@dataclass(frozen=True, slots=True)
class _Groups:
    """Which label, unit (SM, block, ...) and region name an event or total is of, as one number.

    It is ``(label * len(units) + unit) * len(names) + name``; ``residence_ns`` holds the sum of the
    time that the warps of each label and unit ran.
    """

    names: list[str]
    units: list[str]
    of_event: Ints
    of_total: Ints
    residence_ns: Ints

    @classmethod
    def of(cls, trace: Trace, labels: list[str], by: str | None) -> _Groups:
        names = list(dict.fromkeys(region.name for region in trace.regions))
        name_of_region = _codes([r.name for r in trace.regions], names)
        label_of_launch = _codes([launch.label for launch in trace.launches], labels)
        units, unit_of_slot = _units(trace, by)
        place = label_of_launch[trace.slots.launch] * len(units) + unit_of_slot
        of_event, of_total = (
            place[rows.slot] * len(names) + name_of_region[rows.region]
            for rows in (trace.events, trace.totals)
        )
        spans = trace.slots.end_ns - trace.slots.start_ns
        residence = np.bincount(place, spans, len(labels) * len(units)).astype(np.int64)
        return cls(names, units, of_event, of_total, residence)

    def split(self, group: int) -> tuple[int, str, str, int]:
        """Return the label's index, the unit, the region's name, and the residence time."""
        place, name = divmod(group, len(self.names))
        label, unit = divmod(place, len(self.units))
        return label, self.units[unit], self.names[name], int(self.residence_ns[place])


def _units(trace: Trace, by: str | None) -> tuple[list[str], Ints]:
    """Return the names of the units to count apart, and the unit of each slot."""
    if by is None:
        return [""], np.zeros(len(trace.slots), np.int64)
    if by == "role":
        return [role or "no role" for role in trace.roles], trace.slots.role.astype(np.int64)
    if by == "rank":
        return _rank_units(trace)
    if by not in BY:
        raise UsageError(f"no statistics by {by!r}: use one of {', '.join(BY)}.")
    values, unit = np.unique(getattr(trace.slots, by), return_inverse=True)
    word = "SM" if by == "sm" else by
    return [f"{word} {value}" for value in values.tolist()] or [""], unit.astype(np.int64)


def _rank_units(trace: Trace) -> tuple[list[str], Ints]:
    ranks = ["no rank" if one.rank is None else f"rank {one.rank}" for one in trace.launches]
    units = list(dict.fromkeys(ranks)) or [""]
    return units, _codes(ranks, units)[trace.slots.launch]


def _range_rows(trace: Trace, groups: _Groups, evidence: tuple[Evidence, ...]) -> list[RegionStats]:
    chosen = trace.events.kind == Kind.RANGE
    durations = (trace.events.end_ns - trace.events.start_ns)[chosen]
    if not len(durations):
        return []
    ids, counts, ordered = _sort_groups(groups.of_event[chosen], durations)
    first = np.cumsum(counts) - counts
    totals = np.add.reduceat(ordered, first)
    p50, p99 = _quantile(ordered, first, counts, 0.5), _quantile(ordered, first, counts, 0.99)
    rows = []
    for i, group in enumerate(ids.tolist()):
        label, unit, region, residence_ns = groups.split(group)
        of_label, total = evidence[label], int(totals[i])
        rows.append(
            RegionStats(
                launch=of_label.launch,
                region=region,
                kind="range",
                launches=of_label.launches,
                count=int(counts[i]),
                total_ns=total,
                mean_ns=total / int(counts[i]),
                p50_ns=float(p50[i]),
                p99_ns=float(p99[i]),
                min_ns=int(ordered[first[i]]),
                max_ns=int(ordered[first[i] + counts[i] - 1]),
                share=total / residence_ns if residence_ns else None,
                group=unit,
            )
        )
    return rows


def _instant_rows(
    trace: Trace, groups: _Groups, evidence: tuple[Evidence, ...]
) -> list[RegionStats]:
    counts = np.bincount(groups.of_event[trace.events.kind == Kind.INSTANT])
    rows = []
    for group in np.flatnonzero(counts).tolist():
        label, unit, region, _ = groups.split(group)
        launch, launches, count = evidence[label].launch, evidence[label].launches, counts[group]
        rows.append(RegionStats(launch, region, "instant", launches, int(count), group=unit))
    return rows


def _total_rows(trace: Trace, groups: _Groups, evidence: tuple[Evidence, ...]) -> list[RegionStats]:
    """Return rows of the totals: what was summed up has no percentiles."""
    totals, rows = trace.totals, []
    for kind in (Kind.RANGE, Kind.INSTANT):
        chosen = np.flatnonzero(totals.kind == kind)
        ids, member = np.unique(groups.of_total[chosen], return_inverse=True)
        count, total_ns = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
        np.add.at(count, member, totals.count[chosen])
        np.add.at(total_ns, member, totals.total_ns[chosen])
        for group, times, total in zip(
            ids.tolist(), count.tolist(), total_ns.tolist(), strict=True
        ):
            label, unit, region, residence_ns = groups.split(group)
            launch, launches = evidence[label].launch, evidence[label].launches
            row = RegionStats(launch, region, kind.name.lower(), launches, times, group=unit)
            if kind is Kind.RANGE:
                share = total / residence_ns if residence_ns else None
                row = replace(row, total_ns=total, mean_ns=total / times, share=share)
            rows.append(row)
    return rows


def _sort_groups(group: Ints, durations: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the groups that occur, their sizes, and the durations group by group, ascending."""
    least, most = int(durations.min()), int(durations.max())
    width = (most - least).bit_length()
    if int(group.max()).bit_length() + width > 63:  # the pair doesn't fit into one integer
        order = np.lexsort((durations, group))
        ordered = durations[order]
    else:
        packed = (group << width) | (durations - least)
        packed.sort()
        ordered = (packed & ((1 << width) - 1)) + least
    counts = np.bincount(group)
    ids = np.flatnonzero(counts)
    return ids, counts[ids], ordered


def _quantile(ordered: Ints, first: Ints, counts: Ints, q: float) -> NDArray[np.float64]:
    """Return each group's quantile, interpolated linearly between its two nearest values."""
    position = q * (counts - 1)
    below = np.floor(position).astype(np.int64)
    above = np.minimum(below + 1, counts - 1)
    low, high = ordered[first + below], ordered[first + above]
    result: NDArray[np.float64] = low + (high - low) * (position - below)
    return result


def _codes(values: list[str], categories: list[str]) -> Ints:
    index = {name: i for i, name in enumerate(categories)}
    return np.array([index[value] for value in values], np.int64)


def _number(value: float | None) -> float:
    return -1.0 if value is None else value


def _by_label(table: Stats, launch: str) -> Stats:
    kept = tuple(e for e in table.evidence if e.launch == launch)
    if not kept:
        known = ", ".join(repr(e.launch) for e in table.evidence)
        raise UsageError(f"no launch has the label {launch!r}; the trace has: {known}.")
    rows = tuple(row for row in table.rows if row.launch == launch)
    return replace(table, rows=rows, evidence=kept)


def _by_region(table: Stats, region: str) -> Stats:
    try:
        pattern = re.compile(region)
    except re.error as error:
        raise UsageError(f"{region!r} is not a regular expression: {error}.") from error
    rows = tuple(row for row in table.rows if pattern.search(row.region))
    if not rows:
        known = ", ".join(sorted({repr(row.region) for row in table.rows})) or "none"
        raise UsageError(f"no region name matches {region!r}; there are: {known}.")
    return replace(table, rows=rows)
