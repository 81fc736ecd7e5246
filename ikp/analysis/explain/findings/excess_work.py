"""Findings on work that results don't need, by what the machine code says of it.

``wide-operands``, ``wide-data``, ``masked-work`` and ``repeated-work``: what is wider than it has
to be, what a mask throws away, what blocks or iterations calculate alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.counted_work import (
    Access,
    CountedWork,
    RangeWork,
    if_counted,
    l1_cycles,
    moved_bytes,
)
from ikp.analysis.explain.places import share_of_time, where_of, where_of_accesses
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import is_own, nearest, share_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

_PART: Final = 0.15
"""Part of the time, or of the bytes, from which on such work is a finding."""
_SPLITS: Final = 0.02
"""Part of all instructions that split numbers, from which on products are made in parts."""
_WIDENS: Final = 0.02
"""The same of conversions beside products of 32-bit numbers."""
_MASKED: Final = 0.2
"""Part of the iterations of which nothing is used, from which on that is a finding."""
_SHARED: Final = 0.7
"""Part of the sectors that another block has loaded before, from which on blocks work alike."""
_MOVED: Final = 0.4
"""Share of memory's rate from which on narrower data takes less time."""
_ARITHMETIC: Final = ("issue", "integer", "FMA", "XU", "FP64", "L1", "L2", "tensor")


