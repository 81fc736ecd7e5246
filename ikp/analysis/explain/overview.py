"""Parts of a verdict beside its findings: which launch, its groups, regions, phases, and what it
issued.

The launch is chosen by number, or it is that of median duration, of a label named or longest in
all. Counts: kernels by the time of their launches; instructions by unit, and by what they serve.

Phases are prologue, steady state and epilogue: medians of blocks' times before, in and after
iterations. The region that repeats is the one that warps record most often: of the regions named
"iteration", as automatic marks are, else of those that multiply, else of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.counted_work import counted_work
from ikp.analysis.explain.lane_time import LaneTime
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.verdict import (
    Doing,
    Group,
    KernelShare,
    Lanes,
    Launched,
    Phases,
    RegionUse,
    Served,
    Unit,
)
from ikp.analysis.explain.warp_groups import at_once
from ikp.analysis.perturbation import perturbations, recording_share
from ikp.core.abi import Kind
from ikp.core.sorting import sum_by
from ikp.core.warps import launch_bounds
from ikp.errors import UsageError
from ikp.patterns import Names, choose

if TYPE_CHECKING:
    from ikp.core.trace import Trace


Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The chosen launch, the durations of its label's launches, and the time of other labels."""

    index: int
    durations: tuple[int, ...]  # of the label's launches that recorded warps
    others: tuple[tuple[str, float], ...]  # other labels, and the time of all their launches


def _asked_for(trace: Trace, there: NDArray[np.intp], launch: Names | int) -> NDArray[np.intp]:
    """Return those of some launches that are asked for, by number or by label."""
    if isinstance(launch, int):
        if not 0 <= launch < len(trace.launches):
            raise UsageError(
                f"launch {launch}: the trace has {len(trace.launches)}, numbered from 0."
            )
        mine: NDArray[np.intp] = there[there == launch]
        return mine
    labels = list(dict.fromkeys(one.label for one in trace.launches))
    wanted = dict(zip(labels, choose(labels, launch, "launch"), strict=True))
    return np.array([i for i in there.tolist() if wanted[trace.launches[i].label]], np.intp)


def _time_by_label(trace: Trace, took: Ints) -> dict[str, float]:
    """Return the time of all launches of each label, of those whose time is known."""
    whole: dict[str, float] = {}
    for i in np.flatnonzero(took >= 0).tolist():
        label = trace.launches[i].label
        whole[label] = whole.get(label, 0.0) + float(took[i])
    return whole


def choose_launch(trace: Trace, launch: Names | int | None = None) -> Chosen | None:
    """Return the launch that a verdict is about; None where no warp recorded a timeline.

    Raises:
        UsageError: ``launch`` names none.
    """
    took = _durations(trace)
    timeline = np.array([one.mode == "timeline" for one in trace.launches], bool)
    warps = np.bincount(trace.slots.launch, minlength=len(trace.launches))
    there = np.flatnonzero((warps > 0) & timeline)
    if launch is not None:
        there = _asked_for(trace, there, launch)
    if not len(there):
        return None
    whole = _time_by_label(trace, took)
    label = max(
        {trace.launches[i].label for i in there.tolist()}, key=lambda one: (whole[one], one)
    )
    of_label = [i for i in there.tolist() if trace.launches[i].label == label]
    order = sorted(of_label, key=lambda i: (int(took[i]), i))
    others = sorted(((n, t) for n, t in whole.items() if n != label), key=lambda one: -one[1])
    durations = tuple(int(took[i]) for i in order)
    return Chosen(_median(trace, order), durations, tuple(others))


