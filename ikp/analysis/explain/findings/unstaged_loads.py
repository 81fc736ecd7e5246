"""Finding ``unstaged-loads``: multiply-adds that load operands each time, from global or shared
memory, instead of from registers.

Each sum of products asks global memory for its operands, and the same bytes are asked for by many
lanes and warps: what tiles in shared memory and registers are for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.counted_work import (
    CountedWork,
    counted_work,
    is_atomic,
    l1_cycles,
    lane_bytes,
)
from ikp.analysis.explain.places import where_of_accesses
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import is_own, nearest, share_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

_LOADS: Final = 0.2
"""Loads for each sum of products from which on operands are not kept in registers."""
_L1: Final = 0.3
"""Share of L1's rate from which on it may be the limit; all warps wait for it in turn."""
_SURE: Final = 0.5
_OWN: Final = 0.4
"""Part of the loads' cycles that bring what no other thread needs, or whose addresses are made of
loaded numbers, so that who else needs it is not known: from here on to stage may be in vain."""
_PART: Final = 0.6
"""Part of L1's cycles that such loads are, at least."""


def unstaged_loads(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding where loads of global memory feed sums of products one by one."""
    work = counted_work(launch)
    if work is None:
        return
    yield from _small_register_tiles(launch, work)
    l1, l2 = share_of(launch, "L1"), share_of(launch, "L2")
    if l1 < _L1:
        return
    sums = sum(one.facts.sums * one.executions for one in work.ranges)
    every = [each for each in work.accesses() if not is_atomic(each[1])]
    loads = [each for each in every if each[1].unit.startswith("load.global")]
    whole = l1_cycles(every)
    cycles = l1_cycles(loads)
    count = sum(n for _, _, n in loads)
    own = l1_cycles(each for each in loads if is_own(each[1]) or "d" in each[1].depends)
    if not sums or count < _LOADS * sums or cycles < _PART * whole or own >= _OWN * cycles:
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


_BYTES: Final = 3.0
"""Bytes of shared memory for each sum of products, from which on a thread makes few results of its
operands: of 8 x 8 it loads one."""
_FULL: Final = 0.4
"""Share of L1's and shared memory's rate from which on these loads are likely to be the limit."""


def _small_register_tiles(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding where loads of shared memory feed sums of products one by one."""
    l1, fma = share_of(launch, "L1"), share_of(launch, "FMA")
    if l1 < max(_FULL, _MORE * fma) or any(r.facts.products for r in work.ranges):
        return
    sums = sum(one.facts.sums * one.executions for one in work.ranges)
    multiplies = work.issued.get("fma", 0.0)
    every = [each for each in work.accesses() if not is_atomic(each[1])]
    loads = [each for each in every if each[1].unit.startswith("load.shared")]
    whole = l1_cycles(every)
    cycles = l1_cycles(loads)
    least = l1_cycles(loads, least=True)
    size = sum(n * lane_bytes(access.unit) for _, access, n in loads)
    few = sums < _SUMS * multiplies or cycles < _PART * whole or cycles > _CONFLICTS * least
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
