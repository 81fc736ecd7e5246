"""The tree of regions (``tree``): which range each range lies in, and the time of each path.

Level by level, from the outermost: a range at depth d lies in the last range at depth d - 1 that
opened before it on its warp. Where ranges overlap without nesting, a range that does not lie inside
that one lies in none. Where all nest, it is the next one at depth d - 1 to end, and nothing is
sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ikp.analysis._self_time import moments, nested_depths, whole_slots
from ikp.analysis.explain.prepared import Ints, Prepared
from ikp.analysis.explain.verdict import Branch
from ikp.core.sorting import numbered, sum_by

_MOST: int = 12
_DEEPEST: int = 24
"""Levels that are distinguished; ranges that lie deeper count for the last of them."""
_WORD: int = 1 << 62  # of a number that is a slot and a time of it


def tree(launch: Prepared) -> Iterator[Branch]:
    """Yield the branches with the most time, each with the path to it, as a tree is read."""
    if not len(launch.region) or not launch.warp_time:
        return
    paths = _joined([_counted(launch, rows) for rows in whole_slots(launch.slot)], launch)
    parents = paths.parent.tolist()
    for i in sorted(
        np.argsort(-paths.took, kind="stable")[:_MOST].tolist(),
        key=lambda i: _order(i, parents, paths.took),
    ):
        yield Branch(
            _names(launch, i, parents, paths.region),
            int(paths.count[i]),
            float(paths.took[i]) / launch.warp_time,
            float(paths.own[i]) / launch.warp_time,
        )


@dataclass(frozen=True, slots=True)
class _Paths:
    """One row per path: its parent's row (-1 for none), its region, and sums of its ranges."""

    parent: Ints
    region: Ints
    count: Ints
    took: Ints
    own: Ints


