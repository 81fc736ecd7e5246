"""Where loops begin and end, and their turns, as places for code."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Final

from ikp.probes.points.sese_regions import Point, Regions
from ikp.sass.control_flow.flow import Flow
from ikp.sass.disassembly.landmarks import Landmark, landmark
from ikp.sass.disassembly.listing import Instruction, Line

ALLOCATES = "UTCATOMSWS"
"""The operation that asks for tensor memory."""
_SPIN = 12
"""Instructions that a loop has at most that only waits."""
_CHANGES: Final = ("ST", "RED", "ATOM", "BAR", "CALL", "UCGABAR")
"""How operations begin that change memory, or make other warps wait."""


def loop_ends(flow: Flow, header: int) -> tuple[Point, Point] | None:
    """Return where a loop is entered from outside and where it is left; None if not at one place.

    Args:
        flow: the kernel.
        header: the loop's first block.
    """
    start, end = entry(flow, header), _exit(flow, header)
    return (start, end) if start and end else None


def entry(flow: Flow, header: int) -> Point | None:
    """Return where a loop is entered from outside; None if not at one place."""
    graph, body = flow.graph, flow.bodies[header]
    outside = [b for b in graph.before[header] if b not in body and b in flow.dominance.entered]
    if len(outside) != 1 or len(graph.after[outside[0]]) != 1:
        return None
    block = graph.blocks[outside[0]]
    last = block.end - 1
    jumps = block.first < block.end and last in graph.jumps.leaving
    return Point(last) if jumps else Point(last, after=True)


def _exit(flow: Flow, header: int) -> Point | None:
    """Return where all ways out of a loop come together, and no other way."""
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
    """Return where each turn of a loop begins and ends; None if turns end in several places."""
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
    if top.end - 1 in graph.falls:  # the test for the end stands first: a turn begins after it
        starts.append(Point(top.end - 1, after=True))
    return next(((start, end) for start in starts if not regions.why_not(start, end)), None)


def loop_lines(flow: Flow, header: int) -> tuple[Line, ...]:
    """Return the lines of a loop: its jump back has them."""
    body, blocks = flow.bodies[header], flow.graph.blocks
    jumps = [blocks[block].end - 1 for block in flow.graph.before[header] if block in body]
    return flow.code.instructions[max(jumps)].lines


def waiting(flow: Flow, header: int) -> tuple[int, ...]:
    """Return the instructions of a loop that ask for something, if it does nothing but that."""
    blocks = [flow.graph.blocks[block] for block in flow.bodies[header]]
    if sum(block.end - block.first for block in blocks) > _SPIN:
        return ()
    body = sorted(at for block in blocks for at in range(block.first, block.end))
    tests = tuple(at for at in body if _asks(flow, at)) or _polls(flow, body)
    kinds = {landmark(flow.code.instructions[at].opcode) for at in body if at not in tests}
    return () if kinds - {None, Landmark.COPY_WAIT} else tests  # asking for memory has one, too


def _asks(flow: Flow, at: int) -> bool:
    """Whether an instruction tests a barrier, or asks for tensor memory that may not be free."""
    instruction = flow.code.instructions[at]
    return landmark(instruction.opcode) is Landmark.MBARRIER_WAIT or instruction.op == ALLOCATES


def _polls(flow: Flow, body: list[int]) -> tuple[int, ...]:
    """Return the load of a flag that others set: always from one address, past what is cached.

    A loop that changes memory itself has none.
    """
    code, effects = flow.code.instructions, [flow.effects[at] for at in body]
    loads = [at for at in body if polled(code[at])]
    written = reduce(or_, (each.writes for each in effects))
    moves = any(flow.effects[at].reads & written for at in loads)
    changes = any(code[at].op.startswith(_CHANGES) for at in body)
    return () if len(loads) != 1 or moves or changes else tuple(loads)


def polled(instruction: Instruction) -> bool:
    """Return whether what an instruction loads may be changed by others meanwhile."""
    return landmark(instruction.opcode) is Landmark.LOAD and ".STRONG" in instruction.opcode


def after_spinning(flow: Flow, test: int, regions: Regions) -> Point:
    """Return where a wait ends that tests a barrier once, and spins elsewhere if it must.

    Args:
        flow: the kernel.
        test: the instruction that tests.
        regions: the kernel's stretches.
    """
    graph, start = flow.graph, Point(test)
    block = graph.block(test)
    ahead = [next_ for to in graph.after[block] for next_ in (to, *graph.after[to])]
    for number in ahead:
        one = graph.blocks[number]
        if one.first < one.end and not regions.why_not(start, Point(one.first)):
            return Point(one.first)
    return Point(test, after=True)
