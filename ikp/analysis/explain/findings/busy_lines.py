"""Finding ``busy-lines``: one source line issues 30 % or more of all instructions, where arithmetic
units, or issue slots, are near their rate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from ikp.analysis.explain.counted_work import counted_work
from ikp.analysis.explain.places import where_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import NEAR, nearest, roofs
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

_UNITS: Final = ("issue", "integer", "FMA", "XU", "FP64")
"""Roofs that instructions of arithmetic and control fill."""
_PART: Final = 0.3
"""Part of all instructions from which on one line is named."""


def busy_lines(launch: Prepared) -> Iterator[Finding]:
    """Yield a finding on the line that issues most, at the roof of a unit of arithmetic."""
    work = counted_work(launch)
    near = next((one for one in roofs(launch) if one.name in _UNITS and one.share >= NEAR), None)
    if work is None or near is None:
        return
    counts: dict[str, float] = defaultdict(float)
    for one in work.ranges:
        for each in one.facts.lines:
            counts[each.line] += each.count * one.executions
    if not counts:
        return
    line, count = max(counts.items(), key=lambda item: item[1])
    part = min(count / max(work.total, 1.0), 1.0)
    saved = min(part, 1 - nearest(launch, _UNITS))
    if part < _PART or not enough(launch, saved * launch.duration):
        return
    some = sorted(
        (one for one in work.ranges if any(each.line == line for each in one.facts.lines)),
        key=lambda one: -one.executions,
    )
    unit = "issue slots are" if near.name == "issue" else f"{near.name} units are"
    yield finding(
        launch,
        "busy-lines",
        title=f"{unit} at {100 * min(near.share, 1.0):.0f} % of their rate, and "
        f"{100 * part:.0f} % of all instructions are those of {line.rpartition('/')[2]}",
        number=Number("instructions of the line, of all", part, "share"),
        at_stake=saved * launch.duration,
        without="with none of this line's instructions",
        confidence="possible",
        rationale="counted: the machine code's instructions by source line, times executions. "
        "Refuted if the work needs each of them.",
        where=where_of(launch, some, [line]),
        suggestion="execute the line less often: a search or sum of fewer steps, values that are "
        "kept or made ahead, no work on what is masked or thrown away; or cheaper instructions",
    )