def _joined(parts: list[list[_Paths]], launch: Prepared) -> _Paths:
    """Return the paths of all parts, level by level, and in a level by parent and region.

    In a part, parents are rows of the level above.
    """
    regions, found, before = len(launch.names), list[_Paths](), 0
    rows = [np.zeros(0, np.int64)] * len(parts)  # of each part's level above, the rows in all
    for level in range(max(map(len, parts))):
        here = [(at, part[level]) for at, part in enumerate(parts) if level < len(part)]
        keys = [
            (np.append(rows[at], -1)[one.parent] + 1) * regions + one.region for at, one in here
        ]
        kinds, number = np.unique(np.concatenate(keys), return_inverse=True)
        columns = (_column([one for _, one in here], name) for name in ("count", "took", "own"))
        sums = (sum_by(number, column, len(kinds)) for column in columns)
        found.append(_Paths(kinds // regions - 1, kinds % regions, *sums))
        ends = np.cumsum([len(key) for key in keys])
        for (at, _), mine in zip(here, np.split(before + number, ends[:-1]), strict=True):
            rows[at] = mine
        before += len(kinds)
    return _Paths(*(_column(found, name) for name in _Paths.__slots__))


def _column(parts: list[_Paths], name: str) -> Ints:
    """Return a column of several parts, one behind the other."""
    return np.concatenate([getattr(one, name) for one in parts])


def _counted(launch: Prepared, rows: slice | NDArray[np.intp]) -> list[_Paths]:
    """Return the paths of some warps' ranges, level by level."""
    ranges = _Ranges.of(launch, rows)
    depth = _nested(ranges)
    held_by: Callable[[_Ranges, NDArray[np.intp], NDArray[np.intp]], NDArray[np.intp]] = _next
    if depth is None:
        ranges, held_by = ranges.take(_opening_order(ranges)), _last
        depth = _depths(ranges)
    regions, found = len(launch.names), list[_Paths]()
    holders, above = np.zeros(0, np.intp), np.zeros(0, np.int64)  # the level above, and its paths
    for level in range(int(depth.max()) + 1):
        mine = np.flatnonzero(depth == level)
        key = ranges.region[mine].astype(np.int64)
        if level:
            at = held_by(ranges, holders, mine)
            key += (np.append(above, -1)[at] + 1) * regions
        kinds, number = numbered(key)
        took = ranges.closes[mine]
        took -= ranges.opens[mine]
        found.append(
            _Paths(
                kinds // regions - 1,
                kinds % regions,
                np.bincount(number, minlength=len(kinds)),
                sum_by(number, took, len(kinds)),
                sum_by(number, ranges.own[mine], len(kinds)),
            )
        )
        holders, above = mine, number
    return found


def _next(_: _Ranges, holders: NDArray[np.intp], mine: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return which of the level above holds each range, where ranges nest: the next to end."""
    return np.searchsorted(holders, mine)


def _last(ranges: _Ranges, holders: NDArray[np.intp], mine: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the same of ranges in the order of their starts: the last one before; -1 for none."""
    at = np.searchsorted(holders, mine) - 1
    holder = holders[np.maximum(at, 0)]
    inside = (at >= 0) & (ranges.slot[holder] == ranges.slot[mine])
    inside &= ranges.closes[mine] <= ranges.closes[holder]
    result: NDArray[np.intp] = np.where(inside, at, -1)
    return result


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Ranges of whole warps."""

    slot: NDArray[np.integer[Any]]
    region: NDArray[np.integer[Any]]
    opens: Ints
    closes: Ints
    own: Ints

    @classmethod
    def of(cls, launch: Prepared, rows: slice | NDArray[np.intp]) -> _Ranges:
        return cls(*(getattr(launch, name)[rows] for name in cls.__slots__))

    def take(self, rows: NDArray[np.intp]) -> _Ranges:
        return _Ranges(*(getattr(self, name)[rows] for name in self.__slots__))


def _nested(ranges: _Ranges) -> Ints | None:
    """Return the depths of ranges, as they are; None if some overlap, or take no time."""
    after = ranges.opens[1:] >= ranges.closes[:-1]
    if np.all(after | (ranges.slot[1:] != ranges.slot[:-1])):
        return np.zeros(len(ranges.slot), np.int64)
    if np.any(ranges.closes == ranges.opens):
        return None
    depth = nested_depths(*moments(ranges.slot, ranges.opens, ranges.closes))
    return None if depth is None else np.minimum(depth, _DEEPEST)


def _opening_order(ranges: _Ranges) -> NDArray[np.intp]:
    """Return the ranges in the order in which they opened, outer ones first, warp by warp."""
    recorded = -np.arange(len(ranges.slot))  # of two that open together, the later one holds
    return np.lexsort((recorded, -ranges.closes, ranges.opens, ranges.slot))


def _depths(ranges: _Ranges) -> Ints:
    """Return how many ranges of its warp are open where each one opens, in opening order."""
    opens, closes = ranges.opens, ranges.closes
    low = min(int(opens.min()), 0)
    span = max(int(closes.max()), int(opens.max()), 0) - low + 2
    if span * (int(ranges.slot.max()) + 1) > _WORD:  # a damaged file's times: ranks order them, too
        moments, rank = np.unique(np.concatenate((opens, closes)), return_inverse=True)
        opens, closes = rank[: len(opens)], rank[len(opens) :]
        low, span = 0, len(moments) + 1
    slot = ranges.slot.astype(np.int64) * span
    ended = np.searchsorted(np.sort(slot + (closes - low)), slot + (opens - low), "right")
    depth = np.arange(len(slot)) - np.minimum(ended, np.arange(len(slot)))
    return np.minimum(depth, _DEEPEST)


def _names(launch: Prepared, path: int, parents: list[int], regions: Ints) -> tuple[str, ...]:
    names: list[str] = []
    while path >= 0:
        names.append(launch.names[regions[path]])
        path = parents[path]
    return tuple(names[::-1])


def _order(path: int, parents: list[int], total: Ints) -> tuple[tuple[int, int], ...]:
    """Return the key that sorts branches as a tree is read: the times from the root down to it."""
    chain: list[tuple[int, int]] = []
    while path >= 0:
        chain.append((-int(total[path]), path))
        path = parents[path]
    return tuple(chain[::-1])
