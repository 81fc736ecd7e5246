"""``panel_of``: the warps of some blocks over an interval: each range as a box on a level.

Times count from the launch's first start, in nanoseconds. Of very many ranges, the short ones that
follow each other are one box, which says how many it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ikp.analysis.explain.prepared import Prepared

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]
Interval = tuple[int, int]

MOST_WARPS: Final = 16
_OF_SEVERAL: Final = 8
"""Warps of a panel of several blocks."""
MOST_BOXES: Final = 300
_MOST_LEVELS: Final = 5
"""Ranges that are nested deeper are counted, not drawn."""
_GAPS: Final = 200
"""Short ranges that are less than this part of the interval apart are one box."""


@dataclass(frozen=True, slots=True)
class Box:
    """A range; or several short ones, ``count``, from the first one's start to the last one's end.

    ``own_ns`` is the self time of its ranges by the number of their region, the most first.
    ``level`` counts from the outermost.
    """

    opens: int
    closes: int
    region: int  # of the most self time
    count: int
    own_ns: tuple[tuple[int, int], ...]
    payload: float  # NaN without
    level: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """A warp, from its start to its end, with its boxes in the interval."""

    block: int
    warp: int
    sm: int
    group: str
    start: int
    end: int
    levels: int
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """Warps over an interval, and what of them is left out."""

    begin: int
    end: int
    lanes: tuple[Lane, ...]
    of_warps: int  # of these blocks, that recorded
    deeper: int  # ranges on levels that are not drawn
    merged: int  # ranges that are in boxes with others


def panel_of(
    launch: Prepared, blocks: Sequence[int], interval: Interval, warps: Sequence[tuple[int, int]]
) -> Panel:
    """Return the warps of some blocks over an interval.

    Args:
        launch: the launch.
        blocks: their linear ids, in the order of the panel.
        interval: its begin and end.
        warps: (block, warp) of those that are shown first where there are too many.
    """
    slots, of_warps = _chosen(launch, blocks, warps)
    rows = _rows_within(launch, slots, interval)
    lanes, deeper, merged = [], 0, 0
    made = _boxes(launch, rows, interval)
    for slot in slots.tolist():
        boxes, left = _on_levels(made.get(slot, []))
        deeper += left
        merged += sum(one.count for one in boxes if one.count > 1)
        block, warp = launch.warp(slot)
        lanes.append(
            Lane(
                *(block, warp, int(launch.sm[slot])),
                launch.groups.names[int(launch.groups.of_warp[slot])],
                *(int(launch.start[slot]), int(launch.end[slot])),
                max((one.level + 1 for one in boxes), default=1),
                tuple(boxes),
            )
        )
    order = {block: i for i, block in enumerate(blocks)}
    lanes.sort(key=lambda one: (order[one.block], not one.boxes))
    return Panel(*interval, tuple(lanes), of_warps, deeper, merged)


def slot_of(launch: Prepared, block: int, warp: int) -> int | None:
    """Return the slot of a warp; None where it did not record."""
    slots = launch.trace.slots
    found = np.flatnonzero((slots.block == block) & (slots.warp == warp))
    return int(found[0]) if len(found) else None


def _chosen(
    launch: Prepared, blocks: Sequence[int], warps: Sequence[tuple[int, int]]
) -> tuple[Rows, int]:
    """Return the slots of some blocks, by block, group and warp, and how many there are."""
    slots, count = launch.trace.slots, 0
    most = MOST_WARPS if len(blocks) == 1 else max(1, _OF_SEVERAL // max(1, len(blocks)))
    found = []
    for block in blocks:
        mine = np.flatnonzero(slots.block == block)
        count += len(mine)
        named = np.array([(block, int(slots.warp[one])) in warps for one in mine], bool)
        group = launch.groups.of_warp[mine]
        _, first = np.unique(group, return_index=True)
        alone = np.zeros(len(mine), bool)
        alone[first] = True
        order = np.lexsort((slots.warp[mine], ~alone, ~named))[:most]
        some = mine[order]
        found.append(some[np.lexsort((slots.warp[some], launch.groups.of_warp[some]))])
    return np.concatenate([np.zeros(0, np.intp), *found]), count


def _rows_within(launch: Prepared, slots: Rows, interval: Interval) -> Rows:
    begin, end = interval
    rows = np.concatenate([np.zeros(0, np.intp), *(launch.of_slot(one) for one in slots.tolist())])
    opens = launch.opens[rows]
    there = (opens < end) & (np.maximum(launch.closes[rows], opens + 1) > begin)
    found: Rows = rows[there]
    return found


def _boxes(launch: Prepared, rows: Rows, interval: Interval) -> dict[int, list[Box]]:
    """Return the boxes of each slot, by their start; at most about ``MOST_BOXES``."""
    rows = rows[np.lexsort((-launch.closes[rows], launch.opens[rows], launch.slot[rows]))]
    took = launch.took(rows)
    if len(rows) <= MOST_BOXES:
        first = np.arange(len(rows))
    else:
        longest = len(rows) - MOST_BOXES // 3
        is_long = took > np.partition(took, longest)[longest]
        gap = max(1, (interval[1] - interval[0]) // _GAPS)
        first = _begins(launch, rows, is_long, gap)
        while len(first) > MOST_BOXES and gap < interval[1] - interval[0]:
            gap *= 2
            first = _begins(launch, rows, is_long, gap)
    found: dict[int, list[Box]] = {}
    ends = np.append(first[1:], len(rows))[: len(first)]
    payload = launch.payload(rows)
    for low, high in zip(first.tolist(), ends.tolist(), strict=True):
        mine = rows[low:high]
        own = _own(launch, mine)
        box = Box(
            int(launch.opens[mine[0]]),
            int(launch.closes[mine].max()),
            own[0][0],
            len(mine),
            own,
            float(payload[low]) if len(mine) == 1 else float("nan"),
        )
        found.setdefault(int(launch.slot[mine[0]]), []).append(box)
    return found


def _own(launch: Prepared, rows: Rows) -> tuple[tuple[int, int], ...]:
    """Return (region, self time) of some ranges, the most time first."""
    if len(rows) == 1:
        return ((int(launch.region[rows[0]]), int(launch.own[rows[0]])),)
    regions, place = np.unique(launch.region[rows], return_inverse=True)
    times = np.bincount(place, launch.own[rows])
    order = np.argsort(-times, kind="stable")
    return tuple((int(regions[i]), int(times[i])) for i in order.tolist())


def _begins(launch: Prepared, rows: Rows, is_long: NDArray[Any], gap: int) -> Rows:
    """Return where boxes begin: at each long range, and at short ones behind a gap.

    Where a long range starts or ends, short ones before and behind are apart as well.
    """
    slot, opens, closes = launch.slot[rows], launch.opens[rows], launch.closes[rows]
    key = launch.on_one_axis(slot, opens)
    ends = launch.on_one_axis(slot, closes)
    edges = np.sort(np.concatenate([key[is_long], ends[is_long]]))
    passed = np.searchsorted(edges, key, side="right")
    until = np.maximum.accumulate(np.where(is_long, -1, ends))
    new = np.ones(len(rows), bool)
    new[1:] = is_long[1:] | is_long[:-1] | (slot[1:] != slot[:-1])
    new[1:] |= (passed[1:] != passed[:-1]) | (key[1:] > until[:-1] + gap)
    return np.flatnonzero(new)


def _on_levels(boxes: list[Box]) -> tuple[list[Box], int]:
    """Return boxes on the first level that is free at their start, and how many ranges had none."""
    free_from = [-1] * _MOST_LEVELS
    found, deeper = [], 0
    for one in boxes:
        level = next((i for i, end in enumerate(free_from) if end <= one.opens), None)
        if level is None:
            deeper += one.count
            continue
        free_from[level] = one.closes
        found.append(replace(one, level=level))
    return found, deeper