@if_counted
def excess_work(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield findings on work that is wider, or done more often, than results need."""
    yield from _wide_operands(launch, work)
    yield from _wide_data(launch, work)
    yield from _masked(launch, work)
    yield from _alike(launch, work)


def _count(work: CountedWork, name: str) -> float:
    counts = (float(getattr(one.facts.excess, name)) * one.executions for one in work.ranges)
    return sum(counts)


def _time(launch: Prepared, work: CountedWork, some: list[RangeWork]) -> float:
    """Return the share of the warps' time in some ranges."""
    return min(share_of_time(launch, some, work.kernel), 1.0)


def _products(work: CountedWork) -> list[RangeWork]:
    """Return the ranges with products of 32-bit numbers on tensor cores."""
    wide = ("tensor.4", "tensor.group.4")
    return [one for one in work.ranges if any(one.facts.mix.get(unit) for unit in wide)]


def _wide_operands(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    some = _products(work)
    split, widened = _count(work, "split"), _count(work, "widened")
    if not some:
        return
    if split >= _SPLITS * work.total:
        factor = 1 / 3
        title = f"{some[0].name} makes each product of 32-bit numbers in three parts: "
        title += f"{split:,.0f} operands are split into two TF32 numbers each"
        because = "numbers masked to the bits of TF32, and the rest of each"
        do = (
            "input_precision='tf32' (one product in place of three) where operands are exact in "
            "TF32, or 10 bits suffice; or 16-bit operands"
        )
    elif widened >= _WIDENS * work.total:
        factor = 0.5
        title = f"{some[0].name} multiplies 16-bit operands as 32-bit numbers: {widened:,.0f} "
        title += "conversions from 16 to 32 bits, though tensor cores multiply 16-bit numbers "
        title += "twice as fast"
        because = "conversions from 16 to 32 bits beside products in TF32"
        do = (
            "multiply the 16-bit operands as they are (no .to(float32) before tl.dot): products of "
            "16-bit numbers are exact, and sums are in FP32 anyway"
        )
    else:
        return
    part = max(_time(launch, work, some), split / max(work.total, 1.0))
    saved = min(
        (1 - factor) * part + _time(launch, work, _issues(work)), 1 - nearest(launch, _ARITHMETIC)
    )
    saved = min(saved, 1 - factor * 0.9)
    if not enough(launch, saved * launch.duration):
        return
    some.sort(key=lambda one: -one.executions)
    yield finding(
        launch,
        "wide-operands",
        title=title,
        number=Number("such instructions, of all", (split or widened) / work.total, "share"),
        at_stake=saved * launch.duration,
        without="with operands as narrow as they are",
        confidence="likely",
        rationale=f"counted: {because}, times executions. Refuted if results need the further "
        "bits, or the products hide what else is done.",
        where=where_of(launch, some),
        suggestion=do,
    )


def _issues(work: CountedWork) -> list[RangeWork]:
    """Return the ranges that convert or split numbers, without products."""
    multiplied = {one.name for one in _products(work)}
    return [
        one
        for one in work.ranges
        if (one.facts.excess.split or one.facts.excess.widened) and one.name not in multiplied
    ]


def _wide_data(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on loaded numbers of which few bits are used, where memory is busy."""
    own = work.global_accesses()
    some = [each for each in own if each[1].use and _narrower(each[1].use) < 1]
    whole = moved_bytes(own)
    saved_bytes = sum(moved_bytes([each]) * (1 - _narrower(each[1].use)) for each in some)
    share = saved_bytes / max(whole, 1.0)
    memory = share_of(launch, "DRAM", "L2")
    alone = moved_bytes(each for each in some if is_own(each[1])) >= moved_bytes(some) / 2
    moved = ("DRAM",) if alone else ()  # what blocks share, memory brings once: its time stays
    saved = min(share, 1 - nearest(launch, (*moved, "L2", "L1", "issue", "integer")))
    if share < _PART or memory < _MOVED or not enough(launch, saved * launch.duration):
        return
    some.sort(key=lambda each: -moved_bytes([each]))
    kind, _, size = some[0][1].use.partition(".")
    only = "compared with a constant" if kind == "compared" else "rounded to half as many bytes"
    yield finding(
        launch,
        "wide-data",
        title=f"numbers of {size} bytes that {some[0][0].name} loads are only {only}: no result "
        f"needs {100 * share:.0f} % of all bytes that pass",
        number=Number("bytes that narrower data would save, of all", share, "share"),
        at_stake=saved * launch.duration,
        without="with data as narrow as its use",
        confidence="likely",
        rationale="counted: what the instructions behind these loads do with all that they bring; "
        f"memory or L2 is at {100 * memory:.0f} % of its rate. Refuted if another kernel needs "
        "these bits, and a second copy costs as much.",
        where=where_of_accesses(launch, some),
        suggestion="keep masks and flags in one byte (bool, int8) or a bit, and other data in the "
        "type that it is used in (float16 or bfloat16 for float32, float32 for float64)",
    )


def _narrower(use: str) -> float:
    """Return the part of its bytes that a number needs, by its use."""
    kind, _, size = use.partition(".")
    return 1 / int(size) if kind == "compared" else 0.5


def _masked(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on iterations whose results a mask throws away."""
    some = []
    for one in work.ranges:
        useful, made = one.facts.excess.useful, one.executions / max(launch.grid_warps, 1)
        if useful >= 0 and made > 1 and useful < (1 - _MASKED) * made:
            some.append((one, useful, made))
    if not some:
        return
    one, useful, made = max(some, key=lambda each: _around(launch, each[0]))
    part = _around(launch, one)
    saved = min(part * (1 - useful / made), 1 - nearest(launch, _ARITHMETIC))
    if not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "masked-work",
        title=f"each warp executes {one.name} {made:,.1f} times, and a mask of rows and columns "
        f"keeps {useful:,.1f} of these iterations: results of the others are thrown away",
        number=Number("iterations of which nothing is used, of all", 1 - useful / made, "share"),
        at_stake=saved * launch.duration,
        without="without iterations that are masked as a whole",
        confidence="likely",
        rationale="counted: comparisons of a block's rows with columns that each iteration moves, "
        "in some blocks; recorded: how often the loop goes round. Refuted if what is selected "
        "behind the comparison is used otherwise.",
        where=where_of(launch, [one]),
        suggestion="end the loop where the mask begins to hide all (the diagonal, the window's "
        "edge), and mask in the last iterations only; or return from blocks with nothing to keep",
    )


def _around(launch: Prepared, one: RangeWork) -> float:
    """Return the share of the warps' time in a range, with all that is in it."""
    if one.name not in launch.names:
        return 0.0
    region = launch.names.index(one.name)
    return min(float(launch.took_by_region[region]) / max(launch.warp_time, 1), 1.0)


def _alike(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on loops that blocks, or iterations of an outer loop, execute alike."""
    if any(one.facts.sums or one.facts.products for one in work.ranges):
        return  # of matrices: each block multiplies with what it alone has
    loads = work.accesses("load.g", "copy.g")
    whole = l1_cycles(loads)
    alone = _of_loops(loads, "alone")
    if not all(map(_is_shared, alone)):
        alone = []
    again = _of_loops(loads, "again")
    for some, line in ((alone, "alone"), (again, "again")):
        by_blocks, part = line == "alone", l1_cycles(some) / max(whole, 1.0)
        if not some or l1_cycles(some) < _PART * whole:
            continue
        share = max(_in_alike(launch, work, some, line), part * share_of(launch, "L1", "L2"))
        saved = share * ((some[0][1].blocks_share or 0.0) if by_blocks else 0.5)
        if share >= _PART and enough(launch, saved * launch.duration):
            yield _found_alike(launch, some, share, saved, by_blocks=by_blocks)
            return


def _is_shared(each: Access) -> bool:
    """Whether other blocks load most of what an access does."""
    return (each[1].blocks_share or 0.0) >= _SHARED and "d" not in each[1].depends


def _in_alike(launch: Prepared, work: CountedWork, some: list[Access], line: str) -> float:
    """Return the share of the warps' time in ranges of loops that some loads are in."""
    lines = {getattr(each[0].facts.excess, line) for each in some}
    ranges = [one for one in work.ranges if getattr(one.facts.excess, line) in lines]
    return _time(launch, work, [one for one in ranges if one.name != work.kernel])


def _of_loops(loads: list[Access], line: str) -> list[Access]:
    """Return the loads in loops that are executed alike, by the name of their line in the facts."""
    return [each for each in loads if getattr(each[0].facts.excess, line) and each[1].in_loop]


def _found_alike(
    launch: Prepared,
    some: list[Access],
    share: float,
    saved: float,
    *,
    by_blocks: bool,
) -> Finding:
    name = some[0][0].name
    times = 1 / max(1 - (some[0][1].blocks_share or 0.0), 1e-3)
    return finding(
        launch,
        "repeated-work",
        title=f"{name} loads what "
        + (
            f"{times:,.0f} blocks each load, and calculates from nothing else: all these blocks "
            "get the same result"
            if by_blocks
            else "the iteration of the outer loop before has loaded, and calculates from nothing "
            "else: each iteration gets the same result"
        ),
        number=Number("time in such code, of the warps' time", share, "share"),
        at_stake=saved * launch.duration,
        without="with that result calculated once",
        confidence="likely",
        rationale="counted: addresses of many blocks, and of two iterations; the loop's operands "
        "are what it loads, constants and indices. Refuted if another thread writes there "
        "meanwhile, or results differ by an index that is no address.",
        where=where_of_accesses(launch, some),
        suggestion="calculate it once: in one block for all that need it, in a kernel before, or "
        "ahead of the outer loop; and keep the result in memory, shared memory or registers",
    )
