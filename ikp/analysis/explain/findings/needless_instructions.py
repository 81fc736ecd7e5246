"""Findings on instructions that serve no result, that fewer could do, or that issue one after the
other.

A table of kinds, such as ``unfused-sums`` and ``checks``: each is counted in the machine code,
times executions. At stake is the time of the code with these instructions, by the part of it that
they issue, below the roofs that the change leaves.

``serial-sums`` and ``linear-search``: an addition waits for the one before, so many sums take so
many cycles in any schedule. A search that goes one element further each time waits for as many
loads as it takes steps.

``busy-lines``: one source line issues 30 % or more of all instructions near such a rate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.counted_work import (
    CountedWork,
    RangeWork,
    count_of,
    counted_work,
    if_counted,
    l1_cycles,
)
from ikp.analysis.explain.findings.kinds_of_instructions import KINDS, InstructionKind
from ikp.analysis.explain.places import (
    self_time,
    share_of_time,
    short_line,
    where_of,
    where_of_extra,
)
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.region_times import cycles_of
from ikp.analysis.explain.roofs import NEAR, REACHED, nearest, roofs, share_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number
from ikp.core.excess_facts import ExtraWork

UNITS: Final = ("issue", "integer", "FMA", "XU", "FP64", "L1")
"""Roofs that fewer instructions move away."""


@if_counted
def extra_instructions(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield findings on extra instructions, one of each kind."""
    for kind, words in KINDS.items():
        yield from _found(launch, work, kind, words)


def extra_of(work: CountedWork, kind: str) -> list[tuple[RangeWork, ExtraWork]]:
    """Return the ranges with extra work of a kind, those of most of it first."""
    some = [(one, each) for one in work.ranges if (each := one.facts.extra.get(kind))]
    return sorted(some, key=lambda pair: -pair[0].executions * pair[1].count)


def _found(
    launch: Prepared, work: CountedWork, kind: str, words: InstructionKind
) -> Iterator[Finding]:
    some = extra_of(work, kind)
    if not some:
        return
    count = count_of(some)
    parts = sum(one.executions * each.parts for one, each in some)
    share = min(count / max(weighed(work), 1.0), 1.0)
    time = words.gone * sum(_time(launch, work, one, each, words) for one, each in some)
    if words.by_issue:
        time = min(time, words.times * share * share_of(launch, "issue") / REACHED["issue"])
    eased = ("L1",) if words.with_loads and _loads_one(work, some) else ()
    saved = min(time, 1 - nearest(launch, UNITS), 1 - nearest(launch, eased, words.gone * share))
    if not words.fewest * parts < count <= words.most * max(parts, 1e-9):
        return
    if share < words.rarest:
        return
    if max(share, time / words.times) < words.least or not enough(launch, saved * launch.duration):
        return
    place = short_line(some[0][1].line, some[0][0].name)
    said = {"line": place, "each": f"{count / max(parts, 1e-9):.0f}"}
    said["share"] = f"{100 * share:.0f} %"
    yield finding(
        launch,
        words.name,
        title=words.title.format(**said),
        number=Number("such instructions, of all", share, "share"),
        at_stake=saved * launch.duration,
        without=words.without,
        confidence="likely",
        rationale=f"counted: {words.because}, times executions. Refuted if {words.refuted}.",
        where=where_of_extra(launch, some),
        suggestion=words.suggestion,
    )


def _loads_one(work: CountedWork, some: list[tuple[RangeWork, ExtraWork]]) -> bool:
    """Whether most cycles of L1 and shared memory go to requests for one address in some ranges."""
    names = {one.name for one, _ in some}
    one = [a for a in work.accesses("load") if a[0].name in names and a[1].addresses == 1]
    return l1_cycles(one) >= _MOST_CYCLES * l1_cycles(work.accesses())


_MOST_CYCLES: Final = 0.5


def weighed(work: CountedWork) -> float:
    """Return how many instructions the launch issues, loops without known trips as in ``extra``."""
    return sum(one.executions * sum(one.facts.serves.values()) for one in work.ranges)


def _time(
    launch: Prepared, work: CountedWork, one: RangeWork, each: ExtraWork, words: InstructionKind
) -> float:
    """Return the part of the warps' time that a range's extra instructions take by their number."""
    whole = sum(one.facts.serves.values())
    if words.of:
        some = [count for unit, count in one.issued.items() if unit.startswith(words.of)]
        whole = sum(some) / max(one.executions, 1.0)
    part = min(words.times * each.count / max(whole, each.count, 1e-9), 1.0)
    took = self_time(launch, one, work.kernel)
    if words.times > 1 and one.name in launch.names:  # with the waits inside, that it holds up
        took = max(took, float(launch.took_by_region[launch.names.index(one.name)]))
    return part * took / max(launch.warp_time, 1)


_MOSTLY: Final = 0.6
"""Part of an iteration's time that a chain of sums takes, from which on it is the cause."""
_FEW: Final = 4
"""Additions of an iteration from which on others could be made beside them."""
_LEFT: Final = 0.25
"""Part of a chain that is left with four sums beside each other."""
_STEPS: Final = 16.0
"""Steps of a search from which on another kind of search makes fewer."""
_SERIAL_PART: Final = 0.2
"""Part of the warps' time from which on a search is a cause."""
_SERIAL_UNITS: Final = ("L1", "L2", "issue", "integer")


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
    share = share_of_time(launch, (one for one, _, _ in some), work.kernel)
    steps = sum(each for _, _, each in some)
    if steps < _STEPS or share < _SERIAL_PART:
        return
    saved = min(share * (1 - _STEPS / 2 / steps), 1 - nearest(launch, _SERIAL_UNITS))
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


_BUSY_UNITS: Final = ("issue", "integer", "FMA", "XU", "FP64")
"""Roofs that instructions of arithmetic and control fill."""
_LINE_PART: Final = 0.3
"""Part of all instructions from which on one line is named."""


def busy_lines(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on the line that issues most, at the roof of a unit of arithmetic."""
    work = counted_work(launch)
    near = next(
        (one for one in roofs(launch) if one.name in _BUSY_UNITS and one.share >= NEAR), None
    )
    if work is None or near is None:
        return
    counts: dict[str, float] = defaultdict(float)
    for one in work.ranges:
        for each in one.facts.lines:
            counts[each.line] += each.count * one.executions
    if not counts:
        return
    line, count = max(counts.items(), key=lambda item: item[1])
    part = min(count / max(work.total, 1.0), 1.0)
    saved = min(part, 1 - nearest(launch, _BUSY_UNITS))
    if part < _LINE_PART or not enough(launch, saved * launch.duration):
        return
    some = sorted(
        (one for one in work.ranges if any(each.line == line for each in one.facts.lines)),
        key=lambda one: -one.executions,
    )
    unit = "issue slots are" if near.name == "issue" else f"{near.name} units are"
    yield finding(
        launch,
        "busy-lines",
        title=f"{unit} at {100 * min(near.share, 1.0):.0f} % of their rate, and "
        f"{100 * part:.0f} % of all instructions are those of {line.rpartition('/')[2]}",
        number=Number("instructions of the line, of all", part, "share"),
        at_stake=saved * launch.duration,
        without="with none of this line's instructions",
        confidence="possible",
        rationale="counted: the machine code's instructions by source line, times executions. "
        "Refuted if the work needs each of them.",
        where=where_of(launch, some, [line]),
        suggestion="execute the line less often: a search or sum of fewer steps, values that are "
        "kept or made ahead, no work on what is masked or thrown away; or cheaper instructions",
    )
