"""``small-tiles`` and ``many-warps`` of kernels without products: an element for each lane.

A language of tiles divides a tile among the lanes of a block. A loop over many small tiles asks for
few bytes at a time, with addresses, conditions and the loop itself for each: the launch's option
for the size of a tile makes wide accesses of them, and more loads under way.
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
    lane_bytes,
    requests_of,
)
from ikp.analysis.explain.places import where_of_accesses
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

_TILES: Final = ("triton",)
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
    if launch.launch.backend not in _TILES or any(one.facts.products for one in work.ranges):
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
