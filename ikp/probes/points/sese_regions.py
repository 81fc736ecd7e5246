"""Single-entry single-exit regions of a kernel: whether two probe points bound one, and its code.

Both points lie in the same loops. A warp that comes to the end has passed the start in the same
iteration; one that passes the start comes to the end before the iteration is over. So on every path
the two alternate, and regions whose code is nested are nested in time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ikp.sass.control_flow.flow import (
    Dominance,
    Flow,
    Parted,
    collective_bodies,
    diverged_for_good,
    dominance,
    reconverging,
)
from ikp.sass.control_flow.graph import depth_first, reached
from ikp.sass.dataflow.uniformity import Alike

_OUT = -1
"""A virtual block behind all ends of an iteration, or of the kernel."""


class Point(NamedTuple):
    """A probe point: before an instruction, on every edge there; or after one.

    After a jump is where control falls through: a jump to the next instruction does not pass there.
    ``taken``: on the edge to a jump's target, or for the threads that leave by an EXIT.
    """

    index: int  # type: ignore[assignment]  # no code calls the tuple's ``index``
    after: bool = False
    taken: bool = False


@dataclass(frozen=True)
class Regions:
    """The regions of one kernel, its loops, and the blocks in which warps diverge.

    Args:
        flow: the kernel.
        rows: whether the threads of each warp are known to lie in one row of their block.
    """

    flow: Flow
    rows: bool = False

    def why_not(self, start: Point, end: Point) -> str:
        """Return why two points bound no region; "" if they do."""
        first, last = self.block(start), self.block(end)
        if first is None or last is None:
            return "control never goes that way"
        if first == last and start > end:
            return "its end comes before its start"
        if not self.collective.keys().isdisjoint(map(self.lands, (start, end))):
            return "it begins or ends in a collective, whose threads are apart around it"
        return self._unfit({first, last}) or self._apart(first, last)

    @cached_property
    def collective(self) -> dict[int, int]:
        """Instructions before which nothing can be inserted; see ``collective_bodies``."""
        return collective_bodies(self.flow.code)

    def _unfit(self, blocks: set[int]) -> str:
        if blocks & self.irregular:
            return "it lies in a loop with several entries"
        return "threads of one warp may be apart there" if blocks & self.divergent else ""

    def _apart(self, first: int, last: int) -> str:
        """Return why two blocks don't alternate on every path; "" if they do."""
        loop = self.loop(first)
        if loop != self.loop(last):
            return "its end is in another loop than its start"
        if not self.flow.dominance.holds(first, last):
            return "its end can be reached without its start"
        if first != last and not self._leaving(loop).holds(last, first):
            return "it can be left without its end"
        return ""

    def block(self, point: Point) -> int | None:
        """Return the block that a point lies in; None where control never comes."""
        graph = self.flow.graph
        block: int | None = graph.block(point.index)
        if point.after and point.index in graph.jumps.leaving:
            block = graph.falls.get(point.index)
        return block if block in self.flow.dominance.entered else None

    def lands(self, point: Point) -> int:
        """Return the instruction that runs next behind a point."""
        if point.taken:
            ways = [to for to, _ in self.flow.graph.jumps.leaving[point.index]]
            return next((to for to in ways if to != point.index + 1), point.index)
        return point.index + point.after

    def inside(
        self, start: Point, ends: Sequence[Point], within: frozenset[int]
    ) -> Collection[int]:
        """Return the instructions of a region; ``within`` has its blocks if it has many ends."""
        return self.flow.instructions(within) if within else self.between(start, ends[0])

    def between(self, start: Point, end: Point) -> list[int]:
        """Return the instructions on all paths between two points that bound a region."""
        first, last = self.block(start), self.block(end)
        blocks, graph = self.flow.graph.blocks, self.flow.graph
        if first is None or last is None:
            return []
        begun, ended = start.index + start.after, end.index + end.after
        if first == last:
            return list(range(begun, ended))
        after, ends = graph.after, {first, last}
        between = reached(after[first], after.__getitem__, lambda block: block not in ends)
        found = [*range(begun, blocks[first].end), *range(blocks[last].first, ended)]
        return sorted([*found, *self.flow.instructions(frozenset(between))])

    def loop(self, block: int) -> int | None:
        """Return the first block of the innermost loop around a block."""
        return self._loops.get(block)

    @cached_property
    def _loops(self) -> dict[int, int]:
        outer_first = self.flow.bodies.items()
        return {block: header for header, body in outer_first for block in body}

    def parent(self, header: int) -> int | None:
        """Return the first block of the loop around a loop."""
        around = [
            (len(body), other)
            for other, body in self.flow.bodies.items()
            if other != header and header in body
        ]
        return min(around)[1] if around else None

    def _leaving(self, loop: int | None) -> Dominance:
        """Return the post-dominance in an iteration of a loop; in the kernel, for None."""
        if loop not in self._known:
            self._known[loop] = self._found(loop)
        return self._known[loop]

    @cached_property
    def _known(self) -> dict[int | None, Dominance]:
        return {}

    def _found(self, loop: int | None) -> Dominance:
        graph = self.flow.graph
        inside = self.flow.bodies[loop] if loop is not None else frozenset(graph.order)
        after = {
            block: [to if to in inside and to != loop else _OUT for to in graph.after[block]]
            + ([_OUT] if block in graph.leaves else [])
            for block in inside
        }
        before: dict[int, list[int]] = {block: [] for block in (*inside, _OUT)}
        for block, tos in after.items():
            for to in tos:
                before[to].append(block)
        return dominance(depth_first(before, _OUT)[::-1], after)

    @cached_property
    def irregular(self) -> set[int]:
        """Blocks in cycles that are no natural loops."""
        graph, number = self.flow.graph, {b: n for n, b in enumerate(self.flow.graph.order)}
        found: set[int] = set()
        for block in graph.order:
            for to in graph.after[block]:
                if number[to] <= number[block] and not self.flow.dominance.holds(to, block):
                    ahead = set(depth_first(graph.after, to))
                    back = set(depth_first(graph.before, block))
                    found |= ahead & back
        return found

    @cached_property
    def divergent(self) -> set[int]:
        """Blocks in which a warp may be diverged."""
        return {block for each in self._parted for block in each.blocks}

    @cached_property
    def lacking(self) -> set[int]:
        """Blocks in which some threads of a warp may have left, or be in other blocks."""
        found = set(self.divergent)
        for jump in self.flow.graph.jumps.leaving:
            if not self.alike.decides(jump):
                found |= self._until_met(self.flow.graph.block(jump))
        return found

    def _until_met(self, parting: int) -> set[int]:
        """Return the blocks behind one, up to where all its threads have reconverged."""
        after, leaving = self.flow.graph.after, self._leaving(None)

        def parted(block: int) -> bool:
            return block == parting or not leaving.holds(block, parting)

        return reached(after[parting], after.__getitem__, parted)

    @cached_property
    def others(self) -> dict[int, set[int]]:
        """For each divergent block, those in which the rest of the warp may be meanwhile."""
        found: dict[int, set[int]] = {block: set() for block in self.divergent}
        for each in self._parted:
            for block in each.others & found.keys():
                found[block] |= each.others
        return found

    @cached_property
    def _parted(self) -> list[Parted]:
        noted = {block for each in self._noted for block in each.blocks}
        for_good = diverged_for_good(
            self.flow, noted, self._leaving(None), lambda jump: not self.alike.decides(jump)
        )
        return [*self._noted, *for_good]

    @cached_property
    def _noted(self) -> list[Parted]:
        return [*reconverging(self.flow)]

    @cached_property
    def alike(self) -> Alike:
        """The uniformity of its jumps, where only blocks up to a BSYNC are divergent."""
        noted = {block for each in self._noted for block in each.blocks}
        return Alike(self.flow, noted, self.rows)
