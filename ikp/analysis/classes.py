"""A table of many regions as one to read: regions whose names differ in numbers alone are one row.

A megakernel may have a region for each of 50,000 tasks. Its table has a row ``task *``, whose name
is the pattern that chooses these regions. The data, JSON and CSV have each row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from ikp.analysis.evidence import plural

if TYPE_CHECKING:
    from ikp.analysis.stats import RegionStats, Stats

MOST: Final = 100
"""The most rows of one launch label that are shown as they are."""
_NUMBER: Final = re.compile(r"\d+")
_SUMS: Final = ("count", "total_ns", "self_ns", "share", "self_share", "total_cycles")
_PERCENTILES: Final = ("p50_ns", "p95_ns", "p99_ns", "p50_cycles", "p95_cycles")


def pattern(name: str) -> str:
    """Return the pattern of all names that differ from a name in its numbers: ``"task *"``."""
    if not _NUMBER.search(name):
        return name
    made = _NUMBER.sub("*", name.replace("[", "[[]"))
    return f"[0-9]{made}" if made.startswith("*") else made  # else it would choose all names


def readable(stats: Stats) -> Stats:
    """Return a table with at most ``MOST`` rows for each launch label, the largest by their total.

    A table whose rows were chosen, or that is of ranks, blocks or others apart, is returned as it
    is. Sums, means, least and most of a row of several regions are exact; it has no percentiles.
    """
    labels: dict[str, list[RegionStats]] = {}
    for row in stats.rows:
        labels.setdefault(row.launch, []).append(row)
    many = {label for label, rows in labels.items() if len(rows) > MOST}
    if stats.chosen or not many or any(row.group for row in stats.rows):
        return stats
    shown: list[RegionStats] = []
    notes = []
    for label, rows in labels.items():
        kept = _classes(rows)[:MOST] if label in many else rows
        shown += kept
        if label in many:
            notes.append(
                f"{label}: {plural(len(rows), 'row')} in {len(kept)}: regions whose names differ "
                "in numbers are one, without percentiles, and the largest are shown. --top 20 has "
                "single ones, JSON and CSV all."
            )
    return replace(stats, rows=tuple(shown), about=(*notes, *stats.about), histograms=())


def _classes(rows: Iterable[RegionStats]) -> list[RegionStats]:
    """Return a row for each pattern of names, the largest first."""
    found: dict[tuple[str, str], list[RegionStats]] = {}
    for row in rows:
        found.setdefault((pattern(row.region), row.kind), []).append(row)
    made = [
        some[0] if len(some) == 1 else _together(name, some) for (name, _), some in found.items()
    ]
    return sorted(made, key=lambda row: -(row.total_ns or 0))


def _together(name: str, rows: list[RegionStats]) -> RegionStats:
    """Return one row for several; figures that one of them lacks are None."""

    def over(figure: str, of: Any) -> Any:
        values = list(map(attrgetter(figure), rows))
        return None if None in values else of(values)

    sums: dict[str, Any] = {figure: over(figure, sum) for figure in _SUMS}
    for unit in ("ns", "cycles"):
        whole = sums[f"total_{unit}"]
        sums[f"mean_{unit}"] = None if whole is None else whole / sums["count"]
    sums |= {"min_ns": over("min_ns", min), "max_ns": over("max_ns", max)}
    sums |= dict.fromkeys(_PERCENTILES)
    return replace(rows[0], region=name, **sums)
