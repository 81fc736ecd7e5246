"""Finding ``copy-issue``: warps take long to issue copies lane by lane (``cp.async``, not TMA)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.issue import cycles_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.shares import group_shares
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number, Where

_LONG: Final = 0.15
"""Share of the warps' time from which on issuing copies is a finding."""


def copy_issue(launch: Prepared) -> Iterator[Finding]:
    """Yield findings on regions in which warps with other work, too, take long to issue copies."""
    shares = group_shares(launch)
    for region in launch.regions([Activity.COPY]).tolist():
        share = launch.share_in([region])
        known = launch.facts.ranges.get(launch.names[region]) if launch.facts else None
        # Copies by the copy engine don't say their bytes. A producer's time to issue is its own.
        if known is None or not known.bytes or len(shares.recorded) > 1 or share < _LONG:
            continue
        if enough(launch, share * launch.duration):
            yield _found(launch, region, share, known.bytes)


def _found(launch: Prepared, region: int, share: float, size: int) -> Finding:
    rows = launch.of_region([region])
    name, took = launch.names[region], cycles_of(launch, region)
    cycles = f"{took:,.0f} cycles for {size:,} bytes of a warp, " if took else ""
    return finding(
        launch,
        "copy-issue",
        title=f"issuing copies in {name} takes {cycles}{100 * share:.0f} % of the warps' time",
        number=Number(f"{name}, of the warps' time", share, "share"),
        at_stake=share * launch.duration,
        without=f"with the copies of {name} issued by one thread, in no time",
        confidence="possible",
        rationale="each lane copies for itself, through the queue of loads and stores, which takes "
        "128 bytes a cycle of an SM; how much of it products hide is not known.",
        where=Where(
            regions=(name,),
            warps=launch.warps(rows),
            window_ns=launch.window(rows),
            count=len(rows),
        ),
        suggestion="let the copy engine do it (TMA, tensor descriptors): one thread asks for a "
        "tile; one more stage, so that copies are issued while products run; larger tiles, "
        "copied less often",
    )
