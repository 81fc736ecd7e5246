"""Findings on hardware that a kernel leaves unused: shared memory, warpgroup MMA, TMA, caches.

``unused-shared-memory``: what no block uses is taken from L1, or from other blocks.
``single-warp-products``: on sm_90 products of single warps reach about 60 % of the rate of a
warpgroup's. ``copy-issue``: warps take long to issue copies lane by lane (``cp.async``, not TMA).

``uncached-loads``: loads that are volatile, or marked to pass L1 by, ask L2 each time.
``block-order``: by the counted addresses of loads, blocks that run at once share no
data, though blocks far apart do; what one block has brought into L2 is gone when another block asks
for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.counted_work import (
    SECTOR,
    Access,
    CountedWork,
    RangeWork,
    count_of,
    if_counted,
    lane_bytes,
    requests_of,
    sectors,
)
from ikp.analysis.explain.findings.needless_instructions import extra_of
from ikp.analysis.explain.places import (
    share_of_time,
    short_line,
    where_of,
    where_of_accesses,
    where_of_extra,
    where_of_rows,
)
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.region_times import cycles_of, group_shares
from ikp.analysis.explain.roofs import nearest, share_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.use_of_hardware import blocks_without_shared, shared_of_block
from ikp.analysis.explain.verdict import Finding, Number
from ikp.core.code_facts import AccessFacts
from ikp.core.run_figures import CARVE_OUT

_MUCH: Final = 16 << 10
"""Bytes of shared memory of a block from which on unused ones cost other blocks, or L1."""
_SM: Final = 227 << 10
"""Bytes of shared memory of an SM of sm_90, at most."""
_SYSTEM: Final = 1 << 10
"""Bytes of shared memory of each block that the system takes."""
_FOR_L1: Final = 0.3
"""Part of the launch that a larger L1 may win where an SM has room for no further block."""
_LOADS: Final = (Activity.WAIT_MEMORY, Activity.LOAD)
_GROUP: Final = 4
"""Warps of a warpgroup."""
_OF_GROUPS: Final = 0.62
"""The rate of products of single warps over that of warpgroups', on an H100."""
_PART: Final = 0.3
"""Part of the warps' time in products from which on their kind is a cause."""
_BUSY: Final = 0.25
"""Share of tensor cores' rate from which on the rate of their instructions is."""


@if_counted
def unused_hardware(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield findings on shared memory, and on products of warpgroups, that a launch leaves out."""
    if launch.facts is None:
        return
    yield from [*_shared(launch, work)] or _carved_out(launch, work)
    yield from _products(launch, work)


def _shared(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    size = launch.facts.shared if launch.facts else None
    if size is None or size < _MUCH or any(".shared." in unit for unit in _units(work)):
        return
    if any(unit.startswith(("copy", "tensor.group")) for unit in _units(work)):
        return
    held = min(size * max(_blocks(launch), 1) / _SM, 1.0)
    more = blocks_without_shared(launch) / max(_blocks(launch), 1)
    saved = min(1 - nearest(launch, ("L1", "L2")), max(1 - 1 / more, _FOR_L1))
    if not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "unused-shared-memory",
        title=f"each block takes {size >> 10} KiB of shared memory that no instruction accesses: "
        f"{100 * held:.0f} % of an SM's, which L1 and other blocks don't have",
        number=Number("such bytes, of the SM's shared memory", held, "share"),
        at_stake=saved * launch.duration,
        without="with that memory for L1 and other blocks",
        confidence="likely",
        rationale="counted: no instruction of the kernel loads from shared memory, or stores "
        "there. Refuted if another limit holds as few blocks, and L1 serves as much.",
        where=where_of(launch, work.ranges[:1]),
        suggestion="launch without dynamic shared memory (the third argument in <<< >>>), and "
        "without a carve-out for it (cudaFuncAttributePreferredSharedMemoryCarveout)",
    )


def _carved_out(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on L1 that a program gives to shared memory, which no block takes."""
    text = launch.trace.provenance.get(f"{CARVE_OUT}{launch.launch.label}", "")
    taken = shared_of_block(launch) + _SYSTEM if launch.facts else 0
    given = int(text) / 100 * _SM if text.isdecimal() else 0.0
    idle = given - taken * max(_blocks(launch), 1)
    waits = launch.share_in(launch.regions(_LOADS))
    if idle < _SM / 4 or waits < _PART or share_of(launch, "DRAM") > 1 - waits:
        return
    saved = min(waits, 1 - nearest(launch, ("L1", "L2")))
    if not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "unused-shared-memory",
        title=f"the program sets {text} % of L1 aside as shared memory, and blocks take "
        f"{100 * (given - idle) / _SM:.0f} %: loads, {100 * waits:.0f} % of the warps' time, have "
        "little L1 left",
        number=Number("shared memory that no block takes, of the SM's", idle / _SM, "share"),
        at_stake=saved * launch.duration,
        without="with that memory for L1",
        confidence="likely",
        rationale="counted: the function's carve-out, and the shared memory of the blocks that an "
        "SM held. Refuted if loads ask for no sector twice.",
        where=where_of(launch, [one for one in work.ranges if _loads(one)]),
        suggestion="leave the carve-out to the driver (no "
        "cudaFuncAttributePreferredSharedMemoryCarveout, or its default), or ask for no more than "
        "blocks take",
    )


