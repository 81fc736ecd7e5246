"""Figures of each launch for a comparison: durations, counts, percentiles, self times by region."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ikp.analysis._self_time import self_times
from ikp.analysis.diff._sample import (
    FIGURES_OF,
    KERNEL,
    NO_RANGE,
    Floats,
    Ints,
    Key,
    Sample,
    by_step,
    joined,
    missing,
)
from ikp.core.abi import Kind
from ikp.core.sorting import distinct, sort_by
from ikp.core.warps import launch_bounds
from ikp.errors import UsageError

if TYPE_CHECKING:
    from ikp.core.trace import Events, Totals, Trace

_Figures = dict[Key, Floats]
_KINDS = {"range": Kind.RANGE, "instant": Kind.INSTANT}


def samples(traces: Sequence[Trace], unit: str) -> list[Sample]:
    """Return one sample per kernel of a side: launches of one label, grid and block size."""
    found: dict[tuple[str, Any], list[Sample]] = {}
    for run, trace in enumerate(traces):
        if unit == "cycles":
            _needs_cycles(trace)
        for sample in _of_trace(trace, run, cycles=unit == "cycles"):
            found.setdefault((sample.label, sample.shape), []).append(sample)
    return [joined(parts) for parts in found.values()]


def _needs_cycles(trace: Trace) -> None:
    for launch in trace.launches:
        if launch.clock.kind != "cycles":
            raise UsageError(
                f"launch {launch.label!r} was timed with the clock {launch.clock.name!r}, which "
                "counts no cycles: compare in nanoseconds."
            )


def _of_trace(trace: Trace, run: int, *, cycles: bool) -> Iterator[Sample]:
    slots, launches = trace.slots, trace.launches
    warps = np.bincount(slots.launch, minlength=len(launches))
    own, inside = self_times(trace)
    per_ns = np.array([1 / one.clock.ns_per_tick if cycles else 1.0 for one in launches])
    first, last = launch_bounds(trace)
    kernels = _Kernels.of(trace, warps)
    whole = _whole(trace, inside, np.where(warps > 0, last - first, 0), per_ns, warps)
    figures = [{key: values[:, rows] for key, values in whole.items()} for rows in kernels.members]
    _of_events(trace, own, per_ns, warps, _Into(kernels, figures), cycles=cycles)
    _of_totals(trace, warps, _Into(kernels, figures), cycles=cycles)
    ticks = _ticks(trace, kernels, cycles=cycles)
    for rows, mine, tick in zip(kernels.members, figures, ticks, strict=True):
        one = launches[int(rows[0])]
        sample = Sample(
            one.label,
            (one.grid, one.warps_per_block),
            tuple(launches[i] for i in rows.tolist()),
            np.full(len(rows), run, np.int64),
            first[rows],
            mine,
            tick,
        )
        yield by_step(sample)


@dataclass(frozen=True, slots=True)
class _Kernels:
    """Which launches are of one kernel: of one label, grid and block size."""

    known: Ints  # the launches of which warps are known
    members: list[Ints]  # of these, those of each kernel, in order
    of_launch: Ints  # the number of each launch's kernel
    place: Ints  # of each launch among those of its kernel

    @classmethod
    def of(cls, trace: Trace, warps: Ints) -> _Kernels:
        """Return the kernels of the launches of which warps are known; ``warps`` says how many."""
        groups: dict[tuple[str, Any], list[int]] = {}
        known = np.flatnonzero(warps)
        for number in known.tolist():
            one = trace.launches[number]
            shape = (one.grid, one.warps_per_block)
            groups.setdefault((one.label, shape), []).append(number)
        of_launch, place = np.zeros((2, len(warps)), np.int64)
        members = [np.array(each, np.int64) for each in groups.values()]
        for number, rows in enumerate(members):
            of_launch[rows], place[rows] = number, np.arange(len(rows))
        return cls(known, members, of_launch, place)


def _whole(trace: Trace, inside: Ints, took: Ints, per_ns: Floats, warps: Ints) -> _Figures:
    """Return each launch's share of warps that recorded, its duration, how long these warps ran,
    and how long they were in no range.
    """
    slots, count = trace.slots, len(trace.launches)
    ran = np.bincount(slots.launch, slots.end_ns - slots.start_ns, count)
    free = ran - np.bincount(slots.launch, inside, count)
    summed = np.array([one.mode == "totals" for one in trace.launches], bool)
    each = per_ns / np.maximum(warps, 1)
    whole = [math.prod(one.grid) * one.warps_per_block for one in trace.launches]
    kernel = {
        "recorded": warps / np.maximum(whole, 1),
        "duration": took * per_ns,
        "residence": ran * each,
    }
    alone = {"self": np.where(summed, np.nan, free * each)}
    return {KERNEL: _stacked(KERNEL.kind, kernel), NO_RANGE: _stacked(NO_RANGE.kind, alone)}


def _stacked(kind: str, figures: dict[str, Floats]) -> Floats:
    """Return figures as the rows of ``FIGURES_OF``; NaN where there are none."""
    size = len(next(iter(figures.values())))
    unknown = np.full(size, np.nan)
    return np.stack([figures.get(name, unknown) for name in FIGURES_OF[kind]])


def _ticks(trace: Trace, kernels: _Kernels, *, cycles: bool) -> list[float]:
    """Return the step of each kernel's clock: the greatest common divisor of all durations."""
    kernel = kernels.of_launch[trace.slots.launch[trace.events.slot]]
    steps = np.zeros(len(kernels.members), np.int64)
    np.gcd.at(steps, kernel, trace.events.ticks)
    tick = np.zeros(len(steps))
    ns = np.array([1.0 if cycles else one.clock.ns_per_tick for one in trace.launches])
    np.maximum.at(tick, kernels.of_launch[kernels.known], ns[kernels.known])
    found: list[float] = (np.maximum(steps, 1) * tick).tolist()
    return found


