"""Control flow of one kernel: dominators, predecessors of instructions, loops, and divergence.

The dominator tree of basic blocks is made by the algorithm of Cooper, Harvey and Kennedy.

Divergence is where threads of one warp may be apart. Where threads diverge and common code follows,
a compiler marks the region (BSSY) and makes them reconverge (BSYNC). Where only the kernel's end
follows, it does not: threads diverge for good, and run blocks that both paths reach more than once.
A uniform jump causes no divergence. A jump of which one path only ends leaves one group of threads
that still works.

Collective bodies are code that the threads of a diverged warp run together. ``WARPSYNC.COLLECTIVE``
gathers the threads of a mask, or all of them (``.ALL``). They run the instructions up to
``ENDCOLLECTIVE`` as one, and each goes on at the label that ``WARPSYNC`` names. Compilers put
shuffles, votes and barriers there, on the slow path behind ``BRA.DIV``. A probe in such a body
would run with lanes that are inactive around it, so no probe is inserted there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ikp.sass.control_flow.graph import Graph, Ways, depth_first, reached
from ikp.sass.disassembly.effects import Effects, effects_of
from ikp.sass.disassembly.listing import Code


@dataclass(frozen=True)
class Dominance:
    """The dominator tree: each block's parent is its immediate dominator."""

    entered: dict[int, int]  # the number of a block in a preorder walk of the tree
    left: dict[int, int]  # ... and how many blocks the walk has entered when it leaves the block

    def holds(self, above: int, below: int) -> bool:
        """Whether every path to ``below`` passes ``above``; False where no path leads there."""
        if above not in self.entered or below not in self.entered:
            return False
        return self.entered[above] <= self.entered[below] and self.left[below] <= self.left[above]

    def below(self, some: Iterable[int]) -> set[int]:
        """Return the blocks that some others strictly dominate."""
        inside = bytearray(len(self.entered))
        for block in some:
            if block in self.entered:
                first, end = self.entered[block] + 1, self.left[block]
                inside[first:end] = b"\1" * (end - first)
        return {block for block, at in self.entered.items() if inside[at]}


def dominance(order: Sequence[int], before: Ways) -> Dominance:
    """Return the dominator tree of some blocks.

    Args:
        order: the blocks in reverse postorder, the start first.
        before: for each block, those that may come before it.
    """
    parents = _parents(order, before)
    below: dict[int, list[int]] = {}
    for block, parent in parents.items():
        if block != parent:
            below.setdefault(parent, []).append(block)
    return _walked(order[0], below)


def _common(parents: dict[int, int], number: dict[int, int], a: int, b: int) -> int:
    """Return the nearest common ancestor of two blocks, which are numbered in order."""
    while a != b:
        while number[a] > number[b]:
            a = parents[a]
        while number[b] > number[a]:
            b = parents[b]
    return a


def _parents(order: Sequence[int], before: Ways) -> dict[int, int]:
    number = {block: n for n, block in enumerate(order)}
    parents = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            known = [each for each in before[block] if each in parents]
            parent = known[0]
            for other in known[1:]:
                parent = _common(parents, number, parent, other)
            if parents.get(block) != parent:
                parents[block] = parent
                changed = True
    return parents


def _walked(start: int, below: dict[int, list[int]]) -> Dominance:
    entered: dict[int, int] = {}
    left: dict[int, int] = {}
    work = [(start, False)]
    while work:
        block, done = work.pop()
        if done:
            left[block] = len(entered)
        else:
            entered[block] = len(entered)
            work.append((block, True))
            work += [(each, False) for each in below.get(block, ())]
    return Dominance(entered, left)


class Edge(NamedTuple):
    """An edge from the instruction ``source``; taken only where ``guard`` holds, if not empty."""

    source: int
    guard: str


@dataclass(frozen=True, slots=True)
class Loop:
    """A natural loop: the index of its first instruction, and of all of them."""

    header: int
    body: frozenset[int]


