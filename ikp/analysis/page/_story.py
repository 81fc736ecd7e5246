"""The top of a page: the kernels by time, and what was found in the one that took longest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ikp.analysis.explain.explaining import explained
from ikp.analysis.kernel_times import kernel_times
from ikp.analysis.page._finding import (
    MOST_DRAWN,
    FindingPart,
    Side,
    finding_part,
    median_block,
)
from ikp.analysis.page._longest import labels_by_time, median_launch
from ikp.analysis.page._picture import Picture
from ikp.analysis.render import duration
from ikp.terminal import printable

if TYPE_CHECKING:
    from ikp.analysis.explain.prepared import Prepared
    from ikp.analysis.explain.verdict import Finding, Group, Launched, Verdict
    from ikp.core.trace import Trace

_MOST_ROWS: Final = 50
_MOST_GONE: Final = 2
_MOST_RECTS: Final = 2000
"""Of 150 bytes each: no finding is drawn behind that one which reaches it."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A kernel among those of the trace; ``place`` is its part of the page, from 1; 0 for none."""

    label: str
    place: int
    share: float
    cells: list[str]  # total, share, launches, shortest, longest


@dataclass(frozen=True, slots=True)
class Ranking:
    """The kernels by the time of all their launches, and what is left out."""

    rows: list[KernelRow]
    more: str


@dataclass(frozen=True, slots=True)
class Story:
    """What was found in the launch of a verdict."""

    label: str  # "" where there is no launch
    launch: str  # which, in words
    nothing: str  # in place of findings
    findings: list[FindingPart]
    gone: list[FindingPart]  # found before, and not any more
    usual: list[Picture]  # where no finding is drawn: a block of median duration
    usual_undrawn: str
    groups: list[tuple[str, list[str]]]
    unknown: list[str]


def ranking_of(trace: Trace, shown: Sequence[str]) -> Ranking:
    """Return the kernels of a trace by time; ``shown`` are the labels of the page's parts."""
    times = kernel_times(trace)
    whole = max(1, sum(one.total_ns for one in times))
    places = {label: i for i, label in enumerate(shown, 1)}
    rows = [
        KernelRow(
            one.label,
            places.get(one.label, 0),
            one.total_ns / whole,
            [
                duration(one.total_ns),
                f"{100 * one.total_ns / whole:.1f} %",
                f"{one.launches:,}",
                duration(one.min_ns),
                duration(one.max_ns),
            ],
        )
        for one in times[:_MOST_ROWS]
    ]
    rest = times[_MOST_ROWS:]
    share = 100 * sum(one.total_ns for one in rest) / whole
    return Ranking(rows, f"and {len(rest):,} more, {share:.1f} % together" if rest else "")


def _gone(earlier: Verdict | None, verdict: Verdict) -> list[Finding]:
    """Return findings on the trace before that the other one no longer has."""
    there = {one.id for one in verdict.every}
    every = () if earlier is None else earlier.every
    return [one for one in every if one.id not in there][:_MOST_GONE]


def _by_id(verdict: Verdict | None) -> dict[str, Finding]:
    """Return the first finding of each id; nothing without a verdict."""
    return {one.id: one for one in reversed(verdict.every)} if verdict else {}


def _which(launch: Launched) -> str:
    """Return how long a launch took, where, and which of its label it is."""
    which = f", launch {launch.index}, the median of {launch.launches:,}"
    said = f"{duration(launch.duration_ns)} on {printable(launch.device)}"
    return said + which * (launch.launches > 1)


def story_of(trace: Trace, before: Trace | None, *, sources: bool) -> Story:
    """Return what was found in the kernel that took longest, drawn beside the trace before."""
    verdict, launch = explained(trace)
    unknown = [f"{one.what}: {one.rationale} {one.mark}".strip() for one in verdict.unknown]
    if verdict.launch is None or launch is None:
        return Story("", "", "No launch can be explained.", [], [], [], "", [], unknown)
    earlier, theirs = _same_kernel(before, verdict.launch.label)
    side = Side("" if theirs is None else "after", launch)
    other = None if theirs is None else Side("before", theirs)
    drawer = _Drawer(sources)
    were = _by_id(earlier)
    findings = [drawer.part(one, side, other, was=were.get(one.id)) for one in verdict.every]
    lost = _gone(earlier, verdict)
    left = [drawer.part(one, other, side) for one in lost] if other is not None else []
    drawn = any(one.pictures for one in (*findings, *left))
    usual, undrawn = ([], "") if drawn else median_block(side, other)
    return Story(
        verdict.launch.label,
        _which(verdict.launch),
        _nothing(verdict),
        findings,
        left,
        usual,
        undrawn,
        [(one.name, _cells(one)) for one in verdict.groups] if len(verdict.groups) > 1 else [],
        unknown,
    )


@dataclass(slots=True)
class _Drawer:
    """Makes parts of findings, and draws them until the page would grow too large."""

    sources: bool
    found: int = 0
    rects: int = 0

    def part(
        self, finding: Finding, side: Side, other: Side | None, *, was: Finding | None = None
    ) -> FindingPart:
        draw = self.found < MOST_DRAWN and self.rects < _MOST_RECTS
        part = finding_part(finding, side, other, was=was, draw=draw, sources=self.sources)
        self.found += bool(part.pictures)
        self.rects += sum(max(1, len(one.parts)) for each in part.pictures for one in each.rects)
        return part


def _same_kernel(before: Trace | None, label: str) -> tuple[Verdict | None, Prepared | None]:
    """Return the verdict on the kernel of that label, and its launch; None where there is none."""
    if before is None or label not in labels_by_time(before):
        return None, None
    return explained(before, median_launch(before, label)[0])


def _nothing(verdict: Verdict) -> str:
    if verdict.every:
        return ""
    if verdict.launch is not None and verdict.launch.sms is None:
        return "No cause is looked for: the times are the interpreter's, on the CPU."
    return "No cause was found that a change could win 3 % by, as far as is known."


def _cells(one: Group) -> list[str]:
    shares = one.busy_share, one.waiting_share, one.in_no_range_share
    return [f"{one.warps:,}", *(f"{100 * share:.0f} %" for share in shares)]