def _of_events(
    trace: Trace, own: Ints, per_ns: Floats, warps: Ints, into: _Into, *, cycles: bool
) -> None:
    """Add the figures of each region in each launch, from its ranges and instants."""
    events, count = trace.events, len(trace.launches)
    took = events.ticks if cycles else events.end_ns - events.start_ns
    for kind, number in _KINDS.items():
        chosen = np.flatnonzero(events.kind == number)
        if not len(chosen):
            continue
        every = into.ids(trace, events, chosen)
        member, first = distinct(every)
        ids = every[first]
        figures = {"count": np.bincount(member).astype(np.float64)}
        if kind == "range":
            figures |= _distribution(member, took[chosen])
            figures["total"] /= warps[ids % count]
            mine = np.bincount(member, own[chosen])
            figures["self"] = mine * (per_ns / np.maximum(warps, 1))[ids % count]
        into.add(trace, kind, ids, _stacked(kind, figures))


def _of_totals(trace: Trace, warps: Ints, into: _Into, *, cycles: bool) -> None:
    """Add the figures that totals have: count, sum and mean of each region in each launch."""
    totals, count = trace.totals, len(trace.launches)
    time = totals.ticks if cycles else totals.total_ns
    for kind, number in _KINDS.items():
        chosen = np.flatnonzero(totals.kind == number)
        if not len(chosen):
            continue
        every = into.ids(trace, totals, chosen)
        member, first = distinct(every)
        ids = every[first]
        times = np.bincount(member, totals.count[chosen])
        figures = {"count": times.astype(np.float64)}
        if kind == "range":
            total = np.bincount(member, time[chosen])
            figures |= {"total": total / warps[ids % count], "mean": total / times}
        into.add(trace, kind, ids, _stacked(kind, figures))


@dataclass(frozen=True, slots=True)
class _Into:
    """Collects figures by kernel, from rows of roles, regions and launches."""

    kernels: _Kernels
    figures: list[_Figures]  # of each kernel

    def ids(self, trace: Trace, rows: Events | Totals, chosen: Ints) -> Ints:
        """Return one number for each row's kernel, role, region and launch."""
        names = {name: number for number, name in enumerate(_names(trace))}
        code = np.array([names[one.name] for one in trace.regions], np.int64)
        launch, launches = trace.slots.launch, len(trace.launches)
        of_slot = self.kernels.of_launch[launch] * len(trace.roles) + trace.slots.role
        of_slot = of_slot * len(names) * launches + launch
        result: Ints = of_slot[rows.slot[chosen]]
        result += (code * launches)[rows.region[chosen]]
        return result

    def add(self, trace: Trace, kind: str, ids: Ints, figures: Floats) -> None:
        """Put the groups' figures into arrays over the launches of their kernel."""
        names, count = _names(trace), len(trace.launches)
        places, launch = ids // count, self.kernels.place[ids % count]
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        kernel, rest = np.divmod(places[starts], len(trace.roles) * len(names))
        occurred = np.logical_or.reduceat(figures[FIGURES_OF[kind]["count"]] != 0, starts)
        chosen = np.flatnonzero(occurred)  # there are totals of what never occurred
        ends = np.append(starts[1:], len(ids))
        rows = (each[chosen].tolist() for each in (starts, ends, kernel, rest))
        keys: dict[int, Key] = {}
        for low, high, at, place in zip(*rows, strict=True):
            found = figures[:, low:high]
            if place not in keys:
                role, region = divmod(place, len(names))
                keys[place] = Key(trace.roles[role], names[region], kind)
            if high - low < (size := len(self.kernels.members[at])):  # not in each launch
                every = missing(kind, size)
                every[:, launch[low:high]] = found
                found = every
            self.figures[at][keys[place]] = found


def _names(trace: Trace) -> list[str]:
    return list(dict.fromkeys(one.name for one in trace.regions))


def _distribution(member: Ints, values: Ints) -> dict[str, Floats]:
    """Return sums, means and percentiles of each group's values."""
    ordered = sort_by(member, values)[1].astype(np.float64)
    counts = np.bincount(member)
    first = np.cumsum(counts) - counts
    total = np.add.reduceat(ordered, first)
    found = {"total": total, "mean": total / counts}
    for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        place = q * (counts - 1)
        below = np.floor(place).astype(np.int64)
        low, high = ordered[first + below], ordered[first + np.minimum(below + 1, counts - 1)]
        found[name] = low + (high - low) * (place - below)
    return found
