"""Findings on threads without work: ``idle-threads`` and ``empty-blocks``.

Lanes that a block's size leaves out of its last warp; threads that have no element of their own in
any access; blocks, or warps, that record nothing but their end.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

import numpy as np

from ikp.analysis.explain.counted_work import Access, counted_work
from ikp.analysis.explain.places import where_of_accesses
from ikp.analysis.explain.prepared import Bools, Prepared
from ikp.analysis.explain.roofs import nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number, Where
from ikp.core.code_facts import AccessFacts

_LANES: Final = 32
_MISSING: Final = 0.25
"""Part of the lanes that don't exist, from which on that is a finding."""
_OWN: Final = 0.3
"""Part of the threads with an element of their own up to which the others are superfluous."""
_EMPTY: Final = 0.6
"""Part of the blocks without work from which on the grid is larger than the work."""
_SEVERAL: Final = 16
"""Blocks with records from which on their part is that of all."""
_FEWER: Final = ("issue", "integer", "FMA", "XU", "FP64", "L1", "L2", "tensor", "launches")
"""Roofs that fewer threads move away: what memory has to move stays."""


def idle_threads(launch: Prepared) -> Iterator[Finding]:
    """Yield findings on lanes, threads and blocks that have nothing to do."""
    yield from _missing_lanes(launch)
    found = list(_shared_elements(launch))
    yield from found or _padded_tiles(launch)
    yield from _empty_blocks(launch)


def _missing_lanes(launch: Prepared) -> Iterator[Finding]:
    it = launch.launch
    threads, lanes = prod(it.block), it.warps_per_block * _LANES
    missing = 1 - threads / max(lanes, 1)
    saved = max(missing * (1 - nearest(launch, _FEWER)), 0.0)
    if _waits_for_starts(launch):
        saved = 1 - nearest(launch, _FEWER)
    if missing < _MISSING or not enough(launch, saved * launch.duration):
        return
    last = "each warp" if threads < _LANES else "a block's last warp"
    yield finding(
        launch,
        "idle-threads",
        title=f"blocks have {threads} threads: {lanes - threads} of {lanes} lanes don't exist, "
        f"in {last}",
        number=Number("lanes that don't exist, of all", missing, "share"),
        at_stake=saved * launch.duration,
        without="with full warps",
        confidence="likely",
        rationale="counted: the size of a block. A warp takes as long, and as much room, with "
        "fewer lanes; an SM holds 32 blocks at most. Refuted if larger blocks take as long.",
        where=Where(count=prod(it.grid)),
        suggestion="blocks of a multiple of 32 threads, such as 128 or 256, each with more of the "
        "work",
    )


def _waits_for_starts(launch: Prepared) -> bool:
    """Whether the rate at which the device starts blocks is the nearest roof, and near."""
    most = nearest(launch)
    return most > nearest(launch, ("launches",)) and most >= _NEAR


_NEAR: Final = 0.5


