"""Findings on kinds of memory that cost: ``local-memory`` and ``far-memory``.

Local memory holds spilled registers, and arrays that no register can hold. Far memory is the host's
or another GPU's, by way of a bus: the driver says whose memory a parameter points to. Where no
pointer is known, waits for loads of many times DRAM's latency, while no unit of the device is busy,
are its mark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import prod
from typing import Final

import numpy as np

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.counted_work import (
    Access,
    CountedWork,
    counted_work,
    if_counted,
    is_atomic,
    lane_bytes,
    moved_bytes,
    requests_of,
)
from ikp.analysis.explain.places import (
    hot_ranges,
    laid_to,
    where_of,
    where_of_accesses,
    where_of_rows,
)
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import IDLE, nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number
from ikp.core.run_figures import FAR

_LEAST: Final = 0.02
"""Share of the launch's instructions from which on accesses to local memory count."""
_SURE: Final = 0.06
_MOST_REGISTERS: Final = 255
_HOLDS_UP: Final = 8.0
"""How much longer than by its share of instructions an access may hold a warp up, at most: those
of local memory wait for L1, or L2."""
_WORD: Final = 4
_ROUNDING: Final = 8
_BY_BOUNDS: Final = (32, 40, 48, 56, 64, 72, 80, 96, 128, 168)
"""Registers that 65,536 give to each of so many warps of an SM that there is a round number."""


