"""Probe points of loops: a loop's entry and exit, its iterations, and loops that only wait."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Final

from ikp.probes.points.sese_regions import Point, Regions
from ikp.sass.control_flow.flow import Flow
from ikp.sass.disassembly.listing import Instruction, Line
from ikp.sass.disassembly.opcodes import Landmark, landmark

ALLOCATES = "UTCATOMSWS"
"""The operation that allocates tensor memory."""
_SPIN = 12
"""The most instructions of a loop that only waits."""
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
    blocks = [flow.graph.blocks[block] for block in flow.bodies[header]]
    if sum(block.end - block.first for block in blocks) > _SPIN:
        return ()
    body = sorted(at for block in blocks for at in range(block.first, block.end))
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
    code, effects = flow.code.instructions, [flow.effects[at] for at in body]
    loads = [at for at in body if polled(code[at])]
    written = reduce(or_, (each.writes for each in effects))
    moves = any(flow.effects[at].reads & written for at in loads)
    changes = any(code[at].op.startswith(_CHANGES) for at in body)
    return () if len(loads) != 1 or moves or changes else tuple(loads)


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
