"""A snapshot as text: warps by the range that they are in, those first that are longest in it."""

from __future__ import annotations

from collections import defaultdict

from ikp.analysis.render import duration
from ikp.analysis.snapshot import Snapshot, WarpPlace

_MOST = 12
"""Lines of one launch."""


def as_text(snapshot: Snapshot) -> str:
    """Return a few lines for each launch label."""
    by_launch: defaultdict[str, list[WarpPlace]] = defaultdict(list)
    for each in snapshot.warps:
        by_launch[each.launch].append(each)
    if not by_launch:
        return "no kernel has begun to record"
    return "\n".join(line for label, warps in by_launch.items() for line in _lines(label, warps))


def _lines(label: str, warps: list[WarpPlace]) -> list[str]:
    running = [each for each in warps if not each.finished]
    records, dropped = sum(each.records for each in warps), sum(each.dropped for each in warps)
    head = (
        f"{label}: {len(running)} of {len(warps)} warps run, {records} records, {dropped} dropped"
    )
    groups: defaultdict[str, list[WarpPlace]] = defaultdict(list)
    for each in running:
        groups[_place(each)].append(each)
    longest = {place: max(some, key=lambda one: one.for_ns) for place, some in groups.items()}
    order = sorted(groups, key=lambda place: -longest[place].for_ns)
    lines = [
        f"  {len(groups[place])} {place}: {_range(groups[place])}, longest block "
        f"{longest[place].block} warp {longest[place].warp} (SM {longest[place].sm})"
        for place in order[:_MOST]
    ]
    more = len(order) - _MOST
    return [head, *lines, *([f"  and {more} more places"] if more > 0 else [])]


def _place(warp: WarpPlace) -> str:
    if warp.open:
        return f"in {warp.open!r}"
    return f"in no range, last in {warp.last!r}" if warp.last else "in no range, nothing recorded"


def _range(warps: list[WarpPlace]) -> str:
    """Return for how long some warps have been where they are."""
    times = [each.for_ns for each in warps]
    least, most = duration(min(times)), duration(max(times))
    return f"for {most}" if least == most else f"for {least} to {most}"
