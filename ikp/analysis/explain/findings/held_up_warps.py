"""Findings on code that holds warps up: calls, ordered, zeroed, lone or narrow loads, divergence.

A function that was not inlined, a load that stays behind stores of an unrolled loop, and a load of
what a parameter multiplies by zero: each has a mark that nothing else leaves.

Narrow accesses are to bytes that lie side by side, one number at a time, each with an address and a
condition of its own: here, where instructions are the limit. A compiler makes one access of several
where it knows that their addresses follow each other.

A loop that makes one load an iteration, and waits for it, has nothing else under way.

Lanes of a warp run code apart (``divergence``) because their data says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import numpy as np

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.counted_work import (
    GUESS,
    Access,
    CountedWork,
    RangeWork,
    count_of,
    if_counted,
    lane_bytes,
    moved_bytes,
    requests_of,
)
from ikp.analysis.explain.findings.needless_instructions import extra_of, weighed
from ikp.analysis.explain.places import (
    hot_ranges,
    self_time,
    share_of_time,
    short_line,
    where_of,
    where_of_accesses,
    where_of_extra,
)
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import NEAR, is_counted, is_own, nearest, share_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

_TIME: Final = 0.25
"""Share of the warps' time from which on such code is a finding."""
_OFTEN: Final = 1 / 400
"""Calls among all instructions from which on they, and not what is called, take the time."""
_CALLED: Final = 0.6
"""Part of the time of code with calls that inlining saves: of one kernel of a library, 0.55."""
_UNROLLED: Final = 0.85
"""Part of the waits for ordered loads that goes where the loads of several iterations are made at
once: of one kernel of a library, that was unrolled four times, 0.87."""
_MOST: Final = 0.4
"""Part of all loads that those behind stores are, from which on their waits are most waits."""
_PART: Final = 0.1
"""Part of all bytes from which on loads that are multiplied by zero are a finding."""


