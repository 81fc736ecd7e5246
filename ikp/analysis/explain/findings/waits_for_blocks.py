"""Finding ``flag-wait``: blocks that wait for other blocks, at flags and locks in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.counted_work import counted_work
from ikp.analysis.explain.places import where_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number, Where

_MARK: Final = "flag wait"
"""How the names of waits begin that read memory until it changes."""
_LEAST: Final = 0.05


def waits_for_blocks(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on the time of warps in waits for flags.

    Where one warp of a block waits, the others wait for it: a block's time counts, not a warp's.
    """
    regions = [
        i for i, name in enumerate(launch.names) if name.startswith(_MARK) and launch.counts[i]
    ]
    if not regions:
        return
    rows = launch.of_region(regions)
    blocks = launch.block_of[launch.slot[rows]]
    longest: dict[int, float] = {}
    by_warp: dict[int, float] = {}
    for slot, took in zip(launch.slot[rows].tolist(), launch.took(rows).tolist(), strict=True):
        by_warp[slot] = by_warp.get(slot, 0.0) + took
    for slot, took in by_warp.items():
        block = int(launch.block_of[slot])
        longest[block] = max(longest.get(block, 0.0), took)
    life = float((launch.block_end - launch.block_start).sum())
    share = sum(longest.values()) / max(life, 1.0)
    saved = min(share, 1 - nearest(launch)) if share < _MOSTLY else 1 - nearest(launch)
    if share < _LEAST or not enough(launch, saved * launch.duration):
        return
    names = [launch.names[i] for i in regions]
    work = counted_work(launch)
    ranges = [one for one in work.ranges if one.name in names] if work else []
    where = where_of(launch, ranges) if ranges else Where(regions=tuple(names[:3]))
    yield finding(
        launch,
        "flag-wait",
        title=f"blocks wait for other blocks in {names[0]}: {100 * share:.0f} % of their time, "
        f"{len(rows):,} times",
        number=Number("waits for flags, of the blocks' time", share, "share"),
        at_stake=saved * launch.duration,
        without="without waits for other blocks",
        confidence="likely",
        rationale=f"measured: {len(blocks):,} waits in loops that read a flag, or a lock, in "
        "memory until another block writes it. Refuted if no block is later than the others "
        "where its order does not matter.",
        where=where,
        suggestion="let no block wait for the one before it: sum by atomics, or write partial "
        "results for a second kernel; where order matters, a decoupled look-back; shorter "
        "sections under a lock, or a lock for each part of the data",
    )


_MOSTLY: Final = 0.5
"""Share from which on waits of blocks may be the whole launch: one after another holds the lock."""
