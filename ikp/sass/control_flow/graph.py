"""``Graph``: the basic blocks of one kernel and the edges between them (the control-flow graph).

Where a jump may also fall through, an empty block lies on that edge. So each edge on which code can
be inserted has a block, and dominance between two points is dominance between two blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from ikp.sass.control_flow.jumps import Jumps
from ikp.sass.disassembly.listing import Code


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions ``first`` to ``end`` - 1, which run one after the other. May be empty."""

    first: int
    end: int


@dataclass(frozen=True)
class Graph:
    """The blocks of one kernel. The first one is where it starts."""

    code: Code

    @cached_property
    def jumps(self) -> Jumps:
        """The branches, calls and exits."""
        return Jumps(self.code)

    @cached_property
    def _starts(self) -> list[int]:
        """The index of each instruction that begins a block."""
        count = len(self.code.instructions)
        starts = {0} | {at + 1 for at in self.jumps.leaving} | {at + 1 for at in self.jumps.calls}
        starts |= {to for ways in self.jumps.leaving.values() for to, _ in ways}
        starts |= {to for tos in self.jumps.calls.values() for to in tos}
        return sorted(start for start in starts if start < count)

    @cached_property
    def blocks(self) -> list[Block]:
        """All blocks, in the order of their code; empty ones for falling through come last."""
        ends = [*self._starts[1:], len(self.code.instructions)]
        full = [Block(first, end) for first, end in zip(self._starts, ends, strict=True)]
        return full + [Block(at + 1, at + 1) for at in self.falls]

    @cached_property
    def falls(self) -> dict[int, int]:
        """Jump that may fall through -> the empty block on that edge."""
        leaving = self.jumps.leaving.items()
        found = [
            at
            for at, ways in leaving
            if any(to == at + 1 for to, _ in ways) and (len(ways) > 1 or self.jumps.ends(at))
        ]
        return {at: len(self._starts) + n for n, at in enumerate(found)}

    def block(self, at: int) -> int:
        """Return the block that holds an instruction."""
        return bisect_right(self._starts, at) - 1

    @cached_property
    def after(self) -> list[list[int]]:
        """The successors of each block."""
        found: list[list[int]] = []
        count = len(self.code.instructions)
        for block in self.blocks[: len(self._starts)]:
            last = block.end - 1
            ways = self.jumps.leaving.get(last, [(block.end, "")])
            fall = self.falls.get(last)
            tos = {
                fall if fall is not None and to == block.end else self.block(to)
                for to, _ in ways
                if to < count
            }
            found.append(sorted(tos))
        falls = [[self.block(at + 1)] if at + 1 < count else [] for at in self.falls]
        return found + falls

    @cached_property
    def before(self) -> list[list[int]]:
        """The predecessors of each block."""
        return inverse(self.after)

    @cached_property
    def order(self) -> list[int]:
        """The blocks that can be reached, in reverse postorder."""
        return depth_first(self.after, 0)[::-1]

    @cached_property
    def leaves(self) -> set[int]:
        """The blocks after which the kernel may end."""
        return {self.block(at) for at in self.jumps.leaving if self.jumps.ends(at)} | {
            block for block, tos in enumerate(self.after) if not tos
        }


Ways = list[list[int]] | dict[int, list[int]]
"""Edges: block -> blocks."""


def inverse(after: list[list[int]]) -> list[list[int]]:
    """Return the predecessors of each block, from the successors."""
    found: list[list[int]] = [[] for _ in after]
    for block, tos in enumerate(after):
        for to in tos:
            found[to].append(block)
    return found


def depth_first(after: Ways, start: int) -> list[int]:
    """Return the blocks that can be reached from one, in postorder."""
    seen: set[int] = set()
    order: list[int] = []
    work: list[tuple[int, bool]] = [(start, False)]
    while work:
        block, done = work.pop()
        if done:
            order.append(block)
        elif block not in seen:
            seen.add(block)
            work.append((block, True))
            work += [(to, False) for to in after[block] if to not in seen]
    return order
