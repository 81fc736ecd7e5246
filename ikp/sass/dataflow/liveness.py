"""``Liveness``: the registers that are live before each instruction, by backward dataflow.

It is computed from the operands' text, conservatively: too many registers are live rather than too
few. Tests compare it with nvdisasm's life ranges. The verifier checks each patched kernel by rules
of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_

import numpy as np
from numpy.typing import NDArray

from ikp.sass.control_flow.flow import Flow
from ikp.sass.control_flow.graph import reversed_edges
from ikp.sass.disassembly.effects import EVERYTHING, Effects, R, bit, span, table
from ikp.sass.disassembly.listing import Code
from ikp.sass.disassembly.opcodes import Work, work_of

_ARGUMENTS = span(R.first, 32)
"""Arguments are in a function's first registers."""
_SOON = 8
"""A trap that ends the kernel comes within so many instructions behind a call."""
_STACK = 1 << bit("R1")
"""The stack pointer: live from the first instruction on, whether it is used or not."""


@dataclass(frozen=True)
class Liveness:
    """The live registers before each instruction of one kernel."""

    flow: Flow
    asserts: frozenset[int] = frozenset()  # calls that end the kernel, from ``asserts``
    addressed: Mapping[int, int] = field(default_factory=dict)
    """Registers that instructions read beside their operands, from ``idioms.addressed``."""

    @cached_property
    def table(self) -> NDArray[np.bool_]:
        """The live registers: rows of instructions, a column for each bit of a register set."""
        return table(self.own)

    @cached_property
    def effects(self) -> list[Effects]:
        """What each instruction reads and writes."""
        found = list(self.flow.effects)
        for at, registers in self.addressed.items():
            found[at] = found[at]._replace(reads=found[at].reads | registers)
        return found

    def named(self, instructions: Iterable[int]) -> int:
        """Return all registers that some instructions read or write, as bits."""
        every = self._names
        return reduce(or_, [every[at] for at in instructions], 0)

    @cached_property
    def _names(self) -> list[int]:
        """All registers that each instruction reads or writes, as bits."""
        return [each.reads | each.writes for each in self.effects]

    @cached_property
    def own(self) -> list[int]:
        """The live registers before each instruction, as bits."""
        effects = self.effects
        live = [0] * len(effects)
        for block, leaving in zip(self.flow.graph.blocks, self._leaving, strict=True):
            now = leaving
            for at in range(block.end - 1, block.first - 1, -1):
                effect = effects[at]
                now = effect.reads | (now & ~effect.kills)
                live[at] = now | _STACK
        return live

    @cached_property
    def used(self) -> int:
        """All registers that the kernel names anywhere, as bits."""
        return reduce(or_, self._names, 0)

    @cached_property
    def _leaving(self) -> list[int]:
        """For each block, the live registers at its end."""
        summary = [self._summary(block.first, block.end) for block in self.flow.graph.blocks]
        after = with_calls(self.flow)
        before = reversed_edges(after)
        unknown = self._unknown_calls
        leaving = [unknown.get(block, 0) for block in range(len(after))]
        entering = [0] * len(after)
        work = list(range(len(after)))
        waiting = set(work)
        while work:
            block = work.pop()
            waiting.discard(block)
            for to in after[block]:
                leaving[block] |= entering[to]
            reads, kills = summary[block]
            now = reads | (leaving[block] & ~kills)
            if now != entering[block]:
                entering[block] = now
                more = [each for each in before[block] if each not in waiting]
                work += more
                waiting.update(more)
        return leaving

    def _summary(self, first: int, end: int) -> tuple[int, int]:
        """Return the registers that a block reads before it defines them, and those it defines."""
        reads = kills = 0
        for effect in self.effects[first:end][::-1]:
            reads = effect.reads | (reads & ~effect.kills)
            kills |= effect.kills
        return reads, kills

    @cached_property
    def _unknown_calls(self) -> dict[int, int]:
        """The blocks that end in a call out of this code, and the registers it may read."""
        graph = self.flow.graph
        return {
            graph.block(at): _ARGUMENTS if self._ends(at) else EVERYTHING
            for at, tos in graph.jumps.calls.items()
            if not tos
        }

    @property
    def leaving_calls(self) -> list[int]:
        """The calls out of this code that may return: not those that end in a trap."""
        calls = self.flow.graph.jumps.calls.items()
        return [at for at, tos in calls if not tos and not self._ends(at)]

    def _ends(self, call: int) -> bool:
        return call in self.asserts or _traps(self.flow.code, call + 1)


def _traps(code: Code, at: int) -> bool:
    """Return whether a trap follows that ends the kernel, as behind an assert, or a printf.

    Only moves and sums, of which no user would make a range, may precede the trap.
    """
    for each in code.instructions[at : at + _SOON]:
        if each.op == "BPT":
            return not each.guard
        if work_of(each) not in (Work.INTEGER, Work.NOTHING):
            return False
    return False


def with_calls(flow: Flow) -> list[list[int]]:
    """Return the successors of each block with calls: into the function, and back to any call."""
    graph = flow.graph
    after = [list(tos) for tos in graph.after]
    back = [graph.block(at + 1) for at in graph.jumps.calls if at + 1 < len(flow.code.instructions)]
    for at, tos in graph.jumps.calls.items():
        after[graph.block(at)] += [graph.block(to) for to in tos]
    for at in graph.jumps.returns:
        after[graph.block(at)] += back
    return after
