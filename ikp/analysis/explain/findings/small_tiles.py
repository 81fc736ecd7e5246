"""Finding ``small-tiles``: tensor cores do too few operations for each byte copied to an SM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.counted_work import (
    READS_BACK,
    CountedWork,
    counted_work,
    moved_bytes,
    sectors,
)
from ikp.analysis.explain.places import where_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import flop_of, nearest, share_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

_USUAL: Final = 50.0
"""Operations for each byte of a tile of 128 x 128 x 64 16-bit numbers: 64."""
_BUSY: Final = 0.5
"""Share of the tensor cores' rate from which on tiles are large enough."""


def small_tiles(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on products with few operations for each byte that SMs ask for."""
    work = counted_work(launch)
    if work is None:
        return
    flop, asked = flop_of(work), _operand_bytes(work)
    if not flop or not asked:
        return
    rate = work.peak.sms * work.peak.per_cycle * work.cycles_per_ns
    busy, each = flop / rate / launch.duration, flop / asked
    usual = _USUAL * 2 / max(_operand_size(work), 2)
    if each >= usual or busy >= _BUSY or len(launch.lanes.sms) < _SMS * work.peak.sms:
        return
    saved = 1 - nearest(launch, _MOVED)
    if not enough(launch, saved * launch.duration):
        return
    some = sorted(
        (one for one in work.ranges if one.facts.products), key=lambda one: -one.executions
    )
    warp = any(unit.startswith("tensor.") and "group" not in unit for unit in work.issued)
    narrow = warp and (launch.facts.chip if launch.facts else "").startswith("sm_90")
    l2 = asked / work.peak.l2_gb_per_s / launch.duration
    caches = share_of(launch, "L1", "L2")
    sure = max(l2, caches) >= _MOVES and (each <= _SMALL * usual or caches >= _FULL)
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
        "the launch at L2's. Refuted if larger tiles take as long.",
        where=where_of(launch, some),
        suggestion="larger tiles (128 x 128 or 128 x 256, 64 deep): more products for each byte, "
        "and fewer prologues and epilogues",
    )


_SMALL: Final = 0.6
"""Part of the usual operations for each byte up to which tiles are likely to be the cause."""
_FULL: Final = 0.75
"""Share of the rate of L1 or L2 from which on tiles of any size are."""
_TOGETHER: Final = 0.5
"""Part of the operands' bytes that other blocks load, too, from which on larger tiles save some."""


def _operand_size(work: CountedWork) -> int:
    """Return the bytes of the widest operands that are multiplied."""
    units = (unit for unit in work.issued if unit.startswith("tensor"))
    return max((int(unit.rsplit(".", 1)[1]) for unit in units), default=2)


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
