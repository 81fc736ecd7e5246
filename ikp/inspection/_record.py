"""Records in machine code, and whether an instruction runs at least once whenever its range does.

It does not where a path through the range passes it by, or a path from it leaves the range with no
record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from ikp.sass.control_flow.flow import Flow
from ikp.sass.control_flow.graph import Graph


@dataclass(frozen=True, slots=True)
class Span:
    """One pair of clock reads that a record's words can come from, and what lies between."""

    start: int  # index of the clock read; an instant's is its end
    end: int
    contents: tuple[int, ...]  # indices of the instructions on any path from start to end, sorted

    def holds(self, at: int) -> bool:
        """Return whether an instruction is on a path from start to end."""
        place = bisect_left(self.contents, at)
        return place < len(self.contents) and self.contents[place] == at


@dataclass(frozen=True, slots=True)
class Record:
    """One record in machine code."""

    stores: tuple[int, ...]  # indices of the instructions: one to three
    tag: int | None  # None: made at run time
    spans: tuple[Span, ...]

    @property
    def store(self) -> int:
        """Index of the store of its times, which others may share: see ``_gathered``."""
        return self.stores[0]


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """What there is of ikp in one kernel."""

    records: tuple[Record, ...]
    clocks: tuple[int, ...]  # every clock read that is as wide as records have them
    unresolved: tuple[int, ...]  # stores of an end whose start, or thread, was not found
    published: tuple[int, ...] = ()  # stores that say what a stream's warp has recorded, and does


def runs_surely(flow: Flow, span: Span, at: int) -> bool:
    """Return whether an instruction between a range's clock reads runs whenever the range does.

    Loops are not looked at: it may run more than once.
    """
    graph = flow.graph
    first, own, last = (graph.block(each) for each in (span.start, at, span.end))
    if first == last and span.start < span.end:
        return span.start < at < span.end
    inside = _blocks(graph, span.contents) | {last}
    before = (own == first and at > span.start) or (own == last and at < span.end)
    passed = before or last not in _reached(graph, first, inside - {own}, last)
    left = _reached(graph, own, inside, last) - inside if own != last or at > span.end else set()
    return passed and not left


def _blocks(graph: Graph, contents: Sequence[int]) -> set[int]:
    """Return the blocks of sorted instructions, of which an unrolled loop has thousands in one."""
    found, place = set[int](), 0
    while place < len(contents):
        block = graph.block(contents[place])
        found.add(block)
        place = bisect_left(contents, graph.blocks[block].end, place)
    return found


def runs_always(flow: Flow, at: int) -> bool:
    """Return whether each warp of a kernel runs an instruction, once or more."""
    graph, own = flow.graph, flow.graph.block(at)
    others = {*range(len(graph.blocks))} - {own}
    before = _reached(graph, 0, others, own) | {0} if own else set()
    return not any(
        each.op == "EXIT"
        for block in before - {own}
        for each in flow.code.instructions[graph.blocks[block].first : graph.blocks[block].end]
    )


def _reached(graph: Graph, begin: int, through: set[int], last: int) -> set[int]:
    """Return the blocks that come after one, on ways through some blocks that end at the last.

    Empty blocks, of jumps that fall through, lead on.
    """
    found: set[int] = set()
    work = [*graph.after[begin]]
    while work:
        block = work.pop()
        if block in found:
            continue
        empty = graph.blocks[block].first == graph.blocks[block].end
        if not empty:
            found.add(block)
        if block != last and (empty or block in through):
            work += graph.after[block]
    return found
