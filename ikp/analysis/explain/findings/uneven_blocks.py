"""Findings on uneven times of blocks: ``slow-sm``, ``slow-block``, ``imbalance`` and ``tail``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ikp.analysis.evidence import plural
from ikp.analysis.explain.places import where_of_blocks
from ikp.analysis.explain.prepared import Floats, Ints, Prepared
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number, Where
from ikp.analysis.explain.warp_groups import at_once
from ikp.core.sorting import sum_by

_SLOW: Final = 1.15
"""Ratio to the median from which on an SM, or block, is slow: SMs of one H200 that do the same
differ by a few percent."""
_FEW: Final = 0.1
"""Slow SMs are at most this share of all: of more, the others are fast."""
_FEW_BLOCKS: Final = 0.05
"""Long blocks are single ones up to this share of all; more of them are an imbalance."""
_FIRST: Final = 0.9
"""Share of the long blocks that start early where an order has put them first."""
_MUCH: Final = 0.25
"""Share of the launch from which on a few blocks that differ for no known reason are likely a
cause. Many that differ so were the cause in none of six kernels."""
_LONG: Final = 20_000
"""Nanoseconds of a launch from which on its start is a small part of its blocks' times."""
_ONE_WAVE: Final = 1.5
"""Blocks for each SM up to which a second block of an SM runs beside the first."""
_RECORDING: Final = 1.6
"""The most that recording lengthens a block by, as a factor, of the kernels that were tried."""
_WORK: Final = 0.7
"""Correlation of a block's time with what it recorded, from which on it is the work."""


