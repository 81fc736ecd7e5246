"""Findings on threads without work: ``idle-threads``, ``empty-blocks``, ``serial-thread``.

Lanes that a block's size leaves out of its last warp; threads that have no element of their own in
any access; blocks, or warps, that record nothing but their end. One thread, or one warp, of a block
works while the others wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Final

import numpy as np

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.counted_work import (
    LANES,
    Access,
    CountedWork,
    RangeWork,
    counted_work,
    if_counted,
    is_masked_off,
    requests_of,
)
from ikp.analysis.explain.places import where_of, where_of_accesses
from ikp.analysis.explain.prepared import Bools, Prepared
from ikp.analysis.explain.roofs import nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number, Where
from ikp.core.code_facts import RECORDED, AccessFacts, RangeFacts

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
    yield from _few_lanes(launch)
    yield from _empty_blocks(launch)


def _missing_lanes(launch: Prepared) -> Iterator[Finding]:
    it = launch.launch
    threads, lanes = prod(it.block), it.warps_per_block * LANES
    missing = 1 - threads / max(lanes, 1)
    saved = max(missing * (1 - nearest(launch, _FEWER)), 0.0)
    if _waits_for_starts(launch):
        saved = 1 - nearest(launch, _FEWER)
    if missing < _MISSING or not enough(launch, saved * launch.duration):
        return
    last = "each warp" if threads < LANES else "a block's last warp"
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


def _knows_all(work: CountedWork) -> bool:
    """Whether the accesses of threads are all that there are, and all known.

    Bulk copies move what no thread has an address of. Of a kernel with ranges of its own, what is
    in none of these is not known.
    """
    return bool(work.kernel) and not any(unit.startswith(_BULK) for unit in work.issued)


_BULK: Final = "copy.bulk"


@if_counted
def _shared_elements(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on a kernel of which no access has an element for most of its threads."""
    if prod(launch.launch.block) <= LANES or not _knows_all(work):
        return
    some = work.global_accesses()
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


def _few_lanes(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on requests of few lanes, where their lanes were recorded."""
    work = counted_work(launch)
    every = work.global_accesses() if work else []
    some = [each for each in every if RECORDED in each[1].depends and each[1].in_loop]
    requests = requests_of(some)
    lanes = sum(n * one.lanes for _, one, n in some) / max(requests, 1.0)
    idle = 1 - lanes / LANES
    saved = min(idle, 1 - nearest(launch, _FEWER))
    few = requests < _REQUESTS * requests_of(every)
    if not some or few or lanes > LANES / 2 or not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "idle-threads",
        title=f"of a warp's {LANES} lanes {lanes:.0f} load at once in {some[0][0].name}: the "
        "others have no element",
        number=Number("lanes of a request, in the mean", lanes, "count"),
        at_stake=saved * launch.duration,
        without="with an element for each lane",
        confidence="likely",
        rationale="recorded (--probe addresses): the lanes of requests in loops, "
        f"{100 * requests / max(requests_of(every), 1.0):.0f} % of all. Refuted if fewer "
        "lanes for each row or item take as long.",
        where=where_of_accesses(launch, some),
        suggestion="fewer lanes for each row or item (8 in place of 32), so that a warp works on "
        "several; or lanes that take elements from a queue of all rows",
    )


_REQUESTS: Final = 0.5
"""Part of all requests whose lanes were recorded, from which on these speak for all."""


@if_counted
def _padded_tiles(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on tiles of which few elements exist: the rest is masked off."""
    found = (_unstored(work) or _masked_off(work)) if work.kernel else None
    if found is None:
        return
    padding, some = found
    saved = padding * (1 - nearest(launch, _FEWER))
    if not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "idle-threads",
        title=f"of each tile {100 * (1 - padding):.0f} % of the elements exist: the rest is "
        "padding, which is masked off",
        number=Number("elements that are masked off, of all", padding, "share"),
        at_stake=saved * launch.duration,
        without="with tiles as large as the data",
        confidence="likely",
        rationale="counted: the conditions of all threads of some blocks, in each access to global "
        "memory. Refuted if results that are not stored are needed.",
        where=where_of_accesses(launch, some),
        suggestion="fit the tile to the data: a smaller block (BLOCK_SIZE, BLOCK_M, BLOCK_N), the "
        "next power of two above the length, or several small problems in one tile",
    )


_Padding = tuple[float, list[Access]]
"""The part of tiles that is padding, and the accesses that say so."""


def _unstored(work: CountedWork) -> _Padding | None:
    """Return what is known of the results of products that no thread stores; None if few."""
    stores = work.accesses("store.global")
    parts = [each[1].threads for each in stores]
    if not stores or None in parts or not any(one.facts.products for one in work.ranges):
        return None
    stored = max(part or 0.0 for part in parts)
    return (1 - stored, stores) if 0 < stored <= 1 - _MASKED else None


def _masked_off(work: CountedWork) -> _Padding | None:
    """Return what is known of accesses that no thread takes part in; None if they are few."""
    every = work.global_accesses()
    none = [each for each in every if is_masked_off(each[1])]
    part = requests_of(none) / max(requests_of(every), 1.0)
    return (part, none) if part >= _MASKED else None


_MASKED: Final = 0.6
"""Part of a tile from which on it is mostly padding."""


