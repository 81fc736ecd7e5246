"""Findings ``serial-sums`` and ``linear-search``: additions that each wait for the last, and
searches element by element.

An addition waits for the one before: so many sums take so many cycles in any schedule. A search
that goes one element further each time waits for as many loads as it takes steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.counted_work import CountedWork, RangeWork, counted_work
from ikp.analysis.explain.findings.extra_instructions import extra_of
from ikp.analysis.explain.issue import cycles_of
from ikp.analysis.explain.places import self_time, short_line, time_in, where_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number
from ikp.core.extra_work import ExtraWork

_MOSTLY: Final = 0.6
"""Part of an iteration's time that a chain of sums takes, from which on it is the cause."""
_FEW: Final = 4
"""Additions of an iteration from which on others could be made beside them."""
_LEFT: Final = 0.25
"""Part of a chain that is left with four sums beside each other."""
_STEPS: Final = 8.0
"""Steps of a search from which on another kind of search makes fewer."""
_PART: Final = 0.2
"""Part of the warps' time from which on a search is a cause."""
_UNITS: Final = ("L1", "L2", "issue", "integer")


def serial_code(launch: Prepared) -> Iterator[Finding]:
    """Yield findings on chains of sums, and on searches element by element."""
    yield from _sums(launch)
    yield from _search(launch)


def _sums(launch: Prepared) -> Iterator[Finding]:
    work = counted_work(launch)
    found = []
    for one, chain in extra_of(work, "chain") if work else ():
        took = _cycles(launch, one, work.kernel if work else "")
        if took and chain.parts >= _FEW and chain.count >= _MOSTLY * took:
            found.append((one, chain, min(chain.count / took, 1.0)))
    if not found or work is None:
        return
    found.sort(key=lambda each: -self_time(launch, each[0], work.kernel))
    share = sum(self_time(launch, one, work.kernel) * part for one, _, part in found)
    share /= max(launch.warp_time, 1)
    saved = min(share * (1 - _LEFT), 1 - nearest(launch))
    if not enough(launch, saved * launch.duration):
        return
    one, chain, part = found[0]
    place = short_line(chain.line, one.name)
    yield finding(
        launch,
        "serial-sums",
        title=f"{place} adds to one sum, each addition after the one before: {chain.parts:,.0f} "
        f"in a row need {chain.count:,.0f} cycles, {100 * part:.0f} % of the time of {one.name}",
        number=Number("cycles of the chain, of those of the range", part, "share"),
        at_stake=saved * launch.duration,
        without="with four sums beside each other",
        confidence="likely",
        rationale="counted: additions whose operand is the result of the one before, at their "
        "latency; recorded: the range takes hardly longer. Refuted if sums must be made in order.",
        where=where_of(launch, [each for each, _, _ in found], [chain.line]),
        suggestion="sum in four or eight registers and add these behind the loop (a float4 or an "
        "array of sums, unrolled); or more warps on each SM",
    )


def _cycles(launch: Prepared, one: RangeWork, kernel: str) -> float | None:
    """Return the cycles of one execution of a range, the median; None where they are not known."""
    if one.name in launch.names and launch.counts[launch.names.index(one.name)]:
        return cycles_of(launch, launch.names.index(one.name))
    clock = launch.launch.clock
    if one.name != kernel or clock.kind != "cycles" or not clock.ns_per_tick:
        return None
    return self_time(launch, one, kernel) / max(len(launch.start), 1) / clock.ns_per_tick


def _steps(launch: Prepared, work: CountedWork, one: RangeWork, each: ExtraWork) -> float:
    """Return how many steps of a search each warp makes, at least.

    Where no record counts the loop's iterations, its time says so: no load takes longer.
    """
    counted = one.executions * each.count / max(launch.grid_warps, 1)
    if not any(unit.startswith("load") for unit in one.uncounted):
        return counted
    return (_cycles(launch, one, work.kernel) or 0.0) / _LONGEST


_LONGEST: Final = 600.0
"""Cycles that a load of L2 or memory takes on a device that is not busy, at most."""


def _search(launch: Prepared) -> Iterator[Finding]:
    work = counted_work(launch)
    if work is None:
        return
    some = [(one, each, _steps(launch, work, one, each)) for one, each in extra_of(work, "search")]
    share = time_in(launch, (one for one, _, _ in some), work.kernel) / max(launch.warp_time, 1)
    steps = sum(each for _, _, each in some)
    if steps < _STEPS or share < _PART:
        return
    saved = min(share * (1 - _STEPS / 2 / steps), 1 - nearest(launch, _UNITS))
    if not enough(launch, saved * launch.duration):
        return
    one, each, _ = some[0]
    place = short_line(each.line, one.name)
    yield finding(
        launch,
        "linear-search",
        title=f"{place} searches element by element: {steps:,.0f} steps of each warp, each "
        f"waits for the load that decides about the next, {100 * share:.0f} % of the warps' time",
        number=Number("time in the search, of the warps' time", share, "share"),
        at_stake=saved * launch.duration,
        without="with a search of few steps",
        confidence="likely",
        rationale="counted: a loop that what it loads ends, at an address that each iteration "
        "moves by a constant; recorded: how often it goes round, or, at 600 cycles for a load, how "
        "long. Refuted if few steps suffice for nearly all look-ups, or the data can't be ordered.",
        where=where_of(launch, [one for one, _, _ in some], [each.line]),
        suggestion="a binary search in sorted data, or an index of it; a hash table with more "
        "slots than entries (half full), or buckets that one wide load brings",
    )
