"""Findings on SMs with no block: between launches, at start and end, between blocks, all the time.

CTA slots ("lanes") without a block: ``late-start``, ``block-switch``, ``small-blocks``, ``tail``,
``few-blocks``. No launch at all:
``launch-gaps``, for a label's launches of up to 20 us, whose gaps are up to 200 us and 3 % of the
time or more.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

import numpy as np

from ikp.analysis.explain.lane_time import LaneTime
from ikp.analysis.explain.peaks import peak_of
from ikp.analysis.explain.places import where_of_blocks
from ikp.analysis.explain.prepared import Floats, Ints, Prepared, once
from ikp.analysis.explain.roofs import nearest, roofs, share_of
from ikp.analysis.explain.stakes import LEAST, enough, finding
from ikp.analysis.explain.use_of_hardware import (
    BUSY,
    asked_of_memory,
    room_for_blocks,
)
from ikp.analysis.explain.verdict import Finding, Number, Where

_PART: Final = 0.5
"""Part of the time of empty CTA slots, from which on it is that of empty SMs."""
_LATE: Final = 0.1
"""A launch's blocks start within a microsecond or so on any kernel. Of a long launch that is
nothing; of a short one only a longer kernel, or fewer launches, would win it back."""
UNUSED: Final = 0.1
"""Share of SMs without a block: below, a grid is about as wide as the device."""
_FAR: Final = 0.7
"""Share of the nearest roof below which the other SMs would add to what the launch reaches."""


def idle_lanes(launch: Prepared) -> Iterator[Finding]:
    """Yield what keeps CTA slots empty, but for blocks that take longer than others."""
    if not launch.every_block:
        return
    lanes = launch.lanes
    yield from _tail(launch, lanes)
    yield from _late_start(launch, lanes)
    yield from _switches(launch, lanes)
    yield from _unused(launch, lanes)


def _tail(launch: Prepared, lanes: LaneTime) -> Iterator[Finding]:
    """Yield a finding on a last wave that fills few CTA slots, as equal blocks would do, too."""
    if not lanes.dealt_unevenly:
        return
    at_stake = lanes.mean(lanes.end) * lost_in_tail(launch)
    if not enough(launch, at_stake):
        return
    ran = launch.blocks
    empty = float(np.mean(launch.duration - lanes.ends))
    last = np.argsort(-ran.end, kind="stable")[:3]
    usual = int(np.median(lanes.blocks))
    rest = int(np.maximum(lanes.blocks - usual, 0).sum())
    yield finding(
        launch,
        "tail",
        title=f"{int(lanes.blocks.sum()):,} blocks don't fill {len(lanes.sms):,} SMs evenly: "
        f"most have {usual}, so {rest:,} more run to the end while other SMs are empty",
        number=Number(
            "time of CTA slots after their last block", at_stake / launch.duration, "share"
        ),
        at_stake=at_stake,
        without="with every lane full to the end",
        confidence="measured" if empty >= _PART * at_stake else "possible",
        rationale="the end of lanes, counted, less what blocks gain that have an SM to themselves; "
        "that the same blocks can be spread evenly is assumed. In "
        f"{100 * empty / launch.duration:.1f} % of the time an SM has no block at all.",
        where=where_of_blocks(
            ran.ids[last], ran.sm[last], (int(ran.start[last].min()), launch.duration), rest
        ),
        suggestion="choose a block size that makes a whole number of waves, or let as many blocks "
        "as there are lanes take tiles one by one (a persistent kernel, split-K, stream-K)",
    )


def _late_start(launch: Prepared, lanes: LaneTime) -> Iterator[Finding]:
    at_stake = lanes.mean(lanes.start)
    if not enough(launch, at_stake, _LATE):
        return
    firsts = np.sort(launch.blocks.start)[: lanes.count]
    yield finding(
        launch,
        "late-start",
        title=f"CTA slots get their first block late: {at_stake / 1000:.2f} us after the first one "
        f"on average, of a launch of {launch.duration / 1000:.2f} us",
        number=Number(
            "time of CTA slots before their first block", at_stake / launch.duration, "share"
        ),
        at_stake=at_stake,
        without="with all CTA slots started at once",
        confidence="measured",
        rationale="starts of blocks, on clocks fitted between SMs"
        + (
            f" to {launch.launch.clock.residual_max_ns:.0f} ns."
            if launch.launch.clock.residual_max_ns is not None
            else "; how well is not known."
        ),
        where=Where(window_ns=(0, int(firsts[-1])), count=len(firsts)),
        suggestion="a launch of a few microseconds is mostly its start: give each launch more "
        "work, or put several into one; on some SMs only, another kernel still held them",
    )


def _switches(launch: Prepared, lanes: LaneTime) -> Iterator[Finding]:
    started = share_of(launch, "launches")
    if started >= _STARTS:
        yield from _small_blocks(launch, lanes, started)
        return
    at_stake = lanes.mean(lanes.switch)
    if not enough(launch, at_stake):
        return
    switches = max(int(lanes.blocks.sum()) - lanes.count, 1)
    yield finding(
        launch,
        "block-switch",
        title=f"{lanes.switch / switches:,.0f} ns pass between consecutive blocks of a CTA slot, "
        f"{switches:,} times",
        number=Number("time of CTA slots between blocks", at_stake / launch.duration, "share"),
        at_stake=at_stake,
        without="without the time between blocks",
        confidence=_surely_idle(launch, lanes),
        rationale="from each end to the next start on one SM; what the next block could not start "
        "for (room, or a grid that was used up) is not seen. Where an SM holds several blocks, the "
        "others go on meanwhile; where memory is at its rate, they lose nothing.",
        where=Where(count=switches),
        suggestion="fewer, larger blocks, with more to do side by side in each; or a persistent "
        "kernel that loads its next tile before it is done with this one",
    )


_STARTS: Final = 0.75
"""Share of the rate at which a device starts blocks, from which on that rate is what limits it."""


def _small_blocks(launch: Prepared, lanes: LaneTime, started: float) -> Iterator[Finding]:
    """Yield a finding on blocks so short that the device starts them no faster."""
    count = prod(launch.launch.grid)
    at_stake = (1 - nearest(launch, ("launches",))) * launch.duration
    if not enough(launch, at_stake):
        return
    ran = launch.blocks
    each = float(np.median(ran.end - ran.start))
    yield finding(
        launch,
        "small-blocks",
        title=f"{count:,} blocks of {each:,.0f} ns each are more than the device can start: "
        f"{count / launch.duration:.2f} in a nanosecond, {100 * min(started, 1.0):.0f} % of one "
        "in a cycle",
        number=Number("blocks started over one in each cycle of the device", started, "share"),
        at_stake=at_stake,
        without="with fewer blocks that each do more",
        confidence="likely",
        rationale="counted: a device starts one block in a cycle, of any size; "
        f"{100 * lanes.switch / max(lanes.count * launch.duration, 1):.0f} % of the time of CTA "
        "slots is between blocks. Refuted if fewer, larger blocks take as long.",
        where=Where(count=count),
        suggestion="give each block more to do: several rows or elements for each thread, larger "
        "blocks, or a loop over pieces in as many blocks as the device has room for; size the grid "
        "by the work",
    )


def _surely_idle(launch: Prepared, lanes: LaneTime) -> str:
    """Return the confidence that time between blocks is lost to their SM."""
    if (asked_of_memory(launch) or 0.0) >= BUSY:
        return "possible"
    return "measured" if np.median(lanes.lanes) == 1 else "possible"


def _unused(launch: Prepared, lanes: LaneTime) -> Iterator[Finding]:
    peak = peak_of(launch.launch.device)
    if peak is None:
        return
    idle = 1 - len(lanes.sms) / peak.sms
    if idle < UNUSED:
        return
    sure = bool(roofs(launch)) and nearest(launch) < _FAR
    room = room_for_blocks(launch) * peak.sms
    left = 1 - max(nearest(launch), len(launch.blocks.ids) / room) if sure else 0.0
    at_stake = max(idle, (idle + left) / 2) * launch.duration
    yield finding(
        launch,
        "few-blocks",
        title=f"{len(lanes.sms)} of {peak.sms} SMs have a block",
        number=Number("SMs without a block", idle, "share"),
        at_stake=at_stake,
        without="with the same work spread over all SMs",
        confidence="likely" if sure else "possible",
        rationale="SMs counted; that the work can be cut finer, at no cost, is assumed: a block "
        "with half the work takes more than half the time where it waits for one step after "
        "another.",
        where=Where(count=peak.sms - len(lanes.sms)),
        suggestion="smaller tiles, or split the longest dimension (split-K)",
    )


_LAUNCHES: Final = 4
_SHORT: Final = 20_000
"""Nanoseconds: a host needs 2 to 10 us for a launch, so longer kernels hide the next one's."""
_FAR_APART: Final = 200_000
"""Nanoseconds between launches above which something else than launching takes the time."""


