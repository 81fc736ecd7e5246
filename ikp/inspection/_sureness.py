"""``Sureness``: whether an instruction runs at least once whenever its range, or its kernel, does.

It does not where a path through the range passes it by, or a path from it leaves the range with no
record. Loops are not looked at: it may run more than once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ikp.inspection._record import Span
from ikp.sass.control_flow.flow import Dominance, Flow, dominance
from ikp.sass.control_flow.graph import Graph, depth_first, reached

_BEGIN = -1
"""The node before a range's first block: a loop may come back to that block itself."""


@dataclass(frozen=True)
class Sureness:
    """Answers for one kernel."""

    flow: Flow
    _inside: dict[int, tuple[Span, _Inside]] = field(default_factory=dict)
    """By the identity of a span, which has thousands of instructions to hash."""

    def surely(self, span: Span, at: int) -> bool:
        """Return whether an instruction between a range's clock reads runs whenever it does."""
        graph = self.flow.graph
        first, own, last = map(graph.block, (span.start, at, span.end))
        if first == last and span.start < span.end:
            return span.start < at < span.end
        found = self._blocks_of(span)
        before = (own == first and at > span.start) or (own == last and at < span.end)
        ends = own == last and at <= span.end
        return (before or found.passes(own)) and (ends or not found.leaves(own))

    def _blocks_of(self, span: Span) -> _Inside:
        graph = self.flow.graph
        if id(span) not in self._inside:
            first, last = graph.block(span.start), graph.block(span.end)
            inside = frozenset({*_blocks(graph, span.contents), last})
            self._inside[id(span)] = span, _Inside(graph, first, last, inside)
        return self._inside[id(span)][1]

    def always(self, at: int) -> bool:
        """Return whether each warp of a kernel runs an instruction, once or more."""
        own, dominance = self.flow.graph.block(at), self.flow.dominance
        reached = self.flow.graph.exits & dominance.entered.keys()
        return not own or all(each == own or dominance.holds(own, each) for each in reached)


@dataclass(frozen=True)
class _Inside:
    """The blocks of one range, from that of its start to that of its end.

    Empty blocks, of jumps that fall through, lead on.
    """

    graph: Graph
    first: int
    last: int
    blocks: frozenset[int]

    def passes(self, own: int) -> bool:
        """Whether each path from the start to the end goes through a block."""
        if self.last not in self._tree.entered:
            return True
        return own != self.last and self._tree.holds(own, self.last)

    def leaves(self, own: int) -> bool:
        """Whether a path from a block leaves the range before its end."""
        return any(to in self._leaving for to in self.graph.after[own])

    @cached_property
    def _ways(self) -> dict[int, list[int]]:
        """The edges within the range: block -> blocks."""
        after = self.graph.after
        found, work = {_BEGIN: after[self.first]}, [*after[self.first]]
        while work:
            block = work.pop()
            if block not in found:
                found[block] = after[block] if self._leads_on(block) else []
                work += found[block]
        return found

    @cached_property
    def _tree(self) -> Dominance:
        before: dict[int, list[int]] = {block: [] for block in self._ways}
        for block, tos in self._ways.items():
            for to in tos:
                before[to].append(block)
        return dominance(depth_first(self._ways, _BEGIN)[::-1], before)

    @cached_property
    def _leaving(self) -> set[int]:
        """The blocks outside of the range, and those from which a path leaves it."""
        outside = {each for each in range(len(self.graph.blocks)) if self._is_outside(each)}
        return reached(outside, lambda each: filter(self._leads_on, self.graph.before[each]))

    def _leads_on(self, block: int) -> bool:
        return block != self.last and (block in self.blocks or self._is_empty(block))

    def _is_outside(self, block: int) -> bool:
        return block not in self.blocks and not self._is_empty(block)

    def _is_empty(self, block: int) -> bool:
        return self.graph.blocks[block].first == self.graph.blocks[block].end


def _blocks(graph: Graph, contents: Sequence[int]) -> set[int]:
    """Return the blocks of sorted instructions, of which an unrolled loop has thousands in one."""
    found, place = set[int](), 0
    while place < len(contents):
        block = graph.block(contents[place])
        found.add(block)
        place = bisect_left(contents, graph.blocks[block].end, place)
    return found
