"""Findings on accesses that repeat others: loads of what was loaded or stored before, stores that
memory does not need.

``repeated-loads`` and ``needless-pass``. ``repeated-stores``: a store of which only the last one
counts, since no iteration moves its address; a sum that is kept in memory. ``unchanged-values``: a
value that is loaded only to be stored again where it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.counted_work import (
    READS_BACK,
    SECTOR,
    Access,
    CountedWork,
    if_counted,
    is_fixed,
    l1_cycles,
    moved_bytes,
    requests_of,
)
from ikp.analysis.explain.findings.needless_instructions import extra_of
from ikp.analysis.explain.places import (
    laid_to,
    share_of_time,
    short_line,
    where_of_accesses,
    where_of_extra,
)
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import is_own, nearest, share_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

_PART: Final = 0.15
"""Part of the loads' cycles that such loads are, from which on they are a finding."""
_LEAST: Final = 0.03
"""Share of the launch that they need at the caches' full rate."""
_BOUND: Final = 3.0
"""How many times as long as at L1's full rate such loads take where warps wait for them."""
_BUSY: Final = 0.85
"""Share of the nearest other roof from which on it hides such waits: 0.11 was promised, 0.01 won.
"""
_ROOM: Final = 227 * 1024
"""Bytes that a block may have of an SM's shared memory, at most."""
_RATE: Final = 0.6
"""Share of memory's rate from which on it, and not L2 alone, brings what was stored."""
_IN_L2: Final = 0.5e6
"""Part of each megabyte of L2 that holds what all blocks load until they load it again."""
_AGAIN: Final = 0.25
"""Part of the bytes of memory that are asked for again, from which on that is a finding."""


