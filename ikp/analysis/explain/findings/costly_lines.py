"""Findings by lines' time: ``costly-line``, ``slow-arithmetic``, ``unused-random-numbers``.

A kernel is there to load, multiply, add and store. By-work goes beside that: checks and selections,
bits of integers, transcendental functions, votes, reads of a clock. Where one line spends a large
part of the warps' time on by-work, a change of that line wins its time, as far as no roof holds the
rest up. Address arithmetic and branches do not count: every loop has them, and what waits shows
there.

Lines with divisions, roots and powers, and those of Triton's random numbers, are findings by the
time of their arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ikp.analysis.explain.counted_work import GUESS, CountedWork, if_counted
from ikp.analysis.explain.findings.needless_instructions import UNITS
from ikp.analysis.explain.findings.slow_instructions import REMEDIES, slow_arithmetic
from ikp.analysis.explain.line_costs import LineCost, line_costs
from ikp.analysis.explain.places import short_line, where_of
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.roofs import nearest, share_of
from ikp.analysis.explain.stakes import enough, finding
from ikp.analysis.explain.verdict import Finding, Number

_LEAST: Final = 0.25
"""Part of the warps' time from which on such work of a line is a cause: of 60 kernels that others
wrote, two have it, a sort and a cipher."""
_WORTH: Final = 0.1
"""Least part of the launch that such a finding wins: of less, results may need the work."""
_MOSTLY: Final = 0.5
"""Part of a line's time that such work is, at least: of others it is a part of what they are for.
"""
_BUSY: Final = 0.3
"""Share of a roof of instructions below which a warp's time is latency, of any code."""


@dataclass(frozen=True, slots=True)
class _Work:
    words: str  # "comparisons and selections"
    suggestion: str


_CONVERSIONS: Final = _Work(
    "conversions",
    "convert once, ahead of the loop, or keep the number in the type that the arithmetic has",
)
_KINDS: Final = {
    "compare": _Work(
        "comparisons and selections",
        "check less often: drop tests that always hold, or test once, behind the loop or on the "
        "result; end the loop where the condition does, in place of a selection in each step",
    ),
    "integer": _Work(
        "integer arithmetic",
        "do it once: hoist what no iteration changes, step an index by an addition in place of "
        "working it out, use an instruction of the hardware for bits (popc, brev, prmt, dp4a)",
    ),
    "conversions": _CONVERSIONS,
    "convert": _CONVERSIONS,
    "xu": _Work(
        "transcendental functions",
        "multiply in place of adding logarithms, compute a value once and keep it, or use a "
        "function of fewer instructions",
    ),
    "clock": _Work("reads of the clock", "take the timing out of the loop"),
    "vote": _Work("votes", "vote once, outside of the loop, or branch without asking other lanes"),
    "moves": _Work("moves", "keep values in place: no copies between arrays, no swaps"),
}


_LIBRARY: Final = "/triton/"
"""In the path of lines of Triton's own library: a sort, or a reduction, is as it is."""


