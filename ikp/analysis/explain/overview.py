"""Parts of a verdict beside its findings: the launch, CTA slots, activities, groups and regions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.choosing_launch import Chosen
from ikp.analysis.explain.lane_time import LaneTime
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.verdict import Doing, Group, Lanes, Launched, RegionUse
from ikp.analysis.perturbation import perturbations, recording_share
from ikp.core.sorting import sum_by

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
            float(np.median(launch.took(launch.of_region([i])))),
            float(launch.own_by_region[i]) / max(launch.warp_time, 1),
        )
