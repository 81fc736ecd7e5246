"""Findings on accesses that cost more than they need: ``uncoalesced``, ``bank-conflicts``,
``narrow-loads``, ``slow-memory``.

Counted: the machine code says the addresses of a warp's lanes; so many sectors of global memory, or
cycles of shared memory, a request takes, and so many it would take with its lanes adjacent. Or by
the measured time of code that accesses memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ikp.analysis.explain.activity import MEMORY, Activity
from ikp.analysis.explain.counted_work import (
    SECTOR,
    Access,
    CountedWork,
    RangeWork,
    counted_work,
    if_counted,
    is_atomic,
    lane_bytes,
    request_cycles,
    sectors,
)
from ikp.analysis.explain.places import where_of_accesses, where_of_rows
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.region_times import cycles_of, with_beside
from ikp.analysis.explain.roofs import IMPOSSIBLE, is_counted, nearest, roofs, share_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.use_of_hardware import room_of
from ikp.analysis.explain.verdict import Finding, Number, Where
from ikp.core.code_facts import RECORDED, SCATTERED, AccessFacts, RangeFacts

_COUNTED_TIMES: Final = 1.9
"""Times the least cost from which on a request is costly: rows that begin inside of a sector cost
up to 1.5 times as much."""
_LEAST: Final = 0.05
"""Share of the launch that the excess needs at the unit's full rate, from which on it counts."""
_SURE: Final = 0.15
"""The same, from which on the excess is likely to be the cause."""
_COUNTED_MOSTLY: Final = 0.6
"""The same of bank conflicts, which other warps' work may hide."""
_LATENCY: Final = 4.0
"""How many times as long as at the full rate an excess may hold a launch up, at most."""


