"""Findings ``repeated-loads`` and ``needless-pass``: loads of what was loaded or stored before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.counted_work import (
    READS_BACK,
    SECTOR,
    Access,
    CountedWork,
    counted_work,
    is_fixed,
    l1_cycles,
    moved_bytes,
)
from ikp.analysis.explain.places import short_line, where_of_accesses
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import is_own, nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

_PART: Final = 0.15
"""Part of the loads' cycles that such loads are, from which on they are a finding."""
_LEAST: Final = 0.03
"""Share of the launch that they need at the caches' full rate."""
_BOUND: Final = 3.0
_AGAIN: Final = 0.25
"""Part of the bytes of memory that are asked for again, from which on that is a finding."""


def repeated_loads(launch: Prepared) -> Iterator[Finding]:
    """Yield findings on loads that could be made once, or not at all."""
    work = counted_work(launch)
    if work is None:
        return
    loads = [each for each in work.accesses() if each[1].unit.startswith(("load.g", "copy.g"))]
    yield from _passed_through(launch, work, loads)
    loads = [each for each in loads if READS_BACK not in each[1].depends]
    yield from _invariant(launch, work, loads)
    yield from _again(launch, work, loads)


def _passed_through(launch: Prepared, work: CountedWork, loads: list[Access]) -> Iterator[Finding]:
    """Yield a finding on bytes that a block stores to global memory and loads again."""
    back = [each for each in loads if READS_BACK in each[1].depends]
    own = [each for each in work.accesses() if ".global." in each[1].unit]
    whole = moved_bytes(own)
    again = moved_bytes(back)
    stores = moved_bytes(each for each in own if each[1].unit.startswith("store"))
    share = (again + min(again, stores)) / max(whole, 1.0)
    at_l2 = (again + min(again, stores)) / work.peak.l2_gb_per_s / launch.duration
    if share < _AGAIN or at_l2 < _LEAST:
        return
    saved = min(share, 1 - nearest(launch, ("L1", "L2", "DRAM", "issue")))
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


def _invariant(launch: Prepared, work: CountedWork, loads: list[Access]) -> Iterator[Finding]:
    """Yield a finding on loads in a loop whose address is the same in each iteration."""
    fixed = [each for each in loads if is_fixed(each[1])]
    whole = l1_cycles(loads)
    cycles = l1_cycles(fixed)
    share = work.ns(cycles) / launch.duration
    if not fixed or cycles < _PART * whole or share < _LEAST:
        return
    saved = min(1 - nearest(launch, ("L1", "L2")), _BOUND * share)
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
    first: dict[int, Access] = {}
    again: list[tuple[Access, Access]] = []
    for each in loads:
        if is_own(each[1]):
            known = next((first[key] for key in each[1].keys if key in first), None)
            if known is not None and _elsewhere(known, each):
                again.append((known, each))
            for key in each[1].keys:
                first.setdefault(key, each)
    own = sum(_bytes(each) for each in loads if is_own(each[1]))
    own += sum(
        requests * (access.least or 0) * SECTOR
        for _, access, requests in work.accesses()
        if access.unit.startswith("store.g") and is_own(access)
    )
    more = sum(_bytes(each) for _, each in again)
    share = more / work.peak.gb_per_s / launch.duration
    if not again or more < _AGAIN * own or share < _LEAST:
        return
    third = _third(loads)
    if third:
        more, again = sum(_bytes(each) for each in third), [(again[0][0], third[0])]
    saved = more / own
    once, other = again[0]
    yield finding(
        launch,
        "repeated-loads",
        title=f"{_at(other)} loads again what {_at(once)} has loaded: {more / 1e6:,.0f} MB "
        f"of {own / 1e6:,.0f} MB",
        number=Number("bytes that are loaded again, of all loaded and stored", saved, "share"),
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


def _third(loads: list[Access]) -> list[Access]:
    """Return the loads of what two other places in the code have loaded before."""
    places: dict[int, list[Access]] = {}
    for each in loads:
        for key in each[1].keys if is_own(each[1]) else ():
            if all(_elsewhere(one, each) for one in places.setdefault(key, [])):
                places[key].append(each)
    return list({id(each): each for some in places.values() for each in some[2:]}.values())


def _at(each: Access) -> str:
    line = short_line(each[1].line)
    return f"{each[0].name} ({line})" if line and line not in each[0].name else each[0].name


def _elsewhere(one: Access, other: Access) -> bool:
    """Whether two accesses are of different parts of the code."""
    return one[0].name != other[0].name or one[1].line != other[1].line


def _bytes(each: Access) -> float:
    return each[2] * (each[1].least or 0.0) * SECTOR
