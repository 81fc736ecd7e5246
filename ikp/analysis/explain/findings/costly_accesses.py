"""Findings ``uncoalesced`` and ``bank-conflicts``, counted: requests that cost more than they need.

The machine code says the addresses of a warp's lanes: so many sectors of global memory, or cycles
of shared memory, a request takes, and so many it would take with its lanes adjacent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.counted_work import (
    SECTOR,
    Access,
    CountedWork,
    counted_work,
    is_atomic,
    lane_bytes,
    request_cycles,
    sectors,
)
from ikp.analysis.explain.places import where_of_accesses
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.recorded_accesses import RECORDED
from ikp.analysis.explain.roofs import nearest, roofs
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number
from ikp.core.code_facts import AccessFacts

_TIMES: Final = 1.9
"""Times the least cost from which on a request is costly: rows that begin inside of a sector cost
up to 1.5 times as much."""
_LEAST: Final = 0.05
"""Share of the launch that the excess needs at the unit's full rate, from which on it counts."""
_SURE: Final = 0.2
"""The same, from which on the excess is likely to be the cause."""
_MOSTLY: Final = 0.6
"""The same of bank conflicts, which other warps' work may hide."""
_LATENCY: Final = 4.0
"""How many times as long as at the full rate an excess may hold a launch up, at most."""


def costly_accesses(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on strided accesses to global memory, and one on bank conflicts."""
    work = counted_work(launch)
    if work is None:
        return
    costly = [one for one in work.accesses() if _is_costly(one[1]) and not is_atomic(one[1])]
    excess = {id(one): _excess(work, *one[1:]) for one in costly}
    for space, say in {".global.": _uncoalesced, ".shared.": _conflicts}.items():
        some = [one for one in costly if space in one[1].unit]
        total = sum(excess[id(one)] for one in some)
        if some and enough(launch, total, _LEAST):
            some.sort(key=lambda one: -excess[id(one)])
            yield say(launch, some, min(total / launch.duration, 1.0))


def _is_costly(access: AccessFacts) -> bool:
    return access.cost is not None and access.cost >= _TIMES * (access.least or 1.0)


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
    saved = min(1 - nearest(launch, ("L1", "L2")), (1.0 if dense else _LATENCY) * share)
    assumed = "p" in worst.depends
    return finding(
        launch,
        "uncoalesced",
        title=f"{one.name} {does} {lane_bytes(worst.unit)} bytes a lane in {worst.cost:.0f} "
        f"sectors a request, where {worst.least:.0f} would do ("
        + (f"piece by piece{misaligned(worst)})" if dense else "uncoalesced, strided by lane)"),
        number=Number("sectors of a request over those it needs", _ratio(worst), "ratio"),
        at_stake=saved * launch.duration,
        without=f"with lanes that {does[:-1]} adjacent addresses",
        confidence="likely" if share >= _SURE and _is_nearest(launch) else "possible",
        rationale=f"counted: addresses of a warp's lanes, {_source(worst)}"
        f"{_ASSUMED if assumed else ''}, times {requests:,.0f} requests; the sectors above "
        f"the least need {100 * share:.0f} % of the launch at the caches' full rate"
        + ("; the next requests ask L1 for the rest of them" if dense else "")
        + ". Refuted if a kernel with adjacent lanes takes as long.",
        where=where_of_accesses(launch, some),
        suggestion=(_PIECES if dense else _STRIDED) + (_PAD if misaligned(worst) else ""),
    )


def _is_nearest(launch: Prepared) -> bool:
    """Whether caches are about as near to their limit as anything else."""
    found = {one.name: one.share for one in roofs(launch)}
    caches = max(found.get("L1", 1.0), found.get("L2", 0.0))  # no L1: more than it can do
    return nearest(launch, ("L1", "L2")) <= _FARTHER * caches


_FARTHER: Final = 1.5
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


def _conflicts(launch: Prepared, some: list[Access], share: float) -> Finding:
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
        confidence="likely" if share >= _MOSTLY else "possible",
        rationale=f"counted: addresses of a warp's lanes, {_source(worst)}, times "
        f"{requests:,.0f} requests; the cycles above the least are {100 * share:.0f} % of "
        "the launch. Refuted if padded rows take as long.",
        where=where_of_accesses(launch, some),
        suggestion="pad rows by one element, or swizzle, so that the lanes of a warp meet all "
        "banks",
    )


def _ratio(access: AccessFacts) -> float:
    return (access.cost or 0.0) / (access.least or 1.0)
