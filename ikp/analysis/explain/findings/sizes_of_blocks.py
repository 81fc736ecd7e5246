"""Finding ``block-shape``: the size of a block, and the lengths of its sides, as a launch gives
them.

A warp's lanes are 32 threads in the order of the block's sides. Where a row of the block is no
divisor or multiple of 32, lanes lie in pieces of several rows, and ask for more sectors. Registers
are given to whole blocks: where a large one leaves too few for another, smaller ones fill the SM.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

from ikp.analysis.explain.activity import MEMORY
from ikp.analysis.explain.counted_work import LANES, Access, CountedWork, if_counted
from ikp.analysis.explain.places import where_of_accesses
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import is_counted, nearest
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
