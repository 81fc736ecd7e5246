"""Roofs: how much of a launch each unit of the device needs for the work that was counted.

A kernel can't be faster than its nearest roof. Bytes that caches are asked for are not those of
memory: memory's roof counts what no cache can serve, addresses that one block alone asks for, once.
"""

from __future__ import annotations

from typing import Final

from ikp.analysis.explain.counted_work import (
    LANES,
    SECTOR,
    CountedWork,
    RangeWork,
    counted_work,
    l1_cycles,
    lane_bytes,
    moved_bytes,
    sectors,
)
from ikp.analysis.explain.peaks import ISSUE
from ikp.analysis.explain.prepared import Prepared, once
from ikp.analysis.explain.verdict import Roof
from ikp.core.code_facts import RECORDED, AccessFacts

NEAR: Final = 0.8
"""Share of a roof from which on a kernel is at it: units and memory rarely do more."""
REACHED: Final = {"DRAM": 0.92, "tensor": 0.8, "L2": 0.8, "L1": 0.95, "issue": 0.9}
"""The share of each roof that well-made kernels reach."""
BLOCKS_A_CYCLE: Final = 1.0
"""Blocks that the device starts in a cycle, at most: H200s start 1.67 in a nanosecond."""
_USUAL: Final = 0.95
_ARITHMETIC: Final = ("issue", "integer", "FMA")
"""Roofs that go down with the number of instructions, of any kind."""
AGAIN: Final = "o"
"""The letter of accesses that an outer loop makes again, at the same addresses."""
_ALIKE: Final = 0.05
"""Share of sectors in common up to which blocks ask for their own."""
IMPOSSIBLE: Final = 1.15
"""From this share of a roof on, what was counted for it can't have been asked of it."""


@once
def roofs(launch: Prepared) -> tuple[Roof, ...]:
    """Return the share of each roof that a launch uses, the nearest first; none if not counted."""
    work = counted_work(launch)
    if work is None or not launch.duration:
        return ()
    needs = needs_of(work)
    found = [Roof(name, took / launch.duration) for name, took in needs.items() if took > 0]
    known = [one for one in found if one.share <= IMPOSSIBLE]
    return tuple(sorted(known, key=lambda one: -one.share))


def share_of(launch: Prepared, *names: str) -> float:
    """Return the largest share of some roofs; 0 where none of these is known."""
    return max((one.share for one in roofs(launch) if one.name in names), default=0.0)


def is_counted(launch: Prepared) -> bool:
    """Whether the addresses of most accesses to global memory are known, and how many there are.

    Of the others, no roof says what they take: that no unit is busy is not known.
    """
    work = counted_work(launch)
    if work is not None and any(unit.startswith(_DATA) for unit in work.uncounted):
        return False
    every = [each for each in work.accesses() if _global(each[1])] if work else []
    whole = sum(max(n, 1.0) for _, _, n in every)
    known = sum(max(n, 1.0) for _, one, n in every if one.cost is not None)
    return known >= _MOST_KNOWN * whole


_MOST_KNOWN: Final = 0.5
_DATA: Final = ("load.global", "copy.global", "atomic.global")
"""Units whose loops without known trips may ask for any number of bytes."""


IDLE: Final = 0.4
"""Share of the nearest roof below which no unit of the device holds a kernel up."""


def nearest(launch: Prepared, without: tuple[str, ...] = (), gone: float = 0.0) -> float:
    """Return the largest share of a roof, by what well-made kernels reach of it: 1 is at it.

    Args:
        launch: the launch.
        without: roofs that the change in question moves away.
        gone: the share of all instructions that it makes superfluous.
    """
    shares = (
        min(one.share / REACHED.get(one.name, _USUAL), 1.0)
        * (1 - gone if one.name in _ARITHMETIC else 1)
        for one in roofs(launch)
        if one.name not in without
    )
    return max(shares, default=0.0)


