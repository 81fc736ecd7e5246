"""Shares of the time of each group of warps: in each region, busy, and in products."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.prepared import Bools, Floats, Prepared, once
from ikp.core.sorting import sum_by


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
