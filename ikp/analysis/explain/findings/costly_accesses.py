"""Findings ``uncoalesced`` and ``bank-conflicts``, counted: requests that cost more than they need.

The machine code says the addresses of a warp's lanes: so many sectors of global memory, or cycles
of shared memory, a request takes, and so many it would take with its lanes adjacent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ikp.analysis.explain.counted_work import (
    SECTOR,
    CountedWork,
    RangeWork,
    counted_work,
    is_atomic,
    lane_bytes,
    request_cycles,
)
from ikp.analysis.explain.places import where_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.recorded_accesses import RECORDED
from ikp.analysis.explain.roofs import nearest
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


@dataclass(frozen=True, slots=True)
class _Costly:
    range: RangeWork
    access: AccessFacts
    requests: float
    excess: float  # nanoseconds of the launch, at the unit's full rate


def costly_accesses(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on strided accesses to global memory, and one on bank conflicts."""
    work = counted_work(launch)
    if work is None:
        return
    costly = [
        _Costly(one, access, requests, _excess(work, access, requests))
        for one, access, requests in work.accesses()
        if access.cost is not None and access.cost >= _TIMES * (access.least or 1.0)
    ]
    spaces = {".global.": _uncoalesced, ".shared.": _conflicts}
    for space, say in spaces.items():
        some = [one for one in costly if space in one.access.unit and not is_atomic(one.access)]
        excess = sum(one.excess for one in some)
        if some and enough(launch, excess, _LEAST):
            some.sort(key=lambda one: -one.excess)
            yield say(launch, some, min(excess / launch.duration, 1.0))


def _excess(work: CountedWork, access: AccessFacts, requests: float) -> float:
    """Return how long the device needs for what a request costs above its least."""
    more = request_cycles(access) - request_cycles(access, least=True)
    found = work.ns(more * requests)
    if ".global." in access.unit:
        sectors = ((access.cost or 0.0) - (access.least or 0.0)) * SECTOR * requests
        found = max(found, sectors / work.peak.l2_gb_per_s)
    return found


def _uncoalesced(launch: Prepared, some: list[_Costly], share: float) -> Finding:
    worst = some[0].access
    does = "stores" if worst.unit.startswith("store") else "loads"
    size = lane_bytes(worst.unit)
    saved = min(1 - nearest(launch, ("L1", "L2")), _LATENCY * share)
    assumed = "p" in worst.depends
    return finding(
        launch,
        "uncoalesced",
        title=f"{some[0].range.name} {does} {size} bytes a lane in {worst.cost:.0f} sectors a "
        f"request, where {worst.least:.0f} would do (uncoalesced, strided by lane)",
        number=Number("sectors of a request over those it needs", _ratio(worst), "ratio"),
        at_stake=saved * launch.duration,
        without=f"with lanes that {does[:-1]} adjacent addresses",
        confidence="likely" if share >= _SURE else "possible",
        rationale=f"counted: addresses of a warp's lanes, {_source(worst)}"
        f"{_ASSUMED if assumed else ''}, times {some[0].requests:,.0f} requests; the sectors above "
        f"the least need {100 * share:.0f} % of the launch at the caches' full rate. Refuted if a "
        "kernel with adjacent lanes takes as long.",
        where=where_of(launch, [one.range for one in some], [one.access.line for one in some]),
        suggestion="let neighbouring lanes access neighbouring addresses: another order of threads "
        "or layout, or a transposition through shared memory; wider accesses for each lane",
    )


_ASSUMED: Final = " (with strides that are parameters as in the first launch, or large)"


def _source(access: AccessFacts) -> str:
    recorded = RECORDED in access.depends
    return "as recorded (--probe addresses)" if recorded else "from the machine code"


def _conflicts(launch: Prepared, some: list[_Costly], share: float) -> Finding:
    worst = some[0].access
    saved = min(1 - nearest(launch, ("L1",)), _LATENCY * share)
    return finding(
        launch,
        "bank-conflicts",
        title=f"{some[0].range.name} accesses shared memory in {worst.cost:.0f} cycles a request, "
        f"where {worst.least:.0f} would do: lanes share banks",
        number=Number("cycles of a request over those it needs", _ratio(worst), "ratio"),
        at_stake=saved * launch.duration,
        without="with no two lanes in a bank",
        confidence="likely" if share >= _MOSTLY else "possible",
        rationale=f"counted: addresses of a warp's lanes, {_source(worst)}, times "
        f"{some[0].requests:,.0f} requests; the cycles above the least are {100 * share:.0f} % of "
        "the launch. Refuted if padded rows take as long.",
        where=where_of(launch, [one.range for one in some], [one.access.line for one in some]),
        suggestion="pad rows by one element, or swizzle, so that the lanes of a warp meet all "
        "banks",
    )


def _ratio(access: AccessFacts) -> float:
    return (access.cost or 0.0) / (access.least or 1.0)