@dataclass(frozen=True)
class Flow:
    """The control flow of one kernel. Instructions go by their index."""

    code: Code

    @cached_property
    def graph(self) -> Graph:
        """The basic blocks."""
        return Graph(self.code)

    @cached_property
    def effects(self) -> list[Effects]:
        """What each instruction reads and writes, as far as its operands say."""
        return effects_of(self.code)

    @cached_property
    def before(self) -> list[list[Edge]]:
        """The predecessors of each instruction."""
        edges: list[list[Edge]] = [[] for _ in self.code.instructions]
        leaving = self.graph.jumps.leaving
        for at in range(len(edges)):
            for to, guard in leaving.get(at, ((at + 1, ""),)):
                if to < len(edges):
                    edges[to].append(Edge(at, guard))
        return edges

    def after(self, at: int) -> list[int]:
        """Return the successors of an instruction."""
        ways = self.graph.jumps.leaving.get(at, ((at + 1, ""),))
        return [to for to, _ in ways if to < len(self.code.instructions)]

    @cached_property
    def dominance(self) -> Dominance:
        """The dominator tree of the basic blocks."""
        return dominance(self.graph.order, self.graph.before)

    @cached_property
    def post_dominance(self) -> Dominance:
        """The tree of which blocks every path from a block to the kernel's end passes."""
        graph = self.graph
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

    def until_joined(self, block: int) -> set[int]:
        """Return the blocks after one up to where all paths from it meet again."""
        after, joined = self.graph.after, self.post_dominance.holds
        return reached(
            after[block], after.__getitem__, lambda each: each != block and not joined(each, block)
        )

    @cached_property
    def bodies(self) -> dict[int, frozenset[int]]:
        """For each natural loop, its first block -> all its blocks; outer loops come first."""
        found: dict[int, set[int]] = {}
        for block in self.graph.order:
            for to in self.graph.after[block]:
                if self.dominance.holds(to, block):
                    found.setdefault(to, {to}).update(self._body(to, block))
        outer_first = sorted(found.items(), key=lambda item: -len(item[1]))
        return {header: frozenset(body) for header, body in outer_first}

    @cached_property
    def loops(self) -> list[Loop]:
        """The loops, outer ones before the loops in them."""
        blocks = self.graph.blocks
        loops = [
            Loop(blocks[header].first, self.instructions(body))
            for header, body in self.bodies.items()
        ]
        return sorted(loops, key=lambda loop: -len(loop.body))

    def loop_of(self, at: int) -> Loop | None:
        """Return the innermost loop around an instruction."""
        return next(reversed(self.loops_around(at)), None)

    def loops_around(self, at: int) -> tuple[Loop, ...]:
        """Return the loops around an instruction, outer ones first."""
        return self._around.get(self.graph.block(at), ())

    @cached_property
    def _around(self) -> dict[int, tuple[Loop, ...]]:
        """The loops around each block that is in any."""
        found: dict[int, tuple[Loop, ...]] = {}
        headers = {self.graph.block(loop.header): loop for loop in self.loops}
        for header, loop in headers.items():
            for block in self.bodies[header]:
                found[block] = (*found.get(block, ()), loop)
        return found

    def instructions(self, body: frozenset[int]) -> frozenset[int]:
        """Return the instructions of some blocks."""
        blocks = [self.graph.blocks[block] for block in body]
        return frozenset(at for block in blocks for at in range(block.first, block.end))

    def _body(self, header: int, last: int) -> set[int]:
        """Return the blocks that reach a back edge without passing the header."""
        return reached([last], self.graph.before.__getitem__, lambda block: block != header)


_BEGINS = "WARPSYNC.COLLECTIVE"


