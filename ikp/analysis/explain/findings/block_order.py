"""Finding ``block-order``: by the counted addresses of loads, blocks that run at once share no
data, though blocks far apart do.

Then each byte comes from memory again and again: what one block has brought into L2 is gone when
another block asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

from ikp.analysis.explain.counted_work import (
    SECTOR,
    Access,
    RangeWork,
    counted_work,
    lane_bytes,
    sectors,
)
from ikp.analysis.explain.places import where_of_accesses
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import nearest, share_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number
from ikp.core.code_facts import AccessFacts

_APART: Final = 0.1
"""Share of sectors up to which neighbouring blocks share nothing."""
_AGAIN: Final = 0.4
"""Share of sectors from which on blocks at equal distances over the grid ask for the same ones."""
_LEAST: Final = 0.35
"""Share of the launch that the bytes need at memory's rate, from which on they explain its time."""
_FEW: Final = 256
"""Blocks up to which most of a grid runs at once."""


def block_order(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on loads that neighbours don't share, and others do."""
    work = counted_work(launch)
    if work is None or prod(launch.launch.grid) <= _FEW:
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
    yield _found(launch, some, size, min(share, 1.0), saved)


_ALL: Final = 1.05
"""Share of memory's rate that nothing exceeds."""


def _asked(access: AccessFacts) -> float:
    """Return the sectors of a request, without those of lanes that are masked off."""
    if access.own is None:
        return sectors(access)
    return min(sectors(access), access.own * lane_bytes(access.unit))


def _found(
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
