"""Loops that are left at several places, and turns that end so: where each way out can be marked.

That a loop ends on every way out holds as it stands. That a warp takes one of them alone does not:
threads of it may leave at different places, so what decides must be alike for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ikp.probes.points.loops import entry
from ikp.probes.points.sese_regions import Point, Regions
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.uniformity import Alike
from ikp.sass.disassembly.landmarks import landmark

_APART = "threads of one warp may be apart where it is left"


class _NoWayError(Exception):
    """A way out can't be marked."""


@dataclass(frozen=True, slots=True)
class Open:
    """A stretch with several ends: it is begun at one place and left by each way out."""

    start: Point
    ends: tuple[Point, ...]
    within: frozenset[int]  # its blocks: they need not stand in a row


@dataclass(frozen=True)
class WaysOut:
    """The ways out of one kernel's loops. Blocks and loops go by their numbers."""

    regions: Regions
    flow: Flow = field(init=False)

    def __post_init__(self) -> None:
        """Share what is known of the control flow."""
        object.__setattr__(self, "flow", self.regions.flow)

    def loop(self, header: int) -> Open | str:
        """Return a loop, by its first block, or why it can't be marked."""
        start, body = entry(self.flow, header), self.flow.bodies[header]
        if start is None:
            return "it is entered at several places"
        return self._open(start, body, None)

    def turn(self, header: int) -> Open | str:
        """Return the turn of a loop, or why it can't be marked.

        Where a loop's first block only tests for its end, a turn begins behind that: else, the last
        turn is the one in which the loop is left.
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
        """Return where code leaves that ends with a block, or begins anew.

        Args:
            number: of the block.
            inside: the blocks of the stretch.
            again: the block that begins the next turn, for a turn.
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
        """Return the place on one way out: where it leads, if that is of no other way."""
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