def collective_bodies(code: Code) -> dict[int, int]:
    """Return the instructions of collective bodies, before which no code can be inserted.

    Returns:
        Index of an instruction -> index of the ``WARPSYNC.COLLECTIVE`` whose body it is in.
    """
    found: dict[int, int] = {}
    for at in code.having(lambda opcode: opcode.startswith(_BEGINS)):
        ends = [code.labels[name] for name in code.instructions[at].targets if name in code.labels]
        found |= dict.fromkeys(range(at + 1, max(ends, default=at)), at)
    return found


_ENDING = ("BRA", "EXIT", "NOP")
"""Instructions of a block that does nothing but end the kernel."""


@dataclass(frozen=True, slots=True)
class Parted:
    """Blocks that threads of a warp may reach apart, and blocks in which the others may be then."""

    blocks: set[int]
    others: set[int]


def reconverging(flow: Flow) -> Iterator[Parted]:
    """Yield the blocks between a BSSY, where threads may diverge, and their reconvergence."""
    graph, code = flow.graph, flow.code
    syncs = defaultdict[str, set[int]](set)  # the blocks that end in one, by its barrier
    for at in code.of("BSYNC"):
        syncs[code.instructions[at].operands[0]].add(graph.block(at))
    around: list[tuple[int, set[int]]] = []
    for at in code.of("BSSY"):
        instruction, block = code.instructions[at], graph.block(at)
        met = {graph.block(code.labels[t]) for t in instruction.targets if t in code.labels}
        found = _until(flow, block, met, syncs[instruction.operands[0]] - met)
        for outer, blocks in around:  # threads that BREAK out of the inner meet at the outer
            if block in blocks or block == outer:
                found &= blocks
        around.append((block, found))
        yield Parted(found, found | met)


def _until(flow: Flow, start: int, met: set[int], last: set[int]) -> set[int]:
    """Return the blocks after one, up to ``met`` and with ``last``."""
    after = flow.graph.after
    return reached(
        after[start],
        lambda block: () if block in last else after[block],
        lambda block: block not in met,
    )


def diverged_for_good(
    flow: Flow,
    noted: AbstractSet[int],
    leaving: Dominance,
    parts: Callable[[int], bool],
) -> Iterator[Parted]:
    """Yield the blocks that threads may reach apart after they diverged with no reconvergence.

    Args:
        flow: the kernel.
        noted: the blocks between a BSSY and its BSYNC.
        leaving: the post-dominance: which blocks every path to the kernel's end passes.
        parts: whether a jump, by its index, may be divergent.
    """
    works = {number for number in flow.graph.order if _works(flow, number)}
    meeting = leaving.below(works)  # behind these, common code follows
    begun = flow.code.of("BSSY")
    for block in flow.graph.order:
        jump = _unnoted(flow, block, begun) if block not in noted else None
        if jump is not None and block not in meeting and parts(jump):
            yield _apart(flow, block, works)


def _works(flow: Flow, number: int) -> bool:
    block = flow.graph.blocks[number]
    code = flow.code.instructions
    return any(code[at].op not in _ENDING for at in range(block.first, block.end))


def _unnoted(flow: Flow, number: int, begun: Sequence[int]) -> int | None:
    """Return the conditional jump at a block's end, if the block has no BSSY before it.

    Args:
        flow: the kernel.
        number: of the block.
        begun: the kernel's BSSY instructions, in order.
    """
    block = flow.graph.blocks[number]
    last = block.end - 1
    if len(set(flow.graph.after[number])) < 2 or last not in flow.graph.jumps.leaving:
        return None
    noted = bisect_left(begun, block.first) < bisect_left(begun, last)
    return None if noted else last


def _apart(flow: Flow, block: int, works: set[int]) -> Parted:
    """Return the blocks that threads may reach apart after they diverge at a block's end."""
    ways = [set(depth_first(flow.graph.after, to)) for to in {*flow.graph.after[block]}]
    shared = {number for way in ways for number in way if sum(number in each for each in ways) > 1}
    busy = [way for way in ways if (way - shared) & works]
    every = set[int]().union(*ways)
    return Parted(shared if len(busy) < 2 else every, every)
