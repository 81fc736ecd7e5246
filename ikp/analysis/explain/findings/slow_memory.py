"""Findings on time that accesses take: ``slow-memory``, ``narrow-loads``, and bank conflicts.

The machine code says how wide accesses are; where it does not say their addresses, too, the
measured time of ranges decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.counted_work import (
    SECTOR,
    Access,
    CountedWork,
    counted_work,
    lane_bytes,
)
from ikp.analysis.explain.places import where_of_accesses, where_of_rows
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.region_times import cycles_of, with_beside
from ikp.analysis.explain.roofs import is_counted, nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.use_of_hardware import room_of
from ikp.analysis.explain.verdict import Finding, Number, Where
from ikp.core.code_facts import AccessFacts, RangeFacts

_TIMES: Final = 3.0
"""How many times as long as without conflicts: loops, latency and addresses take up to two."""
_ACCESSES: Final = 16
"""Accesses to shared memory below which latency, not conflicts, is what a range shows."""
_NARROW: Final = 4
"""Bytes of a lane's load: a compiler that knows addresses to be adjacent loads 16 at once."""
_HALF: Final = 2
"""The same where addresses are known: 4 bytes of 32 adjacent lanes are 128 bytes at once."""
_SCHEDULERS: Final = 4
"""Of an SM, each of which issues an instruction in a cycle."""
_INNER: Final = 0.9
"""Share of self time from which on a region's facts are those of its ranges alone. In a range
around others (a kernel, a loop) the rest is of many kinds, at many places."""
LONG: Final = 0.25
"""Share of the warps' time from which on the loads of a range are a finding."""
_MOSTLY: Final = 0.5
"""The same for a range of which only its loads or stores are known."""


def slow_memory(launch: Prepared) -> Iterator[Finding]:
    """Yield findings on regions with slow accesses to memory, by what the machine code says."""
    facts = launch.facts.ranges if launch.facts else {}
    if counted_work(launch) is None:
        yield from _by_ranges(launch, facts)
        return
    for region in np.flatnonzero(launch.counts).tolist():
        known = facts.get(launch.names[region])
        if known and known.lane_bytes and known.lane_bytes <= _HALF:
            yield from _narrow(launch, region, known.lane_bytes)
    yield from _few_bytes(launch)
    yield from _one_by_one(launch)


def _by_ranges(launch: Prepared, facts: Mapping[str, RangeFacts]) -> Iterator[Finding]:
    """Yield findings by the time of ranges: no addresses say which accesses are costly."""
    for region in np.flatnonzero(launch.counts).tolist():
        known = facts.get(launch.names[region])
        if known and known.shared and known.shared >= _ACCESSES and _alone(launch, region):
            yield from _conflicts(launch, region, known)
        elif known and known.lane_bytes and known.lane_bytes <= _NARROW:
            yield from _narrow(launch, region, known.lane_bytes)
        elif launch.known[region].activity in (Activity.LOAD, Activity.STORE):
            yield from _long(launch, region, _share(launch, region))


def _alone(launch: Prepared, region: int) -> bool:
    """Whether a region's ranges hold next to nothing of others."""
    whole = int(launch.took_by_region[region])
    return int(launch.own_by_region[region]) >= _INNER * whole


def _share(launch: Prepared, region: int) -> float:
    return launch.share_in([region])


def _needed(launch: Prepared, known: RangeFacts) -> float:
    """Return the cycles that an SM needs for one execution by all its warps without conflicts."""
    warps = room_of(launch).warps or launch.launch.warps_per_block
    return warps * max(known.shared or 0, (known.issue or 0) / _SCHEDULERS)


def _conflicts(launch: Prepared, region: int, known: RangeFacts) -> Iterator[Finding]:
    """Yield a finding if a range takes much longer than its SM needs for it without conflicts."""
    took, least = cycles_of(launch, region), _needed(launch, known)
    if took is None or known.issue is None or took < _TIMES * least:
        return
    share = _with_beside(launch, region)
    at_stake = share * (1 - least / took) * launch.duration
    if not enough(launch, at_stake):
        return
    name = launch.names[region]
    yield finding(
        launch,
        "bank-conflicts",
        title=f"{name} takes {took:,.0f} cycles, {took / least:.1f} times what its instructions "
        "and accesses to shared memory need for all warps of the SM",
        number=Number(f"{name} over its accesses without conflicts", took / least, "ratio"),
        at_stake=at_stake,
        without=f"with no two lanes in a bank in {name}",
        confidence="likely" if _kernels(launch) == 1 else "possible",
        rationale=_ambiguous(launch)
        + "accesses are counted in the machine code; that all warps of the SM make them at "
        "once is assumed, and what else the range waits for is not seen.",
        where=_where(launch, region),
        suggestion="pad rows by one element, or swizzle, so that the lanes of a warp meet all "
        "banks",
    )


