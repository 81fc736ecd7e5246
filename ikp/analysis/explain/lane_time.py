"""The blocks of a launch (``Blocks``), and its time over the CTA slots ("lanes") of its SMs
(``LaneTime``).

An SM has as many CTA slots as it ever held blocks at once, but no more than its warps have room
for: k. Take its starts ``s`` in order and, apart from that, its ends ``e`` in order: block i starts
after at least i - k + 1 blocks have ended. So a slot's time is the time before its first block, the
blocks, the time from each end to the next start, ``s[i] - e[i - k]``, and the time after its last
block. Their mean over slots is the duration of the launch: nothing is estimated.

A warp that ends leaves its place to a warp of the next block, before the last warp of its own block
ends (seen on an H200: 28 blocks of four warps where an SM has room for 16; registers and shared
memory are given back with the whole block). Such blocks are more than the slots, and no slot is
empty meanwhile: what they overlap is taken from the time between blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Blocks:
    """One row per block, by its linear id."""

    ids: Ints
    of_warp: Ints  # the row of each warp's block
    start: Ints  # of its first warp
    end: Ints  # of its last one
    sm: Ints  # of its last row

    @classmethod
    def of(cls, block: Ints, start: Ints, end: Ints, sm: Ints) -> Blocks:
        """Return the blocks of some warps."""
        ids, row = np.unique(block, return_inverse=True)
        first = np.full(len(ids), np.iinfo(np.int64).max)
        last, place = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
        np.minimum.at(first, row, start)
        np.maximum.at(last, row, end)
        place[row] = sm
        return cls(ids.astype(np.int64), row.astype(np.int64), first, last, place)


@dataclass(frozen=True, slots=True)
class LaneTime:
    """Sums over all CTA slots, in nanoseconds; ``lanes`` counts those of each SM in ``sms``."""

    sms: Ints
    lanes: Ints
    blocks: Ints  # of each SM
    ends: Ints  # of each SM: when its last block did
    busy: int
    start: int
    switch: int
    end: int
    duration: int

    @property
    def count(self) -> int:
        """How many CTA slots there are."""
        return int(self.lanes.sum())

    def mean(self, part: int) -> float:
        """Return a sum as its mean over CTA slots: nanoseconds of the launch's duration."""
        return part / self.count if self.count else 0.0

    @property
    def last_had_more(self) -> bool:
        """Whether the SM that ends last had more blocks than most."""
        return bool(self.blocks[np.argmax(self.ends)] > np.median(self.blocks))

    @property
    def dealt_unevenly(self) -> bool:
        """Whether the number of blocks, not their length, leaves CTA slots empty at the end.

        Then the SM that ends last had more blocks than most, and blocks of equal length would leave
        at least half as much.
        """
        count = int(self.blocks.sum())
        waves = -(-count // self.count) if self.count else 0
        of_equal = 1 - count / (waves * self.count) if waves else 0.0
        return self.last_had_more and 2 * of_equal * self.duration >= self.mean(self.end)


def lane_time(sm: Ints, start: Ints, end: Ints, duration: int, room: int | None = None) -> LaneTime:
    """Return the time of a launch over its CTA slots.

    Args:
        sm: the SM of each block.
        start: each block's start, from the launch's first start.
        end: each block's end.
        duration: the launch's duration.
        room: how many blocks the warps of an SM have room for; None where that is not known.
    """
    sms, number, blocks = np.unique(sm, return_inverse=True, return_counts=True)
    lanes = _most_at_once(number, start, end, len(sms))
    lanes = lanes if room is None else np.minimum(lanes, room)
    first = np.cumsum(blocks) - blocks
    place = np.arange(len(sm)) - np.repeat(first, blocks)  # of each block among its SM's
    starts, ends = (column[np.lexsort((column, number))] for column in (start, end))
    lane_count = np.repeat(lanes, blocks)
    opening, closing = place < lane_count, place >= np.repeat(blocks, blocks) - lane_count
    before, after = int(starts[opening].sum()), int((duration - ends[closing]).sum())
    between = max(int(starts[~opening].sum() - ends[~closing].sum()), 0)
    return LaneTime(
        sms=sms,
        lanes=lanes,
        blocks=blocks.astype(np.int64),
        ends=ends[first + blocks - 1] if len(sms) else first,
        busy=int(lanes.sum()) * duration - before - between - after,
        start=before,
        switch=between,
        end=after,
        duration=duration,
    )


def _most_at_once(number: NDArray[np.intp], start: Ints, end: Ints, sms: int) -> Ints:
    """Return how many blocks each SM held at once, at most; one that ends makes room first."""
    key = np.concatenate([number, number])
    time = np.concatenate([start, end])
    change = np.repeat([1, -1], len(start))
    change[: len(start)][end <= start] = 0  # a block of no length takes no room
    change[len(start) :][end <= start] = 0
    order = np.lexsort((change, time, key))
    level = np.cumsum(change[order])
    found = np.ones(sms, np.int64)
    np.maximum.at(found, key[order], level)
    return found
