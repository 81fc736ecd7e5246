"""Finding ``narrow-loads`` where instructions are the limit: accesses to bytes that lie side by
side, one number at a time, each with an address and a condition of its own.

A compiler makes one access of several where it knows that their addresses follow each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.counted_work import (
    Access,
    CountedWork,
    RangeWork,
    if_counted,
    lane_bytes,
    requests_of,
)
from ikp.analysis.explain.places import where_of_accesses
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import NEAR, nearest, share_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

_WIDEST: Final = 16
_NARROW: Final = 2
"""Bytes of a lane up to which an access is narrow."""
_ROW: Final = 4
"""Accesses of one line, in one execution, from which on these could be one."""
_MOST: Final = 0.5
"""Part of all requests from which on narrow ones are the kernel's."""
_GO_WITH_IT: Final = ("addresses", "conditions", "memory")
"""What instructions serve that wide accesses save."""


@if_counted
def narrow_accesses(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on narrow accesses side by side, of a launch at its instructions' roof."""
    if share_of(launch, "issue", "integer") < NEAR:
        return
    every = work.global_accesses()
    some = [each for each in every if _is_narrow(each)]
    if requests_of(some) < _MOST * max(requests_of(every), 1.0):
        return
    gone = sum(_saved(one, own) for one, own in _by_range(some)) / max(work.total, 1.0)
    saved = 1 - nearest(launch, (), min(gone, 1.0))
    if not enough(launch, saved * launch.duration):
        return
    some.sort(key=lambda each: -each[2])
    width = lane_bytes(some[0][1].unit)
    yield finding(
        launch,
        "narrow-loads",
        title=f"{some[0][0].name} accesses {width} byte{'s' * (width > 1)} a lane at a time, "
        f"{some[0][1].count:.0f} in a row that lie side by side: with an address and a condition "
        f"for each, {100 * gone:.0f} % of all instructions",
        number=Number("instructions that wide accesses save, of all", gone, "share"),
        at_stake=saved * launch.duration,
        without="with accesses of 16 bytes a lane",
        confidence="likely",
        rationale="counted: accesses whose lanes are adjacent, and instructions that serve "
        "addresses, conditions and accesses of the same code; instructions are what the launch "
        "has most of. Refuted if rows are not aligned.",
        where=where_of_accesses(launch, some),
        suggestion="let the compiler know that rows are contiguous and aligned: in Triton a "
        "stride of 1 as tl.constexpr or left out (no do_not_specialize), tl.multiple_of, "
        "tl.max_contiguous; in CUDA C++ vector types (uint4, __half2)",
    )


def _is_narrow(each: Access) -> bool:
    one = each[1]
    dense = one.cost is not None and one.cost <= (one.least or 0.0)
    return dense and lane_bytes(one.unit) <= _NARROW and one.count >= _ROW


def _by_range(some: list[Access]) -> list[tuple[RangeWork, list[Access]]]:
    found = defaultdict[str, list[Access]](list)
    for each in some:
        found[each[0].name].append(each)
    return [(own[0][0], own) for own in found.values()]


def _saved(one: RangeWork, own: list[Access]) -> float:
    """Return how many instructions of a range go with wide accesses in place of narrow ones."""
    wide = max(min(_WIDEST / lane_bytes(each.unit), each.count) for _, each, _ in own)
    count = sum(one.facts.serves.get(what, 0.0) for what in _GO_WITH_IT)
    return one.executions * count * (1 - 1 / wide)
