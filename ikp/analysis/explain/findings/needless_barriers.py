"""Finding ``needless-barrier``: a barrier of a block that orders no accesses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number, Where
from ikp.core.code_facts import RangeFacts


def needless_barriers(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on the time in barriers that can be removed."""
    some = sorted(needless(launch), key=lambda region: -int(launch.own_by_region[region]))
    share, least = _waits(launch, some)
    share = share if least >= _PART * share else least
    if not some or not enough(launch, share * launch.duration):
        return
    rows = launch.of_region(some)
    facts = launch.facts.ranges if launch.facts else {}
    name = launch.names[some[0]]
    yield finding(
        launch,
        "needless-barrier",
        title=f"{name} orders nothing: no warp reads behind it what another one wrote before "
        f"it; {100 * share:.0f} % of the warps' time",
        number=Number("wait in such barriers, of the warps' time", share, "share"),
        at_stake=share * launch.duration,
        without="without these barriers",
        confidence="measured",
        rationale="counted: between this barrier and the next ones before and behind it, no store "
        "to shared or global memory meets another access of the block. Refuted if it keeps warps "
        "together on purpose, as for a cache.",
        where=Where(
            regions=tuple(launch.names[region] for region in some[:_MOST]),
            warps=launch.warps(rows),
            window_ns=launch.window(rows),
            count=len(rows),
            lines=tuple(dict.fromkeys(facts[launch.names[region]].line for region in some[:_MOST])),
        ),
        suggestion="remove it: the barriers that are left order all accesses; __syncwarp() where "
        "the lanes of one warp exchange numbers",
    )


_MOST: Final = 3
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
