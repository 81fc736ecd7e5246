"""Finding ``barrier-skew``: warps of a block come to a barrier apart, and wait for the last one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.findings.needless_barriers import needless
from ikp.analysis.explain.instances import Meetings, meetings
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number, Where
from ikp.core.sorting import sum_by


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
        confidence=_confidence(float(lost.mean()), of_meetings, _beside(launch)),
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
    """Return how sure it is that work could be spread: small skews are how warps are scheduled."""
    same = of_meetings > _USUALLY
    if lost < (_SMALL if same else _LARGE):
        return "possible"
    return "measured" if blocks <= _FEW_BLOCKS else "possible"


def _beside(launch: Prepared) -> int:
    """Return how many blocks an SM holds at once; 1 where that is not known."""
    return int(np.median(launch.lanes.lanes)) if launch.every_block else 1


_FEW_BLOCKS: Final = 2
"""Blocks of an SM up to which all of them wait at a barrier at times."""


_USUALLY: Final = 0.5
"""Part of the meetings with one warp as the last, from which on its work is the cause."""
_SMALL: Final = 100.0
_LARGE: Final = 1000.0
"""Nanoseconds of a mean skew from which on it is a cause, of one warp and of any."""


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
