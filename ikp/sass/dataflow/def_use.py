"""``DefUse``: which instructions wrote what an instruction reads, and which read what it wrote.

Registers become names that are written once (SSA form): where paths meet, and where a write is
under a guard, a name joins several. What no instruction of the kernel wrote has no source. Sets of
instructions are bits of one integer: joins along a path hold more and more of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from ikp.sass.control_flow.flow import Flow, Loop
from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.disassembly.effects import bits_of, members, operand
from ikp.sass.disassembly.listing import Instruction


@dataclass
class _Names:
    """The names of a kernel's registers, by their numbers."""

    writer: list[int] = field(default_factory=list)  # the instruction; -1 of a name that joins
    joined: list[list[int]] = field(default_factory=list)  # the names that a name joins
    reads: list[dict[int, int]] = field(default_factory=list)  # of each instruction, by register

    def add(self, writer: int, joined: list[int]) -> int:
        """Return a new name."""
        self.writer.append(writer)
        self.joined.append(joined)
        return len(self.writer) - 1


@dataclass(frozen=True)
class DefUse:
    """The definitions and uses of one kernel's registers. Instructions go by their index.

    Args:
        flow: the kernel.
        ours: instructions that are left out, with all that they read and write.
    """

    flow: Flow
    ours: Collection[int] = ()

    def each(self, *ops: str) -> Iterator[tuple[int, Instruction]]:
        """Yield the instructions with some operations, and their indices; without ``ours``."""
        code = self.flow.code
        return ((at, code.instructions[at]) for at in code.of(*ops) if at not in self.ours)

    def own(self, loop: Loop) -> list[int]:
        """Return the instructions of a loop that are in no inner one; without ``ours``."""
        some = (at for at in loop.body if at not in self.ours)
        return sorted(at for at in some if self.flow.loop_of(at) == loop)

    def source_bits(self, at: int, registers: int = -1) -> int:
        """Return the instructions that may have written what one reads, as bits.

        Args:
            at: the instruction.
            registers: those of its registers that count, as bits.
        """
        found = 0
        for register, name in self._names.reads[at].items():
            if registers >> register & 1:
                found |= self._writers[name]
        return found

    def sources(self, at: int, registers: int = -1) -> frozenset[int]:
        """Return the same as a set."""
        return frozenset(members(self.source_bits(at, registers)))

    def source(self, at: int, registers: int) -> int | None:
        """Return the one instruction that wrote some registers; None of none, or of several."""
        found = self.source_bits(at, registers)
        return found.bit_length() - 1 if found and not found & found - 1 else None

    def source_set(self, at: int, text: str) -> frozenset[int]:
        """Return the instructions that may have written an operand, by its text.

        None of a constant, and of an absolute value: that is another number.
        """
        first = operand(text.partition(".H")[0]).first
        return self.sources(at, 1 << first) if first >= 0 and "|" not in text else frozenset()

    def user_bits(self, at: int) -> int:
        """Return the instructions that may read what one wrote, as bits."""
        return self._users.get(at, 0)

    def users(self, at: int) -> frozenset[int]:
        """Return the same as a set."""
        return frozenset(members(self.user_bits(at)))

    @cached_property
    def _writers(self) -> list[int]:
        """The instructions that may have written each name, as bits."""
        names = self._names
        found = [1 << at if at >= 0 else 0 for at in names.writer]
        heirs: dict[int, list[int]] = {}
        for name, joined in enumerate(names.joined):
            for each in joined:
                heirs.setdefault(each, []).append(name)
        return _spread(found, heirs, sorted(heirs))

    @cached_property
    def _users(self) -> dict[int, int]:
        """The instructions that may read what each one wrote, as bits."""
        names = self._names
        read: list[list[int]] = [[] for _ in names.writer]
        for at, by_register in enumerate(names.reads):
            for name in by_register.values():
                read[name].append(at)
        joins = {name: joined for name, joined in enumerate(names.joined) if joined}
        spread = _spread([bits_of(each) for each in read], joins, sorted(joins, reverse=True))
        found: dict[int, int] = {}
        for name, at in enumerate(names.writer):
            if at >= 0:
                found[at] = found.get(at, 0) | spread[name]
        return found

    @cached_property
    def _names(self) -> _Names:
        """The names that instructions read and write."""
        graph, names = self.flow.graph, _Names()
        names.reads = [{} for _ in self.flow.effects]
        live = Liveness(self.flow).own
        joins: list[tuple[int, int, list[int]]] = []  # block, register, names
        leaving: dict[int, dict[int, int]] = {}
        for number in graph.order:
            before, block = graph.before[number], graph.blocks[number]
            now: dict[int, int] = {}
            if len(before) == 1 and before[0] in leaving:
                now = dict(leaving[before[0]])
            elif before and block.first < len(live):
                for register in members(live[block.first]):
                    joined: list[int] = []
                    now[register] = names.add(-1, joined)
                    joins.append((number, register, joined))
            self._name(range(block.first, block.end), now, names)
            leaving[number] = now
        for number, register, joined in joins:
            for each in graph.before[number]:
                name = leaving.get(each, {}).get(register)
                if name is not None:
                    joined.append(name)
        return names

    def _name(self, instructions: range, now: dict[int, int], names: _Names) -> None:
        """Name what the instructions of a block read and write."""
        for at in instructions:
            if at in self.ours:
                continue
            reads, writes, kills = self.flow.effects[at]
            known = names.reads[at]
            for register in members(reads):
                name = now.get(register)
                if name is not None:
                    known[register] = name
            for register in members(writes):
                name = names.add(at, [])
                before = now.get(register)
                if before is not None and not kills >> register & 1:
                    name = names.add(-1, [before, name])
                now[register] = name


def _spread(found: list[int], onward: dict[int, list[int]], order: list[int]) -> list[int]:
    """Return bits of names with those of all from which they can be reached, swept in an order."""
    changed = True
    while changed:
        changed = False
        for name in order:
            bits = found[name]
            for each in onward[name]:
                if bits & ~found[each]:
                    found[each] |= bits
                    changed = True
    return found
