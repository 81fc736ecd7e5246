"""``.hatchet`` profiles for ``proton-viewer``: self times in a tree of launch labels and regions.

Where a launch has no timeline, the nesting of its ranges is not known: its regions are side by
side.

Proton's operation-measurement files are such trees. ``proton-viewer -m cycles`` prints the cycles
of all warps together, ``-m normalized_cycles`` those of one warp on average, ``-m time/us`` the
time of all warps. The viewer adds a node's descendants to it. So each node holds its self time
only, and the viewer prints what each region took, ranges inside it included. The self time of a
node that holds ranges deeper than the tree may be negative.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.abi import Kind
from ikp.core.stacks import opening
from ikp.core.table import Categories, categories
from ikp.core.trace import Events
from ikp.exporters.files import FileExporter
from ikp.exporters.timeline.batches import Sums, by_end, cuts
from ikp.exporters.timeline.blocks import slot_bounds

if TYPE_CHECKING:
    from ikp.core.trace import Trace

Ints = NDArray[np.int64]
_Codes = NDArray[np.integer[Any]]
_Node = dict[str, Any]
"""One of Hatchet's literals: its frame, its metrics, its children."""

MOST_LEVELS: Final = 128
"""Deeper ranges are shown at this level. The viewer shows 100, and goes down by recursion."""
_EVENTS_AT_ONCE: Final = 1 << 16


class HatchetExporter(FileExporter):
    """Writes Hatchet's literal format, which ``proton-viewer`` reads; instants are left out."""

    suffixes = (".hatchet",)

    def _put(self, trace: Trace, file: BinaryIO, _name: str) -> None:
        content = json.dumps([_root(trace), {}])  # the viewer wants a second dict, of devices
        file.write(content.encode())


@dataclass(slots=True)
class _Tree:
    """Nodes by number: each one's name, its parent, and its ranges' sums.

    The first nodes are the launch labels, which lie below the root.
    """

    names: list[str]
    parents: list[int]
    sums: Ints  # cycles, ns: a row each
    found: dict[tuple[int, int], int] = field(default_factory=dict)  # (parent, region) -> node

    def nodes(self, parent: Ints, region: Ints, regions: list[str]) -> Ints:
        """Return the node of each range: that of its region below its parent's node."""
        keys, row = np.unique(parent * len(regions) + region, return_inverse=True)
        nodes = []
        for key in keys.tolist():
            place = divmod(key, len(regions))
            if place not in self.found:
                self.found[place] = len(self.names)
                self.names.append(regions[place[1]])
                self.parents.append(place[0])
            nodes.append(self.found[place])
        return np.array(nodes, np.int64)[row]

    def add(self, node: Ints, cycles: Ints, time_ns: Ints) -> None:
        """Add ranges to the sums of their nodes. Floats sum exactly here up to 2**53."""
        size = len(self.names)
        sums = np.stack([np.bincount(node, values, size) for values in (cycles, time_ns)])
        before, self.sums = self.sums, sums.astype(np.int64)
        self.sums[:, : before.shape[1]] += before


def _root(trace: Trace) -> _Node:
    """Return the whole tree, in the terms of Hatchet's literals."""
    labels = categories(np.arange(len(trace.launches)), [one.label for one in trace.launches])
    regions = categories(trace.events.region, [one.name for one in trace.regions])
    in_cycles = np.array([one.clock.kind == "cycles" for one in trace.launches], bool)
    count = len(labels.names)
    tree = _Tree(list(labels.names), [-1] * count, np.zeros((2, count), np.int64))
    launch = trace.slots.launch
    for rows, events in _ranges(trace):
        of_slot = launch[events.slot]
        node = _place(tree, events, labels.codes[of_slot], regions.codes[rows], regions.names)
        cycles = np.where(in_cycles[of_slot], events.ticks, 0)
        tree.add(node, cycles, events.end_ns - events.start_ns)
    if len(trace.totals):
        _add_sums(trace, Sums.of(trace), tree, labels)
    # Averages are over the warps whose clock counts cycles.
    warps = np.bincount(labels.codes[launch], in_cycles[launch], count)
    return _literal(tree, warps.astype(np.int64))


