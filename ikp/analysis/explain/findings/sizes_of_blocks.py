"""Findings on the size of blocks: ``block-shape``, and four on work that each block does anew.

``block-shape`` is about a block's size and the lengths of its sides, as a launch gives them. A
warp's lanes are 32 threads in the order of the block's sides. Where a row of the block is no
divisor or multiple of 32, lanes lie in pieces of several rows, and ask for more sectors. Registers
are given to whole blocks: where a large one leaves too few for another, smaller ones fill the SM.

``halo``, ``repeated-setup``, ``same-operands`` and ``many-warps`` are about blocks that are too
small for what each of them does, or loads, before its own results. They count by the addresses of
several blocks: what neighbours load, too, and what no block's number changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

from ikp.analysis.explain.activity import MEMORY, Activity
from ikp.analysis.explain.counted_work import (
    LANES,
    Access,
    CountedWork,
    if_counted,
    is_atomic,
    l1_cycles,
    lane_bytes,
    moved_bytes,
)
from ikp.analysis.explain.places import where_of_accesses
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import is_counted, nearest, share_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.use_of_hardware import room_of, warps_by_registers
from ikp.analysis.explain.verdict import Finding, Number, Where

_EXCESS: Final = 0.3
"""Part of the sectors that lanes in order would not ask for, from which on these are the cause."""
_SMALLEST: Final = 4
"""Warps of the smallest block that is tried: of smaller ones an SM holds 32 at most."""
_MORE: Final = 1.2
"""Times as many warps from which on blocks of another size are a finding."""
_IN_MEMORY: Final = 0.5
"""Share of the warps' time in memory from which on more warps would hide some of it."""
_BUSY: Final = 0.7
"""Share of the nearest roof from which on more warps win little."""


