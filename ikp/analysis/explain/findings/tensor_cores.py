"""Findings on tensor cores that wait, or get little work: ``serial-mma``, ``epilogue``,
``small-tiles``.

Warps multiply with no product (MMA) under way. Another product on their SM could hide what they do
then. It is that of the next step, where each product is waited for before the work on its result
(serialised), or that of the next tile, where an epilogue overlaps nothing. Small tiles do too few
operations for each byte copied to an SM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.counted_work import (
    GUESS,
    READS_BACK,
    SECTOR,
    CountedWork,
    RangeWork,
    count_of,
    if_counted,
    l1_cycles,
    moved_bytes,
    sectors,
)
from ikp.analysis.explain.findings.needless_instructions import extra_of
from ikp.analysis.explain.places import short_line, where_of, where_of_extra, where_of_rows
from ikp.analysis.explain.prepared import Ints, Prepared
from ikp.analysis.explain.region_times import with_beside
from ikp.analysis.explain.roofs import flop_of, nearest, roofs, share_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.use_of_hardware import Products, products
from ikp.analysis.explain.verdict import Finding, Number
from ikp.analysis.explain.warp_groups import at_once

Rows = NDArray[np.intp]

_HIDEABLE: Final = (Activity.COMPUTE, Activity.STORE, Activity.UNKNOWN, Activity.LOAD)
"""Activities that products can hide; waits have findings of their own."""
_EACH: Final = 0.5
"""Ranges of a region per range that multiplies, from which on the region is part of each step."""
_INEXACT: Final = 0.08
"""Share below which there is no finding: groups that alternate never fit exactly. Two warpgroups of
a kernel on an H200 that alternate left 5.5 %."""
_INNER: Final = 0.9
"""Share of self time from which on a region counts by its own activity, not by the ranges in it."""


def idle_products(launch: Prepared) -> Iterator[Finding]:
    """Yield findings on the regions in which warps that multiply leave tensor cores idle."""
    made = products(launch)
    if made is None or not made.multiplies.any():
        return
    exposed = _exposed(launch, made)
    did = launch.by_warp
    multiplies = made.multiplies[did.slot]
    life = float((launch.end - launch.start)[made.multiplies].sum())
    busy = made.busy_share(launch)
    each, apart = list[int](), list[int]()
    for region in np.flatnonzero(exposed).tolist():
        count = int(did.count[multiplies & (did.region == region)].sum())
        (each if count >= _EACH * made.count else apart).append(region)
    for name, regions in (("serial-mma", each), ("epilogue", apart)):
        share = int(exposed[regions].sum()) / max(life, 1.0)
        if not enough(launch, min(share, busy) * launch.duration, _INEXACT):
            continue
        rows = _counted(launch, made, regions, but_last=regions is apart)
        if regions is apart:
            share = _idle(launch, made, _alone(launch, rows)) / max(life, 1.0)
        if len(rows) and enough(launch, min(share, busy) * launch.duration, _INEXACT):
            regions.sort(key=lambda region: -exposed[region])
            beside = _idle(launch, made, with_beside(launch, rows)) / max(life, 1.0)
            yield _found(launch, made, name, regions, _Shares(share, max(beside, share), busy))


def _exposed(launch: Prepared, made: Products) -> Ints:
    """Return, by region, the time in which no product was under way, of warps that multiply."""
    hideable = launch.regions(_HIDEABLE)
    totals = launch.took_by_region
    inner = [r for r in hideable.tolist() if launch.own_by_region[r] >= _INNER * totals[r]]
    rows = launch.of_region(inner)
    found = np.zeros(len(launch.names), np.int64)
    for some in at_once(len(rows)):
        mine = rows[some]
        mine = mine[made.multiplies[launch.slot[mine]]]
        covered = _covered(launch, made, mine, launch.opens[mine], launch.closes[mine])
        np.add.at(found, launch.region[mine], launch.took(mine) - covered)
    return found


def _counted(launch: Prepared, made: Products, regions: list[int], but_last: bool) -> Rows:
    """Return the ranges of some regions of warps that multiply.

    Args:
        launch: the launch.
        made: its products.
        regions: which.
        but_last: leave out the last range of each warp that has several of a region: no product of
            the block follows that could hide it.
    """
    found = [np.zeros(0, np.intp)]
    for region in regions:
        rows = launch.of_region([region])
        rows = rows[made.multiplies[launch.slot[rows]]]
        rows = launch.in_order(rows)
        if but_last:
            slot, new = launch.slot[rows], np.ones(len(rows) + 1, np.bool_)
            new[1:-1] = slot[1:] != slot[:-1]
            rows = rows[~new[1:] | new[:-1]]
        found.append(rows)
    return np.concatenate(found)


_Part = tuple[Rows, Ints, Ints]
"""Some ranges: which, and when they open and close."""


def _alone(launch: Prepared, rows: Rows) -> Iterator[_Part]:
    """Yield some ranges, without the time beside them."""
    for some in at_once(len(rows)):
        mine = rows[some]
        yield mine, launch.opens[mine], launch.closes[mine]


def _idle(launch: Prepared, made: Products, parts: Iterable[_Part]) -> int:
    """Return how long no product was under way, from when ranges open until they close."""
    return sum(
        int((closes - opens - _covered(launch, made, rows, opens, closes)).sum())
        for rows, opens, closes in parts
    )


def _covered(launch: Prepared, made: Products, rows: Rows, opens: Ints, closes: Ints) -> Ints:
    return made.covered.inside(made.sm[launch.slot[rows]], opens, closes)


@dataclass(frozen=True, slots=True)
class _Shares:
    """Shares of the time of warps that multiply."""

    idle: float  # in ranges that products could hide, with none under way
    beside: float  # the same, with the time beside these ranges
    busy: float  # of the SMs' time: with a product under way


def _found(
    launch: Prepared, made: Products, name: str, regions: list[int], shares: _Shares
) -> Finding:
    names = [launch.names[region] for region in regions]
    rows = launch.of_region(regions[:1])
    rows = rows[made.multiplies[launch.slot[rows]]]
    serial = name == "serial-mma"
    listed = ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
    by_code = all(launch.known[r].by in ("machine code", "mark") for r in regions)
    groups = launch.groups
    who = sorted({groups.names[g] for g in groups.of_warp[made.multiplies].tolist()})
    return finding(
        launch,
        name,
        title=(
            f"no product is under way while {listed} runs after each one"
            if serial
            else f"tensor cores are idle during {listed}, between tiles or at the end"
        )
        + f": {100 * shares.idle:.0f} % of the warps' time, with a product under way in "
        f"{100 * shares.busy:.0f} %",
        number=Number(
            f"{names[0]} with no product under way, of the warps' time", shares.idle, "share"
        ),
        at_stake=min(shares.beside, shares.busy) * launch.duration,
        without=f"with {listed}, and the time in no range beside, hidden by products",
        confidence="measured" if by_code else "likely",
        rationale="a product lasts from its range's start to the end of the wait for it, on any "
        "warp of the SM that recorded; what warps do right beside these ranges, in none, counts as "
        "theirs" + ("." if by_code else "; what the ranges are is read from their names."),
        where=where_of_rows(
            launch, rows, tuple(names[:4]), roles=tuple(who) if groups.by == "role" else ()
        ),
        suggestion=(
            "issue the next product before what needs the last one, and wait for it after that; or "
            "let two groups of warps alternate"
            if serial
            else "let another group of warps multiply the next tile meanwhile, or give the "
            "epilogue to warps of its own"
        ),
    )


_OVERLAPPED: Final = 0.75
"""Part of what no unit needs that a pipeline wins: of two kernels of libraries, 0.65 and 1."""
_FAR: Final = 0.6
"""Share of the nearest roof from which on little is left to overlap."""


@if_counted
def no_pipeline(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on products whose operands are loaded, waited for and used in turn."""
    some = extra_of(work, "unpipelined")
    near = nearest(launch)
    saved = _OVERLAPPED * (1 - near)
    if not some or near >= _FAR or not any(unit.startswith("tensor") for unit in work.issued):
        return
    place = short_line(some[0][1].line, some[0][0].name)
    yield finding(
        launch,
        "few-stages",
        title=f"{place} loads operands of products into registers, and waits for them before the "
        "next product: loads and products take turns",
        number=Number("share of the nearest roof", near, "share"),
        at_stake=saved * launch.duration,
        without="with loads an iteration ahead of their products",
        confidence="likely",
        rationale="counted: loads of loops with products that are used before the next product, "
        "with no asynchronous copy in such a loop; no unit is at "
        f"{100 * _FAR:.0f} % of its rate. Refuted if other warps' products fill the time.",
        where=where_of_extra(launch, some),
        suggestion="a pipeline: num_stages=3 or more, and a for loop over a range (Triton "
        "pipelines no while loop); cp.async or TMA into several buffers in CUDA C++",
    )


