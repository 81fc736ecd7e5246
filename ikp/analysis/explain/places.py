"""``where_of``: the place of counted work: its ranges, warps and window, and its source lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis.explain.counted_work import Access, RangeWork
from ikp.analysis.explain.prepared import Ints, Prepared
from ikp.analysis.explain.verdict import Finding, Where
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