def local_memory(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding where accesses to local memory are more than a few of the instructions."""
    work, facts = counted_work(launch), launch.facts
    if work is None or facts is None:
        return
    count = _locals(work.issued)
    loops = any(".local." in unit for unit in work.uncounted)
    share = count / max(work.total, 1.0)
    l1 = work.ns(_words(work)) / launch.duration
    part = max(share, l1, _guessed(work))
    if part < _LEAST and not loops:
        return
    # Warps wait at barriers for what holds up the others: each cause has its part of that, too.
    meets = launch.share_in(launch.regions([Activity.WAIT_BARRIER]))
    held = laid_to(launch, work, lambda unit: ".local." in unit) / max(1 - meets, _LEAST)
    most = max(held, part) if part >= _SURE else _HOLDS_UP * max(part, _LEAST)
    saved = min(1 - nearest(launch, ("L1", "issue", "L2")), most)
    if not enough(launch, saved * launch.duration):
        return
    ranges = sorted(work.ranges, key=lambda one: -_locals(one.issued))
    registers = facts.plain_registers or facts.registers
    full = _is_full(facts.register_limit, registers) and not _is_indexed(work)
    why, change = _of_spills(launch, work) if full else ("", _ARRAYS)
    yield finding(
        launch,
        "local-memory",
        title=(
            f"registers spill to local memory{why}"
            if full
            else "an array of each thread is in local memory"
        )
        + f": {100 * max(share, _guessed(work)):.0f} % of the instructions load or store there"
        + (f", {facts.local_bytes:,} bytes of each thread" if facts.local_bytes else ""),
        number=Number("loads and stores of local memory, of all instructions", share, "share"),
        at_stake=saved * launch.duration,
        without="with all values in registers, or in shared memory",
        confidence="likely" if part >= _SURE else "possible",
        rationale=f"counted: {facts.spills or 0:,} such instructions in the plain kernel's code, "
        f"{count:,.0f} executed by warps"
        + (", and some in loops whose trips are not known" if loops else "")
        + f"; {registers} registers a thread"
        + (f", of {facts.register_limit} allowed" if facts.register_limit else "")
        + ". Refuted if a build without spills takes as long.",
        where=where_of(launch, [one for one in ranges[:3] if _locals(one.issued)]),
        suggestion=change,
    )


_SPILLS: Final = (
    "more warps for the tile (num_warps) or a smaller tile, so that each thread holds less; or a "
    "loop that keeps less alive from one step to the next"
)
_OF_THE_LOOP: Final = (
    "a loop that keeps one copy of the sums alive: the sum as an operand of the product "
    "(tl.dot(a, b, acc), from zeros), with no selection or further arithmetic on it in the loop, "
    "and one flat loop over all steps with no short one inside; else more warps for the tile "
    "(num_warps), or a smaller tile"
)
_OF_A_LIMIT: Final = (
    "lift the limit: no maxnreg or -maxrregcount, or __launch_bounds__ with fewer blocks for each "
    "SM (a smaller second argument, or none); else keep less alive"
)
_OF_LARGE_BLOCKS: Final = (
    "smaller blocks, which leave each thread more registers, or less for each thread to hold: a "
    "smaller tile, fewer sums"
)
_ALL: Final = 65_536
"""Registers of an SM."""
_BLOCKS: Final = 8
"""Most blocks of an SM whose share of its registers shows a limit: so many small ones divide it in
so many ways that one of them leaves any count, which a compiler may have chosen itself."""


def _of_spills(launch: Prepared, work: CountedWork) -> tuple[str, str]:
    """Return why registers are too few, for a title, and what to change."""
    facts, threads = launch.facts, prod(launch.launch.block)
    registers = (facts.plain_registers or facts.registers or 0) if facts else 0
    limit = facts.register_limit if facts else None
    if registers < _MOST_REGISTERS - _ROUNDING:
        if limit is not None and registers >= limit - _ROUNDING:
            return f", of which the build allows a thread {limit}", _OF_A_LIMIT
        if registers >= _for_each(threads) - _ROUNDING:
            return (
                f", of which blocks of {threads:,} threads leave each {registers}",
                _OF_LARGE_BLOCKS,
            )
        blocks = (n for n in range(2, _BLOCKS + 1) if registers == _for_each(n * threads))
        if (some := next(blocks, None)) is not None:
            why = f", of which a thread has {registers}: as many as {some} blocks of {threads:,} "
            return why + "threads leave on an SM, a limit of the source", _OF_A_LIMIT
    if _sums_are_held_twice(launch, work):
        return ", though a thread's results take half of its registers at most", _OF_THE_LOOP
    return "", _SPILLS


def _for_each(threads: int) -> int:
    """Return the registers of each of so many threads of an SM, as the compiler gives them."""
    each = _ALL // max(threads, 1) // _ROUNDING * _ROUNDING
    return min(each, _MOST_REGISTERS)


_RESULTS: Final = 256
"""Bytes of results of a thread up to which half of its registers hold them, of 16 bits or 32."""


def _sums_are_held_twice(launch: Prepared, work: CountedWork) -> bool:
    """Whether loops with products spill, though a thread has half as many results as registers.

    Between two products of attention a softmax (XU) holds numbers of its own: there the tile is.
    Loads alone, without stores, are of numbers from before the loop.
    """
    loops = [one.mix for one in launch.facts.loops if one.depth] if launch.facts else []
    some = [mix for mix in loops if _has(mix, "tensor") and _has(mix, "store.local")]
    held = 0 < _result_bytes(launch, work) <= _RESULTS
    return bool(some) and not any(_has(mix, "xu") for mix in some) and held


def _result_bytes(launch: Prepared, work: CountedWork) -> float:
    """Return the bytes of results that a thread stores, outside of loops."""
    stored = [each for each in work.accesses("store.global") if not each[1].in_loop]
    return sum(n * lane_bytes(one.unit) for _, one, n in stored) / max(launch.grid_warps, 1)


def _has(mix: Mapping[str, int], *units: str) -> bool:
    return any(unit.startswith(units) for unit in mix)


_ARRAYS: Final = (
    "index the array by constants (unroll its loops), or put it into shared memory, an element "
    "for each thread"
)


def _is_full(limit: int | None, registers: int | None) -> bool:
    """Whether a thread has about as many registers as it may have.

    A compiler that is given warps and blocks of an SM (``__launch_bounds__``) limits registers to
    what 65,536 allow, and leaves no number in the file: a multiple of eight of at least 24.
    """
    if registers is None:
        return True
    most = min(limit or _MOST_REGISTERS, _MOST_REGISTERS)
    return registers >= most - _ROUNDING or registers in _BY_BOUNDS


def _is_indexed(work: CountedWork) -> bool:
    """Whether most accesses to local memory are at addresses that loops, lanes or data choose.

    A spilled register has a place of its own; an element of an array is chosen as the code runs.
    """
    some = [each for each in work.accesses() if ".local." in each[1].unit]
    chosen = sum(requests for _, one, requests in some if {*one.depends} & {*"ild"})
    return chosen > requests_of(some) / 2


def _guessed(work: CountedWork) -> float:
    """Return the share of such accesses in loops of unknown trips, if all ran equally often."""
    found, whole = 0.0, work.total
    for one in work.ranges:
        looped = one.uncounted
        found += one.executions * _TRIPS * _locals(looped)
        whole += one.executions * _TRIPS * sum(looped.values())
    return found / max(whole, 1.0)


_TRIPS: Final = 8.0
"""Trips that a loop is taken to make where no record counts them."""


def _locals(issued: dict[str, float]) -> float:
    return sum(count for unit, count in issued.items() if ".local." in unit)


def _words(work: CountedWork) -> float:
    """Return the cycles of L1 for all accesses to local memory: 128 bytes in one."""
    return sum(
        count * lane_bytes(unit) / _WORD for unit, count in work.issued.items() if ".local." in unit
    )


_FAR: Final = "h"
"""The letter of accesses to memory that is not the device's."""
_BUS: Final = 55.0
"""Bytes in a nanosecond over PCI Express 5.0 with 16 lanes, as copies reach it."""
_LATENCY: Final = 5_000
"""Nanoseconds of a median wait for a load that DRAM's queues don't reach: they take up to two."""
_LONG: Final = 0.15
"""Share of the warps' time in such waits from which on they are a finding."""


@if_counted
def far_memory(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on accesses that go over a bus, or that take as long as if they did."""
    far = [each for each in work.accesses() if _FAR in each[1].depends and not each[1].use]
    some = [each for each in far if each[2]]
    if some:
        yield from _known(launch, some)
    else:
        yield from _in_loops(launch, work, far) if far else _by_latency(launch, work)


def _known(launch: Prepared, some: list[Access]) -> Iterator[Finding]:
    size = moved_bytes(some)
    whose = _whose(launch)
    over_bus = size / _BUS / launch.duration
    if whose == "managed" and nearest(launch) >= IDLE:
        return  # its pages are on the device
    saved = 1 - nearest(launch)
    if over_bus < _LONG or not enough(launch, saved * launch.duration):
        return
    some.sort(key=lambda each: -each[2])
    yield finding(
        launch,
        "far-memory",
        title=f"{some[0][0].name} accesses {_owner(launch)} memory: {size / 1e6:,.1f} MB pass a "
        f"bus, {size / launch.duration:,.0f} GB/s",
        number=Number("their time at the rate of a bus, of the launch", over_bus, "share"),
        at_stake=saved * launch.duration,
        without="with these bytes in the device's memory",
        confidence="likely",
        rationale="the driver says whose memory the parameters point to; counted: the bytes, which "
        f"a bus of {_BUS:.0f} GB/s takes {100 * min(over_bus, 9.99):.0f} % of the launch for. "
        "Refuted if a cache serves them.",
        where=where_of_accesses(launch, some),
        suggestion=_NEARER,
    )


_NEARER: Final = (
    "keep what the kernel reads and writes in the device's memory; copy it there ahead "
    "(cudaMemcpyAsync, cudaMemPrefetchAsync), beside other work"
)


def _in_loops(launch: Prepared, work: CountedWork, far: list[Access]) -> Iterator[Finding]:
    """Yield a finding on loops in no count that load from far memory, by their time."""
    names = {one.name for one, access, _ in far if access.in_loop}
    hot = [one for one in hot_ranges(launch, work) if one.looped and one.work.name in names]
    share = sum(one.share * one.part(lambda unit: unit.startswith("load.global")) for one in hot)
    saved = min(share, 1 - nearest(launch))
    if _whose(launch) == "managed" or share < _LONG or not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "far-memory",
        title=f"loops of {hot[0].work.name} load from {_owner(launch)} memory, over a bus: "
        f"{100 * share:.0f} % of the warps' time is in their loads",
        number=Number("loads of these loops, of the warps' time", share, "share"),
        at_stake=saved * launch.duration,
        without="with these bytes in the device's memory",
        confidence="likely",
        rationale="the driver says whose memory the parameters point to, and addresses begin "
        "there; how many bytes the loops ask for is not counted. Refuted if a cache serves them.",
        where=where_of_accesses(launch, [each for each in far if each[1].in_loop]),
        suggestion=_NEARER,
    )


def _owner(launch: Prepared) -> str:
    whose = _whose(launch)
    return {"host": "the host's", "managed": "managed"}.get(whose, f"{whose}'s")


def _whose(launch: Prepared) -> str:
    """Return whose memory a launch's parameters point to, beside the device's."""
    try:
        said = json.loads(launch.trace.provenance.get(f"{FAR}{launch.launch.label}", "{}"))
        kinds = [str(kind) for kind, _, _ in said.values()]
    except (ValueError, TypeError, AttributeError):
        kinds = []
    return next((each for each in kinds if each != "managed"), "managed" if kinds else "host")


def _by_latency(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    if nearest(launch) >= IDLE or any(is_atomic(each[1]) for each in work.accesses()):
        return
    if any(one.facts.polls for one in work.ranges):
        return
    waits = launch.regions([Activity.WAIT_MEMORY]).tolist()
    long = [region for region in waits if _median(launch, region) >= _LATENCY]
    share = launch.share_in(long)
    saved = 1 - nearest(launch)
    if not long or share < _LONG or not enough(launch, saved * launch.duration):
        return
    region = max(long, key=lambda one: int(launch.own_by_region[one]))
    took, rows, name = _median(launch, region), launch.of_region([region]), launch.names[region]
    yield finding(
        launch,
        "far-memory",
        title=f"{name} takes {took / 1000:,.1f} us (median), many times the latency of the "
        "device's memory: the loads may be from memory of the host or another GPU",
        number=Number(f"median of {name}", took, "ns"),
        at_stake=saved * launch.duration,
        without="with these bytes in the device's memory",
        confidence="likely",
        rationale="measured: the wait for a load; memory of the device answers within two "
        f"microseconds, though many wait, and no unit is above {100 * nearest(launch):.0f} % of "
        "its rate. Refuted if all pointers are of the device's memory, and "
        "its pages are on the device.",
        where=where_of_rows(launch, rows, (name,)),
        suggestion="keep what the kernel reads and writes in the device's memory; copy or prefetch "
        "it there ahead",
    )


def _median(launch: Prepared, region: int) -> float:
    rows = launch.of_region([region])
    return float(np.median(launch.own[rows])) if len(rows) else 0.0
