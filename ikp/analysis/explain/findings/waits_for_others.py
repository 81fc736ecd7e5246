"""Findings on waits for others of the launch: another group of warps, other blocks.

One group's wait ends when another group has done its part. If that group was busy all the time, it
is late (``late-producer``, ``late-consumer``): without it, a block takes as long as the next
busiest group. If it waits, too, the copies in flight between them take too long: for the stages
that there are (``few-stages``), or because they queue for memory (``queued-copies``).
``flag-wait``: blocks wait at flags and locks in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ikp.analysis.explain.activity import FLAG_WAIT, Activity
from ikp.analysis.explain.connections import Connection, Rows, connect_wait
from ikp.analysis.explain.counted_work import RangeWork, counted_work
from ikp.analysis.explain.findings.needless_instructions import extra_of
from ikp.analysis.explain.places import share_of_time, where_of, where_of_rows
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.region_times import (
    GroupShares,
    group_shares,
    issue_share,
    share_of_blocks,
)
from ikp.analysis.explain.roofs import nearest
from ikp.analysis.explain.stakes import LEAST, enough, finding
from ikp.analysis.explain.verdict import Finding, Number, Where

_BUSY: Final = 0.75
"""Share of its time from which on a group is busy without slack to speak of."""
_MULTIPLIES: Final = 0.2
"""Share of its time in products from which on a group is left to the findings on idle products."""


_LAP: Final = 4
"""Waits that are taken together: a ring that is too short makes one of each lap long."""
_SPREAD: Final = 0.25
"""Share of a group's time up to which its waits for copies are the spread of memory's latency: a
persistent GEMM on an H200, with as many stages as shared memory has room for, waited for 16 to 20 %
in two runs."""


_QUEUED: Final = 2.0
"""Median over quickest copy from which on copies queue for memory: so long is a queue's wait at
about two thirds of its rate."""
_FAR: Final = 2000
"""Nanoseconds below which copies are not taken to queue. In four kernels on an H200 the quickest
tiles of 16 to 48 KB took 0.3 to 1.4 us. A ring of two, which more stages made faster, took 1.3:
twice its quickest, so that ratio alone is not enough."""
_ISSUES: Final = 0.8
"""Share of a range's time that its own instructions take, from which on nothing else slows it."""


@dataclass(frozen=True)
class _Wait:
    """A group's waits in one region, and the group that is waited for."""

    group: int
    region: int
    share: float  # of the group's time
    late: int  # group
    connection: Connection | None


def late_groups(launch: Prepared) -> Iterator[Finding]:
    """Yield the finding with the most time at stake for each group that is waited for, and id."""
    shares = group_shares(launch)
    if np.count_nonzero(shares.recorded) < 2:
        return
    best: dict[tuple[int, str], Finding] = {}
    for wait in _waits(launch, shares):
        found = _late(launch, shares, wait) or _both_wait(launch, shares, wait)
        if found is not None:
            key = wait.late, found.id
            if key not in best or found.bound_ns > best[key].bound_ns:
                best[key] = found
    yield from best.values()


def connections(launch: Prepared) -> Iterator[Connection]:
    """Yield the connections of waits with their sources, the longest waits first."""
    shares = group_shares(launch)
    if np.count_nonzero(shares.recorded) < 2:
        return
    for wait in _waits(launch, shares):
        if wait.connection is not None:
            yield wait.connection


def _waits(launch: Prepared, shares: GroupShares) -> Iterator[_Wait]:
    waits = [
        i
        for i, known in enumerate(launch.known)
        if known.activity.waits
        and known.activity is not Activity.WAIT_MMA
        and not launch.names[i].startswith(FLAG_WAIT)
    ]
    pairs = [(g, r) for g in range(len(launch.groups)) for r in waits if shares.own[g, r] >= LEAST]
    for group, region in sorted(pairs, key=lambda pair: -shares.own[pair]):
        joined = connect_wait(launch, region)
        late = _late_group(launch, shares, group, joined)
        yield _Wait(group, region, float(shares.own[group, region]), late, joined)


def _late_group(
    launch: Prepared, shares: GroupShares, waiting: int, joined: Connection | None
) -> int:
    """Return the group that was waited for: as joined, else the busiest of the others."""
    if joined is not None:
        groups = launch.groups.of_warp[launch.slot[joined.sources]]
        return int(np.bincount(groups).argmax())
    busy = np.where(shares.recorded, shares.busy, -1.0)
    busy[waiting] = -1
    return int(busy.argmax())


