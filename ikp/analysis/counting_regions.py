"""Statistics of regions: counts, totals, self times, percentiles and histograms by region.

One sort of one integer column gives the percentiles: the group and the duration of a range are
packed into one 64-bit key, so a million ranges take some tens of milliseconds. Self times take as
long again. Histograms have 16 bins of equal ratio, from a group's least duration to its most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from numpy.typing import NDArray

from ikp.analysis._self_time import self_times
from ikp.analysis.event_units import by_events, event_units
from ikp.analysis.evidence import Evidence, about, collect_evidence
from ikp.analysis.stats import BY, Histogram, RegionStats, Residence, Stats
from ikp.core.abi import Kind
from ikp.core.sorting import sum_by
from ikp.errors import UsageError

if TYPE_CHECKING:
    from ikp.core.trace import Trace


Ints = NDArray[np.int64]

BINS: Final = 16


def spreads(group: Ints, values: Ints) -> Iterator[tuple[int, list[float], list[int]]]:
    """Yield each group's number, the edges of its bins in ns, and how many values lie in each.

    Values below 1 ns count as 1 ns, which has a logarithm.
    """
    ids, member = np.unique(group, return_inverse=True)
    known = np.maximum(values, 1).astype(np.float64)
    least, most = np.full(len(ids), np.inf), np.zeros(len(ids))
    np.minimum.at(least, member, known)
    np.maximum.at(most, member, known)
    ratio = np.log(np.maximum(most / least, 1 + 1e-9))
    place = np.log(known / least[member]) / ratio[member] * BINS
    bins = np.clip(place.astype(np.int64), 0, BINS - 1)
    counts = np.bincount(member * BINS + bins, minlength=len(ids) * BINS).reshape(-1, BINS)
    for i, number in enumerate(ids.tolist()):
        edges = least[i] * np.exp(ratio[i] * np.arange(BINS + 1) / BINS)
        yield number, edges.tolist(), counts[i].tolist()


def stats(trace: Trace, by: str | None = None, *, histogram: bool = False) -> Stats:
    """Return how often each region occurred and how long it took, per launch label and region.

    Percentiles interpolate linearly, as ``numpy.percentile`` does. Launches with one label are
    taken together. Instants have rows of their own, with a count and no times.

    Args:
        trace: the trace to count.
        by: ``"rank"``, ``"sm"``, ``"block"``, ``"warp"`` or ``"role"`` to count each of these
            apart: blocks by linear index, warps by their number in the block. Or
            ``"iteration"``, which is an event's payload, or ``"window"``: sixteen parts of the
            longest launch, or such as ``"window:10us"``, counted from each launch's start; an event
            is of the window that it begins in.
        histogram: with ``Stats.histograms``.

    Raises:
        UsageError: ``by`` is something else, or needs a timeline that there is not.
    """
    evidence = collect_evidence(trace)
    own, inside = self_times(trace)
    groups = Groups.of(trace, [e.launch for e in evidence], by)
    rows = _range_rows(trace, groups, evidence, own) + _instant_rows(trace, groups, evidence)
    rows += _total_rows(trace, groups, evidence)
    residence = groups.residence(trace, evidence, inside)
    spread = tuple(_histograms(trace, groups, evidence)) if histogram else ()
    if by_events(by):
        order = {unit: place for place, unit in enumerate(groups.units)}
        rows.sort(key=lambda row: order[row.group])
    table = Stats(tuple(rows), evidence, about(trace), residence, spread)
    return table.sorted_by("order" if by_events(by) else "total")


@dataclass(frozen=True, slots=True)
class Groups:
    """The group of each event, total and slot: launch label, unit (SM, block, ...) and region name.

    A group is the number ``place * len(names) + name``, a place ``label * len(units) + unit``.
    ``residence_ns`` holds the sum of the time that the warps of each place ran.
    """

    names: list[str]
    units: list[str]
    of_slot: Ints
    of_event: Ints
    of_total: Ints
    residence_ns: Ints

    @classmethod
    def of(cls, trace: Trace, labels: list[str], by: str | None) -> Groups:
        """Return the groups of a trace's events, totals and slots, counted apart ``by`` a unit."""
        names = list(dict.fromkeys(region.name for region in trace.regions))
        name_of_region = _codes([r.name for r in trace.regions], names)
        label_of_launch = _codes([launch.label for launch in trace.launches], labels)
        if by is not None and by_events(by):
            return cls._of_events(trace, by, names, name_of_region, label_of_launch)
        units, unit_of_slot = _units(trace, by)
        place = label_of_launch[trace.slots.launch] * len(units) + unit_of_slot
        of_event, of_total = (name_of_region[one.region] for one in (trace.events, trace.totals))
        if place.any():
            of_event += place[trace.events.slot] * len(names)
            of_total += place[trace.totals.slot] * len(names)
        residence = sum_by(
            place, trace.slots.end_ns - trace.slots.start_ns, len(labels) * len(units)
        )
        return cls(names, units, place, of_event, of_total, residence)

    @classmethod
    def _of_events(cls, trace: Trace, by: str, names: list[str], region: Ints, label: Ints) -> Self:
        """Return groups by units of single events; the first unit of each label holds its warps."""
        units, unit = event_units(trace, by)
        count, events, slots = len(units) + 1, trace.events, trace.slots
        place = label[slots.launch] * count
        labels = int(label.max(initial=-1)) + 1
        ran = sum_by(label[slots.launch], slots.end_ns - slots.start_ns, labels)
        of_event = (place[events.slot] + 1 + unit) * len(names) + region[events.region]
        nothing = np.zeros(0, np.int64)
        return cls(names, ["", *units], place, of_event, nothing, np.repeat(ran, count))

    def split(self, group: int) -> tuple[int, str, str, int]:
        """Return the label's index, the unit, the region's name, and the residence time."""
        place, name = divmod(group, len(self.names))
        label, unit = divmod(place, len(self.units))
        return label, self.units[unit], self.names[name], int(self.residence_ns[place])

    def residence(
        self, trace: Trace, evidence: tuple[Evidence, ...], inside: Ints
    ) -> tuple[Residence, ...]:
        """Return how long the warps of each place ran, and how long in no range.

        The latter is not known of a place where a warp ran that has totals. Other launches of the
        label don't matter, so that files counted one by one have the same figures.
        """
        ranged = sum_by(self.of_slot, inside, len(self.residence_ns))
        of_totals = np.array([launch.mode == "totals" for launch in trace.launches], bool)
        unknown = set(self.of_slot[of_totals[trace.slots.launch]].tolist())
        warps = np.bincount(self.of_slot, minlength=len(self.residence_ns))
        found = []
        for place in np.flatnonzero(warps).tolist():
            label, unit = divmod(place, len(self.units))
            ran, launch = int(self.residence_ns[place]), evidence[label].launch
            free = None if place in unknown else ran - int(ranged[place])
            found.append(Residence(launch, self.units[unit], int(warps[place]), ran, free))
        return tuple(found)


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


