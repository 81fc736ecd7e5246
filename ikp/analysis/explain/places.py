"""Places in a kernel: where counted work is (``where_of``), and where warps spend time
(``hot_code``).

Of a range whose time goes into loops of unknown trips, one iteration of these counts as hot code:
how often they go round is not known, but what each unit has of their instructions is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.explain.counted_work import Access, CountedWork, RangeWork, counted_work
from ikp.analysis.explain.peaks import latency
from ikp.analysis.explain.prepared import Ints, Prepared
from ikp.analysis.explain.verdict import Finding, HotCode, Where
from ikp.core.code_facts import LineFacts
from ikp.core.excess_facts import ExtraWork

_MOST: Final = 3
_IN_NAME: Final = re.compile(r"@([^\s@]+?\.\w+:\d+)")
"""The file and line in the name of an automatic range: ``wait @matmul.py:93+95``."""


def where_of(launch: Prepared, ranges: Iterable[RangeWork], lines: Iterable[str] = ()) -> Where:
    """Return where some ranges are.

    Args:
        launch: the launch.
        ranges: the ranges, the most important first.
        lines: source lines, the most important first; without, those of the ranges.
    """
    some = {one.name: one for one in ranges}
    names = [*some]
    found = [*filter(None, lines)] or [*filter(None, (one.facts.line for one in some.values()))]
    regions = [i for i in np.flatnonzero(launch.counts).tolist() if launch.names[i] in some]
    rows = launch.of_region(regions) if regions else np.zeros(0, np.intp)
    lines = tuple(dict.fromkeys(found))[:_MOST]
    return where_of_rows(launch, rows, tuple(names[:_MOST]), lines=lines)


def where_of_rows(
    launch: Prepared,
    rows: NDArray[np.intp],
    regions: tuple[str, ...],
    *,
    roles: tuple[str, ...] = (),
    lines: tuple[str, ...] = (),
) -> Where:
    """Return where some recorded ranges are: the example among them, and the longest.

    Args:
        launch: the launch.
        rows: the ranges.
        regions: names of their regions, the most important first.
        roles: the roles of their warps.
        lines: source lines, the most important first.
    """
    return Where(
        regions=regions,
        roles=roles,
        warps=launch.warps(rows),
        window_ns=launch.window(rows),
        count=len(rows),
        lines=lines,
    )


def where_of_blocks(blocks: Ints, sms: Ints, window_ns: tuple[int, int], count: int) -> Where:
    """Return where some blocks are, the most important first: their first warps, and their SMs.

    Args:
        blocks: linear ids of blocks.
        sms: the SM of each.
        window_ns: since the launch's begin.
        count: of all blocks, or SMs, that are meant.
    """
    return Where(
        warps=tuple((block, 0) for block in blocks.tolist()),
        sms=tuple(dict.fromkeys(sms.tolist())),
        window_ns=window_ns,
        count=count,
    )


def where_of_extra(launch: Prepared, some: Sequence[tuple[RangeWork, ExtraWork]]) -> Where:
    """Return where some extra work is, the most important first: its ranges and its lines."""
    return where_of(launch, [one for one, _ in some], [each.line for _, each in some])


def where_of_accesses(launch: Prepared, accesses: Sequence[Access]) -> Where:
    """Return where some accesses are, the most important first: their ranges and their lines."""
    ranges = [one for one, _, _ in accesses]
    return where_of(launch, ranges, [access.line for _, access, _ in accesses])


def with_lines(launch: Prepared, finding: Finding) -> Finding:
    """Return a finding with the source lines of its regions, where it has none yet.

    With the path where the trace has facts of the machine code; else as the regions' names say.
    """
    where = finding.where
    if where.lines or not where.regions:
        return finding
    lines = dict.fromkeys(_line(launch, name) for name in where.regions)
    return replace(finding, where=replace(where, lines=tuple(filter(None, lines))[:_MOST]))


def with_line_of_blocks(launch: Prepared, finding: Finding) -> Finding:
    """Return a finding about blocks with the source line of the range with most of their time.

    Of ranges inside each other that is the outermost; the kernel's own range says nothing, and does
    not count. A finding that has lines or regions is left as it is, and one that names no block.
    """
    where, label = finding.where, launch.launch.label
    if where.lines or where.regions or not where.warps:
        return finding
    for region in np.argsort(-launch.took_by_region, kind="stable").tolist():
        name = launch.names[region]
        if launch.counts[region] and name != label and not name.startswith(f"{label} @"):
            line = _line(launch, name)
            return replace(finding, where=replace(where, lines=(line,))) if line else finding
    return finding


def _line(launch: Prepared, name: str) -> str:
    facts = launch.facts.ranges.get(name) if launch.facts is not None else None
    if facts is not None and facts.line:
        return facts.line
    found = _IN_NAME.search(name)
    return found[1] if found else ""


def short_line(line: str, otherwise: str = "") -> str:
    """Return a source line by its file's own name, ``matmul.py:93``; another text for none."""
    return line.rpartition("/")[2] or otherwise


