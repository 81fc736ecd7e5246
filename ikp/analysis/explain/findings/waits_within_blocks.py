"""Findings on waits that end within a warp's own block: at barriers, and for its own copies and
loads.

``needless-barrier``: a barrier that orders no accesses. ``barrier-skew``: warps come to a barrier
apart, and wait for the last one. ``exposed-load``, ``late-copy``, ``barriers``, ``unseen-wait``:
waits without a late role.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ikp.analysis.explain.activity import FLAG_WAIT, Activity
from ikp.analysis.explain.connections import Meetings, meetings
from ikp.analysis.explain.counted_work import counted_work
from ikp.analysis.explain.places import where_of_rows
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.region_times import group_shares
from ikp.analysis.explain.roofs import is_counted, nearest
from ikp.analysis.explain.stakes import LEAST, enough, finding
from ikp.analysis.explain.use_of_hardware import BUSY, asked_of_memory, copy_overlap, room_of
from ikp.analysis.explain.verdict import Finding, Number, Where
from ikp.core.code_facts import RangeFacts
from ikp.core.sorting import sum_by


def needless_barriers(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on the time in barriers that can be removed."""
    some = sorted(needless(launch), key=lambda region: -int(launch.own_by_region[region]))
    share, least = _waits(launch, some)
    share = share if least >= _PART * share else least
    if not some or not enough(launch, share * launch.duration):
        return
    rows = launch.of_region(some)
    facts = launch.facts.ranges if launch.facts else {}
    names = tuple(launch.names[region] for region in some[:_MOST_BARRIERS])
    yield finding(
        launch,
        "needless-barrier",
        title=f"{names[0]} orders nothing: no warp reads behind it what another one wrote before "
        f"it; {100 * share:.0f} % of the warps' time",
        number=Number("wait in such barriers, of the warps' time", share, "share"),
        at_stake=share * launch.duration,
        without="without these barriers",
        confidence="likely",
        rationale="by the machine code: between this barrier and the next ones before and behind "
        "it, no store to shared or global memory meets another access of the block. Refuted by "
        "compute-sanitizer --tool racecheck, or if it keeps warps together on purpose, as for a "
        "cache.",
        where=where_of_rows(
            launch, rows, names, lines=tuple(dict.fromkeys(facts[each].line for each in names))
        ),
        suggestion="remove it if racecheck agrees: the barriers that are left seem to order all "
        "accesses; __syncwarp() where the lanes of one warp exchange numbers",
    )


_MOST_BARRIERS: Final = 3
_PART: Final = 0.5
"""Part of the mean wait from which on all warps of a block wait in turn. Where one never waits, it
is what the others wait for, and would end no sooner without the barrier."""


def _waits(launch: Prepared, regions: list[int]) -> tuple[float, float]:
    """Return the share of the warps' time in some regions: of all, and of each block's least."""
    each = launch.by_warp
    wanted = np.isin(each.region, regions)
    took = np.zeros(len(launch.start))
    np.add.at(took, each.slot[wanted], each.own[wanted])
    shares = took / np.maximum(launch.end - launch.start, 1)
    least = np.full(len(launch.block_ids), np.inf)
    np.minimum.at(least, launch.block_of, shares)
    return float(took.sum()) / max(launch.warp_time, 1), float(least.mean())


_MADE: Final = "/triton/language/"
"""Where barriers of Triton's own functions have their lines, such as those of ``tl.sum``: its
compiler puts them in, and no edit of the kernel takes one of them out."""


def needless(launch: Prepared) -> list[int]:
    """Return the regions that are nothing but such barriers, which the kernel's source has."""
    facts = launch.facts.ranges if launch.facts else {}
    waits = launch.regions([Activity.WAIT_BARRIER]).tolist()
    known = ((region, facts.get(launch.names[region])) for region in waits)
    return [region for region, one in known if one and _only_needless(one)]


def _only_needless(one: RangeFacts) -> bool:
    every = sum(one.mix.get("barrier", ()))
    return _MADE not in one.line and one.needless > 0 and one.needless >= every


