"""Instruction mixes: how many instructions of each unit a range executes, by where they are.

Those of a range are executed once for each record, at most once (under a condition), or as often as
a loop goes round that no record counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from ikp.core.work_facts import LoopFacts
from ikp.sass.control_flow.dominance import Dominance, dominance
from ikp.sass.control_flow.flow import Flow
from ikp.sass.control_flow.graph import depth_first
from ikp.sass.dataflow.lane_state import DATA, LANE
from ikp.sass.dataflow.lane_values import LaneValues
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.units import unit_of

ONCE, MAYBE, LOOPED = range(3)
"""How often an instruction is executed in one execution of its range."""


def mix(flow: Flow, how_often: Mapping[int, int]) -> dict[str, tuple[int, int, int]]:
    """Return the mix of some instructions.

    Args:
        flow: the kernel.
        how_often: ``ONCE``, ``MAYBE`` or ``LOOPED`` for each instruction.
    """
    counts: dict[str, list[int]] = {}
    for at, often in how_often.items():
        if unit := unit_of(flow.code.instructions[at]):
            counts.setdefault(unit, [0, 0, 0])[often] += 1
    return {unit: (a, b, c) for unit, (a, b, c) in sorted(counts.items())}


def loops(flow: Flow, ours: set[int]) -> tuple[LoopFacts, ...]:
    """Return the mix of each loop without the loops in it, after that of the code in no loop."""
    found: dict[int, Counter[str]] = {-1: Counter()}
    found |= {loop.header: Counter() for loop in flow.loops}
    for at, each in enumerate(flow.code.instructions):
        unit = unit_of(each)
        if at not in ours and unit:
            loop = flow.loop_of(at)
            found[-1 if loop is None else loop.header][unit] += 1
    depth = {
        loop.header: sum(loop.header in other.body for other in flow.loops) for loop in flow.loops
    }
    return tuple(
        LoopFacts(
            "" if header < 0 else line_of(flow, [header]),
            depth.get(header, 0),
            dict(sorted(counts.items())),
        )
        for header, counts in found.items()
        if counts
    )


def sums(instructions: Iterable[Instruction]) -> int:
    """Return how many FP32 multiply-adds sum up products of registers in a register of their own.

    So do products of matrices, whatever they are written as.
    """
    return sum(_sums(each) for each in instructions)


def _sums(each: Instruction) -> bool:
    if each.op not in ("FFMA", "FFMA2", "DFMA") or len(each.operands) < 4:
        return False
    target, a, b, c = each.operands[:4]
    factors = {a.lstrip("-"), b.lstrip("-")}
    return (
        c == target and all(one[0] == "R" and one != "RZ" for one in factors) and c not in factors
    )


def line_of(flow: Flow, instructions: Iterable[int]) -> str:
    """Return the source line that most of some instructions come from: ``"matmul.py:93"``.

    Of inlined functions, the line of the kernel that calls them.
    """
    lines = Counter(
        each.lines[-1] for at in instructions if (each := flow.code.instructions[at]).lines
    )
    if not lines:
        return ""
    line = max(lines, key=lambda one: (lines[one], -one.number))
    return f"{line.file}:{line.number}"


@dataclass(frozen=True)
class Divergence:
    """The instructions that lanes of a warp may run apart, because of the data that they loaded."""

    flow: Flow
    values: LaneValues

    @cached_property
    def apart(self) -> frozenset[int]:
        """Instructions under a condition, or in a loop, that lanes decide by their data."""
        graph, found = self.flow.graph, set[int]()
        for block in graph.order:
            ways = {*graph.after[block]}
            last = graph.blocks[block].end - 1
            if len(ways) < 2 or not self._by_data(last):
                continue
            body = self._innermost(block)
            if body and any(self._beyond(way, body) for way in ways):
                found |= body
            found |= self._until_joined(block)
        every = {at for one in found for at in self._of_block(one)}
        return frozenset(every)

    def _by_data(self, jump: int) -> bool:
        depends = self.values.branch(jump)
        return bool(depends & DATA) and bool(depends & LANE)

    def _beyond(self, way: int, body: frozenset[int]) -> bool:
        """Whether a way leaves a loop; empty blocks for falling through lead on."""
        blocks = self.flow.graph.blocks
        while blocks[way].first == blocks[way].end and self.flow.graph.after[way]:
            way = self.flow.graph.after[way][0]
        return way not in body

    def _innermost(self, block: int) -> frozenset[int]:
        """Return the blocks of the innermost loop around a block; none without a loop."""
        around = (body for body in self.flow.bodies.values() if block in body)
        return min(around, key=len, default=frozenset())

    def _of_block(self, number: int) -> range:
        block = self.flow.graph.blocks[number]
        return range(block.first, block.end)

    def _until_joined(self, block: int) -> set[int]:
        """Return the blocks after one up to where all paths from it meet again."""
        found, work = set[int](), [*self.flow.graph.after[block]]
        while work:
            number = work.pop()
            if number in found or number == block or self._leaving.holds(number, block):
                continue
            found.add(number)
            work += self.flow.graph.after[number]
        return found

    @cached_property
    def _leaving(self) -> Dominance:
        """Which blocks all paths from a block to the kernel's end pass."""
        graph = self.flow.graph
        end = len(graph.blocks)
        after: dict[int, list[int]] = {number: [*graph.after[number]] for number in graph.order}
        for number in graph.order:
            if not after[number] or number in graph.leaves:
                after[number].append(end)
        after[end] = []
        before: dict[int, list[int]] = {number: [] for number in after}
        for number, tos in after.items():
            for to in tos:
                before[to].append(number)
        return dominance(depth_first(before, end)[::-1], after)
