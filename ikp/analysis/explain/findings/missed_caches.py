"""Findings ``uncached-loads`` and ``large-loop``: data, or code, that a cache could have held.

Loads that are volatile, or marked to pass L1 by, ask L2 each time. A loop whose code is larger than
the caches for instructions is fetched anew in each iteration.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.counted_work import counted_work
from ikp.analysis.explain.findings.extra_instructions import extra_of
from ikp.analysis.explain.places import short_line, where_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import nearest
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number, Where
from ikp.core.code_facts import AccessFacts

_LOADS: Final = (Activity.WAIT_MEMORY, Activity.LOAD)
_PART: Final = 0.3
"""Part of the warps' time in loads from which on their cache is a cause."""
_MOST: Final = 0.5
"""Part of the loads that pass L1 by, and of sectors that blocks share."""
_LARGE: Final = 128 << 10
"""Bytes of code that the caches of an SM hold, on sm_90."""
_BYTES: Final = 16
"""Bytes of an instruction."""


def missed_caches(launch: Prepared) -> Iterator[Finding]:
    """Yield findings on loads that pass L1 by, and on loops that are larger than code's caches."""
    yield from _uncached(launch)
    yield from _large_loop(launch)


def _uncached(launch: Prepared) -> Iterator[Finding]:
    work = counted_work(launch)
    if work is None:
        return
    some = extra_of(work, "uncached")
    lines = {each.line for _, each in some}
    count = sum(one.executions * each.count for one, each in some)
    loads = [each for each in work.accesses() if each[1].unit.startswith("load.global")]
    again = any(_is_asked_again(one) for _, one, _ in loads if one.line in lines)
    waits = launch.share_in(launch.regions(_LOADS))
    whole = sum(n for _, _, n in loads)
    if not some or not again or waits < _PART or count < _MOST * whole:
        return
    saved = min(waits, 1 - nearest(launch, ("L1", "L2")))
    if not enough(launch, saved * launch.duration):
        return
    place = short_line(some[0][1].line, some[0][0].name)
    yield finding(
        launch,
        "uncached-loads",
        title=f"{place} loads past L1, though the same bytes are asked for again: {count:,.0f} "
        f"loads, and {100 * waits:.0f} % of the warps' time is in loads",
        number=Number("loads past L1, of all", min(count / max(whole, 1.0), 1.0), "share"),
        at_stake=saved * launch.duration,
        without="with L1",
        confidence="likely",
        rationale="counted: loads marked STRONG (volatile, ld.cg, ld.cv) in no loop that waits for "
        "their value, whose addresses other warps, or iterations, ask for, too. Refuted if other "
        "blocks write there meanwhile.",
        where=where_of(launch, [one for one, _ in some], [each.line for _, each in some]),
        suggestion="no volatile, const __restrict__ pointers, __ldg or plain loads in place of "
        "__ldcg and __ldcv; no cache_modifier='.cg' or '.cv' in tl.load",
    )


def _is_asked_again(one: AccessFacts) -> bool:
    """Whether iterations, warps or blocks ask for the same sectors."""
    if one.cost is None:
        return False
    alike = one.in_loop and "i" not in one.depends
    return alike or "w" not in one.depends or (one.blocks_share or 0.0) >= _MOST


def _large_loop(launch: Prepared) -> Iterator[Finding]:
    facts = launch.facts
    loops = [one for one in facts.loops if one.depth] if facts else []
    if not loops:
        return
    large = max(loops, key=lambda one: sum(one.mix.values()))
    size = _BYTES * sum(large.mix.values())
    waits = launch.share_in(launch.regions(_LOADS))
    saved = min(1 - nearest(launch), 1 - waits)
    if size < _LARGE or not enough(launch, saved * launch.duration):
        return
    yield finding(
        launch,
        "large-loop",
        title=f"the loop at {short_line(large.line)} is {size >> 10} KiB of code: more than "
        "an SM's caches for instructions hold, so that each iteration fetches it anew",
        number=Number("bytes of the loop's code", float(size), "count"),
        at_stake=saved * launch.duration,
        without="with a loop that fits",
        confidence="likely",
        rationale="counted: instructions of the loop, 16 bytes each. Refuted if the loop makes one "
        "iteration.",
        where=Where(lines=(large.line,)),
        suggestion="unroll less (#pragma unroll 8; no tl.static_range over many iterations), and "
        "call functions rather than inline them many times",
    )