def uneven_blocks(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on slow SMs, else one on the time that uneven blocks leave at the end."""
    if not launch.every_block:
        return
    blocks = _Blocks.of(launch)
    slow = blocks.slow_sms()
    longest = int(blocks.ids[np.argmax(blocks.took)]) if len(blocks.ids) else 0
    if slow is not None and not _alone(launch, longest):
        found = list(_slow_sms(launch, blocks, *slow))
        yield from found
        if found:
            return
    yield from _imbalance(launch, blocks)


@dataclass(frozen=True)
class _Blocks:
    """How long blocks took; of those that recorded, how many ranges.

    Where only some recorded, their times are divided by the ratio of the two medians, since
    recording makes them longer.
    """

    ids: Ints
    sm: Ints
    start: Ints
    end: Ints
    took: Floats
    recorded_took: Ints  # of each block that recorded
    ranges: Floats

    @classmethod
    def of(cls, launch: Prepared) -> _Blocks:
        count, each = len(launch.block_ids), launch.by_warp
        ran = launch.blocks
        took = (ran.end - ran.start).astype(np.float64)
        recorded = np.isin(ran.ids, launch.block_ids)
        if not recorded.all():
            longer = np.median(took[recorded]) / max(float(np.median(took[~recorded])), 1.0)
            took[recorded] /= np.clip(longer, 1.0, _RECORDING)
        return cls(
            *(ran.ids, ran.sm, ran.start, ran.end, took),
            launch.block_end - launch.block_start,
            sum_by(launch.block_of[each.slot], each.count, count).astype(np.float64),
        )

    @property
    def same_work(self) -> bool:
        """Whether all blocks recorded about as many ranges."""
        return bool(np.ptp(self.ranges) <= 0.05 * max(float(np.median(self.ranges)), 1.0))

    def related(self, work: Floats) -> float:
        """Return the correlation of a block's time with its work; 0 of a constant."""
        if np.ptp(work) == 0 or np.ptp(self.recorded_took) == 0:
            return 0.0
        return float(np.corrcoef(work, self.recorded_took)[0, 1])

    def shares_sms(self) -> bool:
        """Whether the long blocks are those on SMs that got more blocks than the median SM."""
        sms, place, counts = np.unique(self.sm, return_inverse=True, return_counts=True)
        more = counts[place] > np.median(counts)
        long = self.took > _SLOW * np.median(self.took)
        if not more.any() or len(self.ids) > _ONE_WAVE * len(sms) or not long.any():
            return False
        return bool(more[long].mean() >= _FIRST and long[more].mean() >= _FIRST)

    def slow_sms(self) -> tuple[Ints, Floats] | None:
        """Return the SMs, and their median block's time over that of the median SM.

        None of fewer than four SMs, or where that time is 0.
        """
        sms, first, counts = np.unique(np.sort(self.sm), return_index=True, return_counts=True)
        if len(sms) < 4 or not np.median(self.took):
            return None
        middle = np.lexsort((self.took, self.sm))[first + counts // 2]
        if not (usual := np.median(self.took[middle])):
            return None
        return sms, self.took[middle] / usual


def _works(launch: Prepared, blocks: _Blocks) -> Iterator[tuple[Floats, str]]:
    """Yield what a block's time may go with; payloads take another pass over all ranges."""
    yield blocks.ranges, "how many ranges it records"
    yield _sums_of_payloads(launch), "the sum of its ranges' payloads"


def _sums_of_payloads(launch: Prepared) -> Floats:
    """Return the sum of the payloads of each block's ranges, by their sizes."""
    found = np.zeros(len(launch.block_ids), np.float64)
    if launch.has_payloads:
        for rows in at_once(len(launch.slot)):
            sizes = np.nan_to_num(np.abs(launch.payload(rows)), posinf=0.0)
            np.add.at(found, launch.block_of[launch.slot[rows]], sizes)
    return found


def _slow_sms(launch: Prepared, blocks: _Blocks, sms: Ints, ratios: Floats) -> Iterator[Finding]:
    """Yield a finding on SMs whose blocks take longer, if the launch ends later through them."""
    order = np.argsort(-ratios, kind="stable")
    slow, ratio = (each[order][ratios[order] > _SLOW] for each in (sms, ratios))
    there = np.isin(blocks.sm, slow)
    if not 0 < len(slow) <= max(_FEW * len(sms), 1) or not blocks.same_work or there.all():
        return
    if launch.lanes.last_had_more:  # side by side
        return
    at_stake = float(launch.duration - blocks.end[~there].max())
    if not enough(launch, at_stake):
        return
    each = int(there.sum()) / len(slow)
    worst = slow[:3]
    last = np.flatnonzero(there)[np.argmax(blocks.end[there])]
    sure, because = _why_sm(each)
    yield finding(
        launch,
        "slow-sm",
        title=f"SM {int(worst[0])} takes {ratio[0]:.2f} times as long for its blocks as the "
        "median SM" + (f", and {len(slow) - 1} others are slow, too" if len(slow) > 1 else ""),
        number=Number("time of its blocks over the median SM's", float(ratio[0]), "ratio"),
        at_stake=at_stake,
        without="with these SMs as fast as the others",
        confidence=sure,
        rationale=because,
        where=Where(
            warps=((int(blocks.ids[last]), 0),),
            sms=tuple(worst.tolist()),
            window_ns=(int(blocks.end[~there].max()), launch.duration),
            count=int(there.sum()),
        ),
        suggestion="see whether something else runs on these SMs, or whether their blocks touch "
        "memory that others don't; blocks that fetch their next tile themselves would go round "
        "them",
    )


def _why_sm(blocks_each: float) -> tuple[str, str]:
    if blocks_each > 1:
        return "measured", (
            "every one of its blocks is slow, with as many ranges in it as in the others."
        )
    return "likely", (
        "it had one block, with as many ranges as the others: whether the block is slow for its "
        "data or for its SM is unknown. Record several launches, or more blocks for each SM."
    )


def _imbalance(launch: Prepared, blocks: _Blocks) -> Iterator[Finding]:
    lanes = launch.lanes
    at_stake = lanes.mean(lanes.end)
    if lanes.dealt_unevenly or not enough(launch, at_stake):
        return
    median = float(np.median(blocks.took))
    p95 = float(np.percentile(blocks.took, 95))
    slowest = np.argsort(-blocks.took, kind="stable")[:3]
    ratio = float(blocks.took[slowest[0]]) / max(median, 1.0)
    if ratio < _SLOW:
        return
    reason, sure, because = _reason(launch, blocks)
    by_work = sure == "measured"
    long = int((blocks.took > _SLOW * median).sum())
    far = int((blocks.took > (median + blocks.took[slowest[0]]) / 2).sum())
    long = far if ratio >= _FAR and len(blocks.took) >= _MANY else long
    few = long <= max(1, _FEW_BLOCKS * len(blocks.took))
    if blocks.shares_sms():
        yield _unevenly_dealt(launch, blocks, at_stake)
        return
    alone = _alone(launch, int(blocks.ids[slowest[0]])) if few else ""
    yield finding(
        launch,
        "slow-block" if few else "imbalance",
        title=(
            f"{plural(long, 'block')} of {len(blocks.took):,} end{'s' * (long == 1)} long after "
            "the others"
            if few
            else "blocks take unevenly long"
        )
        + f" (median {median / 1000:.2f} us, p95 {p95 / 1000:.2f}, "
        f"longest {blocks.took[slowest[0]] / 1000:.2f}), {alone or reason}",
        number=Number("longest block over the median one", ratio, "ratio"),
        at_stake=at_stake,
        without="with the same time spread evenly over all CTA slots",
        confidence="possible"
        if (sure == "likely" and (not few or at_stake < _MUCH * launch.duration))
        or _by_any_order(launch, float(blocks.took[slowest[0]]), at_stake)
        else sure,
        rationale=because,
        where=where_of_blocks(
            blocks.ids[slowest],
            blocks.sm[slowest],
            (int(blocks.start[slowest[0]]), int(blocks.end[slowest[0]])),
            long,
        ),
        suggestion=_SERIAL.format(alone)
        if alone
        else (_CUT if _start_first(blocks) else _BY_WORK)
        if by_work
        else _BY_CHANCE,
    )


_TURNS: Final = 4.0
"""Blocks of each CTA slot, one after another, from which on its last one is a small part."""
_WITHIN: Final = 0.7
"""Part of the longest block that CTA slots are empty at the end, up to which any order, but one
that puts all long blocks first, leaves as much: their last blocks end anywhere within it."""


def _by_any_order(launch: Prepared, longest: float, at_stake: float) -> bool:
    """Whether the time at the end is what long blocks leave that lie anywhere among others."""
    turns = len(launch.blocks.ids) / max(launch.lanes.count, 1)
    return turns >= _TURNS and at_stake <= _WITHIN * longest


_FAR: Final = 2.0
"""Times the median from which on the longest block is far from the others."""
_MANY: Final = 64
"""Blocks from which on those are counted that are nearer to the longest than to the median."""
_ALONE: Final = 0.3
"""Share of a block's time in which fewer than a quarter of its warps are left."""


def _alone(launch: Prepared, block: int) -> str:
    """Return how a block's last warps run on without the others; empty where they do not."""
    mine = launch.trace.slots.block == block
    warps = int(mine.sum())
    if warps < _SEVERAL:
        return ""
    begin, ends = int(launch.start[mine].min()), np.sort(launch.end[mine])
    last = ends[-1] - ends[-max(warps // 4, 1) - 1]
    share = float(last) / max(int(ends[-1]) - begin, 1)
    if share < _ALONE:
        return ""
    return f"where {max(warps // 4, 1)} of {warps} warps run alone for {100 * share:.0f} % of it"


_SEVERAL: Final = 4
_SERIAL: Final = (
    "its work is serial, {}: let all warps of the block, or several blocks, take a part of it"
)


def _unevenly_dealt(launch: Prepared, blocks: _Blocks, at_stake: float) -> Finding:
    """Return the finding on SMs that have one block more than others, side by side."""
    counts = np.unique(blocks.sm, return_counts=True)[1]
    usual = int(np.median(counts))
    more = int((counts > usual).sum())
    last = np.argsort(-blocks.end, kind="stable")[:3]
    return finding(
        launch,
        "tail",
        title=f"{len(blocks.ids):,} blocks don't fill {len(counts):,} SMs evenly: {more:,} SMs "
        f"have more than {plural(usual, 'block')} at once, and take longer for them",
        number=Number(
            "time of CTA slots after their last block", at_stake / launch.duration, "share"
        ),
        at_stake=at_stake,
        without="with as many blocks on each SM",
        confidence="measured",
        rationale="blocks that share an SM with one more than others end last; that the same "
        "blocks can be spread evenly is assumed.",
        where=where_of_blocks(
            blocks.ids[last],
            blocks.sm[last],
            (int(np.median(blocks.end)), launch.duration),
            more,
        ),
        suggestion="smaller blocks, or a number of blocks that makes a whole number of waves; or "
        "as many blocks as there is room for, which take tiles one by one (a persistent kernel)",
    )


_BY_WORK: Final = (
    "start the long blocks first, cut them finer, or let blocks fetch their next piece themselves "
    "(a queue)"
)
_CUT: Final = (
    "the long blocks start no later than the others: cut them finer, or let blocks fetch their "
    "next piece themselves (a queue)"
)
_BY_CHANCE: Final = (
    "no order of blocks helps while none is known to be long: let blocks fetch their next piece "
    "themselves (a queue), or cut the work finer; if it is their data, start the long ones first"
)


def _start_first(blocks: _Blocks) -> bool:
    """Whether long blocks start before the others, or with them."""
    long = blocks.took > _SLOW * np.median(blocks.took)
    usual = np.median(blocks.start[~long])
    return bool(np.mean(blocks.start[long] <= usual) >= _FIRST)


def _reason(launch: Prepared, blocks: _Blocks) -> tuple[str, str, str]:
    """Return why blocks differ, the confidence in that, and its rationale."""
    for work, what in _works(launch, blocks):
        if (related := blocks.related(work)) > _WORK:
            return (
                "and the long ones do more",
                "measured",
                f"a block's time goes with {what} (r = {related:.2f}).",
            )
    return (
        "with as much to do, as far as their ranges show",
        "likely" if blocks.end.max(initial=0) >= _LONG else "possible",
        (
            "ends of SMs, counted; why some blocks take longer (their data, memory, or neighbours "
            "on the SM) the trace doesn't say."
        ),
    )
