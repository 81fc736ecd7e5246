"""The critical path of the block that ended last: back from its end, over waits to other warps.

On a warp, the path goes back range by range. Where a wait is joined with the range that it waited
for, the path leaves the wait for that range's warp, at that range's end. The time between, the copy
in flight, counts for the wait. At a barrier among the warps the path goes on with the warp that
came last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.analysis._self_time import owned
from ikp.analysis.explain.activity import Activity
from ikp.analysis.explain.connections import Connection
from ikp.analysis.explain.instances import meetings
from ikp.analysis.explain.prepared import Ints, Prepared
from ikp.analysis.explain.verdict import Step

_STEPS: Final = 20_000
_MOST: Final = 8

Jump = tuple[int, int]
"""The slot that the path goes on with, and when."""


@dataclass(frozen=True, slots=True)
class _Warp:
    """The pieces of one warp's time in order, each with the range that it belongs to."""

    begin: Ints
    end: Ints
    row: NDArray[np.intp]

    def before(self, time: int) -> int:
        """Return the last piece that begins before a moment; -1 for none."""
        return int(np.searchsorted(self.begin, time)) - 1


def critical_path(launch: Prepared, joined: Iterable[Connection]) -> tuple[Step, ...]:
    """Return the parts of the path, the longest first."""
    if not len(launch.region) or not len(launch.block_ids):
        return ()
    block = int(np.argmax(launch.block_end))
    slots = np.flatnonzero(launch.block_of == block)
    warps = {slot: _pieces(launch, slot) for slot in slots.tolist()}
    jumps = _jumps(launch, joined, slots)
    slot = int(slots[np.argmax(launch.end[slots])])
    spent = _walk(launch, warps, jumps, slot, int(launch.block_start[block]))
    whole = max(sum(spent.values()), 1)
    order = sorted(spent.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        Step(launch.groups.names[group], launch.names[region] if region >= 0 else "", took / whole)
        for (group, region), took in order[:_MOST]
    )


def _walk(
    launch: Prepared, warps: dict[int, _Warp], jumps: dict[int, Jump], slot: int, begin: int
) -> dict[tuple[int, int], int]:
    """Return how long the path is in each group and region; -1 for no range."""
    spent: dict[tuple[int, int], int] = {}
    now = int(launch.end[slot])

    def add(region: int, until: int) -> None:
        key = int(launch.groups.of_warp[slot]), region
        spent[key] = spent.get(key, 0) + max(now - max(until, begin), 0)

    for _ in range(_STEPS):
        if now <= begin:
            break
        warp = warps[slot]
        at = warp.before(now)
        if at < 0 or warp.end[at] < now:  # in no range
            until = int(warp.end[at]) if at >= 0 else begin
            add(-1, until)
            now = until
            continue
        row = int(warp.row[at])
        jump = jumps.pop(row, None)  # a wait that was left once is not left again
        if jump is not None and int(warp.begin[at]) < jump[1] <= now:
            add(int(launch.region[row]), jump[1])
            slot, now = jump
            continue
        add(int(launch.region[row]), int(warp.begin[at]))
        now = int(warp.begin[at])
    return spent


def _pieces(launch: Prepared, slot: int) -> _Warp:
    low, high = np.searchsorted(launch.slot, [slot, slot + 1])
    rows = np.arange(low, high)
    rows = rows[launch.took(rows) > 0]
    if not len(rows):
        return _Warp(np.zeros(0, np.int64), np.zeros(0, np.int64), rows)
    time, owner = owned(launch.slot[rows], launch.opens[rows], launch.closes[rows])
    return _Warp(time[0], time[1], rows[owner])


def _jumps(launch: Prepared, joined: Iterable[Connection], slots: Ints) -> dict[int, Jump]:
    """Return the jump from each wait of a block's warps."""
    found: dict[int, Jump] = {}
    for region in launch.regions([Activity.WAIT_BARRIER]).tolist():
        met = meetings(launch, region)
        if met is None:
            continue
        last = met.last_row[met.number]
        here = np.isin(launch.slot[met.rows], slots) & (met.rows != last)
        for row, other in zip(met.rows[here].tolist(), last[here].tolist(), strict=True):
            found[row] = int(launch.slot[other]), int(launch.opens[other])
    for one in joined:
        here = np.isin(launch.slot[one.waits], slots)
        pairs = zip(one.waits[here].tolist(), one.sources[here].tolist(), strict=True)
        for wait, source in pairs:
            found[wait] = int(launch.slot[source]), int(launch.closes[source])
    return found
