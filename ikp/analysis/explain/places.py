"""``where_of``: the place of counted work: its ranges, warps and window, and its source lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from ikp.analysis.explain.counted_work import Access, RangeWork
from ikp.analysis.explain.prepared import Prepared
from ikp.analysis.explain.verdict import Where

_MOST: Final = 3


def where_of(launch: Prepared, ranges: Iterable[RangeWork], lines: Iterable[str] = ()) -> Where:
    """Return where some ranges are.

    Args:
        launch: the launch.
        ranges: the ranges, the most important first.
        lines: source lines, the most important first; without, those of the ranges.
    """
    some = list({one.name: one for one in ranges}.values())
    names = [one.name for one in some]
    found = [line for line in lines if line] or [one.facts.line for one in some if one.facts.line]
    regions = [i for i, name in enumerate(launch.names) if name in names and launch.counts[i]]
    rows = launch.of_region(regions) if regions else np.zeros(0, np.intp)
    return Where(
        regions=tuple(names[:_MOST]),
        warps=launch.warps(rows),
        window_ns=launch.window(rows),
        count=len(rows),
        lines=tuple(dict.fromkeys(found))[:_MOST],
    )


def where_of_accesses(launch: Prepared, accesses: Sequence[Access]) -> Where:
    """Return where some accesses are, the most important first: their ranges and their lines."""
    ranges = [one for one, _, _ in accesses]
    return where_of(launch, ranges, [access.line for _, access, _ in accesses])


def self_time(launch: Prepared, one: RangeWork, kernel: str) -> float:
    """Return the self time of a range; of the kernel's own code, the time in no range."""
    if one.name in launch.names and launch.counts[launch.names.index(one.name)]:
        return float(launch.own_by_region[launch.names.index(one.name)])
    if one.name == kernel:
        return float(launch.warp_time - launch.inside.sum())
    return 0.0
