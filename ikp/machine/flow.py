"""Where control goes in machine code: what may run before what, and the loops."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from ikp.machine.sass import Code, Instruction

_JUMPS = ("BRA", "JMP", "BRX", "BRXU", "JMX", "JMXU")
_ENDS = ("EXIT", "RET", "KILL")
_ALWAYS = ("", "PT", "UPT")
_PREDICATE = re.compile(r"^!?U?P\d$")


@dataclass(frozen=True, slots=True)
class Edge:
    """Control comes from ``source``; if ``guard`` is not empty, only where it holds."""

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
    def before(self) -> list[list[Edge]]:
        """For each instruction, what may run right before it."""
        edges: list[list[Edge]] = [[] for _ in self.code.instructions]
        for at, instruction in enumerate(self.code.instructions):
            for to, guard in self._after(at, instruction):
                if to < len(edges):
                    edges[to].append(Edge(at, guard))
        return edges

    @cached_property
    def after(self) -> list[list[int]]:
        """For each instruction, what may run right after it."""
        found: list[list[int]] = [[] for _ in self.code.instructions]
        for to, edges in enumerate(self.before):
            for edge in edges:
                found[edge.source].append(to)
        return found

    @cached_property
    def loops(self) -> list[Loop]:
        """The loops, outer ones before the loops in them."""
        found: dict[int, set[int]] = {}
        dominators = self._dominators()
        for header, edges in enumerate(self.before):
            for edge in edges:
                if header in dominators.get(self._block[edge.source], ()):
                    found.setdefault(header, {header}).update(self._body(header, edge.source))
        loops = [Loop(header, frozenset(body)) for header, body in found.items()]
        return sorted(loops, key=lambda loop: -len(loop.body))

    def loop_of(self, at: int) -> Loop | None:
        """Return the innermost loop around an instruction."""
        return next((loop for loop in reversed(self.loops) if at in loop.body), None)

    def _after(self, at: int, instruction: Instruction) -> list[tuple[int, str]]:
        """Return (index, guard) of what may run next."""
        guard, op = instruction.guard, instruction.op
        if op == "BSYNC":
            meeting = self._reconvergence(instruction)
            # It nearly always stands right before where it leads; one barrier serves many places.
            follows = at + 1 in meeting or not meeting
            return [(at + 1, "")] if follows else [(to, "") for to in meeting]
        if op in _JUMPS:
            guard = _branch_guard(instruction)
            taken = [(to, guard) for to in self._targets(instruction)]
            return taken if guard in _ALWAYS else [*taken, (at + 1, inverse(guard))]
        if op in _ENDS:
            return [] if guard in _ALWAYS else [(at + 1, inverse(guard))]
        return [(at + 1, "")]  # a call comes back

    def _targets(self, instruction: Instruction) -> list[int]:
        """Return where a jump goes; all code that nothing else leads to, where it doesn't say."""
        labels = self.code.labels
        known = [labels[name] for name in instruction.targets if name in labels]
        return known or sorted(set(labels.values()) - self._named)

    @cached_property
    def _named(self) -> set[int]:
        labels = self.code.labels
        names = (name for i in self.code.instructions for name in i.targets)
        return {0} | {labels[name] for name in names if name in labels}

    def _reconvergence(self, sync: Instruction) -> set[int]:
        """Return where threads go on that meet at a BSYNC: what its BSSY says."""
        barrier = sync.operands[:1]
        return {
            self.code.labels[name]
            for i in self.code.instructions
            if i.op == "BSSY" and i.operands[:1] == barrier
            for name in i.targets
            if name in self.code.labels
        }

    @cached_property
    def _block(self) -> list[int]:
        """For each instruction, the first one of its basic block."""
        blocks: list[int] = []
        for at, edges in enumerate(self.before):
            follows = [e.source for e in edges] == [at - 1] and len(self.after[at - 1]) == 1
            blocks.append(blocks[-1] if follows else at)
        return blocks

    def _dominators(self) -> dict[int, set[int]]:
        """For each reachable block, the blocks that every path from the entry to it passes."""
        order = self._reachable_blocks()
        dominators: dict[int, set[int]] = {0: {0}}
        changed = True
        while changed:
            changed = False
            for block in order[1:]:
                sources = (self._block[edge.source] for edge in self.before[block])
                known = [dominators[source] for source in sources if source in dominators]
                new = set.intersection(*known) | {block}
                if dominators.get(block) != new:
                    dominators[block] = new
                    changed = True
        return dominators

    def _reachable_blocks(self) -> list[int]:
        """Return the blocks in reverse postorder."""
        seen: set[int] = set()
        order: list[int] = []
        work: list[tuple[int, bool]] = [(0, False)]
        while work:
            block, done = work.pop()
            if done:
                order.append(block)
            elif block not in seen:
                seen.add(block)
                work.append((block, True))
                work += [(to, False) for to in self._next_blocks(block)]
        return order[::-1]

    def _next_blocks(self, block: int) -> list[int]:
        at = block
        while at + 1 < len(self._block) and self._block[at + 1] == block:
            at += 1
        return self.after[at]

    def _body(self, header: int, last: int) -> set[int]:
        """Return what leads to the jump back without passing the header."""
        body: set[int] = set()
        work = [last]
        while work:
            at = work.pop()
            if at not in body and at != header:
                body.add(at)
                work += [edge.source for edge in self.before[at]]
        return body


def inverse(guard: str) -> str:
    """Return the opposite of a guard."""
    return guard[1:] if guard.startswith("!") else f"!{guard}"


def _branch_guard(branch: Instruction) -> str:
    """Return the predicate of a branch: its guard, an operand, or both at once ("?")."""
    given = [p for p in branch.operands if _PREDICATE.match(p)]
    if branch.opcode.startswith("BRA.DIV"):
        return "?"
    if not given:
        return branch.guard
    return given[0] if branch.guard in _ALWAYS and len(given) == 1 else "?"
