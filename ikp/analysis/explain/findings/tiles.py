"""Findings on tiles: ``small-tiles`` and ``many-warps`` of one element a lane; ``unstaged-loads``.

A language of tiles divides a tile among the lanes of a block. A loop over many small tiles asks for
few bytes at a time, with addresses, conditions and the loop itself for each: the launch's option
for the size of a tile makes wide accesses of them, and more loads under way. Kernels with products
have tiles of another kind, and are left out.

Unstaged: multiply-adds load operands each time, from global or shared memory, instead of from
registers. The same bytes are asked for by many lanes and warps: what tiles in shared memory and
registers are for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.counted_work import (
    LANES,
    SECTOR,
    Access,
    CountedWork,
    if_counted,
    is_atomic,
    l1_cycles,
    lane_bytes,
    requests_of,
)
from ikp.analysis.explain.places import (
    where_of_accesses,
)
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import is_own, nearest, share_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

TILES: Final = ("triton",)
"""Languages whose tiles a compiler divides among the lanes of a block."""
_NARROW: Final = 4
"""Bytes of a lane up to which an access is narrow: four in place of 16."""
_MOST: Final = 0.5
"""Part of the requests from which on narrow ones are the kernel's."""
_ITERATIONS: Final = 8.0
"""Requests of a warp, in one line of a range, from which on larger tiles leave several."""
_OWN: Final = 0.5
"""Part of the threads with an element of their own up to which a tile has fewer than threads."""
_FAR: Final = 0.7
"""Share of the nearest roof below which more bytes under way add to what the launch reaches."""
_REACHED: Final = 0.9
"""Part of what the nearest roof allows that kernels with wide accesses reach."""


_MANY: Final = 16
"""Warps of a block from which on their number, and not the tile, is out of proportion."""
_WIDE: Final = 16
_LARGER: Final = (
    "a larger tile (BLOCK_SIZE: {} times as large, or the whole row, for as many warps), so that "
    "each lane moves 16 bytes at once, in fewer iterations"
)
_FEWER: Final = (
    "fewer warps for each block (num_warps=4), so that each lane moves 16 bytes at once and a "
    "reduction is over few warps; or larger tiles (BLOCK_SIZE)"
)