def _loads(one: RangeWork) -> bool:
    return any(unit.startswith("load.global") for unit in one.facts.mix)


def _blocks(launch: Prepared) -> int:
    return round(float(launch.lanes.lanes.mean())) if len(launch.lanes.lanes) else 1


def _units(work: CountedWork) -> set[str]:
    return {unit for one in work.ranges for unit in one.facts.mix}


_MAKES_GROUPS: Final = ("triton",)


def _products(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    units, chip = _units(work), launch.facts.chip if launch.facts else ""
    warps = launch.launch.warps_per_block
    single = [unit for unit in units if unit in ("tensor.1", "tensor.2")]
    if not single or any("group" in unit for unit in units) or not chip.startswith("sm_90"):
        return
    some = [one for one in work.ranges if any(one.facts.mix.get(unit) for unit in single)]
    part = share_of_time(launch, some, work.kernel)
    busy = share_of(launch, "tensor")
    rows = warps >= _GROUP  # Triton makes products of warpgroups of any tile with 64 rows
    if rows and launch.launch.backend not in _MAKES_GROUPS:
        return
    if max(part, busy / _OF_GROUPS) < _PART or busy < _BUSY:
        return
    left = max(nearest(launch, ("tensor", "issue", "L1")), busy)
    saved = min(1 - left, 1 - _OF_GROUPS)
    if not enough(launch, saved * launch.duration):
        return
    some.sort(key=lambda one: -one.executions)
    yield finding(
        launch,
        "single-warp-products",
        title=f"blocks of {warps} warps make products warp by warp (mma.sync): a warpgroup's "
        f"(wgmma) are 1.6 times as fast, and need {'tiles of 64 rows' if rows else 'four warps'}",
        number=Number("use of tensor cores, of their rate", busy, "share"),
        at_stake=saved * launch.duration,
        without="with products of warpgroups",
        confidence="likely",
        rationale=f"counted: products of single warps alone, on {chip}, which take "
        f"{100 * part:.0f} % of the warps' time. Refuted if there are no 64 rows for a block.",
        where=where_of(launch, some),
        suggestion="num_warps=4 (or 8 with tiles of 128 rows) and tiles of 64 rows or more, so "
        "that Triton makes wgmma; CUTLASS's GMMA atoms in place of wmma and mma.sync",
    )


_LONG: Final = 0.15
"""Share of the warps' time from which on issuing copies is a finding."""


def copy_issue(launch: Prepared) -> Iterator[Finding]:
    """Yield findings on regions in which warps with other work, too, take long to issue copies."""
    shares = group_shares(launch)
    for region in launch.regions([Activity.COPY]).tolist():
        share = launch.share_in([region])
        known = launch.facts.ranges.get(launch.names[region]) if launch.facts else None
        # Copies by the copy engine don't say their bytes. A producer's time to issue is its own.
        if known is None or not known.bytes or len(shares.recorded) > 1 or share < _LONG:
            continue
        if enough(launch, share * launch.duration):
            yield _slow_issue(launch, region, share, known.bytes)


def _slow_issue(launch: Prepared, region: int, share: float, size: int) -> Finding:
    rows = launch.of_region([region])
    name, took = launch.names[region], cycles_of(launch, region)
    cycles = f"{took:,.0f} cycles for {size:,} bytes of a warp, " if took else ""
    return finding(
        launch,
        "copy-issue",
        title=f"issuing copies in {name} takes {cycles}{100 * share:.0f} % of the warps' time",
        number=Number(f"{name}, of the warps' time", share, "share"),
        at_stake=share * launch.duration,
        without=f"with the copies of {name} issued by one thread, in no time",
        confidence="possible",
        rationale="each lane copies for itself, through the queue of loads and stores, which takes "
        "128 bytes a cycle of an SM; how much of it products hide is not known.",
        where=where_of_rows(launch, rows, (name,)),
        suggestion="let the copy engine do it (TMA, tensor descriptors): one thread asks for a "
        "tile; one more stage, so that copies are issued while products run; larger tiles, "
        "copied less often",
    )


_READING: Final = (Activity.WAIT_MEMORY, Activity.LOAD)
_UNCACHED_PART: Final = 0.3
"""Part of the warps' time in loads from which on their cache is a cause."""
_MOST: Final = 0.5
"""Part of the loads that pass L1 by, and of sectors that blocks share."""


@if_counted
def uncached_loads(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on loads that pass L1 by, though their bytes are asked for again."""
    some = extra_of(work, "uncached")
    lines = {each.line for _, each in some}
    count = count_of(some)
    loads = work.accesses("load.global")
    again = any(_is_asked_again(one) for _, one, _ in loads if one.line in lines)
    waits = launch.share_in(launch.regions(_READING))
    whole = requests_of(loads)
    if not some or not again or waits < _UNCACHED_PART or count < _MOST * whole:
        return
    saved = min(waits, 1 - nearest(launch, ("L1", "L2")))
    if not enough(launch, saved * launch.duration):
        return
    place = short_line(some[0][1].line, some[0][0].name)
    yield finding(
        launch,
        "uncached-loads",
        title=f"{place} loads past L1, though the same bytes are asked for again: {count:,.0f} "
        f"loads, and {100 * waits:.0f} % of the warps' time is in loads",
        number=Number("loads past L1, of all", min(count / max(whole, 1.0), 1.0), "share"),
        at_stake=saved * launch.duration,
        without="with L1",
        confidence="likely",
        rationale="counted: loads marked STRONG (volatile, ld.cg, ld.cv) in no loop that waits for "
        "their value, whose addresses other warps, or iterations, ask for, too. Refuted if other "
        "blocks write there meanwhile.",
        where=where_of_extra(launch, some),
        suggestion="no volatile, const __restrict__ pointers, __ldg or plain loads in place of "
        "__ldcg and __ldcv; no cache_modifier='.cg' or '.cv' in tl.load",
    )


def _is_asked_again(one: AccessFacts) -> bool:
    """Whether iterations, warps or blocks ask for the same sectors."""
    if one.cost is None:
        return False
    alike = one.in_loop and "i" not in one.depends
    return alike or "w" not in one.depends or (one.blocks_share or 0.0) >= _MOST


_APART: Final = 0.1
"""Share of sectors up to which neighbouring blocks share nothing."""
_AGAIN: Final = 0.4
"""Share of sectors from which on blocks at equal distances over the grid ask for the same ones."""
_LEAST: Final = 0.35
"""Share of the launch that the bytes need at memory's rate, from which on they explain its time."""
_FEW: Final = 256
"""Blocks up to which most of a grid runs at once."""


@if_counted
def block_order(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on loads that neighbours don't share, and others do."""
    if prod(launch.launch.grid) <= _FEW:
        return
    some = [
        (one, access, _asked(access) * SECTOR * requests)
        for one, access, requests in work.accesses()
        if access.unit.startswith(("load.global", "copy.global"))
        and _comes_again(access)
        and _footprint(launch, one, access) >= _PART_OF_L2 * work.peak.l2_mb * 1e6
    ]
    size = sum(each for _, _, each in some)
    share = size / work.peak.gb_per_s / launch.duration
    saved = min(1 - nearest(launch, ("L2", "DRAM", "L1")), share)
    own = share_of(launch, "DRAM")
    if share + own > _ALL and own > share:
        return  # memory is busy with what comes once, and L2 serves these loads
    if not some or share < _LEAST or not enough(launch, saved * launch.duration):
        return
    some.sort(key=lambda each: -each[2])
    yield _unshared(launch, some, size, min(share, 1.0), saved)


_ALL: Final = 1.05
"""Share of memory's rate that nothing exceeds."""


def _asked(access: AccessFacts) -> float:
    """Return the sectors of a request, without those of lanes that are masked off."""
    if access.own is None:
        return sectors(access)
    return min(sectors(access), access.own * lane_bytes(access.unit))


def _unshared(
    launch: Prepared,
    some: list[Access],
    size: float,
    share: float,
    saved: float,
) -> Finding:
    again = some[0][1].reused_share or 0.0
    return finding(
        launch,
        "block-order",
        title=f"blocks that run at once share nothing of what {some[0][0].name} loads, though "
        "blocks far apart load the same: L2 misses by the order of blocks",
        number=Number("bytes over memory's rate, of the launch", share, "share"),
        at_stake=saved * launch.duration,
        without="with neighbouring blocks that share what they load, in L2",
        confidence="likely",
        rationale=f"counted: {size / 1e6:,.0f} MB are loaded at addresses that neighbouring blocks "
        f"don't share and blocks far apart do ({100 * again:.0f} % of their sectors); from memory "
        f"they take {100 * share:.0f} % of the launch. Refuted if all of it fits into L2.",
        where=where_of_accesses(launch, some),
        suggestion="let blocks that run at once work on the same rows and columns: groups of tiles "
        "(GROUP_SIZE_M, a swizzle), or the dimension that reuses data as the fastest one",
    )


def _footprint(launch: Prepared, one: RangeWork, access: AccessFacts) -> float:
    """Return the bytes that an access touches in all, about.

    That is its span, for each instruction, in each iteration; addresses are those of four warps.
    """
    trips = max(one.executions / max(launch.grid_warps, 1), 1.0) if "i" in access.depends else 1.0
    each = max(access.count, 1.0) * max(launch.launch.warps_per_block / _WARPS, 1.0)
    return (access.span or 0) * trips * each


_WARPS: Final = 4
_PART_OF_L2: Final = 0.5
"""Part of L2 from which on data may be gone before it is asked for again."""


def _comes_again(access: AccessFacts) -> bool:
    near, far = access.blocks_share, access.reused_share
    known = near is not None and far is not None and "d" not in access.depends
    return known and (near or 0.0) <= _APART and (far or 0.0) >= _AGAIN