@if_counted
def costly_accesses(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on strided accesses to global memory, and one on bank conflicts."""
    costly = [one for one in work.accesses() if _is_costly(one[1]) and not is_atomic(one[1])]
    excess = {id(one): _excess(work, *one[1:]) for one in costly}
    for space, say in {".global.": _uncoalesced, ".shared.": _counted_conflicts}.items():
        some = [one for one in costly if space in one[1].unit]
        total = sum(excess[id(one)] for one in some)
        if some and enough(launch, total, _LEAST):
            some.sort(key=lambda one: -excess[id(one)])
            yield say(launch, some, total / launch.duration)


def _is_costly(access: AccessFacts) -> bool:
    least = _BY_CHANCE if _is_by_chance(access) else access.least or 1.0
    return access.cost is not None and access.cost >= _COUNTED_TIMES * least


def _is_by_chance(access: AccessFacts) -> bool:
    """Whether data place each lane in shared memory: then several meet in a bank by chance."""
    return ".shared." in access.unit and SCATTERED in access.depends


_BY_CHANCE: Final = 3.5
"""Cycles of a request of 32 lanes, each in any bank: the fullest bank has 3.5 of them."""


def _excess(work: CountedWork, access: AccessFacts, requests: float) -> float:
    """Return how long the device needs for what a request costs above its least."""
    more = request_cycles(access) - request_cycles(access, least=True)
    found = work.ns(more * requests)
    if ".global." in access.unit:
        strayed = (sectors(access) - (access.least or 0.0)) * SECTOR * requests
        found = max(found, strayed / work.peak.l2_gb_per_s)
    return found


def _uncoalesced(launch: Prepared, some: list[Access], share: float) -> Finding:
    one, worst, requests = some[0]
    does = "stores" if worst.unit.startswith("store") else "loads"
    dense = _is_dense(worst)
    assumed = "p" in worst.depends
    felt = _felt(launch, one)
    sure = share >= _SURE and _decide(launch, dense=dense) and share <= IMPOSSIBLE
    sure &= felt is None or max(felt, _felt_together(launch, some)) >= _UNFELT
    narrow = dense and bool(misaligned(worst))
    sure |= narrow and _SURELY_IN_PIECES <= share <= IMPOSSIBLE
    pieces = not _deals(launch) and _is_copied_in_pieces(worst)
    far = _TWICE if pieces else _FAR_APART
    decides = (felt or 0.0) >= _LONG and _ratio(worst) >= far
    decides &= not dense or share <= IMPOSSIBLE
    held = (felt or 0.0) * (1 - 1 / _ratio(worst)) if decides else 0.0
    sure |= decides
    sure &= SCATTERED not in worst.depends
    saved = max((1.0 if dense else _LATENCY) * share, held)
    saved = min(1 - nearest(launch, ("L1", "L2")), saved)
    return finding(
        launch,
        "uncoalesced",
        title=f"{one.name} {does} {lane_bytes(worst.unit)} bytes a lane in {worst.cost:.0f} "
        f"sectors a request, where {worst.least:.0f} would do ("
        + (f"piece by piece{misaligned(worst)})" if dense else "uncoalesced, strided by lane)"),
        number=Number("sectors of a request over those it needs", _ratio(worst), "ratio"),
        at_stake=saved * launch.duration,
        without=f"with lanes that {does[:-1]} adjacent addresses",
        confidence="likely" if sure and (not assumed or _is_strided(launch)) else "possible",
        rationale=f"counted: addresses of a warp's lanes, {_source(worst)}"
        f"{_ASSUMED if assumed else ''}, times {requests:,.0f} requests; the sectors above "
        f"the least need {100 * min(share, 1.0):.0f} % of the launch at the caches' full rate"
        + ("; the next requests ask L1 for the rest of them" if dense else "")
        + ". Refuted if a kernel with adjacent lanes takes as long.",
        where=where_of_accesses(launch, some),
        suggestion=(_PIECES if dense else _STRIDED) + (_PAD if misaligned(worst) else ""),
    )


def _decide(launch: Prepared, *, dense: bool) -> bool:
    """Whether caches decide: for requests that use their sectors together, L1's rate alone."""
    return _is_nearest(launch) and (not dense or share_of(launch, "L1") >= _FULL)


def _felt(launch: Prepared, one: RangeWork) -> float | None:
    """Return the share of the warps' time in a range of loads, and in what waits for these.

    None where it was not measured apart: of stores, which no warp waits for, and of loads among
    other code.
    """
    if one.name not in launch.names:
        return None
    region = launch.names.index(one.name)
    if launch.known[region].activity is Activity.COPY:
        copies = launch.regions([Activity.COPY, Activity.WAIT_COPY])
        return None if _deals(launch) else launch.share_in(copies)
    if launch.known[region].activity is not Activity.LOAD:
        return None
    waiting = _awaiting(launch, region)
    return _share(launch, region) + sum(_beyond_issue(launch, each) for each in waiting)


def _felt_together(launch: Prepared, some: list[Access]) -> float:
    """Return the share of the warps' time in accesses to memory that is some accesses'.

    However many ranges it is in: each has the part that its sectors are of all.
    """
    work = counted_work(launch)
    every = work.global_accesses() if work else []
    whole = sum(requests * sectors(one) for _, one, requests in every)
    mine = sum(requests * sectors(one) for _, one, requests in some)
    return launch.share_in(launch.regions(MEMORY)) * mine / max(whole, 1.0)


def _is_copied_in_pieces(access: AccessFacts) -> bool:
    """Whether a lane makes several asynchronous copies side by side, where one would do."""
    width = lane_bytes(access.unit)
    wider = width < _ALIGNED and (access.align or 0) >= 2 * width
    return access.unit.startswith("copy.global") and wider and _is_dense(access)


def _is_strided(launch: Prepared) -> bool:
    """Whether a stride that is a parameter is not 1: Triton makes a constant of one that is."""
    return _deals(launch)


_SURELY_IN_PIECES: Final = 0.1
"""Share of the launch from which on pieces are the cause where addresses allow no wide access."""
_TWICE: Final = 2.0
"""Times the least from which on copies in pieces are the cause: a copy costs its issue slots, and
L1's cycles, for any width."""
_FAR_APART: Final = 4.0
"""Times the least from which on requests are the cause where much of the time is in their code."""
_UNFELT: Final = 0.1
"""Share of the warps' time in loads, and in waits for them, below which their cost is no cause: L1
has the sectors that the next iterations ask for."""
_FULL: Final = 0.7
"""Share of L1's rate from which on its cycles decide, and not their latency."""


def _is_nearest(launch: Prepared) -> bool:
    """Whether caches are about as near to their limit as anything else."""
    found = {one.name: one.share for one in roofs(launch)}
    caches = max(found.get("L1", 1.0), found.get("L2", 0.0))  # no L1: more than it can do
    return nearest(launch, ("L1", "L2")) <= _FARTHER * caches


_FARTHER: Final = 2.5
_STRIDED: Final = (
    "let neighbouring lanes access neighbouring addresses: another order of threads or layout, or "
    "a transposition through shared memory; wider accesses for each lane"
)
_PIECES: Final = (
    "one wide access (16 bytes a lane) in place of several narrow ones, or neighbouring lanes at "
    "neighbouring addresses: another layout"
)
_PAD: Final = (
    "; align rows: a stride, and a first address, that are multiples of 16 bytes (pad or copy)"
)
_DENSE: Final = 1.5
"""Times the least up to which requests of one line use all of their sectors together."""
_ALIGNED: Final = 16


def misaligned(access: AccessFacts) -> str:
    """Return words on addresses that no wide access may have; empty where there are none."""
    if access.align is None or access.align >= _ALIGNED or lane_bytes(access.unit) >= _ALIGNED:
        return ""
    return f"; its rows are aligned to {access.align} bytes only"


def _is_dense(access: AccessFacts) -> bool:
    least = access.least or 1.0
    return access.together is not None and access.together <= _DENSE * least


_ASSUMED: Final = " (with strides that are parameters as in the first launch, or large)"


def _source(access: AccessFacts) -> str:
    recorded = RECORDED in access.depends
    return "as recorded (--probe addresses)" if recorded else "from the machine code"


def _counted_conflicts(launch: Prepared, some: list[Access], share: float) -> Finding:
    one, worst, requests = some[0]
    saved = min(1 - nearest(launch, ("L1",)), _LATENCY * share)
    return finding(
        launch,
        "bank-conflicts",
        title=f"{one.name} accesses shared memory in {worst.cost:.0f} cycles a request, "
        f"where {worst.least:.0f} would do: lanes share banks",
        number=Number("cycles of a request over those it needs", _ratio(worst), "ratio"),
        at_stake=saved * launch.duration,
        without="with no two lanes in a bank",
        confidence="likely" if share >= _COUNTED_MOSTLY else "possible",
        rationale=f"counted: addresses of a warp's lanes, {_source(worst)}, times "
        f"{requests:,.0f} requests; the cycles above the least are {100 * min(share, 1.0):.0f} % "
        "of the launch. Refuted if padded rows take as long.",
        where=where_of_accesses(launch, some),
        suggestion=_DEALT
        if _deals(launch)
        else "pad rows by one element, or swizzle, so that the lanes of a warp meet all banks",
    )


def _deals(launch: Prepared) -> bool:
    """Whether a compiler lays numbers out, and no line of the kernel's source."""
    return launch.launch.backend in _DEALS


_DEALS: Final = ("triton", "gluon")
"""Languages whose compiler lays out shared memory."""
_DEALT: Final = (
    "let operands lie in memory as products take them, above all those of 8 bits (K is the fastest "
    "axis of both): else each tile is transposed through shared memory; or load and reduce along "
    "the axis that is contiguous"
)


def _ratio(access: AccessFacts) -> float:
    return (access.cost or 0.0) / (access.least or 1.0)


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
_LONG: Final = 0.25
"""Share of the warps' time from which on the loads of a range are a finding."""
_MOSTLY: Final = 0.5
"""The same for a range of which only its loads or stores are known."""


def slow_memory(launch: Prepared) -> Iterator[Finding]:
    """Yield findings on regions with slow accesses to memory, by what the machine code says."""
    facts = launch.facts.ranges if launch.facts else {}
    if counted_work(launch) is not None:  # costly accesses are counted by their addresses
        for region in np.flatnonzero(launch.counts).tolist():
            known = facts.get(launch.names[region])
            if known and known.lane_bytes and known.lane_bytes <= _HALF:
                yield from _narrow(launch, region, known.lane_bytes)
        yield from _few_bytes(launch)
        yield from _one_by_one(launch)
        return
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
    waiting = _awaiting(launch, region)
    share = _share(launch, region) + sum(_beyond_issue(launch, each) for each in waiting)
    left = 1 - nearest(launch)
    if share < _LONG:
        return
    name = launch.names[region]
    others = [launch.names[each] for each in waiting]
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


def _unaligned(launch: Prepared, name: str) -> str:
    """Return words on a range's loads that can't be wider; empty where they could, or may."""
    accesses = launch.facts.ranges[name].accesses if launch.facts else ()
    words = (misaligned(one) for one in accesses if one.unit.startswith("load.global"))
    return next((each for each in words if each), "")


def _few_bytes(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on narrow loads that are too few bytes under way to fill memory's rate."""
    work, room = counted_work(launch), room_of(launch)
    every = work.accesses("load.g") if work else []
    loads = [one for one in every if one[1].addresses != 1]
    if work is None or not room.warps or not loads or not all(map(_is_scalar, loads)):
        return
    warp = sum(one.count * (one.least or 0.0) * SECTOR for _, one, _ in loads)
    under_way = warp * min(room.warps, work.peak.warps)
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