def _median(trace: Trace, order: list[int]) -> int:
    """Return the middle one of launches by duration; of those with ranges, where any has some."""
    if len(order) == 1:
        return order[0]
    ranges = _counts(trace)
    recorded = [i for i in order if ranges[i]] or order
    return recorded[(len(recorded) - 1) // 2]


def _counts(trace: Trace) -> Ints:
    """Return how many ranges each launch has."""
    events, by_slot = trace.events, np.zeros(len(trace.slots), np.int64)
    for rows in at_once(len(events)):
        slot = events.slot[rows][events.kind[rows] == Kind.RANGE]
        np.add.at(by_slot, slot, 1)
    found = np.zeros(len(trace.launches), np.int64)
    np.add.at(found, trace.slots.launch, by_slot)
    return found


def _durations(trace: Trace) -> Ints:
    """Return how long each launch took; -1 where none of its warps is known."""
    first, last = launch_bounds(trace)
    return np.where(last >= first, last - first, -1)


_REGIONS: Final = 12
_OTHERS: Final = 3


def launched(launch: Prepared, chosen: Chosen) -> Launched:
    """Return the facts of the launch: its size, duration, device, clock, and what was recorded."""
    it, durations = launch.launch, chosen.durations
    return Launched(
        label=it.label,
        index=launch.index,
        launches=len(durations),
        duration_ns=launch.duration,
        median_ns=float(np.median(durations)),
        min_ns=min(durations),
        max_ns=max(durations),
        device=it.device,
        grid=it.grid,
        warps_per_block=it.warps_per_block,
        blocks=len(launch.block_ids),
        blocks_seen=len(launch.blocks.ids),
        warps=len(launch.start),
        sms=len(np.unique(launch.blocks.sm)) if launch.on_gpu else None,
        clock=it.clock.name,
        rate=it.clock.rate,
        residual_max_ns=it.clock.residual_max_ns,
        dropped=it.dropped,
        others=chosen.others[:_OTHERS],
        recording_share_at_most=recording_share(it, it.attempted, float(launch.warp_time)),
        attempted=it.attempted,
        unfinished=it.unfinished,
        recording=perturbations(launch.trace).get(it.label),
    )


def lanes_of(launch: Prepared, lanes: LaneTime) -> Lanes | None:
    """Return the shares of the CTA slots' time; None without a GPU, or with blocks unknown."""
    whole = lanes.count * launch.duration
    if not whole or not launch.every_block or not launch.on_gpu:
        return None
    return Lanes(
        lanes=lanes.count,
        blocks_at_once=int(np.median(lanes.lanes)),
        waves=float(lanes.blocks.sum()) / lanes.count,
        busy_share=lanes.busy / whole,
        start_share=lanes.start / whole,
        switch_share=lanes.switch / whole,
        end_share=lanes.end / whole,
    )


def doing(launch: Prepared) -> tuple[tuple[Doing, ...], float | None]:
    """Return the warps' time by activity, largest first, and the share of it in no range."""
    if not launch.warp_time:
        return (), None
    sums: dict[Activity, int] = {}
    for known, own in zip(launch.known, launch.own_by_region.tolist(), strict=True):
        sums[known.activity] = sums.get(known.activity, 0) + own
    found = [Doing(one.value, own / launch.warp_time) for one, own in sums.items() if own]
    free = 1 - int(launch.inside.sum()) / launch.warp_time
    return tuple(sorted(found, key=lambda one: -one.share)), free


def groups(launch: Prepared) -> Iterator[Group]:
    """Yield each group's busy and waiting share."""
    of = launch.groups
    waits = np.array([each.activity.waits for each in launch.known], bool)
    time = sum_by(of.of_warp, launch.end - launch.start, len(of))
    inside = sum_by(of.of_warp, launch.inside, len(of))
    each = launch.by_warp
    waiting = sum_by(of.of_warp[each.slot], np.where(waits[each.region], each.own, 0), len(of))
    for i, name in enumerate(of.names):
        whole = max(int(time[i]), 1)
        yield Group(
            name,
            of.by,
            int((of.of_warp == i).sum()),
            busy_share=float(inside[i] - waiting[i]) / whole,
            waiting_share=float(waiting[i]) / whole,
            in_no_range_share=1 - float(inside[i]) / whole,
        )


def region_uses(launch: Prepared) -> Iterator[RegionUse]:
    """Yield the regions with the most self time."""
    order = np.argsort(-launch.own_by_region, kind="stable")
    for i in [i for i in order.tolist() if launch.counts[i]][:_REGIONS]:
        known = launch.known[i]
        yield RegionUse(
            launch.names[i],
            known.activity.value,
            known.by,
            int(launch.counts[i]),
            float(np.median(launch.took(launch.of_region([i])), overwrite_input=True)),
            float(launch.own_by_region[i]) / max(launch.warp_time, 1),
        )


_MOST: Final = 8
_UNITS: Final = 10
_LEAST: Final = 0.005


def kernel_shares(trace: Trace) -> tuple[KernelShare, ...]:
    """Return the kernels of a trace by the time of their launches, the longest first."""
    first, last = launch_bounds(trace)
    took: dict[str, float] = {}
    count: dict[str, int] = {}
    for one, begin, end in zip(trace.launches, first.tolist(), last.tolist(), strict=True):
        took[one.label] = took.get(one.label, 0.0) + max(float(end - begin), 0.0)
        count[one.label] = count.get(one.label, 0) + 1
    whole = max(sum(took.values()), 1.0)
    order = sorted(took, key=lambda label: (-took[label], label))[:_MOST]
    return tuple(
        KernelShare(label, count[label], took[label], took[label] / whole) for label in order
    )


def mix_of(launch: Prepared) -> tuple[Unit, ...]:
    """Return the launch's instructions by unit, the most frequent first; none if not counted."""
    work = counted_work(launch)
    if work is None:
        return ()
    order = sorted(work.issued.items(), key=lambda item: -item[1])[:_UNITS]
    found = (Unit(unit, count, count / max(work.total, 1.0)) for unit, count in order)
    return tuple(one for one in found if one.share >= _LEAST)


def serves_of(launch: Prepared) -> tuple[Served, ...]:
    """Return what the launch's instructions serve, the most first; none if not counted."""
    work = counted_work(launch)
    if work is None:
        return ()
    counts: dict[str, float] = {}
    for one in work.ranges:
        for what, count in one.facts.serves.items():
            counts[what] = counts.get(what, 0.0) + count * one.executions
    whole = max(sum(counts.values()), 1.0)
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    found = (Served(what, count / whole) for what, count in order)
    return tuple(one for one in found if one.share >= _LEAST)


def uncounted_of(launch: Prepared) -> tuple[str, ...]:
    """Return the units in loops whose trips no record counts, the most instructions first."""
    work = counted_work(launch)
    if work is None:
        return ()
    return tuple(sorted(work.uncounted, key=lambda unit: -work.uncounted[unit])[:_UNITS])


_REPEATS: Final = 4
"""Times that a warp records a region at least, if it repeats."""


def phases(launch: Prepared) -> Phases | None:
    """Return the median of each phase over the blocks; None where nothing repeats."""
    region = _repeating(launch)
    if region is None:
        return None
    rows = launch.of_region([region])
    first = np.full(len(launch.block_ids), np.iinfo(np.int64).max)
    last = np.full(len(launch.block_ids), -1)
    for some in at_once(len(rows)):
        mine = rows[some]
        block = launch.block_of[launch.slot[mine]]
        np.minimum.at(first, block, launch.opens[mine])
        np.maximum.at(last, block, launch.closes[mine])
    there = last >= 0
    warps = int(launch.warps_by_region[region])
    return Phases(
        iteration=launch.names[region],
        iterations=len(rows) / max(warps, 1),
        prologue_ns=float(np.median((first - launch.block_start)[there])),
        steady_ns=float(np.median((last - first)[there])),
        epilogue_ns=float(np.median((launch.block_end - last)[there])),
    )


def _repeating(launch: Prepared) -> int | None:
    often = launch.counts >= np.maximum(_REPEATS * launch.warps_by_region, 1)
    candidates = (
        [i for i, name in enumerate(launch.names) if "iteration" in name.lower()],
        launch.regions([Activity.MMA]).tolist(),
        range(len(launch.names)),
    )
    for some in candidates:
        if found := [i for i in some if often[i]]:
            return max(found, key=lambda i: (int(launch.counts[i]), -i))
    return None