def barrier_skew(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding for each barrier that warps come to apart."""
    removed = {*needless(launch)}
    for region in launch.regions([Activity.WAIT_BARRIER, Activity.WAIT_COPY]).tolist():
        met = None if region in removed else meetings(launch, region)
        if met is not None:
            yield from _skew(launch, region, met)


def _skew(launch: Prepared, region: int, met: Meetings) -> Iterator[Finding]:
    """Yield a finding where the same work, spread evenly over the warps, would end sooner.

    Spread evenly, all warps would come at the mean arrival of a meeting.
    """
    lost = met.last - met.mean
    life = launch.block_end - launch.block_start
    share = float(lost.sum()) / max(float(life[_blocks(launch, met)].sum()), 1.0)
    at_stake = share * launch.duration
    if not enough(launch, at_stake):
        return
    warps = launch.trace.slots.warp
    late = warps[launch.slot[met.last_row]]
    usual, times = np.unique(late, return_counts=True)
    often = int(usual[np.argmax(times)])
    of_meetings = float(times.max()) / len(late)
    doing = _before(launch, often, region)
    worst = met.last_row[np.argsort(-lost)[:3]]
    longest = met.rows[met.number == int(np.argmax(lost))]
    name = launch.names[region]
    yield finding(
        launch,
        "barrier-skew",
        title=f"warps come to {name} apart: the last one {lost.mean():,.0f} ns after the average, "
        f"{len(lost):,} times"
        + (f"; in {100 * of_meetings:.0f} % it is warp {often}" if of_meetings > 0.5 else "")
        + (f", which takes longer in {doing}" if doing and of_meetings > 0.5 else ""),
        number=Number("last arrival after the mean one, of the blocks' time", share, "share"),
        at_stake=at_stake,
        without="with the same work spread evenly over the warps",
        confidence=_confidence(
            float(lost.mean()), of_meetings, 1 if share >= _MOSTLY else _at_work(launch)
        ),
        rationale="the same warps leave it together, as the last one comes; only warps that "
        "recorded count. Where an SM holds several blocks, the others may work meanwhile.",
        where=Where(
            regions=(name, *([doing] if doing else [])),
            warps=tuple(launch.warp(int(slot)) for slot in dict.fromkeys(launch.slot[worst])),
            window_ns=launch.window(longest),
            count=len(lost),
        ),
        suggestion="give each warp as much to do between two barriers, or let those go on that "
        "need not wait (a named barrier, an mbarrier)",
    )


def _confidence(lost: float, of_meetings: float, blocks: int) -> str:
    """Return how sure it is that work could be spread.

    Small skews are how warps are scheduled, and steps of one warp that others need.
    """
    sure = of_meetings > _USUALLY and lost >= _LARGE and blocks <= _FEW_BLOCKS
    return "measured" if sure else "possible"


def _at_work(launch: Prepared) -> int:
    """Return how many blocks of an SM would use what one leaves; 1 where that is not known.

    Where a unit is half busy, any second block makes up for a first one that waits.
    """
    blocks = int(np.median(launch.lanes.lanes)) if launch.every_block else 1
    return blocks if nearest(launch) < _BUSY else _FEW_BLOCKS * blocks


_BUSY: Final = 0.5
"""Share of the nearest roof from which on blocks beside each other wait for the same unit."""


_MOSTLY: Final = 0.5
"""Such a share from which on blocks beside have the SM to themselves, and wait as well."""
_FEW_BLOCKS: Final = 2
"""Blocks of an SM up to which all of them wait at a barrier at times."""


_USUALLY: Final = 0.5
"""Part of the meetings with one warp as the last, from which on its work is the cause."""
_LARGE: Final = 1000.0
"""Nanoseconds of a mean skew of one warp from which on it is a cause. In five kernels of libraries,
in which one came 0.1 to 0.4 us late, it never was (decision 276)."""


def _blocks(launch: Prepared, met: Meetings) -> np.ndarray:
    """Return the blocks that met."""
    return np.unique(launch.block_of[launch.slot[met.rows]])


def _before(launch: Prepared, warp: int, barrier: int) -> str:
    """Return the region in which a warp is longer than the others of its blocks; "" for none."""
    each = launch.by_warp
    mine = launch.trace.slots.warp[each.slot] == warp
    warps = max(len(np.unique(launch.trace.slots.warp)) - 1, 1)
    count = len(launch.names)
    own = sum_by(each.region[mine], each.own[mine], count)
    others = sum_by(each.region[~mine], each.own[~mine], count) / warps
    more = own - others
    more[barrier] = 0
    longest = int(np.argmax(more))
    return launch.names[longest] if more[longest] > 0 else ""


_KINDS: Final = {
    Activity.WAIT_COPY: "late-copy",
    Activity.WAIT_MEMORY: "exposed-load",
    Activity.WAIT_BARRIER: "late-copy",
}
_MOST_WAITS: Final = 3
_OFTEN: Final = 0.5
"""Waits for each product from which on the wait is in the loop of the products."""
_MUCH: Final = 0.1
"""Share of the time in such waits from which on a pipeline would free more than these."""
_BLOCK: Final = "barrier @"
"""How the mark of a block's barrier begins; that of an mbarrier, which copies end, differs."""
_UNSEEN: Final = 0.1
"""Share of the time up to which waits for unrecorded copies or warps are a barrier's usual cost."""


def lone_waits(launch: Prepared) -> Iterator[Finding]:
    """Yield findings on the regions in which warps wait longest, and for no late role."""
    shares = group_shares(launch)
    alone = np.count_nonzero(shares.recorded) == 1
    found, removed, beside = [], {*needless(launch)}, _beside_products(launch)
    for region in launch.regions(_KINDS).tolist():
        if region in removed or launch.names[region].startswith(FLAG_WAIT):
            continue
        kind = launch.known[region].activity
        if kind is not Activity.WAIT_MEMORY and not alone:
            continue  # a finding with the groups that are late
        group = int(shares.own[:, region].argmax())
        share = float(shares.own[group, region])
        saved = min(share, 1 - shares.limit(group))
        if region in beside and float(shares.own[group, beside].sum()) >= _MUCH:
            computes = shares.own[group, launch.regions([Activity.COMPUTE])].sum()
            stays = float(shares.products[group] + computes)
            saved = max(saved, 1 - max(stays, nearest(launch)))
        least = _UNSEEN if _kind(launch, region) == "unseen-wait" else LEAST
        if not enough(launch, saved * launch.duration, least):
            continue
        if kind is Activity.WAIT_MEMORY or not meetings(launch, region):  # a finding with the last
            found.append(_found(launch, region, group, share, saved))
    found.sort(key=lambda one: (-one.bound_ns, -one.number.value))
    yield from _one_pipeline(launch, found)[:_MOST_WAITS]


def _beside_products(launch: Prepared) -> list[int]:
    """Return the waits for loads of loops with products: warps wait about as often."""
    products = launch.counts[launch.regions([Activity.MMA])]
    waits = launch.regions([Activity.WAIT_MEMORY])
    if not products.size:
        return []
    return [int(one) for one in waits[launch.counts[waits] >= _OFTEN * products.max()]]


def _one_pipeline(launch: Prepared, found: list[Finding]) -> list[Finding]:
    """Return findings with the first of those on loads alone where warps make products, too.

    A pipeline that overlaps loads and products takes away all these waits, and barriers and stores
    to shared memory beside them. Products, and what else the warps calculate, stay.
    """
    if not launch.regions([Activity.MMA]).size:
        return found
    loads = [one for one in found if one.id == _KINDS[Activity.WAIT_MEMORY]]
    return [one for one in found if one not in loads[1:]]


def _kind(launch: Prepared, region: int) -> str:
    """Return the id of a wait's finding.

    A wait that no recorded copy ends is ended by warps or copies that did not record: a name alone
    does not say that a wait is for the warps' own copies.
    """
    known = launch.known[region]
    if launch.names[region].startswith(_BLOCK) and known.activity is Activity.WAIT_BARRIER:
        own, copies = launch.own_by_region, launch.regions([Activity.WAIT_COPY])
        if launch.scale is not None and own[copies].sum() < own[region]:
            return "barriers"  # late copies show in the wait before it
    sure = known.activity is not Activity.WAIT_BARRIER and known.by != "name"
    if not sure and known.activity is not Activity.WAIT_MEMORY:
        return _KINDS[known.activity] if len(launch.regions([Activity.COPY])) else "unseen-wait"
    return _KINDS[known.activity]


def _found(launch: Prepared, region: int, group: int, share: float, saved: float) -> Finding:
    rows = launch.of_region([region])
    name, kind = launch.names[region], _kind(launch, region)
    asked = (asked_of_memory(launch) or 0.0) if kind in ("late-copy", "exposed-load") else 0.0
    queues = asked >= BUSY
    unknown = kind in ("late-copy", "exposed-load") and not is_counted(launch)
    who = f"{launch.groups.names[group]}: " if len(launch.groups) > 1 else ""
    sure = _one_ahead(launch, kind, share)
    return finding(
        launch,
        kind,
        title=f"{who}{100 * share:.0f} % of the warps' time is the wait in {name}: "
        + _WHY[kind]
        + (f"; memory is asked for {100 * asked:.0f} % of its rate" if queues else ""),
        number=Number(f"{name}, of its warps' time", share, "share"),
        at_stake=saved * launch.duration,
        without=f"without the wait in {name}",
        confidence="possible"
        if queues
        or unknown
        or kind in ("unseen-wait", "barriers")
        or (_others_work(launch, region) and not sure)
        else "likely",
        rationale=_BECAUSE.get(kind, _ALONE) + (_ONE_AHEAD if sure else ""),
        where=where_of_rows(
            launch,
            rows,
            (name,),
            roles=(launch.groups.names[group],) if launch.groups.by == "role" else (),
        ),
        suggestion=_DO[kind] if kind != "unseen-wait" else _let_record(launch),
    )


def _one_ahead(launch: Prepared, kind: str, share: float) -> bool:
    """Whether a loop waits for all copies under way, which it issued an iteration before.

    Not where other warps make products meanwhile: then tensor cores wait for nothing.
    """
    ahead = launch.facts.ahead if launch.facts else None
    if kind != "late-copy" or ahead is None or ahead >= 1 or share < _MUCH:
        return False
    return (copy_overlap(launch) or 0.0) < _COVERED


_COVERED: Final = 0.9
"""Part of the time of copies, with a product under way on the SM, from which on it is hidden."""
_ONE_AHEAD: Final = (
    " The machine code leaves no copy under way at that wait: copies are issued one iteration "
    "ahead, and one more stage would leave some."
)


def _others_work(launch: Prepared, region: int) -> bool:
    """Whether an SM holds enough warps that others may work meanwhile, and work is counted.

    In a loop with products, all warps of a block wait for its loads at about the same time.
    """
    warps, least = room_of(launch).warps, _SEVERAL
    if region in _beside_products(launch):
        if not launch.regions([Activity.COPY]).size:
            return False  # nothing is loaded ahead
        least = _IN_STEP
    return counted_work(launch) is not None and warps is not None and warps >= least


_SEVERAL: Final = 8
"""Warps of an SM from which on each of its schedulers has two."""
_IN_STEP: Final = 12
"""The same in a loop with products."""


def _let_record(launch: Prepared) -> str:
    names = launch.unrecorded
    if not names:
        return _DO["unseen-wait"]
    return (
        f"the kernel's code has ranges that no warp recorded, such as {', '.join(names[:3])}: let "
        "the warps of these record, and the verdict says who is late"
    )


_ALONE: Final = (
    "the wait is measured; that nothing else of the SM would take its time is assumed. Where other "
    "warps of the SM work meanwhile, or memory is at its bandwidth, less is won."
)
_BECAUSE: Final = {
    "barriers": "warps don't leave it as the last one comes, so how much of it they come apart by, "
    "and how much the barrier itself takes, is unknown; what they wait for copies shows before.",
}
_WHY: Final = {
    "barriers": "for the other warps of the block, again and again",
    "late-copy": "copies arrive late",
    "exposed-load": "what is loaded is needed before it is there",
    "unseen-wait": "for copies, or for warps, that recorded nothing",
}
_DO: Final = {
    "barriers": "fewer barriers: more work between two of them (a longer step of the loop), or "
    "such as fewer warps meet at (an mbarrier for each stage, roles of their own)",
    "late-copy": "issue copies further ahead: one more stage, or earlier in the iteration",
    "exposed-load": "load earlier what is needed (the iteration before, a pipeline), more bytes at "
    "once, or have more warps on the SM",
    "unseen-wait": "let all warps record, with ranges around what they copy and compute: then the "
    "verdict says who is late",
}
