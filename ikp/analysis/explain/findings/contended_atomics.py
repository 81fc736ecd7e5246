"""Finding ``atomics``: atomic operations on global memory that cost.

They do where many are at few addresses or at any, in compare-and-swap loops, or for long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, prod
from typing import Final

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.counted_work import (
    Access,
    CountedWork,
    RangeWork,
    if_counted,
    requests_of,
)
from ikp.analysis.explain.places import hot_ranges, time_in, where_of_accesses
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import IMPOSSIBLE, is_counted, nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number
from ikp.core.code_facts import AccessFacts

_ONE_ADDRESS: Final = 1.0
"""Operations on one address in a nanosecond, at most: one in a cycle of an L2 slice, and less."""
_SPREAD: Final = 60.0
"""Operations in a nanosecond on addresses that are all over L2."""
_LEAST_ATOMICS: Final = 0.15
_SURE_ATOMICS: Final = 0.25
_MOSTLY: Final = 0.45
"""Share of the launch at the rate of one address, and at that of all of L2, that is a likely cause.
"""
_HELD: Final = 0.25
"""Share of the warps' time in code of atomics from which on these are a finding."""
_IDLE_LOADS: Final = 0.6
"""Share of the nearest roof below which no other unit holds such a kernel up."""
_BOUND: Final = 8.0
"""How much longer than at one in a nanosecond operations on one address may take."""


