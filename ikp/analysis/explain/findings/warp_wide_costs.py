"""Findings on whole warps held up: ``dependent-loads``, ``fences``, ``constants``, ``shuffles``.

The machine code says which instructions do so, and how often each range executes them; what each
costs depends on other warps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.counted_work import CountedWork, RangeWork, if_counted
from ikp.analysis.explain.findings.needless_instructions import extra_of
from ikp.analysis.explain.places import share_of_time, where_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import IDLE, nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

_FENCE: Final = "fence.gpu"
_FENCE_CYCLES: Final = 1000.0
"""Cycles of a fence of the whole device, at most, where stores of its warp are under way."""
_FENCES: Final = 8.0
"""Fences of each warp from which on these are in a loop, and no flag's."""
_SHUFFLES: Final = 0.1
"""Part of all instructions that shuffles are, from which on a kernel reduces again and again."""
_STEPS: Final = 40.0
"""Shuffles of each warp that a few reductions take: five steps each."""
_SURELY: Final = 0.03
"""Part of all instructions from which on shuffles are a cause whose sums are only added up."""
_SUMMED: Final = 0.5
"""Part of the shuffles that such sums are then."""
_AROUND: Final = 3.0
"""Instructions that go with each shuffle of a reduction: itself, its sum, and a move or a wait."""
_TIME: Final = 0.25
"""Share of the warps' time in such code from which on it is a finding."""


@if_counted
def warp_wide_costs(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield findings on chased pointers, fences, scattered constants and repeated reductions."""
    yield from _chases(launch, work)
    yield from _fences(launch, work)
    yield from _constants(launch, work)
    yield from _shuffles(launch, work)


def _shares(launch: Prepared, work: CountedWork, some: list[RangeWork]) -> tuple[float, float]:
    """Return the share of the warps' time in some ranges, and what of it the roofs let go."""
    share = min(share_of_time(launch, some, work.kernel), 1.0)
    return share, min(share, 1 - nearest(launch))


def _sure(launch: Prepared) -> str:
    return "likely" if nearest(launch) < IDLE else "possible"


def _chases(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    some = [one for one in work.ranges if one.facts.chases]
    share, saved = _shares(launch, work, some)
    if share < _TIME or not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "dependent-loads",
        title=f"each load in a loop of {some[0].name} waits for the one before it, which brings "
        f"its address: {100 * share:.0f} % of the warps' time is in such code",
        number=Number("time in code with chased pointers, of the warps' time", share, "share"),
        at_stake=saved * launch.duration,
        without="with addresses that are known ahead",
        confidence=_sure(launch),
        rationale="counted: a load's address is calculated from what the same load brought in the "
        "iteration before, so one latency of memory follows the other. Refuted if the loop's other "
        "work takes as long.",
        where=where_of(launch, some, [one.facts.chases for one in some if ":" in one.facts.chases]),
        suggestion="store what is walked one after another (an array, sorted by list), so that "
        "addresses follow from the loop's count; or walk several lists at once",
    )


def _fences(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    some = [one for one in work.ranges if one.issued.get(_FENCE)]
    count = sum(one.issued[_FENCE] for one in some)
    each = _of_each_warp(launch, count)
    cost = each * _FENCE_CYCLES / work.cycles_per_ns / launch.duration
    saved = min(cost, 1 - nearest(launch))
    if each < _FENCES or not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "fences",
        title=f"each warp executes {each:,.0f} memory fences of the whole device, in "
        f"{some[0].name}",
        number=Number("fences of a warp", each, "count"),
        at_stake=saved * launch.duration,
        without="without these fences",
        confidence=_sure(launch),
        rationale=f"counted: fences in a loop, of at most {_FENCE_CYCLES:,.0f} cycles each: the "
        "warp waits until L2 has its earlier stores. Refuted if other blocks read these stores "
        "while the kernel runs.",
        where=where_of(launch, some),
        suggestion="remove the fence where no other block reads the stores before the kernel ends; "
        "within a block __syncthreads() or __threadfence_block() orders them; or one fence after "
        "the loop",
    )


def _of_each_warp(launch: Prepared, count: float) -> float:
    """Return how many of all warps' instructions a warp executes."""
    return count / max(launch.grid_warps, 1)


def _constants(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    some = [one for one in work.ranges if one.facts.constants]
    share, saved = _shares(launch, work, some)
    if share < _TIME or not enough(launch, saved * launch.duration):
        return
    count = sum(one.facts.constants * one.executions for one in some)
    yield finding(
        launch,
        "constants",
        title=f"lanes of a warp load constants at different addresses, {count:,.0f} times in "
        f"{some[0].name}: the constant cache serves one address at a time",
        number=Number("time in code that loads such constants, of the warps' time", share, "share"),
        at_stake=saved * launch.duration,
        without="with the table in shared or global memory",
        confidence=_sure(launch),
        rationale="counted: LDC instructions whose address differs from lane to lane, times "
        "executions; how many addresses a warp has, the code does not say. Refuted if the lanes of "
        "a warp mostly read one entry.",
        where=where_of(launch, some),
        suggestion="keep a table that lanes index by their own data in shared memory, in registers "
        "(a shuffle), or in global memory (const __restrict__, L1); constant memory is for what "
        "all lanes read at once",
    )


def _shuffles(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    count = work.issued.get("shuffle", 0.0)
    part, each = count / max(work.total, 1.0), _of_each_warp(launch, count)
    summed = sum(one.executions * extra.count for one, extra in extra_of(work, "lane sums"))
    sure = summed >= _SUMMED * count
    saved = min(_AROUND * part, 1.0)
    few = part < (_SURELY if sure else _SHUFFLES) or each < _STEPS
    if few or not enough(launch, saved * launch.duration):
        return
    some = sorted(
        (one for one in work.ranges if one.issued.get("shuffle")),
        key=lambda one: -one.issued["shuffle"],
    )
    yield finding(
        launch,
        "shuffles",
        title=f"each warp executes {each:,.0f} shuffles, {100 * part:.0f} % of its instructions: "
        "it reduces over its lanes again and again",
        number=Number("shuffles over all instructions", part, "share"),
        at_stake=saved * launch.duration,
        without="with one reduction behind the loop",
        confidence="likely" if sure else "possible",
        rationale="counted: shuffles, and as much again for each sum and move between them. "
        + (
            "Iterations only add what lanes sum up to a sum of all: lanes could sum up once, "
            "behind the loop. Refuted if numbers must be added in order."
            if sure
            else "Refuted if each result is needed before the next can be begun."
        ),
        where=where_of(launch, some),
        suggestion="let each lane sum in registers of its own over the loop, and reduce over the "
        "warp once behind it; or give each lane a result of its own",
    )
