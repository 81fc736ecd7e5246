"""Use of tensor cores and memory: FLOPs and bytes from the machine code, over the launch's time.

A region's operations are those of one record, times its records. They are those of the launch only
if all warps recorded, nothing was dropped, and each product of the kernel is in a range that says
its operations: then they are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.counted_work import counted_work
from ikp.analysis.explain.coverage import Coverage
from ikp.analysis.explain.peaks import peak_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.products import Products, products
from ikp.analysis.explain.roofs import roofs
from ikp.analysis.explain.room_on_sms import room_of
from ikp.analysis.explain.verdict import Hardware, RegionUse
from ikp.analysis.explain.warp_regions import at_once

BUSY: Final = 0.5
"""Share of memory's bandwidth from which on warps may wait for bandwidth, and not for latency."""


def use_of_hardware(launch: Prepared) -> Hardware:
    """Return the use of tensor cores and memory, and the occupancy of SMs."""
    made, room, facts = products(launch), room_of(launch), launch.facts
    flop, size = total_flop(launch), _total_bytes(launch)
    tflops = flop / launch.duration / 1e3 if flop and launch.duration else None
    peak = peak_tflops(launch)
    return Hardware(
        flop=flop,
        tflops=tflops,
        of_peak=tflops / peak if tflops is not None and peak else None,
        tensor_busy_share=made.busy_share(launch) if made else None,
        copy_overlap_share=_overlap(launch, made) if made else None,
        bytes=size,
        gb_per_s=size / launch.duration if size and launch.duration else None,
        registers=room.registers,
        registers_recorded=_other_registers(launch),
        shared_bytes=launch.facts.shared if launch.facts else None,
        limited_by=room.limited_by if room.counted else None,
        warps_at_once=room.warps if room.counted else None,
        warps_possible=room.possible,
        warps_at_once_plain=room.plain,
        local_bytes=facts.local_bytes if facts else None,
        local_accesses=facts.spills if facts else None,
        static_shared_bytes=facts.static_shared if facts else None,
        register_limit=facts.register_limit if facts else None,
    )


def _other_registers(launch: Prepared) -> int | None:
    """Return the registers of the instrumented copy; None where the plain kernel has as many."""
    facts = launch.facts
    if facts is None or facts.plain_registers in (None, facts.registers):
        return None
    return facts.registers


def total_flop(launch: Prepared) -> int | None:
    """Return the operations of all products; None where some are not in the count.

    Blocks that left no records are taken to make as many as those that did.
    """
    facts = launch.facts
    if facts is None or not facts.all_products or launch.scale is None:
        return None
    if any(facts.ranges[name].flop for name in launch.unrecorded):  # by warps that did not record
        return None
    counts: list[int] = launch.counts.tolist()
    recorded = sum(
        count * (facts.ranges[name].flop or 0)
        for name, count in zip(launch.names, counts, strict=True)
        if name in facts.ranges
    )
    return round(recorded * launch.scale)


def with_rates(launch: Prepared, uses: tuple[RegionUse, ...]) -> Iterator[RegionUse]:
    """Yield uses of regions with the rate of their operations, where these are known.

    Of all SMs together, in the time that any warp of an SM was in the region.
    """
    facts, peak = launch.facts, peak_tflops(launch)
    sm, sms = np.unique(launch.sm, return_inverse=True)[1].astype(np.int64), len(launch.lanes.sms)
    known = launch.scale is not None and launch.sees_neighbours
    for use in uses:
        flop = facts.ranges[use.name].flop if facts and use.name in facts.ranges else None
        if not flop or not known:
            yield use
            continue
        rows = launch.of_region([i for i, name in enumerate(launch.names) if name == use.name])
        time = Coverage.of(
            sm[launch.slot[rows]], launch.opens[rows], launch.closes[rows], max(launch.duration, 1)
        ).total()
        tflops = flop * len(rows) / max(time, 1) / 1e3 * sms
        yield replace(use, tflops=tflops, of_peak=tflops / peak if peak else None)


def peak_tflops(launch: Prepared) -> float | None:
    """Return what the device's tensor cores can do at the clock that the launch ran at."""
    peak, clock = peak_of(launch.launch.device), launch.launch.clock
    if peak is None or clock.kind != "cycles" or not clock.ns_per_tick:
        return None
    return peak.sms * peak.per_cycle / clock.ns_per_tick / 1e3


def asked_of_memory(launch: Prepared) -> float | None:
    """Return the bytes that ranges ask for over memory's peak in the launch; None if unknown.

    Where accesses are counted, those that no cache can serve; else caches may serve some of them.
    """
    if counted_work(launch) is not None:
        return next((one.share for one in roofs(launch) if one.name == "DRAM"), None)
    size, peak = _total_bytes(launch), peak_of(launch.launch.device)
    if not size or peak is None or not launch.duration:
        return None
    return size / launch.duration / peak.gb_per_s


def _total_bytes(launch: Prepared) -> int | None:
    """Return the bytes that ranges ask of memory; None where those of any region are unknown."""
    facts = launch.facts
    if facts is None or launch.scale is None:
        return None
    total = 0
    for name, count in zip(launch.names, launch.counts.tolist(), strict=True):
        if count and name in facts.ranges:
            size = facts.ranges[name].bytes
            if size is None:
                return None
            total += count * size
    return round(total * launch.scale) or None


def _overlap(launch: Prepared, made: Products) -> float | None:
    """Return the share of the time of copies, and waits for them, with a product under way."""
    regions = launch.regions([Activity.COPY, Activity.WAIT_COPY])
    rows = launch.of_region(regions)
    whole = int(launch.took_by_region[regions].sum())
    if not whole:
        return None
    parts = (rows[some] for some in at_once(len(rows)))
    covered = (
        made.covered.inside(made.sm[launch.slot[one]], launch.opens[one], launch.closes[one]).sum()
        for one in parts
    )
    return sum(map(int, covered)) / whole