def _reduced_ahead(known: list[Access]) -> bool:
    """Whether no access differs from thread to thread: a block of one result."""
    return all(each[1].addresses == 1 for each in known)


def _empty_blocks(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on blocks that store nothing, or make no product, where others do."""
    found = _busy_blocks(launch)
    if found is None:
        return
    busy, without = found
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
        title=f"{100 * empty:.0f} % of {count:,} blocks have nothing to do: they {without}, "
        f"as the others do, and take {each:,.0f} ns each, with the switch to the next",
        number=Number("blocks without work, of those that recorded", empty, "share"),
        at_stake=saved * launch.duration,
        without="without these blocks",
        confidence="likely",
        rationale=f"measured: of {len(busy):,} blocks that recorded, these come to none of the "
        "code that does; times of all blocks. Refuted if the launch has to be as large for its "
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


def _multiplies(one: RangeFacts) -> bool:
    """Whether a range makes products on tensor cores."""
    return any(unit.startswith("tensor") for unit in one.mix)


_RESULTS: Final[tuple[tuple[str, Callable[[RangeFacts], bool]], ...]] = (
    ("store no result", lambda one: any(map(_stores, one.accesses))),
    ("make no product", _multiplies),
)
"""What blocks with work do in code of their own, the surest first."""


def _busy_blocks(launch: Prepared) -> tuple[Bools, str] | None:
    """Return which recorded blocks come to code that results need, and what others lack.

    Code that each block comes to says nothing: there a mask may keep all results back. None where
    all of it is such.
    """
    if not launch.every_block or len(launch.block_ids) < _SEVERAL or launch.facts is None:
        return None
    if prod(launch.launch.grid) < 2 * launch.lanes.count:
        return None
    each = launch.by_warp
    facts = launch.facts.ranges
    for without, is_one in _RESULTS:
        names = {name for name, one in facts.items() if is_one(one)}
        if not names or launch.facts.kernel in names:
            continue
        made = np.array([name in names for name in launch.names], bool)[each.region]
        found = np.zeros(len(launch.block_ids), bool)
        found[launch.block_of[each.slot[made]]] = True
        if found.any():
            return found | _lost_records(launch), without
    return None


def _lost_records(launch: Prepared) -> Bools:
    """Return which blocks lost records: those that do so much are none without work."""
    slots = launch.trace.slots
    found = np.zeros(len(launch.block_ids), bool)
    found[launch.block_of[slots.attempted > slots.kept]] = True
    return found


_LONG_CODE: Final = 64.0
"""Instructions of such code, in each execution, below which no wait is long."""
_WAITS: Final = 0.1
"""Share of the warps' time that waits for such code, at barriers, may be longer than it."""
_LONG_WAITS: Final = 0.2
"""Share of the warps' time at barriers from which on such code is a cause: in most kernels one
thread of a block has some code of its own."""
_CYCLES: Final = 4.0
"""Cycles of an instruction that needs the result of the one before it, at least."""


@if_counted
def serial_threads(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on code of few threads, where the block's other threads wait for long."""
    if launch.launch.warps_per_block < _SEVERAL_WARPS:
        return
    some = [one for one in work.ranges if one.facts.excess.serial >= _LONG_CODE]
    if not some:
        return
    some.sort(key=lambda one: -one.facts.excess.serial * _blocks(launch, one))
    one = some[0]
    excess = one.facts.excess
    waits = launch.regions([Activity.WAIT_BARRIER])
    waiting = launch.share_in(waits)
    each = sum(two.facts.excess.serial * _blocks(launch, two) for two in some)
    cycles = each * _CYCLES / work.cycles_per_ns
    took = launch.block_end - launch.block_start
    least = cycles / max(float(np.mean(took)), 1.0)
    share = min(max(waiting, min(least, waiting + _WAITS)), 1.0)
    if waiting < _LONG_WAITS or not enough(launch, share * launch.duration):
        return
    threads = excess.serial_threads
    who = "one thread" if threads == 1 else f"{threads} threads, of one warp,"
    yield finding(
        launch,
        "serial-thread",
        title=f"{who} of each block's {launch.launch.warps_per_block * 32:,} execute"
        f"{'s' * (threads == 1)} {excess.serial:,.0f} instructions at "
        f"{excess.serial_line.rpartition('/')[2] or one.name} alone, while the others wait at a "
        f"barrier: {100 * waiting:.0f} % of the warps' time",
        number=Number("wait at barriers, of the warps' time", waiting, "share"),
        at_stake=share * launch.duration,
        without="with this work spread over the block's threads",
        confidence="likely",
        rationale="counted: the condition on thread numbers around this code, and its loops; "
        "measured: the wait at barriers. Refuted if the wait is for something else, or the steps "
        "can't be divided.",
        where=where_of(launch, some, [excess.serial_line]),
        suggestion="let all threads take a part: a reduction by shuffles within warps "
        "(__shfl_down_sync, cub::BlockReduce), then one warp for the warps' results; or let each "
        "thread do its own share",
    )


_SEVERAL_WARPS: Final = 2


def _blocks(launch: Prepared, one: RangeWork) -> float:
    """Return how often each block executes a range, about."""
    if one.name not in launch.names:
        return 1.0
    count = float(launch.counts[launch.names.index(one.name)])
    return max(count / max(len(launch.start), 1), 1.0) if count else 1.0
