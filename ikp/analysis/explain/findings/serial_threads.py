"""Finding ``serial-thread``: one thread, or one warp, of a block works while the others wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.counted_work import RangeWork, counted_work
from ikp.analysis.explain.places import where_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

_LONG: Final = 64.0
"""Instructions of such code, in each execution, below which no wait is long."""
_WAITS: Final = 0.1
"""Share of the warps' time at barriers from which on such code is what they wait for."""
_CYCLES: Final = 4.0
"""Cycles of an instruction that needs the result of the one before it, at least."""


def serial_threads(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on code of few threads, where the block's other threads wait for long."""
    work = counted_work(launch)
    if work is None or launch.launch.warps_per_block < _SEVERAL:
        return
    some = [one for one in work.ranges if one.facts.excess.serial >= _LONG]
    if not some:
        return
    some.sort(key=lambda one: -one.facts.excess.serial * _blocks(launch, one))
    one = some[0]
    excess = one.facts.excess
    waits = launch.regions([Activity.WAIT_BARRIER])
    waiting = launch.share_in(waits)
    each = sum(two.facts.excess.serial * _blocks(launch, two) for two in some)
    cycles = each * _CYCLES / work.cycles_per_ns
    took = launch.block_end - launch.block_start
    least = cycles / max(float(np.mean(took)), 1.0)
    share = min(max(waiting, min(least, waiting + _WAITS)), 1.0)
    if waiting < _WAITS or not enough(launch, share * launch.duration):
        return
    threads = excess.serial_threads
    who = "one thread" if threads == 1 else f"{threads} threads, of one warp,"
    yield finding(
        launch,
        "serial-thread",
        title=f"{who} of each block's {launch.launch.warps_per_block * 32:,} execute"
        f"{'s' * (threads == 1)} {excess.serial:,.0f} instructions at "
        f"{excess.serial_line.rpartition('/')[2] or one.name} alone, while the others wait at a "
        f"barrier: {100 * waiting:.0f} % of the warps' time",
        number=Number("wait at barriers, of the warps' time", waiting, "share"),
        at_stake=share * launch.duration,
        without="with this work spread over the block's threads",
        confidence="likely",
        rationale="counted: the condition on thread numbers around this code, and its loops; "
        "measured: the wait at barriers. Refuted if the wait is for something else, or the steps "
        "can't be divided.",
        where=where_of(launch, some, [excess.serial_line]),
        suggestion="let all threads take a part: a reduction by shuffles within warps "
        "(__shfl_down_sync, cub::BlockReduce), then one warp for the warps' results; or let each "
        "thread do its own share",
    )


_SEVERAL: Final = 2


def _blocks(launch: Prepared, one: RangeWork) -> float:
    """Return how often each block executes a range, about."""
    if one.name not in launch.names:
        return 1.0
    count = float(launch.counts[launch.names.index(one.name)])
    return max(count / max(len(launch.start), 1), 1.0) if count else 1.0
