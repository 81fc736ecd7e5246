"""Probe regions of loops, and of iterations, that end at several exits: a probe point for each.

A loop ends on every way out by definition. But threads of one warp may leave by different exits, so
the conditions that decide must be uniform.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ikp.probes.points.loops import entry
from ikp.probes.points.sese_regions import Point, Regions
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.uniformity import Alike
from ikp.sass.disassembly.opcodes import landmark

_APART = "threads of one warp may be apart where it is left"


class _NoWayError(Exception):
    """A loop exit can't have a probe."""


@dataclass(frozen=True, slots=True)
class Open:
    """A probe region with several ends: entered at one point, and left by each loop exit."""

    start: Point
    ends: tuple[Point, ...]
    within: frozenset[int]  # its blocks: they need not lie in a row


@dataclass(frozen=True)
class WaysOut:
    """The exits of one kernel's loops. Blocks are named by number, loops by their header's."""

    regions: Regions
    flow: Flow = field(init=False)

    def __post_init__(self) -> None:
        """Share the control flow of the regions."""
        object.__setattr__(self, "flow", self.regions.flow)

    def loop(self, header: int) -> Open | str:
        """Return the probe region of a loop, by its header, or why there is none."""
        start, body = entry(self.flow, header), self.flow.bodies[header]
        if start is None:
            return "it is entered at several places"
        return self._open(start, body, None)

    def turn(self, header: int) -> Open | str:
        """Return the probe region of a loop's iteration, or why there is none.

        Where a loop's first block only tests for its end, an iteration begins behind that. Else,
        the last iteration is the one in which the loop is left.
        """
        graph, body, code = self.flow.graph, self.flow.bodies[header], self.flow.code.instructions
        top = graph.blocks[header]
        stays = graph.falls.get(top.end - 1)
        others = any(to in body for to in graph.after[header] if to != stays)
        works = any(landmark(code[at].opcode) for at in range(top.first, top.end))
        if stays in body and not others and not works:
            return self._open(Point(top.end - 1, after=True), body - {header}, header)
        return self._open(Point(top.first), body, header)

    def _open(self, start: Point, inside: frozenset[int], again: int | None) -> Open | str:
        first = self.regions.block(start)
        if first is None or inside & self.regions.irregular:
            return "it lies in a loop with several entries"
        if {first, *inside & {again}} & self.regions.divergent:
            return _APART
        try:
            ends = {end for number in inside for end in self._ends(number, inside, again)}
        except _NoWayError as why:
            return str(why)
        if not ends:
            return "it is never left"
        return Open(start, tuple(sorted(ends)), inside)

    def _ends(self, number: int, inside: frozenset[int], again: int | None) -> set[Point]:
        """Return the points at which control leaves the region, or begins it anew, from a block.

        Args:
            number: of the block.
            inside: the blocks of the region.
            again: the block that begins the next iteration, for an iteration.
        """
        graph = self.flow.graph
        last, after = graph.blocks[number].end - 1, graph.after[number]
        out = [to for to in after if to not in inside or to == again]
        leaves = number in graph.leaves and not self.flow.code.instructions[last].never_runs
        if not out and not leaves:
            return set()
        if number in self.regions.divergent:
            raise _NoWayError(_APART)
        jumps = graph.block(last) == number and last in graph.jumps.leaving
        if len(out) == len(after) and not leaves:
            return {Point(last, after=not jumps)}
        if self.flow.code.instructions[last].op not in ("BRA", "EXIT"):
            raise _NoWayError("it is left by a jump to an address that is computed")
        if not self._alike.decides(last):
            raise _NoWayError(_APART)
        return {self._edge(last, to, inside, again) for to in out} | (
            {Point(last, taken=True)} if leaves else set()
        )

    def _edge(self, jump: int, to: int, inside: frozenset[int], again: int | None) -> Point:
        """Return the probe point of one exit: its target, if no other edge leads there."""
        graph = self.flow.graph
        if to == graph.falls.get(jump):
            return Point(jump, after=True)
        before = [each for each in graph.before[to] if each in self.flow.dominance.entered]
        if to != again and inside.issuperset(before):
            return Point(graph.blocks[to].first)
        return Point(jump, taken=True)

    @cached_property
    def _alike(self) -> Alike:
        return Alike(self.flow, self.regions.divergent, self.regions.rows)
