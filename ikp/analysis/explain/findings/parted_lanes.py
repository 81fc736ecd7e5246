"""Finding ``divergence``: lanes of a warp that run code apart, because their data says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.counted_work import RangeWork, counted_work
from ikp.analysis.explain.places import where_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

_PART: Final = 0.5
"""Part of a range's instructions that lanes run apart, from which on it diverges."""
_LONG: Final = 0.25
"""Share of the warps' time in such ranges, from which on that is a finding."""
_ALL_BUT_ONE: Final = 31 / 32
_CHEAP: Final = 8
"""Instructions below which a condition is cheap on either side."""


def divergence(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on time in code that lanes run apart."""
    work = counted_work(launch)
    if work is None:
        return
    some = [one for one in work.ranges if _diverges(one)]
    took = {one.name: _time(launch, one, work.kernel) for one in some}
    share = sum(took.values()) / max(launch.warp_time, 1)
    saved = min(1 - nearest(launch, ("issue", "FMA", "XU", "integer")), share * _ALL_BUT_ONE)
    if share < _LONG or not enough(launch, saved * launch.duration):
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
        confidence="possible",
        rationale=f"counted: {apart:,} instructions under conditions, or in loops, that loaded "
        "data decide for each lane; how many lanes run each, the code does not say. Refuted if "
        "neighbouring lanes have like data.",
        where=where_of(launch, some),
        suggestion="give the lanes of a warp like work: sort or bin the data by how much there is "
        "to do, a warp for each item, or work that lanes take from a queue",
    )


def _diverges(one: RangeWork) -> bool:
    total = sum(sum(counts) for counts in one.facts.mix.values())
    return one.facts.apart >= max(_PART * total, _CHEAP)


def _time(launch: Prepared, one: RangeWork, kernel: str) -> float:
    """Return the self time of a range; of the kernel's own code, the time in no range."""
    if one.name in launch.names:
        return float(launch.own_by_region[launch.names.index(one.name)])
    if one.name == kernel:
        return float(launch.warp_time - launch.inside.sum())
    return 0.0
