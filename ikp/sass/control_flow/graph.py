"""Jumps, basic blocks, and the edges between them: the control-flow graph of one kernel.

Jumps are branches, calls, returns and exits, with targets and conditions. Where a jump may also
fall through, an empty block lies on that edge. So each edge on which code can be inserted has a
block, and dominance between two points is dominance between two blocks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TypeVar

from ikp.sass.disassembly.listing import Code, Instruction

Node = TypeVar("Node")

_JUMPS = frozenset(("BRA", "JMP", "BRX", "BRXU", "JMX", "JMXU"))
_ENDS = frozenset(("EXIT", "RET", "KILL"))
_ALWAYS = ("", "PT", "UPT")


@dataclass(frozen=True)
class Jumps:
    """The jumps of one kernel. Instructions go by their index."""

    code: Code

    @cached_property
    def leaving(self) -> dict[int, list[tuple[int, str]]]:
        """Jump -> (index, guard) of each successor; the guard is "" for one that always runs."""
        return {
            at: self._ways(at, i)
            for at, i in self._notable
            if i.op in _JUMPS or i.op in _ENDS or i.op == "BSYNC"
        }

    @cached_property
    def calls(self) -> dict[int, list[int]]:
        """Call -> the first instruction of the called function; empty for one outside this code.

        The successor of a call is the next instruction.
        """
        labels = self.code.labels
        return {
            at: [labels[name] for name in i.targets if name in labels]
            for at, i in self._notable
            if i.op == "CALL"
        }

    @cached_property
    def returns(self) -> list[int]:
        """The instructions that end a function, not the kernel."""
        return [at for at, i in self._notable if i.op == "RET"]

    def ends(self, at: int) -> bool:
        """Whether a function or the kernel may end at an instruction."""
        return self.code.instructions[at].op in _ENDS

    @cached_property
    def _notable(self) -> list[tuple[int, Instruction]]:
        return [(at, self.code.instructions[at]) for at in self.code.having(_NOTABLE.match)]

    def _ways(self, at: int, instruction: Instruction) -> list[tuple[int, str]]:
        op, condition = instruction.op, _condition(instruction)
        if op == "BSYNC":
            meeting = self._reconvergence(instruction)
            # Nearly always, its target is the next instruction; one barrier serves many regions.
            if at + 1 in meeting or not meeting:
                return [(at + 1, "")]
            return [(to, "") for to in sorted({*meeting, *([at + 1] if self._moved else [])})]
        if op in _JUMPS:
            taken = [(to, condition) for to in self._targets(instruction)]
            return taken if condition in _ALWAYS else [*taken, (at + 1, inverse(condition))]
        return [] if condition in _ALWAYS else [(at + 1, inverse(condition))]

    def _targets(self, instruction: Instruction) -> list[int]:
        """Return a jump's targets; for an indirect one, all labels that no instruction names."""
        labels = self.code.labels
        known = [labels[name] for name in instruction.targets if name in labels]
        return known or sorted(set(labels.values()) - self._named)

    @cached_property
    def _named(self) -> set[int]:
        labels = self.code.labels
        names = chain.from_iterable(self.code.naming.values())
        return {0} | {labels[name] for name in names if name in labels}

    @cached_property
    def _moved(self) -> bool:
        """Whether barriers are copied to and from registers, so that one may be any other."""
        return bool(self.code.of("BMOV"))

    @cached_property
    def _meetings(self) -> list[tuple[str, list[int]]]:
        """(barrier, the instructions at which threads go on that reconverge at it) of each BSSY."""
        labels = self.code.labels
        begun = map(self.code.instructions.__getitem__, self.code.of("BSSY"))
        return [
            (i.operands[0], [labels[name] for name in i.targets if name in labels])
            for i in begun
            if i.operands
        ]

    def _reconvergence(self, sync: Instruction) -> set[int]:
        """Return the instructions at which threads go on behind a BSYNC, from its BSSY.

        Where a kernel runs out of barriers, BMOV keeps some in registers and puts them back into
        others. Then every BSSY counts, of any barrier.
        """
        barrier = sync.operands[0] if sync.operands else ""
        return {to for each, tos in self._meetings if self._moved or each == barrier for to in tos}


_NOTABLE = re.compile(rf"(?:{'|'.join((*_JUMPS, *_ENDS, 'BSYNC', 'CALL'))})\b")


def inverse(guard: str) -> str:
    """Return the opposite of a guard."""
    return guard[1:] if guard.startswith("!") else f"!{guard}"


def _condition(jump: Instruction) -> str:
    """Return the predicate of a jump or an exit: its guard, or an operand; "?" for both at once."""
    if jump.opcode.startswith("BRA.DIV"):
        return "?"
    found = jump.conditions
    if jump.never_runs or not found:
        return jump.guard
    return found[0] if len(found) == 1 else "?"


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
        return reversed_edges(self.after)

    @cached_property
    def order(self) -> list[int]:
        """The blocks that can be reached, in reverse postorder."""
        return depth_first(self.after, 0)[::-1]

    @cached_property
    def exits(self) -> frozenset[int]:
        """The blocks in which threads may exit."""
        return frozenset(self.block(at) for at in self.code.of("EXIT"))

    @cached_property
    def leaves(self) -> set[int]:
        """The blocks after which the kernel may end."""
        return {self.block(at) for at in self.jumps.leaving if self.jumps.ends(at)} | {
            block for block, tos in enumerate(self.after) if not tos
        }


Ways = list[list[int]] | dict[int, list[int]]
"""Edges: block -> blocks."""


def reversed_edges(after: list[list[int]]) -> list[list[int]]:
    """Return the predecessors of each block, from the successors."""
    found: list[list[int]] = [[] for _ in after]
    for block, tos in enumerate(after):
        for to in tos:
            found[to].append(block)
    return found


def reached(
    starts: Iterable[Node],
    onward: Callable[[Node], Iterable[Node]],
    within: Callable[[Node], bool] = lambda _: True,
) -> set[Node]:
    """Return all that some nodes lead to, with themselves.

    Args:
        starts: the nodes: blocks, instructions, or states of a search.
        onward: returns the nodes right behind one; it is called once for each node.
        within: whether a node is part of the search; one that is not is neither found nor passed.
    """
    found = {*filter(within, starts)}
    work = [*found]
    while work:
        new = {*filter(within, {*onward(work.pop())} - found)}
        found |= new
        work += new
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
