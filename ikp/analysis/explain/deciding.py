"""Findings split into causes, whose evidence decides, and symptoms, where time goes for any reason.

A wait that other warps may hide, or work that results may need, is a symptom: nothing in the trace
says that a change would win its time. What is *possible* for its share alone, and is a fault in any
case (local memory, fences), is a cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ikp.analysis.explain.stakes import LEAST
from ikp.analysis.explain.verdict import Finding, Tried

_FAULTS: Final = (
    "late-producer late-consumer queued-copies few-blocks launch-gaps late-start local-memory "
    "bank-conflicts dependent-loads fences constants serial-mma epilogue busy-lines "
    "needless-barrier needless-pass unseen-wait"
)
_ALWAYS: Final = frozenset(_FAULTS.split())
"""Findings that are causes though it is only possible how much they cost."""
_TWICE: Final = 3.0
"""Times the least cost of a request up to which more is no fault for sure."""


_PLACES: Final = ("slow-memory", "exposed-load")
"""Findings that say where time goes while loads are under way, for any reason."""
_NAMES: Final = (
    "unpacked-numbers linear-search serial-sums alike-lanes checks repeated-stores uncached-loads "
    "unused-shared-memory unchanged-values private-staging unused-random-numbers large-loop"
)
_REASONS: Final = frozenset(_NAMES.split())
"""Findings that say why, where both are found."""
_ENOUGH: Final = 0.4
"""Part of such a place's bound from which on a reason explains it."""


def decided(found: Sequence[Finding]) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return causes and symptoms, each in the order of the findings."""
    why = max((one.bound_ns for one in found if one.id in _REASONS), default=0.0)
    some = [
        replace(one, confidence="possible")
        if one.id in _PLACES and why >= _ENOUGH * one.bound_ns
        else one
        for one in found
    ]
    causes = tuple(one for one in some if _decides(one))
    return causes, tuple(one for one in some if not _decides(one))


def _gained(tried: Tried) -> bool:
    """Whether a copy without the suspect was faster by more than the spread of its times."""
    return (tried.gain_share or 0.0) > max(tried.spread or 0.0, LEAST)


def _decides(one: Finding) -> bool:
    if one.confidence != "possible" or (one.tried is not None and _gained(one.tried)):
        return True
    if one.id == "bank-conflicts" and one.number.unit == "ratio":
        return one.number.value >= _TWICE
    return one.id in _ALWAYS