def time_in(launch: Prepared, ranges: Iterable[RangeWork], kernel: str) -> float:
    """Return the self time of some ranges together, each counted once."""
    return sum(self_time(launch, one, kernel) for one in {one.name: one for one in ranges}.values())


def share_of_time(launch: Prepared, ranges: Iterable[RangeWork], kernel: str) -> float:
    """Return the part of the warps' time that is self time of some ranges, each counted once."""
    return time_in(launch, ranges, kernel) / max(launch.warp_time, 1)


def self_time(launch: Prepared, one: RangeWork, kernel: str) -> float:
    """Return the self time of a range; of the kernel's own code, the time in no range."""
    if one.name in launch.names and launch.counts[launch.names.index(one.name)]:
        return float(launch.own_by_region[launch.names.index(one.name)])
    if one.name == kernel:
        return float(launch.warp_time - launch.inside.sum())
    return 0.0


_SEVERAL: Final = 8.0
"""Instructions in loops of unknown trips from which on these loops are the range's time. And those
of a range from which on they say anything: a wait is one."""
_MOST_HOT: Final = 3
_UNITS: Final = 7
_LINES: Final = 3
_LEAST: Final = 0.05
"""Share of the warps' time below which code is not hot."""


@dataclass(frozen=True, slots=True)
class Hot:
    """A range with time of its own.

    ``mix`` has its instructions by unit, of one execution; of one iteration where ``looped``.
    """

    work: RangeWork
    share: float  # of the warps' time
    mix: Mapping[str, float]
    looped: bool  # its time is in loops of unknown trips

    @property
    def total(self) -> float:
        """All instructions of the mix."""
        return sum(self.mix.values())

    def part(self, chosen: Callable[[str], bool]) -> float:
        """Return the part of the time for which instructions of chosen units hold a warp up."""
        held = sum(count * latency(unit) for unit, count in self.mix.items() if chosen(unit))
        return held / self._held

    def part_of_lines(self, lines: Iterable[LineFacts]) -> float:
        """Return the same for arithmetic of some source lines."""
        counts = (each.looped if self.looped else each.count for each in lines)
        return min(sum(counts) * latency("integer") / self._held, 1.0)

    @property
    def _held(self) -> float:
        return max(sum(count * latency(unit) for unit, count in self.mix.items()), 1.0)


def hot_ranges(launch: Prepared, work: CountedWork) -> list[Hot]:
    """Return the ranges whose own code takes time, those with the most first."""
    whole = max(launch.warp_time, 1)
    found = []
    for one in work.ranges:
        share = self_time(launch, one, work.kernel) / whole
        if share >= _LEAST:
            looped = sum(one.uncounted.values()) >= _SEVERAL
            found.append(Hot(one, share, one.uncounted if looped else one.once, looped))
    return sorted(found, key=lambda each: -each.share)


def laid_to(launch: Prepared, work: CountedWork, chosen: Callable[[str], bool]) -> float:
    """Return the part of the warps' time that instructions of chosen units hold warps up for.

    The time of each range is laid to its instructions by their latencies.
    """
    return sum(one.share * one.part(chosen) for one in hot_ranges(launch, work))


def hot_code(launch: Prepared) -> tuple[HotCode, ...]:
    """Return the hottest code of a launch for its verdict; none if not counted."""
    work = counted_work(launch)
    some = [one for one in hot_ranges(launch, work) if one.total >= _SEVERAL] if work else []
    return tuple(map(_described, some[:_MOST_HOT]))


def _described(one: Hot) -> HotCode:
    lines = {
        each.line: each.looped if one.looped else each.count
        for each in one.work.facts.lines
        if (each.looped if one.looped else each.count) >= 1
    }
    return HotCode(
        one.work.name,
        one.share,
        "iteration" if one.looped else "execution",
        one.total,
        _largest(one.mix, _UNITS),
        tuple((short_line(line), count) for line, count in _largest(lines, _LINES)),
    )


def _largest(counts: Mapping[str, float], most: int) -> tuple[tuple[str, float], ...]:
    """Return the largest counts, with their names."""
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple((name, round(count, 1)) for name, count in order[:most] if count)
