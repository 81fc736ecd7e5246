"""``place_of_finding``: where a finding of a trace's verdict lies, for ``ikp view --finding``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ikp.analysis.render import duration
from ikp.core.warps import launch_bounds
from ikp.errors import UsageError

if TYPE_CHECKING:
    from ikp.analysis.explain.verdict import Finding, Verdict
    from ikp.core.trace import Trace
    from ikp.exporters.perfetto.first_look import Place


@dataclass(frozen=True, slots=True)
class FoundPlace:
    """A finding's launch, by its number in the file; its place; a line for the user."""

    launch: int
    place: Place
    words: str


def place_of_finding(path: Path, number: int, launch: str | None) -> FoundPlace:
    """Return where a finding lies: the window, block or launch that it names.

    Args:
        path: a trace that ikp wrote as .pftrace.
        number: of the finding, from 1, as ``ikp explain`` prints it.
        launch: which launch, as ``ikp explain --launch`` takes it.

    Raises:
        ExportError: the file can't be read.
        UsageError: there is no such finding, or no such launch.
    """
    from ikp.analysis.explain.explaining import explain
    from ikp.exporters.perfetto.first_look import Place
    from ikp.trace import load

    trace = load(path)
    verdict = explain(trace, int(launch) if launch and launch.isdecimal() else launch)
    if verdict.launch is None or not 1 <= number <= len(verdict.findings):
        raise UsageError(f"{path} has no finding {number}: {_there_are(verdict)}")
    one = verdict.findings[number - 1]
    start, end, sm, what = _span(trace, verdict.launch.index, one)
    words = f"It opens on finding {number}, {what}: {one.title}."
    warp = next(iter(one.where.warps), None)
    place = Place(f"finding {number}", f"{one.title} [{one.id}]", start, end, sm, warp)
    return FoundPlace(verdict.launch.index, place, words)


def _there_are(verdict: Verdict) -> str:
    if verdict.launch is None:
        return "nothing in it can be explained. See `ikp explain`."
    count = len(verdict.findings)
    of = f"its verdict on {verdict.launch.label} has {count or 'none'}"
    return f"{of}{', from 1' if count else ''}. `ikp explain` lists them."


def _span(trace: Trace, launch: int, one: Finding) -> tuple[int, int, int | None, str]:
    """Return a finding's start and end in Unix ns, its SM, and what they are of."""
    slots, where = trace.slots, one.where
    mine = slots.launch == launch
    firsts, lasts = launch_bounds(trace)
    zero, over = int(firsts[launch]), int(lasts[launch])
    block = mine & (slots.block == where.warps[0][0]) if where.warps else np.zeros_like(mine)
    sm = int(slots.sm[block][0]) if block.any() else next(iter(where.sms), None)
    if where.window_ns is not None:
        low, high = where.window_ns
        said = f"from {duration(low)} to {duration(high)} of the launch"
        return zero + low, zero + max(high, low + 1), sm, said
    if block.any():
        start, end = int(slots.start_ns[block].min()), int(slots.end_ns[block].max())
        return start, max(end, start + 1), sm, f"block {where.warps[0][0]}"
    return zero, max(over, zero + 1), sm, "which is about the whole launch"
