"""Findings ``unused-shared-memory`` and ``single-warp-products``: shared memory that no block uses,
and products (MMA) of warps in place of warpgroups.

Shared memory that no block uses is taken from L1, or from other blocks. On sm_90 products of single
warps reach about 60 % of the rate of a warpgroup's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.counted_work import CountedWork, RangeWork, counted_work
from ikp.analysis.explain.places import time_in, where_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import nearest, share_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number
from ikp.core.code_facts import CARVE_OUT

_MUCH: Final = 16 << 10
"""Bytes of shared memory of a block from which on unused ones cost other blocks, or L1."""
_SM: Final = 227 << 10
"""Bytes of shared memory of an SM of sm_90, at most."""
_SYSTEM: Final = 1 << 10
"""Bytes of shared memory of each block that the system takes."""
_LOADS: Final = (Activity.WAIT_MEMORY, Activity.LOAD)
_GROUP: Final = 4
"""Warps of a warpgroup."""
_OF_GROUPS: Final = 0.62
"""The rate of products of single warps over that of warpgroups', on an H100."""
_PART: Final = 0.3
"""Part of the warps' time in products from which on their kind is a cause."""
_BUSY: Final = 0.25
"""Share of tensor cores' rate from which on the rate of their instructions is."""


def unused_hardware(launch: Prepared) -> Iterator[Finding]:
    """Yield findings on shared memory, and on products of warpgroups, that a launch leaves out."""
    work = counted_work(launch)
    if work is None or launch.facts is None:
        return
    yield from [*_shared(launch, work)] or _carved_out(launch, work)
    yield from _products(launch, work)


def _shared(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    size = launch.facts.shared if launch.facts else None
    if size is None or size < _MUCH or any(".shared." in unit for unit in _units(work)):
        return
    if any(unit.startswith(("copy", "tensor.group")) for unit in _units(work)):
        return
    held = min(size * max(_blocks(launch), 1) / _SM, 1.0)
    saved = 1 - nearest(launch, ("L1", "L2"))
    if not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "unused-shared-memory",
        title=f"each block takes {size >> 10} KiB of shared memory that no instruction accesses: "
        f"{100 * held:.0f} % of an SM's, which L1 and other blocks don't have",
        number=Number("such bytes, of the SM's shared memory", held, "share"),
        at_stake=saved * launch.duration,
        without="with that memory for L1 and other blocks",
        confidence="likely",
        rationale="counted: no instruction of the kernel loads from shared memory, or stores "
        "there. Refuted if another limit holds as few blocks, and L1 serves as much.",
        where=where_of(launch, work.ranges[:1]),
        suggestion="launch without dynamic shared memory (the third argument in <<< >>>), and "
        "without a carve-out for it (cudaFuncAttributePreferredSharedMemoryCarveout)",
    )


def _carved_out(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on L1 that a program gives to shared memory, which no block takes."""
    text = launch.trace.provenance.get(f"{CARVE_OUT}{launch.launch.label}", "")
    taken = (launch.facts.shared or 0) + _SYSTEM if launch.facts else 0
    given = int(text) / 100 * _SM if text.isdecimal() else 0.0
    idle = given - taken * max(_blocks(launch), 1)
    waits = launch.share_in(launch.regions(_LOADS))
    if idle < _SM / 4 or waits < _PART or share_of(launch, "DRAM") > 1 - waits:
        return
    saved = min(waits, 1 - nearest(launch, ("L1", "L2")))
    if not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "unused-shared-memory",
        title=f"the program sets {text} % of L1 aside as shared memory, and blocks take "
        f"{100 * (given - idle) / _SM:.0f} %: loads, {100 * waits:.0f} % of the warps' time, have "
        "little L1 left",
        number=Number("shared memory that no block takes, of the SM's", idle / _SM, "share"),
        at_stake=saved * launch.duration,
        without="with that memory for L1",
        confidence="likely",
        rationale="counted: the function's carve-out, and the shared memory of the blocks that an "
        "SM held. Refuted if loads ask for no sector twice.",
        where=where_of(launch, [one for one in work.ranges if _loads(one)]),
        suggestion="leave the carve-out to the driver (no "
        "cudaFuncAttributePreferredSharedMemoryCarveout, or its default), or ask for no more than "
        "blocks take",
    )


def _loads(one: RangeWork) -> bool:
    return any(unit.startswith("load.global") for unit in one.facts.mix)


def _blocks(launch: Prepared) -> int:
    return round(float(launch.lanes.lanes.mean())) if len(launch.lanes.lanes) else 1


def _units(work: CountedWork) -> set[str]:
    return {unit for one in work.ranges for unit in one.facts.mix}


_MAKES_GROUPS: Final = ("triton",)


def _products(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    units, chip = _units(work), launch.facts.chip if launch.facts else ""
    warps = launch.launch.warps_per_block
    single = [unit for unit in units if unit in ("tensor.1", "tensor.2")]
    if not single or any("group" in unit for unit in units) or not chip.startswith("sm_90"):
        return
    some = [one for one in work.ranges if any(one.facts.mix.get(unit) for unit in single)]
    part = time_in(launch, some, work.kernel) / max(launch.warp_time, 1)
    busy = share_of(launch, "tensor")
    rows = warps >= _GROUP  # Triton makes products of warpgroups of any tile with 64 rows
    if rows and launch.launch.backend not in _MAKES_GROUPS:
        return
    if max(part, busy / _OF_GROUPS) < _PART or busy < _BUSY:
        return
    left = max(nearest(launch, ("tensor", "issue", "L1")), busy)
    saved = min(1 - left, 1 - _OF_GROUPS)
    if not enough(launch, saved * launch.duration):
        return
    some.sort(key=lambda one: -one.executions)
    yield finding(
        launch,
        "single-warp-products",
        title=f"blocks of {warps} warps make products warp by warp (mma.sync): a warpgroup's "
        f"(wgmma) are 1.6 times as fast, and need {'tiles of 64 rows' if rows else 'four warps'}",
        number=Number("use of tensor cores, of their rate", busy, "share"),
        at_stake=saved * launch.duration,
        without="with products of warpgroups",
        confidence="likely",
        rationale=f"counted: products of single warps alone, on {chip}, which take "
        f"{100 * part:.0f} % of the warps' time. Refuted if there are no 64 rows for a block.",
        where=where_of(launch, some),
        suggestion="num_warps=4 (or 8 with tiles of 128 rows) and tiles of 64 rows or more, so "
        "that Triton makes wgmma; CUTLASS's GMMA atoms in place of wmma and mma.sync",
    )
