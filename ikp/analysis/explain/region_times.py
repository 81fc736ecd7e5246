"""Times of regions for findings: self time in cycles, shares of a group's time, and free time
beside ranges.

The machine code says what share of a region's time issuing its instructions takes: a range that
takes no longer waits for nothing, and other warps can't make it faster.

In the time beside a range, up to its warp's neighbouring ranges, a warp still waits for what the
range has asked for, or can't issue its first instructions: what slows a range often shows next to
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.analysis._self_time import whole_slots
from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.prepared import Bools, Floats, Ints, Prepared, once
from ikp.core.sorting import sum_by

Rows = NDArray[np.intp]


def cycles_of(launch: Prepared, region: int) -> float | None:
    """Return the median self time of a region's ranges in cycles; None if unknown."""
    clock = launch.launch.clock
    if clock.kind != "cycles" or not clock.ns_per_tick:
        return None
    return float(np.median(launch.own[launch.of_region([region])])) / clock.ns_per_tick


def issue_share(launch: Prepared, region: int) -> float | None:
    """Return the share of a range's time that issuing its instructions takes; None if unknown."""
    known = launch.facts.ranges.get(launch.names[region]) if launch.facts else None
    took = cycles_of(launch, region)
    if known is None or known.issue is None or not took:
        return None
    return min(known.issue / took, 1.0)


@dataclass(frozen=True, slots=True)
class GroupShares:
    """Self time in each region, ``own[group, region]``, and busy time, as shares of a group's time.

    All time that is no wait is busy, time in no range too: the warp did something. While it waits
    for a product, tensor cores work for it: that counts as busy. ``products`` is the share of
    making products and waiting for them.
    """

    own: Floats
    busy: Floats
    products: Floats
    recorded: Bools  # whether it recorded any range: nothing is known of a group that did not

    def limit(self, late: int) -> float:
        """Return the busy share of the busiest other group: so long a block takes without delays
        by ``late``.
        """
        others = np.where(self.recorded, self.busy, 0.0)
        others[late] = 0.0
        return float(others.max(initial=0.0))


@once
def group_shares(launch: Prepared) -> GroupShares:
    """Return the shares of a launch's groups."""
    groups, regions = len(launch.groups), len(launch.names)
    each = launch.by_warp
    group = launch.groups.of_warp[each.slot]
    own = sum_by(group * regions + each.region, each.own, groups * regions)
    life = sum_by(launch.groups.of_warp, launch.end - launch.start, groups)
    shares = own.reshape(groups, regions) / np.maximum(life, 1)[:, None]
    waits = np.array(
        [one.activity.waits and one.activity is not Activity.WAIT_MMA for one in launch.known], bool
    )
    multiplies = np.array([one.activity.multiplies for one in launch.known], bool)
    recorded = np.bincount(group, minlength=groups) > 0
    busy = 1 - shares[:, waits].sum(1)
    return GroupShares(shares, busy, shares[:, multiplies].sum(1), recorded)


def with_beside(launch: Prepared, rows: NDArray[np.intp]) -> Iterator[tuple[Rows, Ints, Ints]]:
    """Yield some ranges, a few warps' at a time: when they begin and end with the time beside them.

    That is from the end of the last range before to the next range's start. The time between two of
    ``rows`` counts for the first one; a warp's time before its first range counts for none.
    """
    wanted = np.zeros(len(launch.slot), bool)
    wanted[rows] = True
    for some in whole_slots(launch.slot):
        mine = np.flatnonzero(wanted[some])
        if len(mine):
            these = mine + some.start if isinstance(some, slice) else some[mine]
            opens = _free_from(launch, some, wanted[some])[mine]
            closes = np.maximum(launch.next_opens_of(some)[mine], launch.closes[these])
            yield these, opens, closes


def _free_from(launch: Prepared, rows: slice | NDArray[np.intp], wanted: Bools) -> Ints:
    """Return when the time that counts for each range of some warps begins.

    Its own start, if its warp had no range before it, or a ``wanted`` one ended last before it.
    """
    slot, opens, closes = launch.slot[rows], launch.opens[rows], launch.closes[rows]
    place = launch.on_one_axis(slot, opens)
    key = launch.on_one_axis(slot, closes)
    order = np.argsort(key, kind="stable")
    at = np.searchsorted(key[order], place, "right") - 1
    before = order[np.maximum(at, 0)]  # the range that ended last before this one
    free = (at >= 0) & (slot[before] == slot) & ~wanted[before]
    over = np.maximum(closes[before], _began(slot, opens, place))
    result: Ints = np.where(free, np.minimum(over, opens), opens)
    return result


def _began(slot: NDArray[np.integer[Any]], opens: Ints, place: Ints) -> Ints:
    """Return the start of the range that began before each one of its warp; 0 for the first."""
    order = np.argsort(place, kind="stable")
    found = np.zeros(len(order), np.int64)
    slot, opens = slot[order], opens[order]
    found[order[1:]] = np.where(slot[1:] == slot[:-1], opens[:-1], 0)
    return found


def share_of_blocks(launch: Prepared, slot: NDArray[np.integer[Any]], time: Ints) -> float:
    """Return the share of blocks' lives that times of warps are, of each block its longest warp's.

    Args:
        launch: the launch.
        slot: the slot of a warp, for each time.
        time: nanoseconds.
    """
    by_warp = np.bincount(slot, time, minlength=len(launch.start))
    longest = np.zeros(len(launch.block_ids))
    np.maximum.at(longest, launch.block_of, by_warp)
    life = float((launch.block_end - launch.block_start).sum())
    return float(longest.sum()) / max(life, 1.0)
