"""Findings on waits without a late role: for own copies, loads, barriers, or unrecorded warps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.counted_work import counted_work
from ikp.analysis.explain.findings.needless_barriers import needless
from ikp.analysis.explain.instances import meetings
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import nearest
from ikp.analysis.explain.room_on_sms import room_of
from ikp.analysis.explain.shares import group_shares
from ikp.analysis.explain.stakes import LEAST, enough, finding
from ikp.analysis.explain.use_of_hardware import BUSY, asked_of_memory
from ikp.analysis.explain.verdict import Finding, Number, Where

_KINDS: Final = {
    Activity.WAIT_COPY: "late-copy",
    Activity.WAIT_MEMORY: "exposed-load",
    Activity.WAIT_BARRIER: "late-copy",
}
_MOST: Final = 3
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
        if region in removed:
            continue
        kind = launch.known[region].activity
        if kind is not Activity.WAIT_MEMORY and not alone:
            continue  # told of with the groups that are late
        group = int(shares.own[:, region].argmax())
        share = float(shares.own[group, region])
        saved = min(share, 1 - shares.limit(group))
        if region in beside and float(shares.own[group, beside].sum()) >= _MUCH:
            saved = max(saved, 1 - max(float(shares.products[group]), nearest(launch)))
        least = _UNSEEN if _kind(launch, region) == "unseen-wait" else LEAST
        if not enough(launch, saved * launch.duration, least):
            continue
        if kind is Activity.WAIT_MEMORY or not meetings(launch, region):  # told of with the last
            found.append(_found(launch, region, group, share, saved))
    found.sort(key=lambda one: (-one.bound_ns, -one.number.value))
    yield from _one_pipeline(launch, found)[:_MOST]


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
    to shared memory beside them: its bound is what the longer of both leaves.
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
    who = f"{launch.groups.names[group]}: " if len(launch.groups) > 1 else ""
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
        if queues or kind in ("unseen-wait", "barriers") or _others_work(launch, region)
        else "likely",
        rationale=_BECAUSE.get(kind, _ALONE),
        where=Where(
            regions=(name,),
            roles=(launch.groups.names[group],) if launch.groups.by == "role" else (),
            warps=launch.warps(rows),
            window_ns=launch.window(rows),
            count=len(rows),
        ),
        suggestion=_DO[kind] if kind != "unseen-wait" else _let_record(launch),
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