def launch_gaps(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding where launches are short, and much of the time passes between them."""
    starts, ends = launch.label_starts, launch.label_ends
    if len(starts) < _LAUNCHES:
        return
    gaps = np.maximum(starts[1:] - np.maximum.accumulate(ends)[:-1], 0)
    took, gap = float(np.median(ends - starts)), float(np.median(gaps))
    share = gap / max(gap + took, 1.0)
    if took > _SHORT or gap > _FAR_APART or share < LEAST:
        return
    alone = not launch.launch.replay
    yield Finding(
        id="launch-gaps",
        title=f"{len(starts):,} launches of {took / 1000:.2f} us, and {gap / 1000:.2f} us between "
        "one and the next",
        number=Number("time between launches, from one start to the next", share, "share"),
        bound_ns=gap,
        bound_share=share,
        speedup_at_most=1 / (1 - share),
        what_if=f"without the time between launches: at most {100 * share:.1f} % less time",
        confidence="likely" if gap < _SHORT and launch.every_block else "possible",
        rationale=("" if launch.every_block else _NOT_ALL)
        + "the median of the gaps between launches of this label; what else ran in them the "
        "trace doesn't say, and recording makes launches slower on the host.",
        where=Where(count=len(gaps)),
        suggestion="put the work of several launches into one" + (_AS_GRAPH if alone else ""),
    )


_AS_GRAPH: Final = ", or launch them as a CUDA graph"
_NOT_ALL: Final = "not all blocks recorded, and those that left nothing may fill the gaps; "


_CROWDED: Final = 0.85
_UNCROWDED: Final = 0.6
"""Parts of the most blocks at once from which on, and up to which, a block counts as crowded, or as
one of few."""
_SEVERAL: Final = 8
"""Blocks of each kind from which on their medians say how they differ."""


@once
def lost_in_tail(launch: Prepared) -> float:
    """Return the part of the rate of empty CTA slots that is lost: 1 where that is not known."""
    beside = _beside(launch)
    took = (launch.blocks.end - launch.blocks.start).astype(np.float64)
    most = float(beside.max(initial=0.0))
    crowded, alone = beside >= _CROWDED * most, beside <= _UNCROWDED * most
    if min(int(crowded.sum()), int(alone.sum())) < _SEVERAL:
        return 1.0
    usual, fast = float(np.median(took[crowded])), float(np.median(took[alone]))
    part = float(np.median(beside[alone])) / most
    rate = part * usual / max(fast, 1.0)
    return float(np.clip((1 - rate) / max(1 - part, 1e-3), 0.0, 1.0))


def _beside(launch: Prepared) -> Floats:
    """Return how many blocks its SM held on average while each block ran, itself included."""
    ran = launch.blocks
    found = np.ones(len(ran.ids), np.float64)
    order = np.argsort(ran.sm, kind="stable")
    for mine in np.split(order, np.flatnonzero(np.diff(ran.sm[order])) + 1):
        start, end = ran.start[mine], ran.end[mine]
        until_end, until_start = (_busy(start, end, moments) for moments in (end, start))
        found[mine] = (until_end - until_start) / np.maximum(end - start, 1)
    return found


def _busy(start: Ints, end: Ints, until: Ints) -> Ints:
    """Return the time of all blocks of an SM, together, up to some moments."""
    total = np.zeros(len(until), np.int64)
    for times, sign in ((np.sort(start), 1), (np.sort(end), -1)):
        before = np.searchsorted(times, until)
        sums = np.concatenate([[0], np.cumsum(times)])
        total += sign * (before * until - sums[before])
    return total