def _add_sums(trace: Trace, sums: Sums, tree: _Tree, labels: Categories) -> None:
    """Add totals to the nodes of their regions, each right below its launch."""
    cycles, time_ns = sums.facts["cycles"], sums.facts["total_ns"]
    rows = np.flatnonzero(time_ns.given)  # instants take none
    regions = categories(sums.region[rows], [one.name for one in trace.regions])
    label = labels.codes[trace.slots.launch[sums.slot[rows]]].astype(np.int64)
    node = tree.nodes(label, regions.codes.astype(np.int64), regions.names)
    tree.add(node, cycles.values[rows], time_ns.values[rows])


def _ranges(trace: Trace) -> Iterator[tuple[Ints, Events]]:
    """Yield the ranges of some slots at a time, in order of recording, and their rows."""
    for low, high in cuts(slot_bounds(trace), _EVENTS_AT_ONCE):
        events, rows = by_end(trace.events, slice(low, high))
        chosen = np.flatnonzero(events.kind == int(Kind.RANGE))
        if len(chosen) < len(events):
            events = Events(*(getattr(events, name)[chosen] for name in Events.__slots__))
        yield rows[chosen], events


def _place(tree: _Tree, events: Events, label: _Codes, region: _Codes, regions: list[str]) -> Ints:
    """Return the node of each range, found level by level from the outermost ranges inwards."""
    order, depth = _opening(events)
    label, region = label[order].astype(np.int64), region[order].astype(np.int64)
    node = np.empty(len(order), np.int64)
    left = np.arange(len(order))  # those of this level and below, and the level above
    for level in range(int(depth.max(initial=-1)) + 1):
        here = depth[left] == level
        rows = left[here]
        parent = label[rows]
        if level:
            above = np.where(depth[left] == level - 1, np.arange(len(left)), 0)
            parent = node[left[np.maximum.accumulate(above)[here]]]
        node[rows] = tree.nodes(parent, region[rows], regions)
        left = left[depth[left] >= level]
    result = np.empty_like(node)
    result[order] = node
    return result


def _opening(events: Events) -> tuple[NDArray[np.intp], Ints]:
    """Return ranges in the order in which they open, slot by slot, and how deep each one lies."""
    order, depth = opening(events.slot, events.start_ns, events.end_ns)
    return order, np.minimum(depth, MOST_LEVELS - 1)


def _literal(tree: _Tree, warps: Ints) -> _Node:
    """Return the tree's nodes below a root; ``warps`` are those that each label's averages are of.

    Hatchet takes the metrics' names from the root's.
    """
    labels, parents = len(warps), np.array(tree.parents, np.int64)
    own = tree.sums.copy()
    for mine, sums in zip(own, tree.sums, strict=True):
        np.subtract.at(mine, parents[labels:], sums[labels:])
        mine[:labels] = 0  # a label has no time of its own
    root = _node("ROOT", 0, 0, int(warps.any()))
    nodes, divisors = list[_Node](), list[int]()
    for name, above, cycles, time_ns in zip(tree.names, tree.parents, *own.tolist(), strict=True):
        divisors.append(divisors[above] if above >= 0 else int(warps[len(nodes)]))
        nodes.append(_node(name, cycles, time_ns, divisors[-1]))
        (nodes[above] if above >= 0 else root)["children"].append(nodes[-1])
    return root


def _node(name: str, cycles: int, time_ns: int, warps: int) -> _Node:
    metrics: dict[str, float] = {"time (ns)": time_ns}
    if warps:
        metrics |= {"cycles": cycles, "normalized_cycles": cycles / warps}
    frame = {"name": name or "(no name)", "type": "function"}
    return {"frame": frame, "metrics": metrics, "children": []}
