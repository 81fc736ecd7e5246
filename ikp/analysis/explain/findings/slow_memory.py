"""Ranges in memory that take much longer than what they hold has to: conflicts, narrow accesses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.room_on_sms import room_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number, Where

_TIMES: Final = 3.0
"""How many times as long as without conflicts: loops, latency and addresses take up to two."""
_ACCESSES: Final = 16
"""Accesses to shared memory below which latency, not conflicts, is what a range shows."""
_NARROW: Final = 4
"""Bytes of a lane's load: a compiler that sees neighbours side by side loads 16 at once."""
_SEVERAL: Final = 4 * 32 * _NARROW
"""Bytes that a warp loads in a range: what is as much could have been loaded at once."""
_LONG: Final = 0.25
"""Share of the warps' time that a range takes to be told of for its loads."""
_MOSTLY: Final = 0.5
"""The same, of one of which nothing is known but that it loads or stores."""


def slow_memory(launch: Prepared) -> Iterator[Finding]:
    """Yield the ranges whose accesses to memory are slow, and why, as far as the code says it."""
    facts = launch.facts.ranges if launch.facts else {}
    for region in np.flatnonzero(launch.counts).tolist():
        known = facts.get(launch.names[region])
        share = float(launch.own_by_region[region]) / max(launch.warp_time, 1)
        if known and known.shared and known.shared >= _ACCESSES:
            yield from _conflicts(launch, region, known.shared, share)
        elif known and (known.bytes or 0) >= _SEVERAL and (known.lane_bytes or 16) <= _NARROW:
            yield from _narrow(launch, region, known.lane_bytes or 0, share)
        elif launch.known[region].activity in (Activity.LOAD, Activity.STORE):
            yield from _long(launch, region, share)


def _conflicts(launch: Prepared, region: int, cycles: int, share: float) -> Iterator[Finding]:
    """Compare a range with what shared memory needs for all warps of the SM, one by one."""
    rows = launch.of_region([region])
    rate = launch.launch.clock.ns_per_tick
    if launch.launch.clock.kind != "cycles" or not rate:
        return
    took = float(np.median(launch.took[rows])) / rate
    warps = room_of(launch).warps or launch.launch.warps_per_block
    least = cycles * warps
    at_stake = share * (1 - least / max(took, 1.0)) * launch.duration
    if took < _TIMES * least or not enough(launch, at_stake):
        return
    name = launch.names[region]
    yield finding(
        launch,
        "bank-conflicts",
        title=f"{name} takes {took:,.0f} cycles, {took / least:.1f} times what shared memory needs "
        f"for its accesses by {warps:.0f} warps",
        number=Number(f"{name} over its accesses without conflicts", took / least, "ratio"),
        at_stake=at_stake,
        without=f"with no two lanes in a bank in {name}",
        sure="likely",
        because="accesses are counted in the machine code; that all warps of the SM make them at "
        "once is assumed, and what else the range waits for is not seen.",
        where=_where(launch, region),
        do="pad rows by one element, or swizzle, so that the lanes of a warp meet all banks",
    )


def _narrow(launch: Prepared, region: int, width: int, share: float) -> Iterator[Finding]:
    if share < _LONG:
        return
    name = launch.names[region]
    yield finding(
        launch,
        "narrow-loads",
        title=f"{name} takes {100 * share:.0f} % of the warps' time, and each of its loads is of "
        f"{width} bytes a lane",
        number=Number(f"{name}, of the warps' time", share, "share"),
        at_stake=share * launch.duration,
        without=f"without the time in {name}",
        sure="possible",
        because="the machine code loads so little at once where addresses of neighbours are apart "
        "(uncoalesced), or not known to be aligned; which of them, it doesn't say.",
        where=_where(launch, region),
        do="let neighbouring lanes read neighbouring addresses: another layout, or a transposition "
        "in shared memory",
    )


def _long(launch: Prepared, region: int, share: float) -> Iterator[Finding]:
    if share < _MOSTLY:
        return
    name = launch.names[region]
    yield finding(
        launch,
        "slow-memory",
        title=f"{name} takes {100 * share:.0f} % of the warps' time",
        number=Number(f"{name}, of the warps' time", share, "share"),
        at_stake=share * launch.duration,
        without=f"without the time in {name}",
        sure="possible",
        because="it is where the time is, in accesses to memory; whether they are slow for their "
        "pattern, or for their number, the trace doesn't say.",
        where=_where(launch, region),
        do="see whether neighbouring lanes read neighbouring addresses, whether the data is read "
        "twice, and whether loads could be issued earlier",
    )


def _where(launch: Prepared, region: int) -> Where:
    rows = launch.of_region([region])
    return Where(
        regions=(launch.names[region],),
        warps=launch.warps(rows),
        window_ns=launch.window(rows),
        count=len(rows),
    )
