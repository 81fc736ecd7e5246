"""Which registers hold a value that is still needed, before each instruction.

It is told from the operands' text, which takes too much to be live rather than too little. Tests
hold it against nvdisasm's life ranges, and the verifier, by rules of its own, each patched kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_

import numpy as np
from numpy.typing import NDArray

from ikp.sass.control_flow.flow import Flow
from ikp.sass.control_flow.graph import inverse
from ikp.sass.disassembly.effects import Effects
from ikp.sass.disassembly.listing import Code
from ikp.sass.disassembly.opcodes import Work, work_of
from ikp.sass.disassembly.resources import EVERYTHING, R, bit, span, table

_ARGUMENTS = span(R.first, 32)
"""Arguments are in a function's first registers."""
_SOON = 8
"""Instructions in which a trap comes that ends what a call has begun."""
_STACK = 1 << bit("R1")
"""The stack pointer is kept from the first instruction on, whether it is used or not."""


@dataclass(frozen=True)
class Liveness:
    """What is live before each instruction of one kernel."""

    flow: Flow
    asserts: frozenset[int] = frozenset()  # calls that end the kernel, from ``asserts``
    addressed: Mapping[int, int] = field(default_factory=dict)
    """What instructions read beside their operands, from ``emulated``."""

    @cached_property
    def table(self) -> NDArray[np.bool_]:
        """What is live: rows of instructions, a column for each bit of ``resources``."""
        return table(self.own)

    @cached_property
    def effects(self) -> list[Effects]:
        """What each instruction reads and writes."""
        found = list(self.flow.effects)
        for at, registers in self.addressed.items():
            found[at] = found[at]._replace(reads=found[at].reads | registers)
        return found

    def named(self, instructions: Iterable[int]) -> int:
        """Return all that some instructions read or write, as bits."""
        every = self._names
        return reduce(or_, [every[at] for at in instructions], 0)

    @cached_property
    def _names(self) -> list[int]:
        """All that each instruction reads or writes, as bits."""
        return [each.reads | each.writes for each in self.effects]

    @cached_property
    def own(self) -> list[int]:
        """The same as sets."""
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
        """All that the kernel names anywhere."""
        return reduce(or_, self._names, 0)

    @cached_property
    def _leaving(self) -> list[int]:
        """For each block, what is live at its end."""
        summary = [self._summary(block.first, block.end) for block in self.flow.graph.blocks]
        after = with_calls(self.flow)
        before = inverse(after)
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
        """Return what a block reads before it defines it, and what it defines."""
        reads = kills = 0
        for effect in self.effects[first:end][::-1]:
            reads = effect.reads | (reads & ~effect.kills)
            kills |= effect.kills
        return reads, kills

    @cached_property
    def _unknown_calls(self) -> dict[int, int]:
        """The blocks that end in a call of something that isn't here, and what that may read."""
        graph = self.flow.graph
        return {
            graph.block(at): _ARGUMENTS if self._ends(at) else EVERYTHING
            for at, tos in graph.jumps.calls.items()
            if not tos
        }

    @property
    def leaving_calls(self) -> list[int]:
        """The calls of something that isn't here, behind which it goes on: not into a trap."""
        calls = self.flow.graph.jumps.calls.items()
        return [at for at, tos in calls if not tos and not self._ends(at)]

    def _ends(self, call: int) -> bool:
        return call in self.asserts or _traps(self.flow.code, call + 1)


def _traps(code: Code, at: int) -> bool:
    """Return whether what is next ends the kernel, as it does behind an assert, or behind a printf
    in front of a trap: only moves and sums, which nobody would record, may precede that.
    """
    for each in code.instructions[at : at + _SOON]:
        if each.op == "BPT":
            return not each.guard
        if work_of(each) not in (Work.INTEGER, Work.NOTHING):
            return False
    return False


def with_calls(flow: Flow) -> list[list[int]]:
    """Return what may follow each block; a call leads into its function, too, and back to any."""
    graph = flow.graph
    after = [list(tos) for tos in graph.after]
    back = [graph.block(at + 1) for at in graph.jumps.calls if at + 1 < len(flow.code.instructions)]
    for at, tos in graph.jumps.calls.items():
        after[graph.block(at)] += [graph.block(to) for to in tos]
    for at in graph.jumps.returns:
        after[graph.block(at)] += back
    return after