def _copies(launch: Prepared, shares: GroupShares, group: int) -> bool:
    """Whether a group feeds others: it copies, or loads, and multiplies nothing."""
    feeds = [r for r, one in enumerate(launch.known) if one.activity is Activity.COPY]
    return bool((shares.own[group, feeds] > 0).any()) and shares.products[group] < _MULTIPLIES


def _late(launch: Prepared, shares: GroupShares, wait: _Wait) -> Finding | None:
    busy = float(shares.busy[wait.late])
    if wait.late == wait.group or busy < _BUSY or shares.products[wait.late] >= _MULTIPLIES:
        return None
    if wait.connection is not None and wait.connection.on_its_way(launch):
        return None
    saved = min(wait.share, 1 - shares.limit(wait.late))
    at_stake = saved * _block_time(launch)
    if not enough(launch, at_stake) or _is_of_any_block(launch, wait):
        return None
    producer = _copies(launch, shares, wait.late)
    names = launch.groups.names
    busiest = [r for r in np.argsort(-shares.own[wait.late]).tolist() if _works(launch, r)][:1]
    doing = f", most of it in {launch.names[busiest[0]]}" if busiest else ""
    issues = (issue_share(launch, busiest[0]) or 0.0) if busiest else 0.0
    full = issues >= _ISSUES
    counted = "measured" if wait.connection is not None else "likely"
    return finding(
        launch,
        "late-producer" if producer else "late-consumer",
        title=f"{names[wait.group]} waits {100 * wait.share:.0f} % of its time in "
        f"{launch.names[wait.region]} for {names[wait.late]}, which is busy {100 * busy:.0f} % of "
        f"its time{doing}",
        number=Number(f"{launch.names[wait.region]}, of its warps' time", wait.share, "share"),
        at_stake=at_stake,
        without=f"if {names[wait.late]} were never late",
        confidence="possible" if full else counted,
        rationale=_why(launch, wait)
        + (
            f" The instructions of {launch.names[busiest[0]]} alone take {100 * issues:.0f} % of "
            "its time: what fewer of them would take is not known."
            if full
            else ""
        ),
        where=_where(launch, wait, busiest),
        suggestion=_faster(names[wait.late], producer, full),
    )


def _is_of_any_block(launch: Prepared, wait: _Wait) -> bool:
    """Whether warps that nothing gives a role wait for others of their block at its barrier.

    They differ by the ranges that their data led them to, and do not feed each other.
    """
    at_barrier = launch.names[wait.region].startswith(_BLOCK)
    return wait.connection is None and launch.groups.by != "role" and at_barrier


_BLOCK: Final = "barrier @"
"""How the mark of a block's barrier begins."""


def _faster(late: str, producer: bool, full: bool) -> str:
    if full:
        return (
            f"let {late} do with fewer instructions; more warps help only where schedulers of the "
            "SM are idle"
        )
    more = ", issue its copies earlier, or share its work between more warps"
    return f"make {late} faster" + (more if producer else ", or give it more warps")


def _both_wait(launch: Prepared, shares: GroupShares, wait: _Wait) -> Finding | None:
    """Return a finding on a wait for copies whose issuer waits, too, or has issued them before."""
    if not _copies(launch, shares, wait.late) or _copies(launch, shares, wait.group):
        return None
    joined = wait.connection
    if joined is None and not np.isnan(launch.payload(launch.of_region([wait.region]))).all():
        return None  # it is for something that no other group's ranges are about
    issued = joined is not None and joined.on_its_way(launch)
    if shares.busy[wait.late] >= _BUSY and not issued:
        return None
    waits = launch.of_region([wait.region])
    stages = joined.in_flight(launch) if joined is not None else 0
    recurs = wait.share * _steady(launch, waits)
    idle = 1 - float(shares.busy[shares.recorded].max())
    if recurs < _SPREAD:
        return None
    median, quickest = joined.flight(launch) if joined is not None else (0, 0)
    if median >= max(_QUEUED * quickest, _FAR):
        at_stake = min(wait.share, idle) * _block_time(launch)
        return _queued_copies(launch, wait, at_stake, median / 1000, quickest / 1000)
    at_stake = min(recurs, idle, 1 / (stages + 1) if stages > 0 else 1.0) * _block_time(launch)
    waiting = 1 - float(shares.busy[wait.late])
    return _few_stages(launch, wait, at_stake, stages, waiting)


