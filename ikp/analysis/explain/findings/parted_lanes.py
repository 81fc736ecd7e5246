"""Finding ``divergence``: lanes of a warp that run code apart, because their data says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ikp.analysis.explain.counted_work import RangeWork, counted_work
from ikp.analysis.explain.places import self_time, where_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

_PART: Final = 0.5
"""Part of a range's instructions that lanes run apart, from which on it diverges."""
_LONG: Final = 0.25
"""Share of the warps' time in such ranges, from which on that is a finding."""
_UNEVEN: Final = 0.5
"""Distance of the quartiles of the warps' times, over the median, from which on warps differ, not
lanes: the longest of 32 lanes with times of their own varies less."""
_ALL_BUT_ONE: Final = 31 / 32
_SLOW_PATHS: Final = 0.02
"""Part of divisions and calls from which on what lanes run apart is taken for their slow paths."""
_CHEAP: Final = 8
"""Instructions below which a condition is cheap on either side."""


def divergence(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on time in code that lanes run apart."""
    work = counted_work(launch)
    if work is None:
        return
    some = [one for one in work.ranges if _diverges(one)]
    took = {one.name: self_time(launch, one, work.kernel) for one in some}
    share = sum(took.values()) / max(launch.warp_time, 1)
    saved = min(1 - nearest(launch, ("issue", "FMA", "XU", "integer")), share * _ALL_BUT_ONE)
    if share < _LONG or not enough(launch, saved * launch.duration):
        return
    if not _evenly(launch, some, work.kernel):
        return
    some.sort(key=lambda one: -took[one.name])
    apart = sum(one.facts.apart for one in some)
    yield finding(
        launch,
        "divergence",
        title=f"lanes of a warp part by their data in {some[0].name}: {100 * share:.0f} % of the "
        "warps' time is in code that some lanes run while others wait",
        number=Number("time in code that lanes run apart, of the warps' time", share, "share"),
        at_stake=saved * launch.duration,
        without="with all lanes at work in each instruction",
        confidence="likely" if _accesses(some) <= _FEW_ACCESSES else "possible",
        rationale=f"counted: {apart:,} instructions under conditions, or in loops, that loaded "
        "data, or values of their own, decide for each lane; how many lanes run each, the code "
        "does not say. Refuted if neighbouring lanes have like data.",
        where=where_of(launch, some),
        suggestion="give the lanes of a warp like work: sort or bin the data by how much there is "
        "to do, a warp for each item, or work that lanes take from a queue",
    )


_FEW_ACCESSES: Final = 0.02
"""Part of the instructions that access memory, up to which nothing else holds such code up."""


def _accesses(some: list[RangeWork]) -> float:
    """Return the part of some ranges' instructions that access memory, loops once."""
    counts = [(unit, sum(n)) for one in some for unit, n in one.facts.mix.items()]
    access = sum(n for unit, n in counts if unit.startswith(("load.", "store.", "atomic.")))
    return access / max(sum(n for _, n in counts), 1.0)


def _diverges(one: RangeWork) -> bool:
    total = sum(sum(counts) for counts in one.facts.mix.values())
    slow = sum(sum(one.facts.mix.get(unit, ())) for unit in ("divide", "call"))
    looped = sum(one.uncounted.values())  # a loop whose trips no record counts is most of the time
    most = looped if looped >= _CHEAP else total
    return slow < _SLOW_PATHS * total and one.facts.apart >= max(_PART * most, _CHEAP)


def _evenly(launch: Prepared, some: list[RangeWork], kernel: str) -> bool:
    """Whether warps take about as long for such code.

    The longest of 32 lanes is about the same in each warp where neighbouring lanes differ as much
    as any; where warps differ, it is their lanes that are alike.
    """
    names = {one.name for one in some}
    each = launch.by_warp
    wanted = np.array([name in names for name in launch.names], bool)
    took = np.bincount(
        each.slot, np.where(wanted[each.region], each.own, 0), minlength=len(launch.start)
    ).astype(np.float64)
    if kernel in names and not wanted[[i for i, n in enumerate(launch.names) if n == kernel]].any():
        took += launch.end - launch.start - launch.inside
    low, middle, high = np.percentile(took, (25, 50, 75)) if len(took) else (0.0, 0.0, 0.0)
    return bool(middle > 0 and (high - low) / middle < _UNEVEN)
