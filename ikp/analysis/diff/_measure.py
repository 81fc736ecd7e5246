"""Figures of single launches, from the columns of a trace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ikp.analysis._launch_bounds import launch_bounds
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
from ikp.errors import UsageError

if TYPE_CHECKING:
    from ikp.core.trace import Events, Totals, Trace

_Figures = dict[tuple[Key, str], Floats]
_KINDS = {"range": Kind.RANGE, "instant": Kind.INSTANT}


def samples(traces: Sequence[Trace], unit: str) -> list[Sample]:
    """Return the kernels of one side: launches of one label, grid and block, of all traces."""
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
    figures = _whole(trace, inside, np.where(warps > 0, last - first, 0), per_ns, warps)
    figures |= _of_events(trace, own, per_ns, warps, cycles=cycles)
    figures |= _of_totals(trace, warps, cycles=cycles)
    groups: dict[tuple[str, Any], list[int]] = {}
    for number in np.flatnonzero(warps).tolist():
        launch = launches[number]
        groups.setdefault((launch.label, (launch.grid, launch.warps_per_block)), []).append(number)
    for (label, shape), members in groups.items():
        sample = Sample(
            label,
            shape,
            tuple(launches[i] for i in members),
            np.full(len(members), run, np.int64),
            first[members],
            _in_these(figures, members),
            _tick(trace, members, cycles=cycles),
        )
        yield by_step(sample)


def _in_these(figures: _Figures, members: list[int]) -> _Figures:
    """Return the figures of some launches; regions of other kernels are left out."""
    found = {at: values[members] for at, values in figures.items()}
    never = {key for (key, name), values in found.items() if name == "count" and not values.any()}
    return {at: values for at, values in found.items() if at[0] not in never}


def _whole(trace: Trace, inside: Ints, took: Ints, per_ns: Floats, warps: Ints) -> _Figures:
    """Return which share of each launch's warps has ranges, how long it took, how long these ran,
    and that in no range.
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


def _tick(trace: Trace, members: list[int], *, cycles: bool) -> float:
    """Return the step of the clock: what all durations are multiples of."""
    chosen = np.isin(trace.slots.launch, members)
    ticks = trace.events.ticks[chosen[trace.events.slot]]
    step = int(np.gcd.reduce(ticks)) if len(ticks) else 1
    ns = max(trace.launches[i].clock.ns_per_tick for i in members)
    return max(step, 1) * (1.0 if cycles else ns)


def _of_events(trace: Trace, own: Ints, per_ns: Floats, warps: Ints, *, cycles: bool) -> _Figures:
    """Return the figures of each region in each launch, from its ranges and instants."""
    events, count = trace.events, len(trace.launches)
    took = events.ticks if cycles else events.end_ns - events.start_ns
    found: _Figures = {}
    for kind, number in _KINDS.items():
        chosen = np.flatnonzero(events.kind == number)
        if not len(chosen):
            continue
        ids, member = np.unique(_groups(trace, events, chosen), return_inverse=True)
        figures = {"count": np.bincount(member).astype(np.float64)}
        if kind == "range":
            figures |= _distribution(member, took[chosen].astype(np.float64))
            figures["total"] /= warps[ids % count]
            mine = np.bincount(member, own[chosen])
            figures["self"] = mine * (per_ns / np.maximum(warps, 1))[ids % count]
        found |= _spread(trace, kind, ids, figures)
    return found


def _of_totals(trace: Trace, warps: Ints, *, cycles: bool) -> _Figures:
    """Return the same, as far as totals say it."""
    totals, count = trace.totals, len(trace.launches)
    time = totals.ticks if cycles else totals.total_ns
    found: _Figures = {}
    for kind, number in _KINDS.items():
        chosen = np.flatnonzero(totals.kind == number)
        if not len(chosen):
            continue
        ids, member = np.unique(_groups(trace, totals, chosen), return_inverse=True)
        times = np.bincount(member, totals.count[chosen])
        figures = {"count": times.astype(np.float64)}
        if kind == "range":
            total = np.bincount(member, time[chosen])
            figures |= {"total": total / warps[ids % count], "mean": total / times}
            figures["self"] = np.full(len(ids), np.nan)
        found |= _spread(trace, kind, ids, figures)
    return found


def _names(trace: Trace) -> list[str]:
    return list(dict.fromkeys(one.name for one in trace.regions))


def _groups(trace: Trace, rows: Events | Totals, chosen: Ints) -> Ints:
    """Return which role, region and launch each row is of, as one number."""
    names = _names(trace)
    code = np.array([names.index(one.name) for one in trace.regions], np.int64)
    slot = rows.slot[chosen]
    place = trace.slots.role[slot].astype(np.int64) * len(names) + code[rows.region[chosen]]
    result: Ints = place * len(trace.launches) + trace.slots.launch[slot]
    return result


def _spread(trace: Trace, kind: str, ids: Ints, figures: dict[str, Floats]) -> _Figures:
    """Return the groups' figures as one array over launches for each role and region."""
    names, count = _names(trace), len(trace.launches)
    places, launch = ids // count, ids % count
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    found: _Figures = {}
    for low, high in zip(starts, [*starts[1:], len(ids)], strict=True):
        role, region = divmod(int(places[low]), len(names))
        for name, values in figures.items():
            line = np.full(count, 0.0 if name in SUMS else np.nan)
            line[launch[low:high]] = values[low:high]
            found[Key(trace.roles[role], names[region], kind), name] = line
    return found


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