@if_counted
def held_up_warps(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield findings on calls, on loads behind stores, and on loads that are times zero."""
    yield from _calls(launch, work)
    yield from _ordered(launch, work)
    yield from _lone(launch, work)
    yield from _zeroed(launch, work)


def _calls(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    some = extra_of(work, "called")
    share = share_of_time(launch, (one for one, _ in some), work.kernel)
    count = count_of(some)
    part = count / max(weighed(work), 1.0)
    saved = min(_CALLED * min(share, 1.0), 1 - nearest(launch, ("issue", "integer", "L1")))
    if share < _TIME or part < _OFTEN or not enough(launch, saved * launch.duration):
        return
    place = short_line(some[0][1].line, some[0][0].name)
    yield finding(
        launch,
        "calls",
        title=f"{place} calls a function that is not inlined, one call for every "
        f"{1 / part:.0f} instructions: {100 * share:.0f} % of the warps' time is in such code",
        number=Number("calls, of all instructions", part, "share"),
        at_stake=saved * launch.duration,
        without="with the function inlined",
        confidence="likely",
        rationale="counted: calls of functions of the source. Arguments go through registers that "
        "must be saved, or through memory, and no instruction moves across a call. Refuted if an "
        "inlined function takes as long.",
        where=where_of_extra(launch, some),
        suggestion="inline it: __forceinline__ in place of __noinline__, @triton.jit without "
        "noinline=True, no separate compilation (or -dlto); pass results by value, not by address",
    )


def _loads(one: RangeWork) -> float:
    """Return how many loads of global memory a range makes, in loops without known trips as in
    ``extra``.
    """
    mix = (each for unit, each in one.facts.mix.items() if unit.startswith("load.global"))
    return one.executions * sum(a + b / 2 + GUESS * c for a, b, c in mix)


def _ordered(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    some = extra_of(work, "behind stores")
    waits = launch.share_in(launch.regions((Activity.WAIT_MEMORY, Activity.LOAD)))
    behind = count_of(some)
    part = behind / max(sum(map(_loads, work.ranges)), 1.0)
    saved = min(_UNROLLED * waits, 1 - nearest(launch))
    if part < _MOST or waits < _TIME or not enough(launch, saved * launch.duration):
        return
    place = short_line(some[0][1].line, some[0][0].name)
    yield finding(
        launch,
        "ordered-loads",
        title=f"{place} loads behind a store in each copy of an unrolled loop: a store may be to "
        f"the address of a load, so the copies wait one after another, {100 * waits:.0f} % of the "
        "warps' time",
        number=Number("waits for loads, of the warps' time", waits, "share"),
        at_stake=saved * launch.duration,
        without="with the loads of all copies ahead of the stores",
        confidence="likely",
        rationale="counted: the compiler unrolled the loop, and left the loads of each copy behind "
        "the stores of the one before, though their addresses are known. Refuted if registers "
        "are what it lacks.",
        where=where_of_extra(launch, some),
        suggestion="__restrict__ (and const) on the pointers, so that loads may pass stores; or "
        "load into registers ahead of the stores",
    )


def _lone(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on loops that make one load an iteration, and wait for it, many times."""
    some = extra_of(work, "lone")
    part = count_of(some) / max(sum(map(_loads, work.ranges)), 1.0)
    names = {one.name for one, _ in some}
    hot = [one for one in hot_ranges(launch, work) if one.work.name in names]
    waits = sum(one.share * one.part(lambda unit: unit.startswith("load.global")) for one in hot)
    saved = min(_OF_FOUR * waits, 1 - nearest(launch))
    turns = max((each.count for _, each in some), default=0.0)
    if part < _MOST or turns < _TURNS or waits < _TIME or not is_counted(launch):
        return
    if nearest(launch) > _IDLE or not enough(launch, saved * launch.duration):
        return
    place = short_line(some[0][1].line, some[0][0].name)
    yield finding(
        launch,
        "lone-loads",
        title=f"{place} loads once in each iteration and waits for it, {turns:.0f} times: "
        f"{100 * waits:.0f} % of the warps' time, with no unit above "
        f"{100 * nearest(launch):.0f} % of its rate",
        number=Number("waits for such loads, of the warps' time", waits, "share"),
        at_stake=saved * launch.duration,
        without="with the loads of four iterations under way at once",
        confidence="likely",
        rationale="counted: such loads, and what all units have to do; the compiler did not unroll "
        "the loop, though no load decides the next one. Refuted if an unrolled loop takes as long.",
        where=where_of_extra(launch, some),
        suggestion="unroll the loop (#pragma unroll 4, no unroll 1): a for loop whose end is known "
        "ahead, several sums, and the loads of several iterations before the first is used",
    )


_OF_FOUR: Final = 0.75
"""Part of the waits that goes where four loads are under way in place of one."""
_TURNS: Final = 4.0
_IDLE: Final = 0.6
"""Share of the nearest roof from which on more loads under way would wait for it."""


def _zeroed(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    some = extra_of(work, "times zero")
    lines = {each.line for _, each in some if each.parts}
    every = work.global_accesses()
    lost = [each for each in every if each[1].unit.startswith("load") and each[1].line in lines]
    alone = [each for each in every if is_own(each[1])]  # blocks bring what they share once
    of_memory = moved_bytes(each for each in lost if is_own(each[1])) / max(moved_bytes(alone), 1.0)
    part = max(moved_bytes(lost) / max(moved_bytes(every), 1.0), min(of_memory, 1.0))
    saved = min(part, 1 - nearest(launch, ("DRAM", "L2", "L1", "issue")))
    if part < _PART or not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "zeroed-loads",
        title=f"{short_line(lost[0][1].line, lost[0][0].name)} loads what a parameter multiplies "
        f"by zero: {100 * part:.0f} % of all bytes that pass",
        number=Number("bytes that are multiplied by zero, of all that pass", part, "share"),
        at_stake=saved * launch.duration,
        without="without these loads",
        confidence="likely",
        rationale="counted: all that these loads bring is multiplied by a parameter, which was 0 "
        "in the first recorded launch. Refuted if the numbers may be infinite, or no number.",
        where=where_of_accesses(launch, lost),
        suggestion="load only where the factor is not zero (if beta != 0), or compile a kernel "
        "for zero (tl.constexpr, a template's argument)",
    )


_WIDEST: Final = 16
_NARROW: Final = 2
"""Bytes of a lane up to which an access is narrow."""
_ROW: Final = 4
"""Accesses of one line, in one execution, from which on these could be one."""
_MOST_REQUESTS: Final = 0.5
"""Part of all requests from which on narrow ones are the kernel's."""
_GO_WITH_IT: Final = ("addresses", "conditions", "memory")
"""What instructions serve that wide accesses save."""


@if_counted
def narrow_accesses(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on narrow accesses side by side, of a launch at its instructions' roof."""
    if share_of(launch, "issue", "integer") < NEAR:
        return
    every = work.global_accesses()
    some = [each for each in every if _is_narrow(each)]
    if requests_of(some) < _MOST_REQUESTS * max(requests_of(every), 1.0):
        return
    gone = sum(_saved(one, own) for one, own in _by_range(some)) / max(work.total, 1.0)
    saved = 1 - nearest(launch, (), min(gone, 1.0))
    if not enough(launch, saved * launch.duration):
        return
    some.sort(key=lambda each: -each[2])
    width = lane_bytes(some[0][1].unit)
    yield finding(
        launch,
        "narrow-loads",
        title=f"{some[0][0].name} accesses {width} byte{'s' * (width > 1)} a lane at a time, "
        f"{some[0][1].count:.0f} in a row that lie side by side: with an address and a condition "
        f"for each, {100 * gone:.0f} % of all instructions",
        number=Number("instructions that wide accesses save, of all", gone, "share"),
        at_stake=saved * launch.duration,
        without="with accesses of 16 bytes a lane",
        confidence="likely",
        rationale="counted: accesses whose lanes are adjacent, and instructions that serve "
        "addresses, conditions and accesses of the same code; instructions are what the launch "
        "has most of. Refuted if rows are not aligned.",
        where=where_of_accesses(launch, some),
        suggestion="let the compiler know that rows are contiguous and aligned: in Triton a "
        "stride of 1 as tl.constexpr or left out (no do_not_specialize), tl.multiple_of, "
        "tl.max_contiguous; in CUDA C++ vector types (uint4, __half2)",
    )


def _is_narrow(each: Access) -> bool:
    one = each[1]
    dense = one.cost is not None and one.cost <= (one.least or 0.0)
    return dense and lane_bytes(one.unit) <= _NARROW and one.count >= _ROW


def _by_range(some: list[Access]) -> list[tuple[RangeWork, list[Access]]]:
    found = defaultdict[str, list[Access]](list)
    for each in some:
        found[each[0].name].append(each)
    return [(own[0][0], own) for own in found.values()]


def _saved(one: RangeWork, own: list[Access]) -> float:
    """Return how many instructions of a range go with wide accesses in place of narrow ones."""
    wide = max(min(_WIDEST / lane_bytes(each.unit), each.count) for _, each, _ in own)
    count = sum(one.facts.serves.get(what, 0.0) for what in _GO_WITH_IT)
    return one.executions * count * (1 - 1 / wide)


_APART: Final = 0.5
"""Part of a range's instructions that lanes run apart, from which on it diverges."""
_LONG_APART: Final = 0.25
"""Share of the warps' time in such ranges, from which on that is a finding."""
_UNEVEN: Final = 0.5
"""Distance of the quartiles of the warps' times, over the median, from which on warps differ, not
lanes: the longest of 32 lanes with times of their own varies less."""
_ALL_BUT_ONE: Final = 31 / 32
_SLOW_PATHS: Final = 0.02
"""Part of divisions and calls from which on what lanes run apart is taken for their slow paths."""
_CHEAP: Final = 8
"""Instructions below which a condition is cheap on either side."""


@if_counted
def divergence(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on time in code that lanes run apart."""
    some = [one for one in work.ranges if _diverges(one)]
    took = {one.name: self_time(launch, one, work.kernel) for one in some}
    share = sum(took.values()) / max(launch.warp_time, 1)
    saved = min(1 - nearest(launch, ("issue", "FMA", "XU", "integer")), share * _ALL_BUT_ONE)
    if share < _LONG_APART or not enough(launch, saved * launch.duration):
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
    return slow < _SLOW_PATHS * total and one.facts.apart >= max(_APART * most, _CHEAP)


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
