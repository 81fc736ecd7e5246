"""Which range each range stands in: the tree of regions.

Level by level, from the outermost: a range at depth d stands in the last range at depth d - 1 that
opened before it on its warp. Where ranges overlap without nesting, one that is not inside of it
stands in none. Where all nest, that is the next one at depth d - 1 to end, and nothing is sorted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ikp.analysis._nested import moments, nested_depths
from ikp.analysis.explain.prepared import Ints, Prepared
from ikp.analysis.explain.verdict import Branch

_MOST: int = 12
_DEEPEST: int = 24
"""Levels that are told apart; what lies deeper counts for the last of them."""
_FEW: int = 1 << 12
"""So many numbers are counted even where few of them occur."""


def tree(launch: Prepared) -> Iterator[Branch]:
    """Yield the branches with the most time, each with the path to it, as a tree is read."""
    if not len(launch.region) or not launch.warp_time:
        return
    path, parents, regions = _paths(launch)
    count = np.bincount(path, minlength=len(parents))
    total = launch.sum_by(path, launch.took, len(parents))
    own = launch.sum_by(path, launch.own, len(parents))
    chosen = {int(i) for i in np.argsort(-total, kind="stable")[:_MOST]}
    names = [_names(launch, i, parents, regions) for i in range(len(parents))]
    for i in sorted(chosen, key=lambda i: _order(i, parents, total)):
        yield Branch(
            names[i],
            int(count[i]),
            float(total[i]) / launch.warp_time,
            float(own[i]) / launch.warp_time,
        )


def _paths(launch: Prepared) -> tuple[Ints, list[int], list[int]]:
    """Return the path of each range as a number, and of each path its parent (-1) and region."""
    depth = _nested(launch)
    order, holder_is = np.arange(len(launch.slot)), _NEXT
    if depth is None:
        order, holder_is = _opening_order(launch), _BEFORE
        depth = _depths(launch, order)
    regions = len(launch.names)
    path = np.full(len(depth), -1, np.int64)  # in that order
    parents: list[int] = []
    of_path: list[int] = []
    slot, closes, region = launch.slot[order], launch.closes[order], launch.region[order]
    for level in range(int(depth.max()) + 1):
        mine = np.flatnonzero(depth == level)
        above = np.full(len(mine), -1, np.int64)
        if level:
            holds = depth == level - 1
            at = np.cumsum(holds)[mine] + holder_is
            holder = np.flatnonzero(holds)[np.maximum(at, 0)]
            inside = (at >= 0) & (slot[holder] == slot[mine]) & (closes[mine] <= closes[holder])
            above = np.where(inside, path[holder], -1)
        kinds, number = _numbered((above + 1) * regions + region[mine])
        path[mine] = len(parents) + number
        parents += (kinds // regions - 1).tolist()
        of_path += (kinds % regions).tolist()
    found = np.empty(len(depth), np.int64)
    found[order] = path
    return found, parents, of_path


_NEXT, _BEFORE = 0, -1
"""Where a range's holder stands among those of its depth: behind it, in the order of ends; or else
before it, in the order of starts."""


def _numbered(key: Ints) -> tuple[Ints, Ints]:
    """Return which numbers occur, ascending, and the place of each of ``key`` among them."""
    if int(key.max()) > len(key) + _FEW:
        kinds, number = np.unique(key, return_inverse=True)
        return kinds, number
    there = np.bincount(key) > 0
    return np.flatnonzero(there), (np.cumsum(there) - 1)[key]


def _nested(launch: Prepared) -> Ints | None:
    """Return the depths of ranges, as they stand; None if some overlap, or take no time."""
    if _is_flat(launch):
        return np.zeros(len(launch.slot), np.int64)
    if np.any(launch.slot[1:] < launch.slot[:-1]) or not launch.took.all():
        return None
    depth = nested_depths(*moments(launch.slot, launch.opens, launch.closes))
    return None if depth is None else np.minimum(depth, _DEEPEST)


def _is_flat(launch: Prepared) -> bool:
    """Whether no range holds or overlaps another: each opens when the one before is over."""
    after = launch.opens[1:] >= launch.closes[:-1]
    return bool(np.all(after | (launch.slot[1:] != launch.slot[:-1])))


def _opening_order(launch: Prepared) -> NDArray[np.intp]:
    """Return the ranges in the order in which they opened, outer ones first, warp by warp."""
    recorded = -np.arange(len(launch.slot))  # of two that open together, the later one holds
    return np.lexsort((recorded, -launch.closes, launch.opens, launch.slot))


def _depths(launch: Prepared, order: NDArray[np.intp]) -> Ints:
    """Return how many ranges of its warp are open where each one opens, in opening order."""
    slot, opens, closes = launch.slot[order], launch.opens[order], launch.closes[order]
    span = max(int(closes.max()), int(opens.max()), 0) - min(int(opens.min()), 0) + 2
    low = min(int(opens.min()), 0)
    ends = np.sort(slot * span + (closes - low))
    ended = np.searchsorted(ends, slot * span + (opens - low), "right")
    depth = np.arange(len(order)) - np.minimum(ended, np.arange(len(order)))
    return np.minimum(depth, _DEEPEST)


def _names(launch: Prepared, path: int, parents: list[int], regions: list[int]) -> tuple[str, ...]:
    names: list[str] = []
    while path >= 0:
        names.append(launch.names[regions[path]])
        path = parents[path]
    return tuple(names[::-1])


def _order(path: int, parents: list[int], total: Ints) -> tuple[tuple[int, int], ...]:
    """Return what sorts branches as a tree is read: by what their parents took, and then they."""
    chain: list[tuple[int, int]] = []
    while path >= 0:
        chain.append((-int(total[path]), path))
        path = parents[path]
    return tuple(chain[::-1])