def needs_of(work: CountedWork) -> dict[str, float]:
    """Return the nanoseconds that the launch's work takes at the full rate of each roof."""
    cycles, flop = work.cycles, flop_of(work)
    l1 = l1_cycles(each for each in work.accesses() if not _local(each[1]))
    l1 += sum(n * lane_bytes(one.unit) / 4 for _, one, n in work.accesses() if _local(one))
    found = {
        "FMA": work.ns(cycles("fma") + cycles("half") + cycles("product") / 2),
        "integer": work.ns(cycles("integer") + cycles("product") / 2),
        "FP64": work.ns(cycles("fp64")),
        "XU": work.ns(cycles("xu") + cycles("convert.64")),
        "L1": work.ns(l1 + cycles("shuffle")),
        "issue": work.ns(ISSUE * work.total),
        "L2": work.ns(_asked_bytes(work) / work.peak.l2_bytes),
        "DRAM": memory_bytes(work) / work.peak.gb_per_s,
    }
    found["launches"] = work.blocks / work.cycles_per_ns / BLOCKS_A_CYCLE
    if flop:
        rate = work.peak.sms * work.peak.per_cycle * work.cycles_per_ns
        found["tensor"] = flop / rate
    return found


def flop_of(work: CountedWork) -> float:
    """Return the operations of products, in ones of 16 bits: of 32 bits they take twice as long.

    Products whose number is not known are left out.
    """
    return sum(_flop(one) * one.executions for one in work.ranges)


def _flop(one: RangeWork) -> float:
    sizes = [int(unit.rsplit(".", 1)[1]) for unit in one.facts.mix if unit.startswith("tensor")]
    return (one.facts.products or 0.0) * max(sizes, default=2) / 2


def _local(access: AccessFacts) -> bool:
    return ".local." in access.unit


def _asked_bytes(work: CountedWork) -> float:
    """Return the bytes that SMs ask L2 for, at least: L1 may serve loads that warps share."""
    total = moved_bytes(each for each in work.accesses() if _of_l2(each[1]))
    return total + sum((one.facts.bulk_bytes or 0) * one.executions for one in work.ranges)


def _of_l2(access: AccessFacts) -> bool:
    """Whether requests of an access go to L2: all but loads that L1 may have the bytes of."""
    if not _global(access) or not access.unit.startswith("load"):
        return _global(access)
    moves = not access.in_loop or ("i" in access.depends and AGAIN not in access.depends)
    return access.cost is not None and moves and {*"lw"} <= {*access.depends}


def _global(access: AccessFacts) -> bool:
    return ".global." in access.unit


def memory_bytes(work: CountedWork) -> float:
    """Return bytes that memory must have moved: those that no other block or iteration shares.

    It is a lower bound: what is shared by blocks is left out, bulk copies are, too. Of a line that
    accesses some address again, all is taken to come again: keys are those of some accesses alone.
    """
    own = [each for each in work.accesses() if is_own(each[1])]
    again = _again([one for _, one, _ in own])
    counted: set[tuple[str, int]] = set()
    total = 0.0
    for _, one, requests in own:
        if (_kind(one), one.line) not in again and not counted & _keys(one):
            counted |= _keys(one)
            total += requests * min(one.least or 0.0, sectors(one)) * SECTOR * _used(one)
    return total


def _again(own: list[AccessFacts]) -> set[tuple[str, str]]:
    """Return the kinds and lines of accesses to what an earlier line has accessed."""
    seen: dict[tuple[str, int], str] = {}
    for one in own:
        for key in _keys(one):
            seen.setdefault(key, one.line)
    return {
        (_kind(one), one.line) for one in own if any(seen[key] != one.line for key in _keys(one))
    }


def _keys(access: AccessFacts) -> set[tuple[str, int]]:
    return {(_kind(access), key) for key in access.keys}


def _kind(access: AccessFacts) -> str:
    """Return what an access does to memory: what is read and written passes it twice."""
    return "reads" if access.unit.startswith(("load", "copy")) else "writes"


def _used(access: AccessFacts) -> float:
    """Return the part of its sectors' bytes that a dense access needs."""
    size = lane_bytes(access.unit) * (access.addresses or LANES)
    return min(size / ((access.least or 1.0) * SECTOR), 1.0)


def is_own(access: AccessFacts) -> bool:
    """Whether each block, warp and iteration has addresses of its own in an access.

    Where data choose them, other blocks may be at the same: what was recorded is of a few blocks.
    """
    shared = max(access.blocks_share or 0.0, access.reused_share or 0.0)
    return (
        _global(access)
        and access.cost is not None
        and RECORDED not in access.depends
        and "b" in access.depends
        and (not access.in_loop or "i" in access.depends)
        and AGAIN not in access.depends
        and shared <= _ALIKE
    )
