"""``Executed``: how often warps execute code whose loops end as data decide, by counted requests.

Address probes count how often sampled warps execute each access to memory. The accesses of a loop
say how often the loop goes round, as those of a basic block say how often that is executed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ikp.core.run_figures import AccessFigures, AddressFigures
from ikp.sass.control_flow.flow import Flow, Loop
from ikp.sass.dataflow.lane_values import LaneValues


def figures_by_place(
    flow: Flow, figures: AddressFigures | None, ours: Collection[int]
) -> dict[int, AccessFigures]:
    """Return the figures of accesses by the index of their instruction.

    The kernel of the figures is the plain one, whose instructions are in the same order. Where
    not each of those with one text has figures, none of these has.

    Args:
        flow: the kernel, plain or with records.
        figures: of the same kernel.
        ours: the instructions of records.
    """
    if figures is None:
        return {}
    some = defaultdict[tuple[str, str], list[AccessFigures]](list)
    for one in figures.accesses:
        some[one.text, one.space].append(one)
    places = defaultdict[str, list[int]](list)
    for at, each in enumerate(flow.code.instructions):
        if at not in ours:
            places[each.text].append(at)
    spaces = sorted(some, key=lambda key: key[1] != "shared")  # a copy's global addresses win
    return {
        at: one
        for key in spaces
        if len(some[key]) == len(places[key[0]])
        for at, one in zip(places[key[0]], some[key], strict=True)
    }


@dataclass(frozen=True)
class Executed:
    """Answers for one kernel.

    Args:
        flow: the kernel.
        values: its values, which say the trips of loops that the code decides.
        figures: of accesses, by the index of their instruction.
        warps: that were sampled.
    """

    flow: Flow
    values: LaneValues
    figures: Mapping[int, AccessFigures] = field(default_factory=dict)
    warps: int = 0

    @cached_property
    def _blocks(self) -> dict[int, float]:
        """How often a warp executes basic blocks with accesses: the mean."""
        found = dict[int, float]()
        for at, one in self.figures.items():
            block = self.flow.graph.block(at)
            found[block] = max(found.get(block, 0.0), one.executions / max(self.warps, 1))
        return found

    @cached_property
    def _loops(self) -> dict[int, float]:
        """How often a warp goes round loops that hold accesses outside of inner loops."""
        found = dict[int, float]()
        for block, times in self._blocks.items():
            loop = self.flow.loop_of(self.flow.graph.blocks[block].first)
            if loop is not None:
                found[loop.header] = max(found.get(loop.header, 0.0), times)
        return found

    def trips(self, loop: Loop) -> float | None:
        """Return how often a loop goes round for each time that it is come to; None if not known.

        Of a loop whose accesses are all in inner loops, at least: once.
        """
        if (said := self.values.trips(loop.header)) is not None:
            return said
        own = self._loops.get(loop.header)
        if own is None:
            return 1.0 if any(header in loop.body for header in self._loops) else None
        outer = self._around(loop)
        return own / outer if outer else 0.0

    def _around(self, loop: Loop) -> float:
        """Return how often a warp comes to a loop."""
        times = 1.0
        for each in self.flow.loops_around(loop.header):
            if each.header == loop.header:
                break
            said, own = self.values.trips(each.header), self._loops.get(each.header)
            times = times * said if said is not None else times if own is None else own
        return times

    def is_counted(self, loop: Loop) -> bool:
        """Whether a loop's trips are known by counted requests alone."""
        return self.values.trips(loop.header) is None and loop.header in self._loops

    def part(self, at: int, loop: Loop) -> float | None:
        """Return the part of a counted loop's iterations that execute an instruction in it.

        None where that is not known.
        """
        block, graph = self.flow.graph.block(at), self.flow.graph
        if block in self._blocks:
            return self._blocks[block] / (self._loops[loop.header] or 1.0)
        first = graph.block(loop.header)
        back = [each for each in graph.before[first] if graph.blocks[each].first in loop.body]
        every = all(self.flow.dominance.holds(block, each) for each in back)
        return 1.0 if every else None