_USUAL: Final = 50.0
"""Operations for each byte of a tile of 128 x 128 x 64 16-bit numbers: 64."""
_BUSY: Final = 0.5
"""Share of the tensor cores' rate from which on tiles are large enough."""


@if_counted
def small_tiles(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on tiles that are small: shallow steps, or few operations for each byte."""
    yield from [*_single_steps(launch, work)] or _little_work(launch, work)


_MOST_OF_THEM: Final = 0.5
"""Part of the products from which on those with a single step are the kernel's."""
_DEEPER: Final = 0.75
"""Part of what goes with each step that is saved where an iteration makes four."""


def _single_steps(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on iterations that make one step of each sum between their waits."""
    some = extra_of(work, "single steps")
    part = count_of(some) / max(sum(map(_products, work.ranges)), 1.0)
    saved = _DEEPER * (1 - nearest(launch, _MOVED))
    busy = share_of(launch, "tensor")
    if part < _MOST_OF_THEM or busy >= _BUSY or not enough(launch, saved * launch.duration):
        return
    place = short_line(some[0][1].line, some[0][0].name)
    yield finding(
        launch,
        "small-tiles",
        title=f"an iteration at {place} adds one product to each sum: steps are as shallow as one "
        f"instruction, and tensor cores are at {100 * busy:.0f} % of their rate",
        number=Number("products with such steps, of all", min(part, 1.0), "share"),
        at_stake=saved * launch.duration,
        without="with four products of each sum in an iteration",
        confidence="likely",
        rationale="counted: products in loops with waits for copies, or barriers, whose sum gets "
        "no second product before the next iteration; what an iteration does beside is taken to "
        "come a quarter as often. Refuted if deeper steps take as long.",
        where=where_of_extra(launch, some),
        suggestion="deeper steps: more of the summed dimension in each iteration (BLOCK_K, the "
        "chunk's length: 64 or 128 numbers of 16 bits), and fewer iterations",
    )


def _products(one: RangeWork) -> float:
    """Return how many products a range makes, loops without known trips as in ``extra``."""
    some = (each for unit, each in one.facts.mix.items() if unit.startswith("tensor"))
    return one.executions * sum(a + b / 2 + GUESS * c for a, b, c in some)


def _little_work(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on products with few operations for each byte that SMs ask for."""
    flop, asked = flop_of(work), _operand_bytes(work)
    if not flop or not asked:
        return
    rate = work.peak.sms * work.peak.per_cycle * work.cycles_per_ns
    busy, each = flop / rate / launch.duration, flop / asked
    usual = _USUAL * 2 / max(_operand_size(work), 2)
    if each >= usual or busy >= _BUSY or len(launch.lanes.sms) < _SMS * work.peak.sms:
        return
    larger = min(usual / each, sqrt(max(work.blocks / work.peak.sms, 1.0)))
    saved = min(1 - nearest(launch, _MOVED), _saved_part(work, larger, asked))
    if not enough(launch, saved * launch.duration):
        return
    some = sorted(
        (one for one in work.ranges if one.facts.products), key=lambda one: -one.executions
    )
    warp = any(unit.startswith("tensor.") and "group" not in unit for unit in work.issued)
    narrow = warp and (launch.facts.chip if launch.facts else "").startswith("sm_90")
    l2 = asked / work.peak.l2_gb_per_s / launch.duration
    l1 = work.ns(l1_cycles(work.accesses(), least=True)) / launch.duration
    caches = max(share_of(launch, "L2"), min(l1, share_of(launch, "L1")))  # without conflicts
    sure = max(l2, caches) >= _MOVES and larger >= _LARGER and _waits_for_l2(launch)
    yield finding(
        launch,
        "small-tiles",
        title=f"a byte of the operands that is copied to an SM is used for {each:.0f} operations: "
        "tiles are small" + (", and their products are of single warps (no wgmma)" * narrow),
        number=Number("operations of tensor cores for each byte", each, "count"),
        at_stake=saved * launch.duration,
        without="with larger tiles, at the rate that tensor cores reach",
        confidence="likely" if sure and _shares(work) else "possible",
        rationale=f"counted: products, and the bytes that their operands are loaded with; tensor "
        f"cores are at {100 * busy:.0f} % of their rate, and the bytes need {100 * l2:.0f} % of "
        f"the launch at L2's. Tiles can be {larger:.1f} times as wide with a block for each SM. "
        "Refuted if larger tiles take as long.",
        where=where_of(launch, some),
        suggestion="larger tiles (128 x 128 or 128 x 256, 64 deep): more products for each byte, "
        "and fewer prologues and epilogues",
    )


def _waits_for_l2(launch: Prepared) -> bool:
    """Whether L2, or L1, is the nearest roof, and products need half of L2's time, or less.

    Larger tiles save bytes of both: where another unit is as busy, they win little.
    """
    nearest_roof = next((one.name for one in roofs(launch)), "")
    l2 = share_of(launch, "L2")
    near = nearest_roof == "L2" or (nearest_roof == "L1" and l2 >= _MOVES)
    return near and l2 >= _TWICE * share_of(launch, "tensor")


_TWICE: Final = 2.0
_LARGER: Final = 1.6
"""How many times as wide tiles can be, from which on they are likely to be the cause."""
_TOGETHER: Final = 0.5
"""Part of the operands' bytes that other blocks load, too, from which on larger tiles save some."""


def _operand_size(work: CountedWork) -> int:
    """Return the bytes of the widest operands that are multiplied."""
    units = (unit for unit in work.issued if unit.startswith("tensor"))
    return max((int(unit.rsplit(".", 1)[1]) for unit in units), default=2)


def _saved_part(work: CountedWork, larger: float, asked: float) -> float:
    """Return the part of the operands' bytes that wider tiles don't load.

    What no other block loads, they load as well. A tile twice as wide is four tiles: with fewer
    blocks than SMs, no more is won.
    """
    saved = moved = 0.0
    for _, one, requests in work.accesses():
        if one.unit.startswith(("load.global", "copy.global")) and READS_BACK not in one.depends:
            size = sectors(one) * requests * SECTOR
            known = one.blocks_share is not None or one.reused_share is not None
            shared = max(one.blocks_share or 0.0, one.reused_share or 0.0) if known else 1.0
            moved += size
            saved += size * min(shared, 1 - 1 / larger)
    return (saved + max(asked - moved, 0.0) * (1 - 1 / larger)) / asked


def _shares(work: CountedWork) -> bool:
    """Whether blocks load what other blocks do: what each has alone comes once with any tile."""
    loads = [
        (sectors(access) * requests, access)
        for _, access, requests in work.accesses()
        if access.unit.startswith(("load.global", "copy.global"))
    ]
    whole = sum(size for size, _ in loads)
    shared = sum(
        size
        for size, one in loads
        if max(one.blocks_share or 0.0, one.reused_share or 0.0) >= _TOGETHER
    )
    return not loads or shared >= _TOGETHER * whole


_MOVES: Final = 0.6
"""Share of a roof of data from which on the tiles are likely to be the cause."""
_SMS: Final = 0.8
"""Part of the SMs that have blocks, from which on their number is no cause."""


_MOVED: Final = ("L2", "L1", "issue", "integer", "FMA")
"""Roofs that larger tiles move away: bytes that are asked for once (DRAM) they don't."""


def _operand_bytes(work: CountedWork) -> float:
    """Return the bytes that ranges load and copy."""
    found = moved_bytes(
        each
        for each in work.accesses()
        if each[1].unit.startswith(("load.global", "copy.global"))
        and READS_BACK not in each[1].depends
    )
    return found + sum((one.facts.bulk_bytes or 0) * one.executions for one in work.ranges)