@if_counted
def repeated_loads(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield findings on loads that could be made once, or not at all."""
    loads = work.accesses("load.g", "copy.g")
    yield from _passed_through(launch, work, loads)
    loads = [each for each in loads if READS_BACK not in each[1].depends]
    yield from _invariant(launch, work, loads)
    yield from _again(launch, work, loads)


def _passed_through(launch: Prepared, work: CountedWork, loads: list[Access]) -> Iterator[Finding]:
    """Yield a finding on bytes that a block stores to global memory and loads again."""
    back = [each for each in loads if READS_BACK in each[1].depends]
    own = work.global_accesses()
    whole = moved_bytes(own)
    again = moved_bytes(back)
    stores = moved_bytes(each for each in own if each[1].unit.startswith("store"))
    share = (again + min(again, stores)) / max(whole, 1.0)
    at_l2 = (again + min(again, stores)) / work.peak.l2_gb_per_s / launch.duration
    writers = {each[0].name for each in own if each[1].unit.startswith("store")}
    later = moved_bytes(each for each in back if each[0].name not in writers)  # all at a time
    if share < _AGAIN or at_l2 < _LEAST:
        return
    rate = work.peak.gb_per_s if share_of(launch, "DRAM") >= _RATE else work.peak.l2_gb_per_s
    if later > _ROOM * work.blocks:
        yield from _pass_between(launch, back, whole, rate)
        return
    time = (again + min(again, stores)) / rate / launch.duration
    saved = min(share, time, 1 - nearest(launch, ("L1", "L2", "DRAM", "issue")))
    back.sort(key=lambda each: -moved_bytes([each]))
    yield finding(
        launch,
        "needless-pass",
        title=f"{_at(back[0])} loads what its own block has stored to global memory: "
        f"{100 * share:.0f} % of all bytes that pass are stored and loaded for it",
        number=Number("bytes stored and loaded again, of all that pass", share, "share"),
        at_stake=saved * launch.duration,
        without="with these values in registers or shared memory",
        confidence="likely",
        rationale="counted: stores and, behind them, loads of one block at equal addresses. "
        "Refuted if neither registers nor shared memory have room for them.",
        where=where_of_accesses(launch, back),
        suggestion="keep the values in registers or shared memory between the two passes; store "
        "what is needed behind the kernel, once",
    )


def _pass_between(
    launch: Prepared, back: list[Access], whole: float, rate: float
) -> Iterator[Finding]:
    """Yield a finding on the first of two passes over more than a block can keep.

    It loads what the block had in registers as it stored it.
    """
    pairs = _pairs(back)
    lines = {once[1].line for once, _ in pairs} - {other[1].line for _, other in pairs}
    first = [each for each in back if each[1].line in lines]  # also copies of an unrolled loop
    size = moved_bytes(first)
    saved = min(size / rate / launch.duration, 1 - nearest(launch, ("L1", "L2", "DRAM", "issue")))
    if not first or not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "needless-pass",
        title=f"{_at(first[0])} loads what its own block has stored, and {_at(pairs[0][1])} loads "
        f"it once more: the first of these passes is {100 * size / whole:.0f} % of all bytes",
        number=Number("bytes of the first pass, of all that pass", size / whole, "share"),
        at_stake=saved * launch.duration,
        without="without the first of these passes",
        confidence="likely",
        rationale="counted: two parts of the code load from addresses at which the block has "
        "stored. Refuted if the first one needs a sum of all that is stored.",
        where=where_of_accesses(launch, first),
        suggestion="make the sums of the first pass where the values are calculated and stored",
    )


def _invariant(launch: Prepared, work: CountedWork, loads: list[Access]) -> Iterator[Finding]:
    """Yield a finding on loads in a loop whose address is the same in each iteration."""
    fixed = [each for each in loads if is_fixed(each[1])]
    whole = l1_cycles(loads)
    cycles = l1_cycles(fixed)
    share = work.ns(cycles) / launch.duration
    if not fixed or cycles < _PART * whole or share < _LEAST:
        return
    left = nearest(launch, ("L1", "L2"))
    saved = min(1 - left, share * (1 if left >= _BUSY else _BOUND))
    if not enough(launch, saved * launch.duration):
        return
    fixed.sort(key=lambda each: -l1_cycles([each]))
    yield finding(
        launch,
        "repeated-loads",
        title=f"{fixed[0][0].name} loads the same addresses in each iteration of its loop: "
        f"{100 * cycles / whole:.0f} % of all loads",
        number=Number("such loads, of the loads' cycles", cycles / whole, "share"),
        at_stake=saved * launch.duration,
        without="with these loads before the loop",
        confidence="likely",
        rationale="counted: the address depends on nothing that an iteration changes; at L1's "
        f"full rate such loads need {100 * share:.0f} % of the launch. Refuted if another thread "
        "writes there meanwhile.",
        where=where_of_accesses(launch, fixed),
        suggestion="load before the loop and keep the values in registers or shared memory",
    )


def _again(launch: Prepared, work: CountedWork, loads: list[Access]) -> Iterator[Finding]:
    """Yield a finding on bytes of memory that a later part of the kernel loads again."""
    own_loads = [each for each in loads if is_own(each[1])]
    again = _pairs(own_loads)
    own = _bytes(own_loads)
    own += _bytes([each for each in work.accesses("store.g") if is_own(each[1])])
    more = _bytes([each for _, each in again])
    share = more / work.peak.gb_per_s / launch.duration
    if not again or more < _AGAIN * own or share < _LEAST:
        return
    once, other = again[0]
    third = _third(own_loads)
    if third:
        more, other = _bytes(third), third[0]
    saved = more / own
    if own / work.blocks * launch.lanes.count <= work.peak.l2_mb * _IN_L2:
        saved = min(saved, more / work.peak.l2_gb_per_s / launch.duration)
    yield finding(
        launch,
        "repeated-loads",
        title=f"{_at(other)} loads again what {_at(once)} has loaded: {more / 1e6:,.0f} MB "
        f"of {own / 1e6:,.0f} MB",
        number=Number("bytes that are loaded again, of all loaded and stored", more / own, "share"),
        at_stake=saved * launch.duration,
        without="with each byte loaded once",
        confidence="likely" if third else "possible",
        rationale="counted: two ranges load from equal addresses; whether the first one's bytes "
        "are still in a cache then is not known. Refuted if L2 serves the second one."
        + (" It is the third pass: two are enough for any sums and what follows." * bool(third)),
        where=where_of_accesses(launch, [other, once]),
        suggestion="keep the values in registers or shared memory; or calculate the results of "
        "one pass while another goes over the data (an online softmax, fused kernels)",
    )


def _pairs(loads: list[Access]) -> list[tuple[Access, Access]]:
    """Return each load of what another place in the code has loaded before, behind that one."""
    first: dict[int, Access] = {}
    found = []
    for each in loads:
        known = next((first[key] for key in each[1].keys if key in first), None)
        if known is not None and _elsewhere(known, each):
            found.append((known, each))
        for key in each[1].keys:
            first.setdefault(key, each)
    return found


def _third(loads: list[Access]) -> list[Access]:
    """Return the loads of what two other places in the code have loaded before."""
    places: dict[int, list[Access]] = {}
    for each in loads:
        for key in each[1].keys:
            if all(_elsewhere(one, each) for one in places.setdefault(key, [])):
                places[key].append(each)
    return list({id(each): each for some in places.values() for each in some[2:]}.values())


def _at(each: Access) -> str:
    line = short_line(each[1].line)
    return f"{each[0].name} ({line})" if line and line not in each[0].name else each[0].name


def _elsewhere(one: Access, other: Access) -> bool:
    """Whether two accesses are of different parts of the code."""
    return one[0].name != other[0].name or one[1].line != other[1].line


def _bytes(some: list[Access]) -> float:
    """Return the bytes that some accesses need, each lane's once."""
    return sum(requests * (access.least or 0.0) * SECTOR for _, access, requests in some)


_STORED_PART: Final = 0.15
"""Part of the accesses, of the time, or of the bytes, from which on such stores are a finding."""


@if_counted
def needless_stores(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield findings on stores that are made again, and on values that are written back."""
    summed = list(_summed(launch, work))
    yield from summed or _stored_again(launch, work)
    yield from _written_back(launch, work)


def _summed(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on a sum that each iteration loads and stores."""
    some = extra_of(work, "in memory")
    stores = sum(one.executions * each.parts for one, each in some)
    time = share_of_time(launch, (one for one, _ in some), work.kernel)
    if stores < _TIMES * launch.grid_warps or time < _STORED_PART:
        return
    held = laid_to(launch, work, _is_global)
    saved = min(time * _CHAIN, held, 1 - nearest(launch, ("L1", "issue")))
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
        where=where_of_extra(launch, some),
        suggestion=_REGISTER,
    )


def _is_global(unit: str) -> bool:
    return ".global." in unit


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
    own = work.global_accesses()
    back = [each for each in own if each[1].unit.startswith("store.g") and each[1].line in lines]
    if not some or not stores or not back:
        return
    part = min(2 * moved_bytes(back) / max(moved_bytes(own), 1.0), 1.0)
    saved = min(part, 1 - nearest(launch, ("DRAM", "L2", "L1", "issue", "integer")))
    if part < _STORED_PART or not enough(launch, saved * launch.duration):
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
    stores = work.accesses("store.g")
    fixed = [each for each in stores if is_fixed(each[1]) and each[1].threads is not None]
    whole = requests_of(work.global_accesses())
    count = requests_of(fixed)
    if not fixed or count < _STORED_PART * whole or count < _TIMES * launch.grid_warps:
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
