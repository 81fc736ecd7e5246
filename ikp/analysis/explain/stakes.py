"""Findings made with their bounds, held to a launch's roofs, and split into causes and symptoms.

``finding`` makes one from the time at stake; ``enough`` has the least time that counts. Bounds are
capped by roofs; a finding that a roof rules out, or leaves too little, is dropped. Findings that
are counted have bounds by the roofs that their change leaves where they are. Where many records
were lost, a finding is less sure.

A cause has evidence that decides. A wait that other warps may hide, or work that results may need,
is a symptom: nothing in the trace says that a change would win its time. What is *possible* for its
share alone, and is a fault in any case (chased pointers, fences), is a cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import NEAR, nearest, roofs
from ikp.analysis.explain.verdict import Finding, Number, Tried, Where

LEAST: Final = 0.03
"""Below this share of a launch there is no finding: the same code, scheduled otherwise, differs by
as much (docs/reading-a-trace.md, what recording costs)."""
WEIGHT: Final = {"measured": 1.0, "likely": 0.8, "possible": 0.4}
"""How much of the time at stake counts in the order of findings, by their confidence."""


AT_MOST: Final = "at most"
ABOUT: Final = "about"
"""How a bound holds. What was measured can't win more than its time. What was counted takes
latencies for known, which others hide or hold up: more may be won, and less."""


def finding(
    launch: Prepared,
    name: str,
    *,
    title: str,
    number: Number,
    at_stake: float,
    without: str,
    confidence: str,
    rationale: str,
    where: Where,
    suggestion: str,
) -> Finding:
    """Return a finding with its bound, which never exceeds the launch, and how that holds.

    Args:
        launch: the launch.
        name: the finding's id.
        title: one sentence.
        number: the figure that it was found by.
        at_stake: nanoseconds of the launch's duration.
        without: what would be gone: "without the wait for full".
        confidence: one of ``WEIGHT``.
        rationale: why so sure, and when it is wrong.
        where: the evidence.
        suggestion: what to do.
    """
    total = float(max(launch.duration, 1))
    holds = AT_MOST if confidence == "measured" else ABOUT
    saved = min(max(at_stake, 0.0), total)
    share = saved / total
    return Finding(
        id=name,
        title=title,
        number=number,
        bound_ns=saved,
        bound_share=share,
        speedup_at_most=1 / max(1 - share, 1e-3),
        what_if=f"{without}: {holds} {100 * share:.1f} % less time",
        confidence=confidence,
        rationale=rationale,
        where=where,
        suggestion=suggestion,
        bound_is=holds,
    )


def enough(launch: Prepared, at_stake: float, least: float = LEAST) -> bool:
    """Whether so many nanoseconds of a launch are worth a finding."""
    return at_stake >= least * max(launch.duration, 1)


def worth(one: Finding) -> float:
    """Return what findings are ordered by: the time at stake, less where it is less sure."""
    return one.bound_ns * WEIGHT[one.confidence]


_CAPPED: Final = (
    "local-memory uncoalesced bank-conflicts atomics no-tensor-cores slow-arithmetic "
    "repeated-loads divergence small-tiles flag-wait block-order unstaged-loads "
    "needless-barrier needless-pass dependent-loads fences constants shuffles busy-lines "
    "idle-threads empty-blocks small-blocks wide-operands wide-data masked-work repeated-work "
    "repeated-stores serial-thread far-memory unfused-sums scaled-operands products-with-ones "
    "checks unused-random-numbers unpacked-numbers alike-lanes serial-sums linear-search "
    "unused-shared-memory single-warp-products unchanged-values private-staging "
    "uncached-loads calls lone-loads ordered-loads zeroed-loads promoted-sums "
    "halo repeated-setup same-operands many-warps narrow-loads block-shape costly-line "
    "invariant-arithmetic uniform-arithmetic clock-reads reworked-operands block-votes "
    "needless-conversions compensated-sums split-warps"
)
_COUNTED: Final = frozenset(_CAPPED.split())
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
    kept = one.id in _COUNTED or one.id in _BY_BLOCKS
    return replace(
        one,
        confidence=one.confidence if kept else _LESS.get(one.confidence, one.confidence),
        rationale=f"{100 * lost:.0f} % of the records were lost, and this is of the others: "
        + one.rationale,
    )


_BY_BLOCKS: Final = frozenset(["few-blocks", "imbalance", "late-start", "slow-block", "tail"])
"""Findings by when blocks began and ended, which is kept of all, with lost records, too."""
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
    without = one.what_if.rpartition(f": {one.bound_is} ")[0]
    return replace(
        one,
        confidence=_LESS.get(one.confidence, one.confidence) if less else one.confidence,
        bound_ns=most * launch.duration,
        bound_share=most,
        speedup_at_most=1 / max(1 - most, 1e-3),
        what_if=f"{without}: at most {100 * most:.1f} % less time, where {name} is at its limit",
        bound_is=AT_MOST,
    )


_FAULTS: Final = (
    "late-producer late-consumer queued-copies few-blocks launch-gaps late-start "
    "bank-conflicts dependent-loads fences constants serial-mma epilogue "
    "needless-barrier needless-pass unseen-wait"
)
_ALWAYS: Final = frozenset(_FAULTS.split())
"""Findings that are causes though it is only possible how much they cost."""
_TWICE: Final = 3.0
"""Times the least cost of a request up to which more is no fault for sure."""


_SELDOM: Final = frozenset(["divergence", "imbalance", "repeated-work", "slow-memory"])
"""Findings that count work, or time, which results may need: on kernels that others wrote, fewer
than a third were right. They are causes where they are measured, or tried."""
_ANY_GRID: Final = {"tail": 0.25, "block-switch": 0.25}
"""Shares of a launch that any grid may lose to its last blocks and between blocks: where blocks of
another size won these, they lost elsewhere."""


_PLACES: Final = ("slow-memory", "exposed-load")
"""Findings that say where time goes while loads are under way, for any reason."""
_DECIDED: Final = (
    "unpacked-numbers linear-search serial-sums alike-lanes checks repeated-stores uncached-loads "
    "unused-shared-memory unchanged-values private-staging unused-random-numbers"
)
_REASONS: Final = frozenset(_DECIDED.split())
"""Findings that say why, where both are found."""
_ENOUGH: Final = 0.4
"""Part of such a place's bound from which on a reason explains it."""