@dataclass(frozen=True, slots=True)
class _Figures:
    """Count, sum, least, most and percentiles of each group's values: arrays of equal length."""

    ids: Ints
    counts: Ints
    totals: Ints
    least: Ints
    most: Ints
    p50: NDArray[np.float64]
    p95: NDArray[np.float64]
    p99: NDArray[np.float64]

    @classmethod
    def of(cls, group: Ints, sizes: Ints, values: Ints) -> _Figures:
        """Return the figures of the groups that occur; ``sizes`` has the values in each group."""
        ordered = _sort_groups(group, values)
        ids = np.flatnonzero(sizes)
        counts = sizes[ids]
        first = np.cumsum(counts) - counts
        percentiles = (_quantile(ordered, first, counts, q) for q in (0.5, 0.95, 0.99))
        totals = np.add.reduceat(ordered, first)
        return cls(ids, counts, totals, ordered[first], ordered[first + counts - 1], *percentiles)


def _range_rows(
    trace: Trace, groups: Groups, evidence: tuple[Evidence, ...], own: Ints
) -> list[RegionStats]:
    events = trace.events
    is_range = events.kind == Kind.RANGE
    chosen = slice(None) if is_range.all() else is_range  # a slice copies nothing
    group = groups.of_event[chosen]
    if not len(group):
        return []
    sizes = np.bincount(group)
    times = _Figures.of(group, sizes, (events.end_ns - events.start_ns)[chosen])
    alone = sum_by(group, own[chosen], len(sizes))
    counted = any(one.counts_cycles for one in evidence)
    ticks = _Figures.of(group, sizes, events.ticks[chosen]) if counted else None
    rows = []
    for i, number in enumerate(times.ids.tolist()):
        label, unit, region, residence_ns = groups.split(number)
        of_label, total, self_ns = evidence[label], int(times.totals[i]), int(alone[number])
        row = RegionStats(
            launch=of_label.launch,
            region=region,
            kind="range",
            launches=of_label.launches,
            count=int(times.counts[i]),
            total_ns=total,
            self_ns=self_ns,
            mean_ns=total / int(times.counts[i]),
            p50_ns=float(times.p50[i]),
            p95_ns=float(times.p95[i]),
            p99_ns=float(times.p99[i]),
            min_ns=int(times.least[i]),
            max_ns=int(times.most[i]),
            share=_share(total, residence_ns),
            self_share=_share(self_ns, residence_ns),
            group=unit,
        )
        rows.append(_with_cycles(row, ticks, i) if ticks and of_label.counts_cycles else row)
    return rows