@if_counted
def narrow_tiles(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on loops over tiles so small that each lane moves a number at a time."""
    if launch.launch.backend not in TILES or _has_products(work):
        return
    every = work.global_accesses()
    some = [each for each in every if _is_narrow(launch, each)]
    saved = 1 - nearest(launch) / _REACHED
    if requests_of(some) < _MOST * max(requests_of(every), 1.0) or nearest(launch) >= _FAR:
        return
    if not enough(launch, saved * launch.duration):
        return
    some.sort(key=lambda each: -each[2])
    width, warps = lane_bytes(some[0][1].unit), launch.launch.warps_per_block
    size = width * LANES * warps
    many = warps >= _MANY
    yield finding(
        launch,
        "many-warps" if many else "small-tiles",
        title=f"each lane of {warps} warps accesses {width} byte{'s' * (width > 1)} of a tile in "
        f"{some[0][0].name}, {size:,} bytes of a block at a time, "
        f"{_each(launch, some[0]):,.0f} times: tiles are small" + " for so many warps" * many,
        number=Number("bytes of a lane's access", float(width), "count"),
        at_stake=saved * launch.duration,
        without="with 16 bytes of a tile for each lane",
        confidence="likely",
        rationale="counted: accesses of adjacent lanes in loops, and how often they are made; no "
        f"unit of the device is above {100 * nearest(launch):.0f} % of its limit. Refuted if "
        "larger tiles take as long.",
        where=where_of_accesses(launch, some),
        suggestion=_FEWER if many else _LARGER.format(_WIDE // width),
    )


def _has_products(work: CountedWork) -> bool:
    """Whether ranges make products on tensor cores."""
    return any(one.facts.products for one in work.ranges)


def _is_narrow(launch: Prepared, each: Access) -> bool:
    """Whether an access is of one number for each lane, of adjacent ones, many times.

    In a loop that the compiler has unrolled whole, it is as many accesses of one line: of a tile
    for sure where some threads have no element of their own.
    """
    one = each[1]
    width = lane_bytes(one.unit)
    apart = one.addresses == LANES
    dense = apart and one.cost is not None and one.cost <= max(width * LANES / SECTOR, 1.0)
    spare = one.own is not None and one.own <= _OWN
    moves = "l" in one.depends and ("i" in one.depends if one.in_loop else spare)
    return dense and moves and width <= _NARROW and _each(launch, each) >= _ITERATIONS


def _each(launch: Prepared, each: Access) -> float:
    """Return the requests of a warp."""
    return each[2] / max(launch.grid_warps, 1)


_LOADS: Final = 0.2
"""Loads for each sum of products from which on operands are not kept in registers."""
_L1: Final = 0.3
"""Share of L1's rate from which on it may be the limit; all warps wait for it in turn."""
_SURE: Final = 0.5
_UNSHARED: Final = 0.4
"""Part of the loads' cycles that bring what no other thread needs, or whose addresses are made of
loaded numbers, so that who else needs it is not known: from here on to stage may be in vain."""
_UNSTAGED_PART: Final = 0.6
"""Part of L1's cycles that such loads are, at least."""


@if_counted
def unstaged_loads(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding where loads of global memory feed sums of products one by one."""
    yield from _small_register_tiles(launch, work)
    l1, l2 = share_of(launch, "L1"), share_of(launch, "L2")
    if l1 < _L1:
        return
    sums, loads = work.sums, _loads(work, "global")
    whole = _whole_cycles(work)
    cycles = l1_cycles(loads)
    count = requests_of(loads)
    if (
        not sums
        or count < _LOADS * sums
        or cycles < _UNSTAGED_PART * whole
        or _own_cycles(loads) >= _UNSHARED * cycles
    ):
        return
    saved = 1 - nearest(launch, ("L1", "L2", "issue", "integer"))
    if not enough(launch, saved * launch.duration):
        return
    loads.sort(key=lambda each: -each[2])
    yield finding(
        launch,
        "unstaged-loads",
        title=f"each sum of products loads {count / sums:.1f} operands from global memory: L1 is "
        f"at {100 * l1:.0f} % of its rate, and shared memory is not used for them",
        number=Number("loads of global memory for each sum", count / sums, "ratio"),
        at_stake=saved * launch.duration,
        without="with operands in shared memory and registers",
        confidence="likely" if l1 >= max(_SURE, l2) else "possible",
        rationale="counted: multiply-adds that sum up, and the loads beside them, which are "
        f"{100 * cycles / max(whole, 1.0):.0f} % of L1's cycles. Refuted if each operand is used "
        "once.",
        where=where_of_accesses(launch, loads),
        suggestion="copy tiles to shared memory, and let each thread make several results from the "
        "operands in its registers; or tensor cores",
    )


def _loads(work: CountedWork, space: str) -> list[Access]:
    """Return the loads of a space of memory."""
    return [each for each in work.accesses() if each[1].unit.startswith(f"load.{space}")]


def _whole_cycles(work: CountedWork) -> float:
    """Return the cycles of L1 that all accesses but atomic ones need."""
    return l1_cycles(each for each in work.accesses() if not is_atomic(each[1]))


def _own_cycles(loads: list[Access]) -> float:
    """Return the cycles of L1 of loads that no other thread is known to make."""
    return l1_cycles(each for each in loads if is_own(each[1]) or "d" in each[1].depends)


_BYTES: Final = 3.0
"""Bytes of shared memory for each sum of products, from which on a thread makes few results of its
operands: of 8 x 8 it loads one."""
_FULL: Final = 0.4
"""Share of L1's and shared memory's rate from which on these loads are likely to be the limit."""


def _small_register_tiles(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding where loads of shared memory feed sums of products one by one."""
    l1, fma = share_of(launch, "L1"), share_of(launch, "FMA")
    if l1 < max(_FULL, _MORE * fma) or _has_products(work):
        return
    sums, loads = work.sums, _loads(work, "shared")
    multiplies = work.issued.get("fma", 0.0)
    whole = _whole_cycles(work)
    cycles = l1_cycles(loads)
    least = l1_cycles(loads, least=True)
    size = sum(n * lane_bytes(access.unit) for _, access, n in loads)
    few = (
        sums < _SUMS * multiplies or cycles < _UNSTAGED_PART * whole or cycles > _CONFLICTS * least
    )
    if not sums or few or size < _BYTES * sums:
        return
    saved = 1 - nearest(launch, ("L1", "issue", "integer"))
    if not enough(launch, saved * launch.duration):
        return
    loads.sort(key=lambda each: -each[2])
    yield finding(
        launch,
        "unstaged-loads",
        title=f"each sum of products loads {size / sums:.1f} bytes of shared memory: L1 and "
        f"shared memory are at {100 * l1:.0f} % of their rate, and multiply-adds at "
        f"{100 * fma:.0f} %",
        number=Number("bytes of shared memory for each sum", size / sums, "ratio"),
        at_stake=saved * launch.duration,
        without="with operands that are used several times from registers",
        confidence="possible",
        rationale="counted: multiply-adds that sum up, and the loads of shared memory beside them. "
        "Refuted if more results for each thread take as long.",
        where=where_of_accesses(launch, loads),
        suggestion="let each thread make a larger tile of results (8 x 8) from the operands in its "
        "registers, with loads of 16 bytes; larger tiles for each block; or tensor cores",
    )


_MORE: Final = 1.5
_SUMS: Final = 0.3
_CONFLICTS: Final = 1.9