def _few_stages(
    launch: Prepared, wait: _Wait, at_stake: float, stages: int, waiting: float
) -> Finding | None:
    if not enough(launch, at_stake):
        return None
    names = launch.groups.names
    return finding(
        launch,
        "few-stages",
        title=f"{names[wait.group]} waits {100 * wait.share:.0f} % of its time in "
        f"{launch.names[wait.region]} for copies of {names[wait.late]}, which waits "
        f"{100 * waiting:.0f} % of its own: copies take longer than the stages can hide",
        number=Number(f"{launch.names[wait.region]}, of its warps' time", wait.share, "share"),
        at_stake=at_stake,
        without=f"with {stages + 1} copies under way at once in place of {stages}"
        if stages
        else f"without the wait in {launch.names[wait.region]}",
        confidence="likely",
        rationale=_why(launch, wait)
        + " Where memory is at its bandwidth, more stages win nothing: the bytes are what counts.",
        where=_where(launch, wait),
        suggestion="one more stage, if shared memory has room; else smaller stages, or copies "
        "issued earlier",
    )


def _queued_copies(
    launch: Prepared, wait: _Wait, at_stake: float, median: float, quickest: float
) -> Finding | None:
    """Return a finding on copies that queue for memory: one more in the queue comes no sooner."""
    if not enough(launch, at_stake):
        return None
    names = launch.groups.names
    return finding(
        launch,
        "queued-copies",
        title=f"{names[wait.group]} waits {100 * wait.share:.0f} % of its time in "
        f"{launch.names[wait.region]} for copies that take {median:.2f} us, the quickest "
        f"{quickest:.2f}: they queue for memory",
        number=Number("copies over the quickest one", median / max(quickest, 1e-3), "ratio"),
        at_stake=at_stake,
        without=f"without the wait in {launch.names[wait.region]}",
        confidence="possible",
        rationale=_why(launch, wait)
        + " More copies at once would queue, too; what memory could do "
        "at most, and whether the same bytes come twice, the trace doesn't say.",
        where=_where(launch, wait),
        suggestion="move fewer bytes: narrower types, larger tiles that are loaded less often, or "
        "an order of blocks in which neighbours find them in the cache",
    )


def _where(launch: Prepared, wait: _Wait, busiest: list[int] | None = None) -> Where:
    names, waits = launch.groups.names, launch.of_region([wait.region])
    return where_of_rows(
        launch,
        waits,
        tuple(launch.names[region] for region in (wait.region, *(busiest or ()))),
        roles=(names[wait.group], names[wait.late]),
    )


def _steady(launch: Prepared, waits: Rows) -> float:
    """Return the share of the waits' time that recurs: the median of laps, less the shortest wait.

    A pipeline that waits now and then, or while it fills, has stages enough.
    """
    waits = launch.in_order(waits)
    took, slot = launch.took(waits), launch.slot[waits]
    whole = len(took) // _LAP * _LAP
    laps, of = took[:whole].reshape(-1, _LAP), slot[:whole].reshape(-1, _LAP)
    laps = laps[of[:, 0] == of[:, -1]]
    if not len(laps):
        return 0.0
    each = float(np.median(laps.mean(1)) - took.min())
    return min(each * len(took) / max(float(took.sum()), 1.0), 1.0)


def _works(launch: Prepared, region: int) -> bool:
    activity = launch.known[region].activity
    return not activity.waits and activity is not Activity.AROUND and launch.counts[region] > 0


def _block_time(launch: Prepared) -> float:
    """Return the launch's time in which blocks ran, as far as it is known."""
    if not launch.every_block or not launch.duration:
        return float(launch.duration)
    lanes = launch.lanes
    return lanes.mean(lanes.busy)


def _why(launch: Prepared, wait: _Wait) -> str:
    if wait.connection is None:
        return (
            "who is waited for is taken to be the busiest of the other groups: ranges with the "
            "same payloads on both sides would say."
        )
    one = wait.connection
    return (
        f"{one.line(launch)}; in {100 * one.late_share(launch):.0f} % of the waits' time what they "
        "wait for was not done, or under way, yet."
    )


_LEAST: Final = 0.05


