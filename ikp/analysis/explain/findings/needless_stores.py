"""Findings ``repeated-stores`` and ``unchanged-values``: stores that memory does not need.

A store of which only the last one counts, since no iteration moves its address; a sum that is kept
in memory; a value that is loaded only to be stored again where it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.counted_work import CountedWork, counted_work, is_fixed, moved_bytes
from ikp.analysis.explain.findings.extra_instructions import extra_of
from ikp.analysis.explain.places import short_line, time_in, where_of, where_of_accesses
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

_PART: Final = 0.15
"""Part of the accesses, of the time, or of the bytes, from which on such stores are a finding."""


def needless_stores(launch: Prepared) -> Iterator[Finding]:
    """Yield findings on stores that are made again, and on values that are written back."""
    work = counted_work(launch)
    if work is None:
        return
    summed = list(_summed(launch, work))
    yield from summed or _stored_again(launch, work)
    yield from _written_back(launch, work)


def _summed(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on a sum that each iteration loads and stores."""
    some = extra_of(work, "in memory")
    stores = sum(one.executions * each.parts for one, each in some)
    time = time_in(launch, (one for one, _ in some), work.kernel) / max(launch.warp_time, 1)
    if stores < _TIMES * launch.grid_warps or time < _PART:
        return
    saved = min(time * _CHAIN, 1 - nearest(launch, ("L1", "issue")))
    if not enough(launch, saved * launch.duration):
        return
    place = short_line(some[0][1].line, some[0][0].name)
    yield finding(
        launch,
        "repeated-stores",
        title=f"{place} keeps a sum in memory: each iteration loads it, adds, and stores it where "
        f"it was: {stores:,.0f} times, of which the last counts",
        number=Number("time of the code with the sum, of the warps' time", time, "share"),
        at_stake=saved * launch.duration,
        without="with the sum in a register",
        confidence="likely",
        rationale="counted: a load, an addition and a store at one address that no iteration "
        "moves: each waits for the one before, for tens of cycles. Refuted if another thread "
        "reads the sum meanwhile.",
        where=where_of(launch, [one for one, _ in some], [each.line for _, each in some]),
        suggestion=_REGISTER,
    )


_CHAIN: Final = 0.8
"""Part of the time of such code that goes where the sum is in a register."""
_REGISTER: Final = (
    "keep the sum in a register, and store it once behind the loop; __restrict__ on pointers, so "
    "that loads can pass stores"
)


def _written_back(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on values that are loaded only to be stored where they were."""
    some = extra_of(work, "written back")
    lines = {each.line for _, each in some}
    stores = sum(one.executions * each.parts for one, each in some)
    own = [each for each in work.accesses() if ".global." in each[1].unit]
    back = [each for each in own if each[1].unit.startswith("store.g") and each[1].line in lines]
    if not some or not stores or not back:
        return
    part = min(2 * moved_bytes(back) / max(moved_bytes(own), 1.0), 1.0)
    saved = min(part, 1 - nearest(launch, ("DRAM", "L2", "L1", "issue", "integer")))
    if part < _PART or not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "unchanged-values",
        title=f"{back[0][0].name} loads values only to store them where they were, unless a "
        f"condition replaces them: {100 * part:.0f} % of all bytes pass for that, both ways",
        number=Number("such bytes, of all", part, "share"),
        at_stake=saved * launch.duration,
        without="with stores of what changes alone",
        confidence="likely",
        rationale="counted: loads whose values only selections and moves read, and stores to the "
        "same sectors. Refuted if most values are replaced.",
        where=where_of_accesses(launch, back),
        suggestion="store what changes alone, under a mask (tl.store(..., mask=changed), or an if "
        "around the store), without loading the rest; or write to the changed rows by index",
    )


def _stored_again(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on stores in a loop whose address is the same in each iteration."""
    stores = [each for each in work.accesses() if each[1].unit.startswith("store.g")]
    fixed = [each for each in stores if is_fixed(each[1]) and each[1].threads is not None]
    whole = sum(each[2] for each in work.accesses() if ".global." in each[1].unit)
    count = sum(each[2] for each in fixed)
    if not fixed or count < _PART * whole or count < _TIMES * launch.grid_warps:
        return
    saved = 1 - nearest(launch, ("L1", "L2", "issue"))
    if not enough(launch, saved * launch.duration):
        return
    fixed.sort(key=lambda each: -each[2])
    yield finding(
        launch,
        "repeated-stores",
        title=f"{fixed[0][0].name} stores to the same address in each iteration: {count:,.0f} "
        f"stores, {100 * count / whole:.0f} % of all accesses, of which the last ones count",
        number=Number("such stores, of all accesses to global memory", count / whole, "share"),
        at_stake=saved * launch.duration,
        without="with one store behind the loop",
        confidence="likely",
        rationale="counted: the address depends on nothing that an iteration changes. A load that "
        "may be of a store's address can't be made before it, so few loads are under way. "
        "Refuted if another thread reads the values meanwhile.",
        where=where_of_accesses(launch, fixed),
        suggestion=_REGISTER,
    )


_TIMES: Final = 8.0
"""Such stores of each warp from which on these are in a loop of some length."""