def _with_beside(launch: Prepared, region: int) -> float:
    """Return the share of time in a region's ranges, and beside them, where none is open.

    In the time beside, a warp waits for the range's data, or for accesses that queue before its
    own.
    """
    parts = with_beside(launch, launch.of_region([region]))
    both = sum(int((closes - opens).sum()) for _, opens, closes in parts)
    inside = int(launch.took_by_region[region])
    return _share(launch, region) + float(both - inside) / max(launch.warp_time, 1)


def _narrow(launch: Prepared, region: int, width: int) -> Iterator[Finding]:
    """Yield a finding on a range's loads, with the time of the ranges that wait for them."""
    share = share_of_loads(launch, region)
    left = 1 - nearest(launch)
    if share < LONG:
        return
    name = launch.names[region]
    others = [launch.names[each] for each in _awaiting(launch, region)]
    unaligned = _unaligned(launch, name)
    yield finding(
        launch,
        "narrow-loads",
        title=f"{name} loads {width} bytes a lane at a time, several in a row{unaligned}"
        + (f", which {', '.join(others[:2])} waits for" if others else "")
        + f": {100 * share:.0f} % of the warps' time",
        number=Number(f"{name} and waits for it, of the warps' time", share, "share"),
        at_stake=min(share, left) * launch.duration,
        without=f"without the time that {name} takes, and what waits for it",
        confidence="likely" if _kernels(launch) == 1 and share <= _MORE * left else "possible",
        rationale=_ambiguous(launch)
        + "a compiler loads so little at once where addresses of neighbours are apart "
        "(uncoalesced), or not known to be aligned; which of them, the machine code doesn't say. "
        "The loads themselves need some of this time.",
        where=_where(launch, region),
        suggestion="let neighbouring lanes read neighbouring addresses: another layout, or a "
        "transposition in shared memory" + (_ALIGN if unaligned else ""),
    )


_MORE: Final = 1.25
"""Times what the nearest roof leaves, above which such a share is no measure of a gain."""
_ALIGN: Final = "; or wide loads: align rows and first addresses to 16 bytes (pad or copy)"


ALIGNED: Final = 16
"""Bytes of the widest access of a lane, which is aligned to its size."""


def misaligned(access: AccessFacts) -> str:
    """Return words on addresses that no wide access may have; empty where there are none."""
    if access.align is None or access.align >= ALIGNED or lane_bytes(access.unit) >= ALIGNED:
        return ""
    return f"; its rows are aligned to {access.align} bytes only"


def _unaligned(launch: Prepared, name: str) -> str:
    """Return words on a range's loads that can't be wider; empty where they could, or may."""
    accesses = launch.facts.ranges[name].accesses if launch.facts else ()
    words = (misaligned(one) for one in accesses if one.unit.startswith("load.global"))
    return next((each for each in words if each), "")


