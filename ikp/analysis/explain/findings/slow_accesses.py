"""Findings on accesses that cost more than they need: ``uncoalesced``, ``bank-conflicts``.

Counted: the machine code says the addresses of a warp's lanes; so many sectors of global memory, or
cycles of shared memory, a request takes, and so many it would take with its lanes adjacent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

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
from ikp.analysis.explain.findings.slow_memory import ALIGNED, LONG, misaligned, share_of_loads
from ikp.analysis.explain.places import where_of_accesses
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import IMPOSSIBLE, nearest, roofs, share_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number
from ikp.core.code_facts import RECORDED, SCATTERED, AccessFacts

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
    decides = (felt or 0.0) >= LONG and _ratio(worst) >= far
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
    return share_of_loads(launch, region)


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
    wider = width < ALIGNED and (access.align or 0) >= 2 * width
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
