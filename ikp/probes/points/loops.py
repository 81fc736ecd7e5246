"""Probe regions of loops: entry and exits, iterations, and loops that only wait.

A loop ends on every way out by definition, so a loop or iteration with several exits has a probe
point for each. But threads of one warp may leave by different exits, so the conditions that decide
must be uniform.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Final

from ikp.probes.points.sese_regions import Point, Regions
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.uniformity import Alike
from ikp.sass.disassembly.effects import members
from ikp.sass.disassembly.listing import Instruction, Line
from ikp.sass.disassembly.opcodes import SPIN, Landmark, landmark

ALLOCATES = "UTCATOMSWS"
"""The operation that allocates tensor memory."""
_CHANGES: Final = ("ST", "RED", "ATOM", "BAR", "CALL", "UCGABAR")
"""Prefixes of operations that change memory, or make other warps wait."""


def loop_ends(flow: Flow, header: int) -> tuple[Point, Point] | None:
    """Return the points where a loop is entered and left; None if not at one point each.

    Args:
        flow: the kernel.
        header: the loop's first block.
    """
    start, end = entry(flow, header), _exit(flow, header)
    return (start, end) if start and end else None


def entry(flow: Flow, header: int) -> Point | None:
    """Return the point where a loop is entered from outside; None if not at one."""
    graph, body = flow.graph, flow.bodies[header]
    outside = [b for b in graph.before[header] if b not in body and b in flow.dominance.entered]
    if len(outside) != 1 or len(graph.after[outside[0]]) != 1:
        return None
    block = graph.blocks[outside[0]]
    last = block.end - 1
    jumps = block.first < block.end and last in graph.jumps.leaving
    return Point(last) if jumps else Point(last, after=True)


def _exit(flow: Flow, header: int) -> Point | None:
    """Return the point that all exits of a loop lead to, and no other edge; None if none is."""
    graph, body = flow.graph, flow.bodies[header]
    targets = {to for block in body for to in graph.after[block] if to not in body}
    if len(targets) != 1 or body & graph.leaves:
        return None
    (target,) = targets
    if any(b not in body for b in graph.before[target] if b in flow.dominance.entered):
        return None
    block = graph.blocks[target]
    if block.first == block.end:  # where a jump falls through
        return Point(block.first - 1, after=True)
    return Point(block.first)


def iteration(flow: Flow, header: int, regions: Regions) -> tuple[Point, Point] | None:
    """Return the points where each iteration begins and ends; None if there are several ends."""
    graph, body = flow.graph, flow.bodies[header]
    latches = [block for block in graph.before[header] if block in body]
    if len(latches) != 1:
        return None
    block = graph.blocks[latches[0]]
    last = block.end - 1
    jumps = block.first < block.end and last in graph.jumps.leaving
    end = Point(last) if jumps else Point(last, after=True)
    top = graph.blocks[header]
    starts = [Point(top.first)]
    if top.end - 1 in graph.falls:  # a test for the end comes first: iterations begin after it
        starts.append(Point(top.end - 1, after=True))
    return next(((start, end) for start in starts if not regions.why_not(start, end)), None)


def loop_lines(flow: Flow, header: int) -> tuple[Line, ...]:
    """Return the lines of a loop: its jump back has them."""
    body, blocks = flow.bodies[header], flow.graph.blocks
    jumps = [blocks[block].end - 1 for block in flow.graph.before[header] if block in body]
    return flow.code.instructions[max(jumps)].lines


def waiting(flow: Flow, header: int) -> tuple[int, ...]:
    """Return the instructions of a loop that test a barrier or flag, if it only waits."""
    blocks = (flow.graph.blocks[block] for block in flow.bodies[header])
    parts = [range(block.first, block.end) for block in blocks]
    if sum(map(len, parts)) > SPIN:
        return ()
    body = sorted(chain.from_iterable(parts))
    tests = tuple(at for at in body if _asks(flow, at)) or _polls(flow, body)
    kinds = {landmark(flow.code.instructions[at].opcode) for at in body if at not in tests}
    return () if kinds - {None, Landmark.COPY_WAIT} else tests  # allocations have one, too


def _asks(flow: Flow, at: int) -> bool:
    """Whether an instruction tests a barrier, or asks for tensor memory that may not be free."""
    instruction = flow.code.instructions[at]
    return landmark(instruction.opcode) is Landmark.MBARRIER_WAIT or instruction.op == ALLOCATES


def _polls(flow: Flow, body: list[int]) -> tuple[int, ...]:
    """Return the load of a flag that other warps set: always from one address, past the cache.

    A loop that changes memory itself has none.
    """
    code = flow.code.instructions
    loads = [at for at in body if polled(code[at])]
    moves = any(_moves(flow, body, at) for at in loads)
    changes = any(code[at].op.startswith(_CHANGES) for at in body)
    return () if len(loads) != 1 or moves or changes else tuple(loads)


def _moves(flow: Flow, body: list[int], load: int) -> bool:
    """Whether an iteration of a loop may move a load's address.

    What an iteration makes anew from what none of them changes stays where it is: around a sleep a
    compiler loads the flag's place again. A loop that changes no memory has all of that alike.
    """
    seen, work = set[int](), [load]
    while work:
        at = work.pop()
        for register in members(flow.effects[at].reads):
            writers = [one for one in body if flow.effects[one].writes >> register & 1]
            if not writers:
                continue
            last = max((one for one in writers if one < at), default=None)
            if last is None or last == load:
                return True
            if last not in seen:
                seen.add(last)
                work.append(last)
    return False


def polled(instruction: Instruction) -> bool:
    """Return whether an instruction loads memory that other threads may change meanwhile."""
    return landmark(instruction.opcode) is Landmark.LOAD and ".STRONG" in instruction.opcode


def after_spinning(flow: Flow, test: int, regions: Regions) -> Point:
    """Return the point where a wait ends that tests a barrier once, and spins elsewhere if it must.

    Args:
        flow: the kernel.
        test: the instruction that tests.
        regions: the kernel's regions.
    """
    graph, start = flow.graph, Point(test)
    block = graph.block(test)
    ahead = [next_ for to in graph.after[block] for next_ in (to, *graph.after[to])]
    for number in ahead:
        one = graph.blocks[number]
        if one.first < one.end and not regions.why_not(start, Point(one.first)):
            return Point(one.first)
    return Point(test, after=True)


_APART = "threads of one warp may be apart where it is left"


class _NoProbeError(Exception):
    """A loop exit can't have a probe."""


@dataclass(frozen=True, slots=True)
class Open:
    """A probe region with several ends: entered at one point, and left by each loop exit."""

    start: Point
    ends: tuple[Point, ...]
    within: frozenset[int]  # its blocks: they need not lie in a row


@dataclass(frozen=True)
class LoopExits:
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

    def iteration(self, header: int) -> Open | str:
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
        except _NoProbeError as why:
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
            raise _NoProbeError(_APART)
        jumps = graph.block(last) == number and last in graph.jumps.leaving
        if len(out) == len(after) and not leaves:
            return {Point(last, after=not jumps)}
        if self.flow.code.instructions[last].op not in ("BRA", "EXIT"):
            raise _NoProbeError("it is left by a jump to an address that is computed")
        if not self._alike.decides(last):
            raise _NoProbeError(_APART)
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
        return self.regions.alike.within(self.regions.divergent)