@if_counted
def block_shapes(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield findings on blocks whose rows split warps, or that leave registers unused."""
    if launch.launch.backend in _FREE:
        yield from _split_rows(launch, work)
        yield from _large(launch)


_FREE: Final = ("driver",)
"""Recorded launches of any CUDA code: these give the sides of blocks, and registers stay."""


def _split_rows(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    x, y, z = launch.launch.block
    if y * z == 1 or x % LANES == 0 or LANES % x == 0:
        return
    some = [each for each in work.global_accesses() if _is_known(each)]
    asked = sum(requests * (one.cost or 0.0) for _, one, requests in some)
    least = sum(requests * min(one.least or 0.0, one.cost or 0.0) for _, one, requests in some)
    excess = 1 - least / max(asked, 1.0)
    waits = launch.share_in(launch.regions(MEMORY))
    saved = min(excess * waits, 1 - nearest(launch, ("L1", "L2")))
    if asked < 1 or excess < _EXCESS or not is_counted(launch):
        return
    if not enough(launch, saved * launch.duration):
        return
    some.sort(key=lambda each: -each[2])
    rows = -(-LANES // x) if x < LANES else 2
    yield finding(
        launch,
        "block-shape",
        title=f"blocks are {x} x {y} x {z} threads: a warp's lanes lie in pieces of {rows} or more "
        f"rows, and {100 * excess:.0f} % of the sectors that they ask for are beyond what lanes in "
        "a row would need",
        number=Number("such sectors, of all", excess, "share"),
        at_stake=saved * launch.duration,
        without="with warps that lie in one row",
        confidence="likely",
        rationale="counted: the sides of a block, and addresses of a warp's lanes, from the "
        f"machine code; measured: {100 * waits:.0f} % of the warps' time is in memory. Refuted if "
        "rows of 32 threads take as long.",
        where=where_of_accesses(launch, some),
        suggestion="blocks whose first side is a multiple of 32 (32 x 8, 64 x 4), along the "
        "dimension that is contiguous in memory",
    )


def _is_known(access: Access) -> bool:
    return access[1].cost is not None and "l" in access[1].depends


def _large(launch: Prepared) -> Iterator[Finding]:
    room, warps = room_of(launch), launch.launch.warps_per_block
    if room.warps is None or room.registers is None or room.limited_by not in _BY_REGISTERS:
        return
    held = warps_by_registers(room.registers, warps)
    if held > warps:
        return  # several blocks: while one waits at a barrier, or begins, others work
    sizes = [warps >> n for n in range(1, warps.bit_length()) if warps >> n >= _SMALLEST]
    best = max(sizes, key=lambda each: warps_by_registers(room.registers or 1, each), default=warps)
    most = min(warps_by_registers(room.registers, best), room.possible or held)
    waits = launch.share_in(launch.regions(MEMORY))
    saved = min(1 - held / max(most, 1), 1 - nearest(launch)) * waits
    if not held or most < _MORE * held or waits < _IN_MEMORY or nearest(launch) >= _BUSY:
        return
    if not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "block-shape",
        title=f"one block of {warps * LANES:,} threads fits on an SM, with registers to spare: of "
        f"{room.registers} for each thread it holds {held} warps, and {most} in blocks of "
        f"{best * LANES:,}",
        number=Number("warps on an SM over those with smaller blocks", held / most, "ratio"),
        at_stake=saved * launch.duration,
        without=f"with blocks of {best * LANES:,} threads, and memory as fast for each warp",
        confidence="likely",
        rationale="counted: registers of a thread, which are given to whole blocks; measured: "
        f"{100 * waits:.0f} % of the warps' time is in memory, and more warps would hide some of "
        "it. Refuted if smaller blocks take as long.",
        where=Where(count=prod(launch.launch.grid)),
        suggestion=f"smaller blocks ({best * LANES} threads); or a limit on registers "
        "(__launch_bounds__, maxrregcount) with which another block fits",
    )


_BY_REGISTERS: Final = ("registers", "recording")


_HALO: Final = 0.35
"""Part of the loads that neighbours make, too, from which on tiles are small for their halo: one of
a quarter of its tile on each side is a third."""
_MOST: Final = 0.6
"""Part of the loads that such ones are, at least."""
_SETUP: Final = 0.1
"""Share of the launch that the set-up needs at L1's rate, from which on it is a finding."""
_WAVES: Final = 4.0
"""Blocks of each CTA slot from which on a set-up is made often."""
_SAME: Final = 0.7
"""Part of its sectors that blocks before a block load, too, from which on they load the same."""
_OPERATIONS: Final = 12.0
"""Operations on each four loaded bytes up to which a block uses its operands hardly twice."""
_LITTLE_BUSY: Final = 0.25
"""Share of the rate of L1, L2, memory or issue from which on loads take the time."""
_WARPS: Final = 8
"""Warps of a block from which on fewer can do its work."""
_NARROW: Final = 4
"""Bytes of a lane's loads, all together, up to which a warp has little to do."""
_MEETS: Final = 0.15
"""Share of the warps' time at barriers from which on these are what the warps cost."""


@if_counted
def again_in_each_block(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield findings on what each block does, or loads, that others do, too."""
    every = [one for one in work.accesses() if ".global." in one[1].unit and not is_atomic(one[1])]
    loads = [one for one in every if not one[1].unit.startswith("store")]
    if not loads:
        return
    yield from _setup(launch, work)
    yield from _many_warps(launch, loads)
    if not any(one.facts.products for one in work.ranges):
        yield from _halo(launch, every, loads)
        yield from _same(launch, work, loads)


def _halo(launch: Prepared, every: list[Access], loads: list[Access]) -> Iterator[Finding]:
    halo = launch.facts.halo if launch.facts else 0.0
    some = [one for one in loads if not one[1].in_loop]
    part = halo * moved_bytes(some) / max(moved_bytes(every), 1.0)
    saved = min(part, 1 - nearest(launch, ("DRAM", "L2", "L1", "issue", "integer")))
    few = moved_bytes(some) < _MOST * moved_bytes(loads)
    few |= share_of(launch, "L1", "L2", "DRAM") < _LITTLE_BUSY
    if halo < _HALO or few or not enough(launch, saved * launch.duration):
        return
    some.sort(key=lambda one: -moved_bytes([one]))
    yield finding(
        launch,
        "halo",
        title=f"{100 * halo:.0f} % of what blocks load, neighbouring blocks load, too: tiles are "
        "small for the edges (halo) around them",
        number=Number("loads that neighbours make, too", halo, "share"),
        at_stake=saved * launch.duration,
        without="with tiles so large that each edge is a small part",
        confidence="likely",
        rationale="counted: addresses of blocks that lie beside each other, of all loads together. "
        "Refuted if larger tiles leave too few blocks, or caches serve the edges as fast.",
        where=where_of_accesses(launch, some),
        suggestion="more results for each block in the direction of the halo: several rows (steps) "
        "for each thread, so that an edge serves more of them",
    )


def _setup(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on shared memory that each block fills with the same numbers."""
    blocks = work.blocks / max(launch.lanes.count, 1)
    some: list[Access] = []
    for one in work.ranges:
        own = [(one, access, n) for access, n in one.accesses()]
        loads = [each for each in own if each[1].unit.startswith(("load.global", "copy.global"))]
        if loads and all(_is_of_all(each) for each in loads):
            some += loads
            some += [each for each in own if each[1].unit.startswith("store.shared")]
    stored = [each for each in some if each[1].unit.startswith(("store", "copy"))]
    share = work.ns(l1_cycles(some)) / launch.duration
    left = 1 - nearest(launch, ("L1", "L2", "issue", "integer", "launches"))
    saved = min(_SHOWS * share, left) * (1 - 1 / max(blocks, 1.0))
    rare = not stored or blocks < _WAVES or share < _SETUP
    if rare or not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "repeated-setup",
        title=f"each of {work.blocks:,} blocks fills shared memory with the same numbers first: "
        f"that takes {100 * share:.0f} % of the launch at L1's rate, and an SM's room holds "
        f"{blocks:,.0f} blocks one after another",
        number=Number("set-up at L1's rate, of the launch", share, "share"),
        at_stake=saved * launch.duration,
        without="with one set-up for as many blocks as the device has room for",
        confidence="likely",
        rationale="counted: loads at addresses that no block's number changes, and stores to "
        "shared memory beside them. Refuted if fewer blocks, with a loop over their pieces, take "
        "as long.",
        where=where_of_accesses(launch, some),
        suggestion="a grid that fits the device, whose blocks loop over the pieces (a grid-stride "
        "loop) behind one set-up; or more elements for each block",
    )


_SHOWS: Final = 0.5
"""Part of the set-ups' time that other blocks' work doesn't hide: 0.4 in one kernel."""


def _is_of_all(each: Access) -> bool:
    """Whether a load brings the same to all blocks."""
    return each[1].cost is not None and not {*"bd"} & {*each[1].depends}


def _same(launch: Prepared, work: CountedWork, loads: list[Access]) -> Iterator[Finding]:
    """Yield a finding on operands that several blocks load, each for few operations."""
    some = [one for one in loads if _is_same(one)]
    few = l1_cycles(some) < _MOST * l1_cycles(loads)
    busy = share_of(launch, "L1", "L2", "issue")
    if not some or few or busy < _LITTLE_BUSY:
        return
    issued = work.issued
    operations = LANES * (issued.get("fma", 0.0) + 2 * issued.get("half", 0.0))
    each = operations / max(moved_bytes(loads) / 4, 1.0)
    times = 1 / (1 - min(one[1].blocks_share or 0.0 for one in some) + 1e-3)
    left = max(nearest(launch, ("L1", "L2", "issue", "integer", "FMA", "XU")), 1 / times)
    if each > _OPERATIONS or not enough(launch, (1 - left) * launch.duration):
        return
    some.sort(key=lambda one: -moved_bytes([one]))
    yield finding(
        launch,
        "same-operands",
        title=f"{times:.0f} blocks load the same numbers in {some[0][0].name}, and each uses four "
        f"bytes for {each:.1f} operations",
        number=Number("blocks that load the same", times, "count"),
        at_stake=(1 - left) * launch.duration,
        without="with these blocks' results made by one block, from one load",
        confidence="likely",
        rationale="counted: addresses of neighbouring blocks, and arithmetic for each loaded byte. "
        "Refuted if one block for all of them leaves too few blocks.",
        where=where_of_accesses(launch, some),
        suggestion="let one block make the results of all that share these operands (the query "
        "heads of a group, several rows or columns), each loaded number for all of them; then "
        "they are rows of a product: tl.dot, tensor cores",
    )


def _is_same(each: Access) -> bool:
    one = each[1]
    moves = one.in_loop and "i" in one.depends and "d" not in one.depends
    return moves and "b" in one.depends and (one.blocks_share or 0.0) >= _SAME


def _many_warps(launch: Prepared, loads: list[Access]) -> Iterator[Finding]:
    """Yield a finding on blocks of many warps that each load little, and meet at barriers."""
    warps = launch.launch.warps_per_block
    each = sum(n * lane_bytes(one.unit) for _, one, n in loads) / max(launch.grid_warps, 1)
    meets = launch.share_in(launch.regions([Activity.WAIT_BARRIER]))
    saved = 1 - nearest(launch, ("issue", "integer", "L1"))
    if warps < _WARPS or each > _NARROW or meets < _MEETS:
        return
    if not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "many-warps",
        title=f"each lane of a block's {warps} warps loads {each:.0f} bytes, and the warps meet at "
        f"barriers for {100 * meets:.0f} % of their time: they are more than its work needs",
        number=Number("bytes that a lane loads", each, "bytes"),
        at_stake=saved * launch.duration,
        without="with few warps that each load 16 bytes a lane",
        confidence="likely",
        rationale="counted: the loads of a warp; measured: waits at barriers, which grow with a "
        "block's warps. Refuted if blocks of fewer warps take as long.",
        where=where_of_accesses(launch, loads),
        suggestion="fewer warps for each block (num_warps=4 or less, fewer threads), so that each "
        "lane loads 16 bytes at once and a reduction is within a warp; or several rows for each "
        "block",
    )