def _with_cycles(row: RegionStats, ticks: _Figures, i: int) -> RegionStats:
    return replace(
        row,
        total_cycles=int(ticks.totals[i]),
        mean_cycles=int(ticks.totals[i]) / row.count,
        p50_cycles=float(ticks.p50[i]),
        p95_cycles=float(ticks.p95[i]),
    )


def _share(part: int, residence_ns: int) -> float | None:
    return part / residence_ns if residence_ns else None


def _histograms(
    trace: Trace, groups: Groups, evidence: tuple[Evidence, ...]
) -> Iterator[Histogram]:
    chosen = trace.events.kind == Kind.RANGE
    took = (trace.events.end_ns - trace.events.start_ns)[chosen]
    for number, edges, counts in spreads(groups.of_event[chosen], took):
        label, unit, region, _ = groups.split(number)
        yield Histogram(evidence[label].launch, region, unit, tuple(edges), tuple(counts))


def _instant_rows(
    trace: Trace, groups: Groups, evidence: tuple[Evidence, ...]
) -> list[RegionStats]:
    counts = np.bincount(groups.of_event[trace.events.kind == Kind.INSTANT])
    rows = []
    for group in np.flatnonzero(counts).tolist():
        label, unit, region, _ = groups.split(group)
        launch, launches, count = evidence[label].launch, evidence[label].launches, counts[group]
        rows.append(RegionStats(launch, region, "instant", launches, int(count), group=unit))
    return rows


def _total_rows(trace: Trace, groups: Groups, evidence: tuple[Evidence, ...]) -> list[RegionStats]:
    """Return the rows of totals, which have no percentiles."""
    totals, rows = trace.totals, []
    for kind in (Kind.RANGE, Kind.INSTANT):
        chosen = np.flatnonzero(totals.kind == kind)
        ids, member = np.unique(groups.of_total[chosen], return_inverse=True)
        sums = [
            sum_by(member, column[chosen], len(ids)).tolist()
            for column in (totals.count, totals.total_ns, totals.ticks)
        ]
        for group, times, total, ticks in zip(ids.tolist(), *sums, strict=True):
            label, unit, region, residence_ns = groups.split(group)
            of_label = evidence[label]
            row = RegionStats(
                of_label.launch, region, kind.name.lower(), of_label.launches, times, group=unit
            )
            if kind is Kind.RANGE:
                share = _share(total, residence_ns)
                row = replace(row, total_ns=total, share=share)
                if times:  # a file may have a total of no ranges with a time
                    row = replace(row, mean_ns=total / times)
                if of_label.counts_cycles:
                    mean = ticks / times if times else None
                    row = replace(row, total_cycles=ticks, mean_cycles=mean)
            rows.append(row)
    return rows


def _sort_groups(group: Ints, durations: Ints) -> Ints:
    """Return the durations group by group, ascending."""
    least, most = int(durations.min()), int(durations.max())
    width = (most - least).bit_length()
    if int(group.max()).bit_length() + width > 63:  # the pair doesn't fit into one integer
        return durations[np.lexsort((durations, group))]
    ordered = group << width  # in place from here on: fresh pages of memory take longer
    ordered += durations
    ordered -= least
    ordered.sort()
    ordered &= (1 << width) - 1
    ordered += least
    return ordered


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
