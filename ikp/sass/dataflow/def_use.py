"""``DefUse``: which instructions wrote what an instruction reads, and which read what it wrote.

Reaching definitions, by a forward dataflow analysis over basic blocks. A write under a guard leaves
the earlier one standing. What no instruction of the kernel wrote has no source.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from ikp.sass.control_flow.flow import Flow
from ikp.sass.disassembly.resources import members


@dataclass(frozen=True)
class DefUse:
    """The definitions and uses of one kernel's registers. Instructions go by their index.

    Args:
        flow: the kernel.
        ours: instructions that are left out, with all that they read and write.
    """

    flow: Flow
    ours: Collection[int] = ()

    def sources(self, at: int, registers: int = -1) -> frozenset[int]:
        """Return the instructions that may have written what one reads.

        Args:
            at: the instruction.
            registers: those of its registers that count, as bits.
        """
        found = self._sources[at]
        some = found if registers < 0 else [each for each in found if registers >> each & 1]
        return frozenset(one for each in some for one in found[each])

    def users(self, at: int) -> frozenset[int]:
        """Return the instructions that may read what one wrote."""
        return frozenset(self._users.get(at, ()))

    @cached_property
    def _users(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for at, read in enumerate(self._sources):
            for some in read.values():
                for one in some:
                    found.setdefault(one, set()).add(at)
        return found

    @cached_property
    def _writes(self) -> list[tuple[int, int, bool]]:
        """Each write of a register: the instruction, the register, and whether it is for sure."""
        effects = self.flow.effects
        return [
            (at, register, bool(effects[at].kills >> register & 1))
            for at in range(len(effects))
            if at not in self.ours
            for register in members(effects[at].writes)
        ]

    @cached_property
    def _sources(self) -> list[dict[int, tuple[int, ...]]]:
        """For each instruction, the writers of each register that it reads."""
        of_register: dict[int, int] = {}  # bits of writes, by the register that they write
        of_instruction: dict[int, list[int]] = {}
        for number, (at, register, _) in enumerate(self._writes):
            of_register[register] = of_register.get(register, 0) | 1 << number
            of_instruction.setdefault(at, []).append(number)
        effects, blocks = self.flow.effects, self.flow.graph.blocks
        found: list[dict[int, tuple[int, ...]]] = [{} for _ in effects]
        for block, entering in zip(blocks, self._entering(of_register), strict=True):
            now: dict[int, tuple[int, ...]] = {}
            for at in range(block.first, block.end):
                if at in self.ours:
                    continue
                for register in members(effects[at].reads):
                    if register not in now:
                        some = members(entering & of_register.get(register, 0))
                        now[register] = tuple(self._writes[each][0] for each in some)
                    found[at][register] = now[register]
                for number in of_instruction.get(at, ()):
                    _, register, surely = self._writes[number]
                    before: tuple[int, ...] = ()
                    if not surely:
                        some = members(entering & of_register[register])
                        before = now.get(register, tuple(self._writes[each][0] for each in some))
                    now[register] = (*before, at)
        return found

    def _entering(self, of_register: dict[int, int]) -> list[int]:
        """Return the writes that reach each block, as bits."""
        graph = self.flow.graph
        made, left = self._of_blocks(of_register)
        entering, leaving = [0] * len(made), [-1] * len(made)
        work = [*graph.order[::-1]]
        while work:
            number = work.pop()
            now = made[number] | entering[number] & left[number]
            if now == leaving[number]:
                continue
            leaving[number] = now
            for to in graph.after[number]:
                if now & ~entering[to]:
                    entering[to] |= now
                    work.append(to)
        return entering

    def _of_blocks(self, of_register: dict[int, int]) -> tuple[list[int], list[int]]:
        """Return the writes that each block makes last, and those that it leaves standing."""
        blocks = self.flow.graph.blocks
        made, left = [0] * len(blocks), [-1] * len(blocks)
        for number, (at, register, surely) in enumerate(self._writes):
            block = self.flow.graph.block(at)
            if surely:
                made[block] &= ~of_register[register]
                left[block] &= ~of_register[register]
            made[block] |= 1 << number
        return made, left
