"""Findings held to a launch's roofs: bounds capped; those that a roof rules out, or leaves too
little, dropped.

Findings that are counted have bounds by the roofs that their change leaves where they are. Where
many records were lost, a finding is less sure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import NEAR, nearest, roofs
from ikp.analysis.explain.stakes import enough
from ikp.analysis.explain.verdict import Finding

_NAMES: Final = (
    "local-memory uncoalesced bank-conflicts atomics no-tensor-cores slow-arithmetic "
    "repeated-loads divergence small-tiles flag-wait block-order unstaged-loads "
    "needless-barrier needless-pass dependent-loads fences constants shuffles busy-lines "
    "idle-threads empty-blocks small-blocks wide-operands wide-data masked-work repeated-work "
    "repeated-stores serial-thread far-memory unfused-sums scaled-operands products-with-ones "
    "checks unused-random-numbers unpacked-numbers alike-lanes serial-sums linear-search "
    "unused-shared-memory single-warp-products unchanged-values private-staging "
    "bookkeeping uncached-loads large-loop"
)
_COUNTED: Final = frozenset(_NAMES.split())
"""Findings whose bound is made with the roofs that their change leaves where they are."""
_LESS: Final = {"measured": "likely", "likely": "possible"}
_BETWEEN: Final = "launch-gaps"
"""The finding on time between launches, which no roof of a launch limits."""


def below_roofs(launch: Prepared, found: list[Finding]) -> list[Finding]:
    """Return findings with bounds that no roof forbids; those with too little left are dropped.

    Of a launch at a roof only those are left that change what is asked of it: it would wait for
    that unit in any order.
    """
    at_roof = any(one.share >= NEAR for one in roofs(launch))
    some = [one for one in found if not at_roof or one.id in _COUNTED or one.id == _BETWEEN]
    kept = (_capped(launch, _of_a_part(launch, one)) for one in some)
    return [one for one in kept if one.id == _BETWEEN or enough(launch, one.bound_ns)]


def _of_a_part(launch: Prepared, one: Finding) -> Finding:
    """Return a finding that is less sure, and says why, where many records were lost."""
    it = launch.launch
    lost = it.dropped / it.attempted if it.attempted else 0.0
    if lost < _MANY_LOST:
        return one
    less = _LESS.get(one.confidence, one.confidence)
    return replace(
        one,
        confidence=one.confidence if one.id in _COUNTED else less,
        rationale=f"{100 * lost:.0f} % of the records were lost, and this is of the others: "
        + one.rationale,
    )


_MANY_LOST: Final = 0.1
"""Share of lost records from which on findings are less sure."""


_FAR: Final = 1.25
"""Times what a roof leaves, above which a bound was wrong by more than its margin."""


def _capped(launch: Prepared, one: Finding) -> Finding:
    most = 1 - nearest(launch)
    if one.id in _COUNTED or one.id == _BETWEEN or one.bound_share <= most:
        return one
    name = roofs(launch)[0].name
    less = one.bound_share > _FAR * most
    without = one.what_if.rpartition(": at most ")[0]
    return replace(
        one,
        confidence=_LESS.get(one.confidence, one.confidence) if less else one.confidence,
        bound_ns=most * launch.duration,
        bound_share=most,
        speedup_at_most=1 / max(1 - most, 1e-3),
        what_if=f"{without}: at most {100 * most:.1f} % less time, where {name} is at its limit",
    )