def _shared_elements(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on a kernel of which no access has an element for most of its threads."""
    work = counted_work(launch)
    if work is None or prod(launch.launch.block) <= _LANES:
        return
    some = [each for each in work.accesses() if ".global." in each[1].unit]
    known = [each for each in some if each[1].own is not None]
    most = max((each[1].own or 0.0 for each in known), default=1.0)
    if not known or len(known) < len(some) or not 0 < most <= _OWN:
        return
    if _reduced_ahead(known) or any(each[1].unit.startswith("atomic") for each in known):
        return
    saved = (1 - most) * (1 - nearest(launch, _FEWER))
    if not enough(launch, saved * launch.duration):
        return
    widest = max(known, key=lambda each: each[1].own or 0.0)
    threads = prod(launch.launch.block)
    yield finding(
        launch,
        "idle-threads",
        title=f"of {threads:,} threads of a block no access has elements for more than "
        f"{100 * most:.0f} %: the others are masked off, or repeat what those do",
        number=Number("threads with an element of their own, of all", most, "share"),
        at_stake=saved * launch.duration,
        without="with as many threads, or as large a tile, as there are elements",
        confidence="likely",
        rationale="counted: the addresses, and the conditions, of all threads of some blocks, in "
        "each access to global memory. Refuted if what they do apart from accesses is needed.",
        where=where_of_accesses(launch, [widest, *known]),
        suggestion="fit threads and tile to the data: fewer warps (num_warps, blockDim), a smaller "
        "tile or block size, or several rows in each block",
    )


def _padded_tiles(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on products of which few results are stored, since most are padding."""
    work = counted_work(launch)
    if work is None or not any(one.facts.products for one in work.ranges):
        return
    stores = [each for each in work.accesses() if each[1].unit.startswith("store.global")]
    parts = [each[1].threads for each in stores]
    if not stores or None in parts:
        return
    stored = max(part or 0.0 for part in parts)
    saved = (1 - stored) * (1 - nearest(launch, _FEWER))
    if not 0 < stored <= _STORED or not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "idle-threads",
        title=f"of each tile of products {100 * stored:.0f} % of the results are stored: the rest "
        "is of rows and columns that are masked off",
        number=Number("results that are stored, of all", stored, "share"),
        at_stake=saved * launch.duration,
        without="with tiles as large as the data",
        confidence="likely",
        rationale="counted: the conditions of all threads of some blocks, in each store to global "
        "memory. Refuted if results that are not stored are needed.",
        where=where_of_accesses(launch, stores),
        suggestion="fit the tile to the data: a smaller BLOCK_M or BLOCK_N where rows or columns "
        "are few, or several small problems in one tile",
    )


_STORED: Final = 0.4
"""Part of a tile's results up to which most of it is padding."""


def _reduced_ahead(known: list[Access]) -> bool:
    """Whether no access differs from thread to thread: a block of one result."""
    return all(each[1].addresses == 1 for each in known)


def _empty_blocks(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on blocks that store nothing, where others do."""
    busy = _busy_blocks(launch)
    if busy is None:
        return
    empty, count = float(1 - busy.mean()), prod(launch.launch.grid)
    lanes = launch.lanes
    took = launch.block_end - launch.block_start
    switch = lanes.switch / max(int(lanes.blocks.sum()) - lanes.count, 1)
    each = float(took[~busy].mean()) + switch if (~busy).any() else 0.0
    saved = empty * count * each / max(lanes.count, 1) / launch.duration
    saved = min(saved, 1.0)
    if empty < _EMPTY or not enough(launch, saved * launch.duration):
        return
    some = np.flatnonzero(~busy)[:3]
    yield finding(
        launch,
        "empty-blocks",
        title=f"{100 * empty:.0f} % of {count:,} blocks have nothing to do: they store no result, "
        f"as the others do, and take {each:,.0f} ns each, with the switch to the next",
        number=Number("blocks without work, of those that recorded", empty, "share"),
        at_stake=saved * launch.duration,
        without="without these blocks",
        confidence="likely",
        rationale=f"measured: of {len(busy):,} blocks that recorded, these come to none of the "
        "code that stores; times of all blocks. Refuted if the launch has to be as large for its "
        "other blocks.",
        where=Where(
            warps=tuple((int(launch.block_ids[i]), 0) for i in some.tolist()),
            count=int((~busy).sum()),
        ),
        suggestion="size the grid by the work there is (the largest that occurs, a count from the "
        "device, a list of blocks with work), or let fewer blocks take pieces one by one",
    )


def _stores(access: AccessFacts) -> bool:
    """Whether an access writes to global memory."""
    return access.unit.startswith(("store.global", "atomic.global"))


def _busy_blocks(launch: Prepared) -> Bools | None:
    """Return which recorded blocks come to code that stores; None if not known."""
    if not launch.every_block or len(launch.block_ids) < _SEVERAL or launch.facts is None:
        return None
    if launch.launch.dropped or prod(launch.launch.grid) < 2 * launch.lanes.count:
        return None
    each = launch.by_warp
    facts = launch.facts.ranges
    stores = {name for name, one in facts.items() if any(map(_stores, one.accesses))}
    if not stores or launch.facts.kernel in stores:
        return None
    made = np.array([name in stores for name in launch.names], bool)[each.region]
    found = np.zeros(len(launch.block_ids), bool)
    found[launch.block_of[each.slot[made]]] = True
    return found if found.any() else None
