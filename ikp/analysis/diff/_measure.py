"""Figures of each launch for a comparison: durations, counts, percentiles, self times by region."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ikp.analysis._self_time import self_times
from ikp.analysis.diff._sample import (
    KERNEL,
    NO_RANGE,
    SUMS,
    Floats,
    Ints,
    Key,
    Sample,
    by_step,
    joined,
)
from ikp.core.abi import Kind
from ikp.core.warps import launch_bounds
from ikp.errors import UsageError

if TYPE_CHECKING:
    from ikp.core.trace import Events, Totals, Trace

_Figures = dict[tuple[Key, str], Floats]
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
    figures = [{at: values[rows] for at, values in whole.items()} for rows in kernels.members]
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

    members: list[Ints]  # the launches of each kernel, in order
    of_launch: Ints  # the number of each launch's kernel
    place: Ints  # of each launch among those of its kernel

    @classmethod
    def of(cls, trace: Trace, warps: Ints) -> _Kernels:
        """Return the kernels of the launches of which warps are known; ``warps`` says how many."""
        groups: dict[tuple[str, Any], list[int]] = {}
        for number in np.flatnonzero(warps).tolist():
            one = trace.launches[number]
            shape = (one.grid, one.warps_per_block)
            groups.setdefault((one.label, shape), []).append(number)
        of_launch, place = np.zeros((2, len(warps)), np.int64)
        members = [np.array(each, np.int64) for each in groups.values()]
        for number, rows in enumerate(members):
            of_launch[rows], place[rows] = number, np.arange(len(rows))
        return cls(members, of_launch, place)


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
    return {
        (KERNEL, "recorded"): warps / np.maximum(whole, 1),
        (KERNEL, "duration"): took * per_ns,
        (KERNEL, "residence"): ran * each,
        (NO_RANGE, "self"): np.where(summed, np.nan, free * each),
    }


def _ticks(trace: Trace, kernels: _Kernels, *, cycles: bool) -> list[float]:
    """Return the step of each kernel's clock: the greatest common divisor of all durations."""
    kernel = kernels.of_launch[trace.slots.launch[trace.events.slot]]
    order = np.argsort(kernel, kind="stable")
    used, first = np.unique(kernel[order], return_index=True)
    steps = np.zeros(len(kernels.members), np.int64)
    if len(used):
        steps[used] = np.gcd.reduceat(trace.events.ticks[order], first)
    found = []
    for rows, step in zip(kernels.members, steps.tolist(), strict=True):
        ns = max(trace.launches[i].clock.ns_per_tick for i in rows.tolist())
        found.append(max(step, 1) * (1.0 if cycles else ns))
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
        ids, member = np.unique(into.ids(trace, events, chosen), return_inverse=True)
        figures = {"count": np.bincount(member).astype(np.float64)}
        if kind == "range":
            figures |= _distribution(member, took[chosen].astype(np.float64))
            figures["total"] /= warps[ids % count]
            mine = np.bincount(member, own[chosen])
            figures["self"] = mine * (per_ns / np.maximum(warps, 1))[ids % count]
        into.add(trace, kind, ids, figures)


def _of_totals(trace: Trace, warps: Ints, into: _Into, *, cycles: bool) -> None:
    """Add the figures that totals have: count, sum and mean of each region in each launch."""
    totals, count = trace.totals, len(trace.launches)
    time = totals.ticks if cycles else totals.total_ns
    for kind, number in _KINDS.items():
        chosen = np.flatnonzero(totals.kind == number)
        if not len(chosen):
            continue
        ids, member = np.unique(into.ids(trace, totals, chosen), return_inverse=True)
        times = np.bincount(member, totals.count[chosen])
        figures = {"count": times.astype(np.float64)}
        if kind == "range":
            total = np.bincount(member, time[chosen])
            figures |= {"total": total / warps[ids % count], "mean": total / times}
            figures["self"] = np.full(len(ids), np.nan)
        into.add(trace, kind, ids, figures)


@dataclass(frozen=True, slots=True)
class _Into:
    """Collects figures by kernel, from rows of roles, regions and launches."""

    kernels: _Kernels
    figures: list[_Figures]  # of each kernel

    def ids(self, trace: Trace, rows: Events | Totals, chosen: Ints) -> Ints:
        """Return one number for each row's kernel, role, region and launch."""
        names = {name: number for number, name in enumerate(_names(trace))}
        code = np.array([names[one.name] for one in trace.regions], np.int64)
        slot = rows.slot[chosen]
        launch = trace.slots.launch[slot]
        place = self.kernels.of_launch[launch] * len(trace.roles) + trace.slots.role[slot]
        place = place * len(names) + code[rows.region[chosen]]
        result: Ints = place * len(trace.launches) + launch
        return result

    def add(self, trace: Trace, kind: str, ids: Ints, figures: dict[str, Floats]) -> None:
        """Put the groups' figures into arrays over the launches of their kernel."""
        names, count = _names(trace), len(trace.launches)
        places, launch = ids // count, self.kernels.place[ids % count]
        starts = np.flatnonzero(np.diff(places, prepend=-1)).tolist()
        for low, high in zip(starts, [*starts[1:], len(ids)], strict=True):
            place, region = divmod(int(places[low]), len(names))
            kernel, role = divmod(place, len(trace.roles))
            if not figures["count"][low:high].any():
                continue  # totals of what never occurred
            key, mine = Key(trace.roles[role], names[region], kind), self.figures[kernel]
            size = len(self.kernels.members[kernel])
            for name, values in figures.items():
                line = values[low:high]
                if high - low < size:  # it did not occur in each launch
                    line = np.full(size, 0.0 if name in SUMS else np.nan)
                    line[launch[low:high]] = values[low:high]
                mine[key, name] = line


def _names(trace: Trace) -> list[str]:
    return list(dict.fromkeys(one.name for one in trace.regions))


def _distribution(member: Ints, values: Floats) -> dict[str, Floats]:
    """Return sums, means and percentiles of each group's values."""
    ordered = values[np.lexsort((values, member))]
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