@dataclass(frozen=True)
class _FlagWaits:
    """Waits for flags in a launch: ranges that measure them, or code that does nothing else."""

    names: list[str]  # of the ranges
    share: float  # of the blocks' time; of the warps', if not measured
    measured: bool
    ranges: list[RangeWork]  # with loops that read a flag
    sleeps: bool  # whether such a loop sleeps before it asks again

    @property
    def least(self) -> float:
        return _LEAST if self.measured else _MOSTLY

    def where(self, launch: Prepared) -> Where:
        if not self.ranges:
            return Where(regions=tuple(self.names[:3]))
        return where_of(launch, self.ranges, [one.facts.polls for one in self.ranges])


def _flag_waits(launch: Prepared) -> _FlagWaits | None:
    """Return the waits for flags; None without any, or where a busy unit explains the time."""
    work = counted_work(launch)
    ranges = [one for one in work.ranges if one.facts.polls] if work else []
    occurring = np.flatnonzero(launch.counts).tolist()
    # A lock is taken by a compare-and-swap: it has no order in which blocks wait.
    locks = {one.facts.polls for one in ranges if one.facts.excess.swaps}
    polling = {one.name for one in ranges if _only_polls(one) and one.facts.polls not in locks}
    regions = [
        i for i in occurring if launch.names[i].startswith(FLAG_WAIT) or launch.names[i] in polling
    ]
    if regions:
        rows = launch.of_region(regions)
        share = share_of_blocks(launch, launch.slot[rows], launch.took(rows))
        names = [launch.names[i] for i in regions]
    elif work and ranges and nearest(launch) < _DEVICE_BUSY:
        share = share_of_time(launch, ranges, work.kernel)
        names = [one.name for one in ranges]
    else:
        return None
    sleeps = bool(work and extra_of(work, "asleep"))
    return _FlagWaits(names, share, bool(regions), ranges, sleeps)


def _only_polls(one: RangeWork) -> bool:
    """Whether a range is an iteration, or all, of a loop that only asks again."""
    small = sum(one.once.values()) + sum(one.uncounted.values()) <= _MOST_OF_A_POLL
    return small and one.facts.line == one.facts.polls


_MOST_OF_A_POLL: Final = 64
"""Instructions of a loop above which it does more than to ask again."""


def waits_for_blocks(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on the time of warps in waits for flags.

    Where one warp of a block waits, the others wait for it: a block's time counts, not a warp's.
    """
    waits = _flag_waits(launch)
    if waits is None:
        return
    share, measured = waits.share, waits.measured
    left = 1 - nearest(launch, _SPINNING)  # a loop that asks again issues, and does no work
    saved = min(share, left) if share < _MOSTLY else left
    if share < waits.least or not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "flag-wait",
        title=f"blocks wait for other blocks in {waits.names[0]}: {100 * share:.0f} % of "
        + ("their time" if measured else "the warps' time is in code with a loop that reads a flag")
        + ("; the loop sleeps (nanosleep) each time before it asks again" if waits.sleeps else ""),
        number=Number("waits for flags, of the blocks' time", share, "share"),
        at_stake=saved * launch.duration,
        without="without waits for other blocks",
        confidence="likely" if measured or share >= _NEARLY_ALL else "possible",
        rationale="a loop reads a flag, or a lock, in memory until another block writes it"
        + (
            "; its time is measured."
            if measured
            else ", and does nothing else; no unit of the device is near its limit meanwhile."
        )
        + " Refuted if no block is later than the others where its order does not matter.",
        where=waits.where(launch),
        suggestion=(_SLEEP if waits.sleeps else "")
        + "let no block wait for the one before it: sum by atomics, or write partial "
        "results for a second kernel; where order matters, a decoupled look-back; shorter "
        "sections under a lock, a lock for each part of the data, or larger tiles, of which fewer "
        "meet at it",
    )


_SLEEP: Final = (
    "sleep shorter, or not at all: a flag is seen only when the sleep is over, and each block of a "
    "chain adds its own; "
)


_DEVICE_BUSY: Final = 0.4
"""Share of the nearest roof from which on a kernel does more than to wait."""
_SPINNING: Final = ("issue", "integer", "L1")
"""Roofs of instructions that waits themselves may be."""
_MOSTLY: Final = 0.5
"""Share from which on waits of blocks may be the whole launch: one after another holds the lock."""
_NEARLY_ALL: Final = 0.65
"""The same, from which on what else that code does is little beside its waits."""