@if_counted
def costly_lines(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on the line whose by-work takes most of the time, and on slow functions."""
    yield from _slow_functions(launch, work)
    yield from _random_numbers(launch, work)
    if share_of(launch, "issue", "integer", "XU") < _BUSY:
        return
    some = [
        one
        for one in line_costs(launch)
        if one.share_of(_KINDS) >= _MOSTLY * one.share and _LIBRARY not in one.line
    ]
    first = max(some, key=lambda one: one.share_of(_KINDS), default=None)
    if first is None or first.share_of(_KINDS) < _LEAST:
        return
    gone = first.count_of(_KINDS) / max(work.total, first.count, 1.0)
    saved = min(first.share_of(_KINDS), 1 - nearest(launch, UNITS), 1 - nearest(launch, (), gone))
    if enough(launch, saved * launch.duration, _WORTH):
        yield _of_line(launch, first, gone, saved)


_FUNCTIONS: Final = 0.3
"""Part of the warps' time from which on lines with slow functions are a cause: of 60 kernels that
others wrote, one has it, whose shared memory is at its roof."""
_FASTER: Final = 0.6
"""Part of the time of such lines that goes with the functions."""
_BESIDE: Final = (
    *("load", "store", "copy", "atomic", "tensor", "branch", "barrier", "wait", "fence"),
    "shuffle",
)
"""What such lines do beside their arithmetic, by how its kinds begin."""


def _slow_functions(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on divisions, roots and powers by the time of their lines' arithmetic."""
    some = _lines_of_functions(launch)
    share = sum(one.share_of(kinds) for one, kinds in some)
    if share < _FUNCTIONS:
        return
    gone = sum(one.count_of(kinds) for one, kinds in some) / max(work.total, 1.0)
    gone = min(_FASTER * gone, 1.0)
    saved = min(_FASTER * share, 1 - nearest(launch, UNITS), 1 - nearest(launch, (), gone))
    if not enough(launch, saved * launch.duration, _WORTH) or _are_found(launch):
        return
    first = some[0][0]
    names = sorted(first.slow)
    yield finding(
        launch,
        "slow-arithmetic",
        title=f"{short_line(first.line)} calculates {' and '.join(f'{name}s' for name in names)}: "
        f"the arithmetic of such lines takes {100 * share:.0f} % of the warps' time",
        number=Number("arithmetic of such lines, of the warps' time", share, "share"),
        at_stake=saved * launch.duration,
        without="with faster ones, or with fewer",
        confidence="likely",
        rationale="counted: instructions of lines with such functions, which a compiler expands "
        "into tens of instructions each, by how long each holds a warp up; recorded: the time of "
        "their code. Refuted if results need each of them.",
        where=where_of(launch, first.ranges, [one.line for one, _ in some]),
        suggestion=" ".join(dict.fromkeys(REMEDIES[name] for name in names if name in REMEDIES)),
    )


def _lines_of_functions(launch: Prepared) -> list[tuple[LineCost, frozenset[str]]]:
    """Return the lines with slow functions and the kinds of their arithmetic, the costliest first.

    Without those that do no arithmetic.
    """
    some = [(one, _arithmetic(one)) for one in line_costs(launch) if one.slow]
    return sorted(((one, kinds) for one, kinds in some if kinds), key=_share_of)


_RANDOM: Final = "/triton/language/random.py:"
_DRAWN: Final = 0.2
"""Part of the warps' time from which on random numbers are a cause."""


def _random_numbers(launch: Prepared, work: CountedWork) -> Iterator[Finding]:
    """Yield a finding on the lines of Triton's own library that make random numbers."""
    some = [one for one in line_costs(launch) if _RANDOM in one.line]
    share = sum(one.share for one in some)
    if share < _DRAWN:
        return
    gone = min(sum(one.count for one in some) / max(work.total, 1.0), 1.0)
    saved = min(share, 1 - nearest(launch, UNITS), 1 - nearest(launch, (), gone))
    if not enough(launch, saved * launch.duration, _WORTH):
        return
    ranges = some[0].ranges
    yield finding(
        launch,
        "unused-random-numbers",
        title=f"random numbers (tl.rand, tl.randint) take {100 * share:.0f} % of the warps' time, "
        f"most of it in {ranges[0].name}: {100 * gone:.0f} % of all instructions",
        number=Number("instructions of random numbers, of all", gone, "share"),
        at_stake=saved * launch.duration,
        without="without random numbers",
        confidence="likely",
        rationale="counted: instructions of the library's lines, by how long each holds a warp up. "
        "Refuted if each number decides a result.",
        where=where_of(launch, ranges),
        suggestion="draw none where nothing depends on them (a dropout of probability 0: switch it "
        "off by a tl.constexpr); four at a time (tl.rand4x); fewer rounds (n_rounds=)",
    )


def _are_found(launch: Prepared) -> bool:
    """Whether slow functions are a cause by the instructions that they are, too."""
    return any(
        one.id == "slow-arithmetic" and one.confidence == "likely"
        for one in slow_arithmetic(launch)
    )


def _arithmetic(one: LineCost) -> frozenset[str]:
    """Return the kinds of a line's instructions that its functions may be made of."""
    return frozenset(kind for kind in one.parts if not kind.startswith(_BESIDE))


def _share_of(pair: tuple[LineCost, frozenset[str]]) -> float:
    return -pair[0].share_of(pair[1])


def _of_line(launch: Prepared, one: LineCost, gone: float, saved: float) -> Finding:
    kind = max(_KINDS, key=lambda each: one.parts.get(each, 0.0))
    words = _KINDS[kind]
    each, of = _each(one, kind)
    place = short_line(one.line, one.ranges[0].name)
    return finding(
        launch,
        "costly-line",
        title=f"{place} takes {100 * one.share_of(_KINDS):.0f} % of the warps' time for "
        f"{words.words}: {each:,.0f} in each {of} of {one.ranges[0].name}, with what goes with "
        f"them {100 * gone:.0f} % of all instructions",
        number=Number("such instructions of the line, of all", gone, "share"),
        at_stake=saved * launch.duration,
        without="without this line's " + words.words,
        confidence="likely",
        rationale="counted: the line's instructions by what they do, by how long each holds a warp "
        "up, and how often its code ran; recorded: the time of that code. Refuted if results need "
        "each of them.",
        where=where_of(launch, one.ranges, [one.line]),
        suggestion=words.suggestion,
    )


def _each(one: LineCost, kind: str) -> tuple[float, str]:
    """Return how many instructions of a kind a line has in the range with most of its time.

    In each execution of it; in loops of unknown trips, which count as ``GUESS``, in each iteration.
    """
    some = [line for line in one.ranges[0].facts.lines if line.line == one.line]
    each = sum(line.parts.get(kind, 0.0) for line in some)
    looped = any(line.looped > line.count for line in some)
    return (each / GUESS, "iteration in code") if looped else (each, "execution")