@if_counted
def contended_atomics(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on atomics whose number explains a part of the launch's time."""
    some = _atomics(launch, work)
    swapped = [each for each in some if each[0].facts.excess.swaps]
    found = list(_swapped(launch, work.kernel, swapped)) if swapped else []
    crowd = None if found else _on_the_same(launch, some) or _by_data(launch, some)
    if crowd is not None:
        yield from _crowded(launch, work, crowd)
    elif some and not found:
        found = list(_long(launch, work.kernel, some))
    yield from found


def _atomics(launch: Prepared, work: CountedWork) -> list[Access]:
    """Return the atomics on global memory, each with how many operations all lanes make."""
    return [
        (one, access, min(requests * access.lanes, _most(launch, access)))
        for one, access, requests in work.accesses("atomic.global")
        if requests
    ]


@dataclass(frozen=True)
class _Crowd:
    """Atomics whose number alone takes a part of the launch."""

    some: list[Access]
    share: float  # of the launch, at the rate of such addresses
    same: bool  # whether all are on the same addresses; else data choose them
    sure: bool = False

    @property
    def count(self) -> float:
        return requests_of(self.some)


def _on_the_same(launch: Prepared, some: list[Access]) -> _Crowd | None:
    """Return the atomics of all blocks on the same addresses, if these can't take them faster."""
    fixed = [each for each in some if _on_one(each[1])]
    count = requests_of(fixed)
    addresses = max((_addresses(launch, access) for _, access, _ in fixed), default=1)
    one_by_one = count / _ONE_ADDRESS / addresses / launch.duration
    share = max(one_by_one, count / _SPREAD / launch.duration)
    sure = one_by_one >= _SURE_ATOMICS or share >= _MOSTLY
    return _Crowd(fixed, share, True, sure) if fixed and share >= _LEAST_ATOMICS else None


def _by_data(launch: Prepared, some: list[Access]) -> _Crowd | None:
    """Return the atomics on addresses that data choose, if they take a part of L2's rate.

    More than L2 can do are not all over L2: warps' operations on one address are joined.
    """
    by_data = [each for each in some if "d" in each[1].depends]
    share = requests_of(by_data) / _SPREAD / launch.duration
    few = not _LEAST_BY_DATA <= share <= IMPOSSIBLE
    return None if few or not by_data else _Crowd(by_data, share, False)


_LEAST_BY_DATA: Final = _LEAST_ATOMICS * 0.3


def _most(launch: Prepared, access: AccessFacts) -> float:
    """Return the operations that all threads make at most, by the conditions around an access."""
    if access.in_loop or access.threads is None:
        return inf
    threads = prod((*launch.launch.grid, *launch.launch.block)) * access.threads
    return threads * max(access.count, 1.0)


def _holds_up(launch: Prepared, work: CountedWork, some: list[Access]) -> bool:
    """Whether most of the warps' time is in code of some atomics, while nothing else is busy.

    Code in loops without atomics is not theirs, though it is in the same range.
    """
    names = {one.name for one, _, _ in some}
    mine = [one for one in hot_ranges(launch, work) if one.work.name in names]
    took = sum(one.share for one in mine if not one.looped or one.part(_is_atomic))
    return took >= _MOSTLY and nearest(launch) < _HELD


def _is_atomic(unit: str) -> bool:
    return unit.startswith("atomic")


def _swapped(launch: Prepared, kernel: str, some: list[Access]) -> Iterator[Finding]:
    """Yield a finding on operations that a loop makes of a load and a compare-and-swap."""
    waits = launch.regions([Activity.WAIT_MEMORY])
    took = time_in(launch, (one for one, _, _ in some), kernel)
    took += float(launch.own_by_region[waits].sum())
    share, count = min(took / max(launch.warp_time, 1), 1.0), requests_of(some)
    saved = min(share, 1 - nearest(launch, ("L1", "L2", "issue")))
    if share < _HELD or not enough(launch, saved * launch.duration):
        return
    some.sort(key=lambda each: -each[2])
    yield finding(
        launch,
        "atomics",
        title=f"{count:,.0f} atomic operations are loops of a load and a compare-and-swap: "
        f"{100 * share:.0f} % of the warps' time is in such loops and in waits for loads",
        number=Number("time in such code and waits for loads, of the warps' time", share, "share"),
        at_stake=saved * launch.duration,
        without="with atomics that need no answer",
        confidence="likely",
        rationale="counted: compare-and-swap instructions in loops; measured: the time of their "
        "ranges. Each loop waits for memory's answer, and repeats where another thread came "
        "between. Refuted if no single atomic does the same.",
        where=where_of_accesses(launch, some),
        suggestion="one atomic in place of the loop: atomicAdd of floats, halves and doubles, "
        "atomicMax and atomicMin on the bits as integers (ordered as the floats are), without use "
        "of the result, so that it becomes a reduction (RED); or reduce in the block first",
    )


def _long(launch: Prepared, kernel: str, some: list[Access]) -> Iterator[Finding]:
    """Yield a finding on warps that are in code of atomics for long."""
    took = time_in(launch, (one for one, _, _ in some if _mostly(one)), kernel)
    share, count = took / max(launch.warp_time, 1), requests_of(some)
    saved = min(share, 1 - nearest(launch, ("L1", "L2")))
    if share < _HELD or not enough(launch, saved * launch.duration):
        return
    some.sort(key=lambda each: -each[2])
    yield finding(
        launch,
        "atomics",
        title=f"{100 * share:.0f} % of the warps' time is in code of {count:,.0f} atomic "
        f"operations, {count / launch.duration:.1f} in a nanosecond",
        number=Number("time in code of atomics, of the warps' time", share, "share"),
        at_stake=saved * launch.duration,
        without="with next to no atomics",
        confidence="likely"
        if nearest(launch) < _IDLE_LOADS
        and is_counted(launch)
        and _crowd(count / launch.duration, share)
        else "possible",
        rationale="measured: the time of ranges whose accesses are atomic; L2 executes each "
        "operation apart from the SM's caches. Refuted if the kernel takes as long with plain "
        "stores to addresses of their own.",
        where=where_of_accesses(launch, some),
        suggestion="fewer partial sums: split the summed dimension (split-K) into fewer parts, sum "
        "in registers or shared memory first; or store partial results for a second kernel",
    )


def _crowd(rate: float, share: float) -> bool:
    """Whether so many operations in a nanosecond are what a share of the warps' time goes to."""
    return _FULL <= rate < _SPREAD or (rate < _FULL and share >= _ALL_OF_IT)


_FULL: Final = 20.0
"""Operations in a nanosecond that are a third of what all of L2 executes."""
_ALL_OF_IT: Final = 0.8
"""Share of the warps' time from which on fewer operations wait for each other."""


def _mostly(one: RangeWork) -> bool:
    """Whether most accesses of a range to global memory are atomic."""
    counts = {True: 0.0, False: 0.0}
    for access, requests in one.accesses():
        if ".global." in access.unit:
            counts[access.unit.startswith("atomic")] += requests
    return counts[True] > counts[False]


def _addresses(launch: Prepared, access: AccessFacts) -> int:
    """Return how many addresses a block's threads operate on."""
    warps = launch.launch.warps_per_block if "w" in access.depends else 1
    return max((access.addresses or 1) * warps if "l" in access.depends else 1, 1)


def _on_one(access: AccessFacts) -> bool:
    """Whether all blocks operate on the same few addresses."""
    return "b" not in access.depends and "d" not in access.depends and access.addresses is not None


def _crowded(launch: Prepared, work: CountedWork, crowd: _Crowd) -> Iterator[Finding]:
    share, count = crowd.share, crowd.count
    saved = min(1 - nearest(launch, ("L1", "L2")), _BOUND * share if crowd.same else 1.0)
    if not enough(launch, saved * launch.duration):
        return
    sure = crowd.sure or _holds_up(launch, work, crowd.some)
    sure = sure and count > prod(launch.launch.grid)  # one for each block is the repair
    yield finding(
        launch,
        "atomics",
        title=f"{count:,.0f} atomic operations "
        + (
            "of all blocks are on the same addresses"
            if crowd.same
            else "are on addresses that data choose"
        )
        + f", {count / launch.duration:.2f} in a nanosecond",
        number=Number("their time at the rate of such addresses, of the launch", share, "share"),
        at_stake=saved * launch.duration,
        without="with next to no atomics",
        confidence="likely" if sure else "possible",
        rationale="counted: atomics in the machine code, times executions and lanes"
        + (
            "; their address depends on no lane, block or data. One address takes one in a cycle "
            "of L2 at most."
            if crowd.same
            else "; how many are on one address, the code does not say."
        )
        + " Refuted if the kernel takes as long with plain stores to addresses of their own.",
        where=where_of_accesses(launch, sorted(crowd.some, key=lambda each: -each[2])),
        suggestion=_FEWER_BLOCKS if crowd.same and _sums_in_blocks(work) else _SUM_FIRST,
    )


def _sums_in_blocks(work: CountedWork) -> bool:
    """Whether blocks operate atomically on shared memory: then they sum up there first."""
    return any(unit.startswith("atomic.shared") for one in work.ranges for unit in one.facts.mix)


_SUM_FIRST: Final = (
    "reduce within each warp (__reduce_add_sync, __shfl_xor_sync) and block first, in registers or "
    "shared memory, then one atomic for each block; or partial results and a second kernel"
)
_FEWER_BLOCKS: Final = (
    "blocks sum up in shared memory first, and each adds all of its sums to the same addresses: "
    "launch fewer blocks, no more than the SMs hold at once, with more of the data for each; or "
    "partial results and a second kernel"
)
