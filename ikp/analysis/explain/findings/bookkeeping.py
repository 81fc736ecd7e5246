"""Finding ``bookkeeping``: addresses, conditions and moves are most instructions, and take the
time.

What instructions serve follows from who reads their results. What a loop does for itself is no
fault where there is time for it: only where no other unit is as near its rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.counted_work import RangeWork, counted_work
from ikp.analysis.explain.counts import serves_of
from ikp.analysis.explain.places import where_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import nearest, share_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

_KINDS: Final = ("addresses", "conditions", "moves")
_MOST: Final = 0.6
"""Part of all instructions from which on these are the cause."""
_BUSY: Final = 0.6
"""Share of the rate of issue, or of integer units, from which on instructions take the time."""
_UNITS: Final = ("issue", "integer")
_GONE: Final = 0.75
"""Part of such instructions that a change saves."""


def bookkeeping(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on instructions for addresses, conditions and moves at the issue's rate."""
    work = counted_work(launch)
    shares = {each.what: each.share for each in serves_of(launch)}
    part = sum(shares.get(kind, 0.0) for kind in _KINDS)
    busy = share_of(launch, *_UNITS)
    if work is None or part < _MOST or busy < _BUSY:
        return
    left = nearest(launch, _UNITS)
    saved = min(part * _GONE, 1 - left)
    if not enough(launch, saved * launch.duration):
        return
    some = sorted(work.ranges, key=lambda one: -one.executions * _count(one))
    most = sorted(_KINDS, key=lambda kind: -shares.get(kind, 0.0))
    yield finding(
        launch,
        "bookkeeping",
        title=f"{100 * part:.0f} % of all instructions serve no result: "
        + ", ".join(f"{100 * shares.get(kind, 0.0):.0f} % {kind}" for kind in most),
        number=Number("instructions for addresses, conditions and moves, of all", part, "share"),
        at_stake=saved * launch.duration,
        without="with a quarter of these",
        confidence="likely",
        rationale="counted: what reads each instruction's result, times executions; issue slots or "
        f"integer units are at {100 * busy:.0f} % of their rate, and nothing else is nearer. "
        "Refuted if each element needs an address and a condition of its own.",
        where=where_of(launch, some[:3]),
        suggestion="unroll, and let each iteration do more for one address: wider accesses, "
        "offsets that are constants; indices of 32 bits that are carried on; masks in the last "
        "iteration alone",
    )


def _count(one: RangeWork) -> float:
    return sum(one.facts.serves.get(kind, 0.0) for kind in _KINDS)
