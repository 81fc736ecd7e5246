"""Finding ``flag-wait``: blocks that wait for other blocks, at flags and locks in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ikp.analysis.explain.counted_work import counted_work
from ikp.analysis.explain.places import time_in, where_of
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
    work = counted_work(launch)
    ranges = [one for one in work.ranges if one.facts.polls] if work else []
    if regions:
        share, names = _of_blocks(launch, regions), [launch.names[i] for i in regions]
        measured = True
    elif ranges and nearest(launch) < _BUSY:
        took = time_in(launch, ranges, work.kernel if work else "")
        share, names = took / max(launch.warp_time, 1), [one.name for one in ranges]
        measured = False
    else:
        return
    left = 1 - nearest(launch, _SPINNING)  # a loop that asks again issues, and does no work
    saved = min(share, left) if share < _MOSTLY else left
    if share < (_LEAST if measured else _MOSTLY) or not enough(launch, saved * launch.duration):
        return
    lines = [one.facts.polls for one in ranges]
    where = where_of(launch, ranges, lines) if ranges else Where(regions=tuple(names[:3]))
    yield finding(
        launch,
        "flag-wait",
        title=f"blocks wait for other blocks in {names[0]}: {100 * share:.0f} % of "
        + (
            "their time" if measured else "the warps' time is in code with a loop that reads a flag"
        ),
        number=Number("waits for flags, of the blocks' time", share, "share"),
        at_stake=saved * launch.duration,
        without="without waits for other blocks",
        confidence="likely" if measured else "possible",
        rationale="a loop reads a flag, or a lock, in memory until another block writes it"
        + (
            "; its time is measured."
            if measured
            else ", and does nothing else; no unit of the device is near its limit meanwhile."
        )
        + " Refuted if no block is later than the others where its order does not matter.",
        where=where,
        suggestion="let no block wait for the one before it: sum by atomics, or write partial "
        "results for a second kernel; where order matters, a decoupled look-back; shorter "
        "sections under a lock, or a lock for each part of the data",
    )


def _of_blocks(launch: Prepared, regions: list[int]) -> float:
    """Return the share of the blocks' time that their longest warp is in some regions."""
    rows = launch.of_region(regions)
    by_warp = np.bincount(launch.slot[rows], launch.took(rows), minlength=len(launch.start))
    longest = np.zeros(len(launch.block_ids))
    np.maximum.at(longest, launch.block_of, by_warp)
    life = float((launch.block_end - launch.block_start).sum())
    return float(longest.sum()) / max(life, 1.0)


_BUSY: Final = 0.4
"""Share of the nearest roof from which on a kernel does more than to wait."""
_SPINNING: Final = ("issue", "integer", "L1")
"""Roofs of instructions that waits themselves may be."""
_MOSTLY: Final = 0.5
"""Share from which on waits of blocks may be the whole launch: one after another holds the lock."""