_EFFECTS: Final = {
    "flag-wait": "atomics imbalance slow-block late-producer late-consumer barrier-skew tail "
    "exposed-load",
    "atomics": "slow-memory exposed-load imbalance slow-block",
    "local-memory": "slow-memory exposed-load",
    "calls": "local-memory imbalance slow-block divergence",
    "serial-thread": "barrier-skew barriers",
    "zeroed-loads": "exposed-load slow-memory epilogue",
    "ordered-loads": "exposed-load slow-memory",
    "lone-loads": "exposed-load slow-memory",
    "same-operands": "bank-conflicts unstaged-loads exposed-load",
    "halo": "bank-conflicts exposed-load",
    "no-tensor-cores": "bank-conflicts unstaged-loads",
    "low-occupancy": "exposed-load slow-memory",
    "narrow-loads": "local-memory low-occupancy slow-memory exposed-load",
    "few-warps": "exposed-load slow-memory block-switch local-memory",
    "few-blocks": "exposed-load slow-memory low-occupancy few-warps",
    "small-tiles": "ordered-loads narrow-loads exposed-load slow-memory",
    "few-stages": "exposed-load slow-memory barriers local-memory",
    "uncoalesced": "late-copy copy-issue",
    "block-shape": "uncoalesced halo low-occupancy exposed-load slow-memory divergence",
    "wide-operands": "reworked-operands bank-conflicts",
    "unpacked-numbers": "reworked-operands costly-line",
    "checks": "costly-line",
    "linear-search": "costly-line",
    "unused-random-numbers": "costly-line",
    "promoted-sums": "local-memory",  # a second sum takes as many registers again
    "alike-lanes": "costly-line",
    "scaled-operands": "reworked-operands",
    "reworked-operands": "bank-conflicts exposed-load",
    "invariant-arithmetic": "costly-line slow-arithmetic alike-lanes",
    "uniform-arithmetic": "costly-line slow-arithmetic alike-lanes",
    "clock-reads": "costly-line",
    "slow-arithmetic": "divergence costly-line alike-lanes",
    "block-votes": "barriers barrier-skew",
    "many-warps": "barriers barrier-skew needless-barrier block-switch small-blocks",
}
"""What else a cause shows as: with the cause, its effects go."""
_PART: Final = 0.5
"""Part of an effect's bound that its cause's bound is, at least."""


def _is_effect(one: Finding, found: Sequence[Finding]) -> bool:
    """Whether a finding shows what another, which is at least likely, is the cause of."""
    return any(
        one.id in _EFFECTS.get(other.id, "").split()
        and other.confidence != "possible"
        and other.bound_ns >= _PART * one.bound_ns
        for other in found
    )


def decided(
    found: Sequence[Finding], *, owns_layouts: bool = True
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return causes and symptoms, each in the order of the findings.

    Args:
        found: the findings, in order.
        owns_layouts: whether the kernel's source says where numbers lie in shared memory: of
            Triton's, the compiler does, and bank conflicts that only may cost are none to mend.
    """
    why = max((one.bound_ns for one in found if one.id in _REASONS), default=0.0)
    some = [
        replace(one, confidence="possible")
        if one.id in _PLACES and why >= _ENOUGH * one.bound_ns
        else one
        for one in found
    ]
    causes = tuple(
        one
        for one in some
        if _decides(one) and not _is_effect(one, some) and (owns_layouts or not _may_conflict(one))
    )
    return causes, tuple(one for one in some if one not in causes)


def _may_conflict(one: Finding) -> bool:
    return one.id == "bank-conflicts" and one.confidence == "possible" and one.tried is None


def _gained(tried: Tried) -> bool:
    """Whether a copy without the suspect was faster by more than the spread of its times."""
    return (tried.gain_share or 0.0) > max(tried.spread or 0.0, LEAST)


def _decides(one: Finding) -> bool:
    if one.tried is not None and _gained(one.tried):
        return True
    if one.bound_share < _ANY_GRID.get(one.id, 0.0):
        return False
    if one.id == "uncoalesced" and one.number.value < _TWICE:
        return False  # the next request may use the rest of its sectors
    if one.confidence != "possible":
        return one.confidence == "measured" or one.id not in _SELDOM
    if one.id == "bank-conflicts" and one.number.unit == "ratio":
        return one.number.value >= _TWICE
    return one.id in _ALWAYS