def _few_bytes(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on narrow loads that are too few bytes under way to fill memory's rate."""
    work, room = counted_work(launch), room_of(launch)
    loads = _scalar_loads(work) if work else []
    if work is None or not room.warps or not loads:
        return
    under_way = _bytes_of_warp(loads) * min(room.warps, work.peak.warps)
    needed = _LATENCY_NS * work.peak.gb_per_s / work.peak.sms
    waits = launch.regions([Activity.WAIT_MEMORY])
    share = launch.share_in(waits)
    saved = 1 - nearest(launch)
    least = _WAITED if saved >= _FAR else _MOSTLY
    if under_way >= needed or share < least or not enough(launch, saved * launch.duration):
        return
    width = max(lane_bytes(one.unit) for _, one, _ in loads)
    yield finding(
        launch,
        "narrow-loads",
        title=f"lanes load {width} bytes each at a time: {under_way / 1024:.1f} KB are "
        f"under way on an SM, and memory's rate needs {needed / 1024:.1f}",
        number=Number("bytes under way on an SM over those needed", under_way / needed, "ratio"),
        at_stake=saved * launch.duration,
        without="with memory at its rate",
        confidence="likely",
        rationale="counted: bytes that all warps of an SM wait for at once; memory answers after "
        f"{_LATENCY_NS:.0f} ns at least, and {100 * share:.0f} % of the warps' time is that wait. "
        "Refuted if wider loads take as long.",
        where=where_of_accesses(launch, loads),
        suggestion="let each lane load 16 bytes at once (vectors of 8 halves, more elements for "
        "each thread), or make several loads before the first value is used",
    )


_WAITED: Final = 0.3
"""Share of the warps' time in waits for so few bytes from which on these are the cause: blocks of
one number a lane begin and end for as long."""
_FAR: Final = 0.5
"""What the nearest roof leaves, from which on less of that time is enough."""
_LATENCY_NS: Final = 500.0
"""Of a load from an idle memory, H100 and A100, as microbenchmarks measure it."""


def _scalar_loads(work: CountedWork) -> list[Access]:
    """Return a kernel's loads of global memory that differ by lane; none where any is wide."""
    loads = [one for one in work.accesses("load.g") if one[1].addresses != 1]
    return loads if all(map(_is_scalar, loads)) else []


def _bytes_of_warp(loads: list[Access]) -> float:
    """Return the bytes that a warp asks for, with each load as often as its range makes it."""
    return sum(one.count * (one.least or 0.0) * SECTOR for _, one, _ in loads)


def _is_scalar(access: Access) -> bool:
    """Whether lanes load one narrow number each at a time."""
    one = access[1]
    return lane_bytes(one.unit) <= _HALF and one.cost is not None


def _kernels(launch: Prepared) -> int:
    """Return how many loaded kernels have the ranges that were recorded."""
    return launch.facts.kernels if launch.facts else 1


def _ambiguous(launch: Prepared) -> str:
    if _kernels(launch) == 1:
        return ""
    return f"{_kernels(launch)} kernels have these ranges, and which was launched is not known: "


def share_of_loads(launch: Prepared, region: int) -> float:
    """Return the share of the warps' time in a region of loads, and in what waits for them."""
    waiting = _awaiting(launch, region)
    return _share(launch, region) + sum(_beyond_issue(launch, each) for each in waiting)


def _awaiting(launch: Prepared, region: int) -> list[int]:
    """Return the other regions that wait for a region's loads."""
    facts, name = launch.facts, launch.names[region]
    if facts is None:
        return []
    return [
        i
        for i, other in enumerate(launch.names)
        if launch.counts[i] and other in facts.ranges and name in facts.ranges[other].awaits
    ]


def _beyond_issue(launch: Prepared, region: int) -> float:
    """Return the share of a region's time that its own instructions don't explain."""
    known = launch.facts.ranges[launch.names[region]] if launch.facts else None
    took = cycles_of(launch, region)
    if known is None or known.issue is None or not took:
        return 0.0
    return _share(launch, region) * max(1 - _needed(launch, known) / took, 0.0)


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
        confidence="possible",
        rationale="it is where the time is, in accesses to memory; whether they are slow for their "
        "pattern, or for their number, the trace doesn't say.",
        where=_where(launch, region),
        suggestion="see whether neighbouring lanes read neighbouring addresses, whether the data "
        "is read twice, and whether loads could be issued earlier",
    )


def _one_by_one(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on code of loads that takes the time while no unit of the device is busy."""
    loads = launch.regions([Activity.LOAD])
    busy = nearest(launch)
    if not loads.size or busy >= _BUSY:
        return
    region = int(loads[launch.own_by_region[loads].argmax()])
    share, name = _share(launch, region), launch.names[region]
    saved = min(share, 1 - busy)
    if share < _MOSTLY or not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "slow-memory",
        title=f"{100 * share:.0f} % of the warps' time is in the loads of {name}, and no unit is "
        f"above {100 * busy:.0f} % of its rate: too few loads are under way",
        number=Number(f"{name}, of the warps' time", share, "share"),
        at_stake=saved * launch.duration,
        without="with memory, or the nearest unit, at its rate",
        confidence="likely" if busy < _IDLE and is_counted(launch) else "possible",
        rationale="measured: the time of the range, whose work is loads; counted: what all units "
        "have to do. Each load is answered after some 500 ns, so its rate goes by how many are "
        "under way. Refuted if several loads at once take as long.",
        where=_where(launch, region),
        suggestion="have more bytes under way: several independent loads in each thread before the "
        "first value is used (unroll, several sums), 16 bytes a lane, or more warps",
    )


_BUSY: Final = 0.6
"""Share of the nearest roof from which on more loads under way win little."""
_IDLE: Final = 0.33


def _where(launch: Prepared, region: int) -> Where:
    rows = launch.of_region([region])
    return where_of_rows(launch, rows, (launch.names[region],))
