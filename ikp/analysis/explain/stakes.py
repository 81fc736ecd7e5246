"""``finding``, which makes a finding with its bound from the time at stake; the least time that
counts, and the order of findings.
"""

from __future__ import annotations

from typing import Final

from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.verdict import Finding, Number, Where

LEAST: Final = 0.03
"""Below this share of a launch there is no finding: the same code, scheduled otherwise, differs by
as much (docs/reading-a-trace.md, what recording costs)."""
WEIGHT: Final = {"measured": 1.0, "likely": 0.8, "possible": 0.4}
"""How much of the time at stake counts in the order of findings, by their confidence."""


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
    """Return a finding with its bound, which never exceeds the launch.

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
    saved = min(max(at_stake, 0.0), total)
    share = saved / total
    return Finding(
        id=name,
        title=title,
        number=number,
        bound_ns=saved,
        bound_share=share,
        speedup_at_most=1 / max(1 - share, 1e-3),
        what_if=f"{without}: at most {100 * share:.1f} % less time",
        confidence=confidence,
        rationale=rationale,
        where=where,
        suggestion=suggestion,
    )


def enough(launch: Prepared, at_stake: float, least: float = LEAST) -> bool:
    """Whether so many nanoseconds of a launch are worth a finding."""
    return at_stake >= least * max(launch.duration, 1)


def worth(one: Finding) -> float:
    """Return what findings are ordered by: the time at stake, less where it is less sure."""
    return one.bound_ns * WEIGHT[one.confidence]
