"""The call tree of a trace's regions: nodes by nesting of ranges, with counts and times.

A range lies in the innermost range that is open around it on its lane (:mod:`ikp.core.lanes`).
Ranges that overlap without nesting lie on lanes of their own, so both count the time they share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind
from ikp.core.lanes import arrange
from ikp.core.table import categories

if TYPE_CHECKING:
    from ikp.core.trace import Trace

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stacks:
    """Nodes by number, parents before their children: the first are the launch labels.

    ``total_ns`` of a label is the time that its warps ran. ``own_ns`` is the time in no child.
    """

    names: list[str]
    parents: list[int]  # -1 of labels
    count: list[int]
    total_ns: list[int]

    @property
    def own_ns(self) -> list[int]:
        """The time of each node that lies in none of its children."""
        own = list(self.total_ns)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                own[parent] -= self.total_ns[node]
        return [max(0, value) for value in own]  # a label's, where ranges overlap


def stacks(trace: Trace) -> Stacks:
    """Return the tree of a trace's ranges; totals give regions side by side, without nesting."""
    every = np.arange(len(trace.regions))
    launched = categories(trace.slots.launch, [one.label for one in trace.launches])
    named = categories(every, [one.name for one in trace.regions])
    labels, names = launched.names, named.names
    label, region = launched.codes.astype(np.int64), named.codes.astype(np.int64)
    ran = np.zeros(len(labels), np.int64)
    np.add.at(ran, label, trace.slots.end_ns - trace.slots.start_ns)
    warps = np.bincount(label, minlength=len(labels))
    tree = Stacks([*labels], [-1] * len(labels), warps.tolist(), ran.tolist())
    _add_ranges(trace, tree, label, region, names)
    totals = trace.totals
    rows = np.flatnonzero(totals.kind == Kind.RANGE)
    # As Python's own numbers: a warp's total may be of 62 bits, and these are sums of them.
    summed = region[totals.region[rows]], totals.total_ns[rows].astype(object)
    _add(tree, label[totals.slot[rows]], *summed, names, totals.count[rows])
    return tree


def _add_ranges(trace: Trace, tree: Stacks, label: Ints, region: Ints, names: list[str]) -> None:
    """Add the ranges level by level, from the outermost inwards."""
    events = trace.events
    rows = np.flatnonzero(events.kind == Kind.RANGE)
    rows = rows[np.lexsort((events.end_ns[rows], events.slot[rows]))]
    slot, start, end = events.slot[rows], events.start_ns[rows], events.end_ns[rows]
    order, depth = opening(slot, start, end)
    took, kind, node = (end - start)[order], region[events.region[rows]][order], label[slot][order]
    left = np.arange(len(order))  # those of this level and below, and the level above
    for level in range(int(depth.max(initial=-1)) + 1):
        here = depth[left] == level
        mine = left[here]
        parent = node[mine]
        if level:
            above = np.where(depth[left] == level - 1, np.arange(len(left)), 0)
            parent = node[left[np.maximum.accumulate(above)[here]]]
        node[mine] = _add(tree, parent, kind[mine], took[mine], names, np.ones(len(mine), np.int64))
        left = left[depth[left] >= level]


def opening(slot: Ints, start: Ints, end: Ints) -> tuple[NDArray[np.intp], Ints]:
    """Return ranges in the order in which they open, lane by lane, and how deep each one lies."""
    stream = arrange(slot, start, end, np.ones(len(slot), bool))
    lane = slot.astype(np.int64) * (int(stream.lane.max(initial=0)) + 1) + stream.lane
    if not stream.lane.any():
        lane = stream.lane
    opens, closes = (lane * 2 * len(lane) + place for place in (stream.opens, stream.closes))
    order = np.argsort(opens)
    return order, np.arange(len(order)) - np.searchsorted(np.sort(closes), opens[order])


def _add(
    tree: Stacks, parent: Ints, region: Ints, took: NDArray[Any], names: list[str], times: Ints
) -> Ints:
    """Add ranges to the nodes of their regions below their parents' nodes; return those."""
    keys, row = np.unique(parent * max(1, len(names)) + region, return_inverse=True)
    sums, counts = np.zeros(len(keys), took.dtype), np.zeros(len(keys), np.int64)
    np.add.at(sums, row, took)
    np.add.at(counts, row, times)
    nodes = np.arange(len(keys)) + len(tree.names)
    for key, total, count in zip(*(each.tolist() for each in (keys, sums, counts)), strict=True):
        tree.parents.append(key // len(names))
        tree.names.append(names[key % len(names)])
        tree.total_ns.append(total)
        tree.count.append(count)
    result: Ints = nodes[row]
    return result
