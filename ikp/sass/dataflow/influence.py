"""``Influence``: registers and memory that wrong values reach; if a kernel could hang or fault.

A forward dataflow analysis, conservative: a register that may hold a value computed from a wrong
one is wrong, and so is all that is loaded from a space of memory that a wrong value is stored to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ikp.sass.control_flow.flow import Flow
from ikp.sass.disassembly.effects import UR, P, R, span
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.memory_operands import (
    ATOMIC,
    COPY,
    GENERIC,
    GLOBAL,
    LOAD,
    LOCAL,
    SHARED,
    STORE,
    Access,
    accesses,
)

_BULK: Final = ("UBLK", "UTMA")
_MAY_BE: Final = {GENERIC: (GLOBAL, SHARED, LOCAL)}
"""The spaces that an address may lie in, of a space that leaves it open."""
_BARRIERS: Final = ("BAR", "SYNCS", "WARPSYNC", "UCGABAR_WAIT", "UCGABAR_ARV")
_PRODUCTS: Final = "GMMA"
_INDIRECT: Final = ("BRX", "BRXU", "JMX", "JMXU", "CALL", "RET")


@dataclass(frozen=True)
class Influence:
    """The influence of wrong values in one kernel. Instructions go by their index."""

    flow: Flow

    def why_unsafe(self, sources: frozenset[int], spaces: frozenset[str]) -> str:
        """Return how wrong values could make the kernel hang or fault; "" if they can't.

        Args:
            sources: instructions whose results are wrong.
            spaces: spaces of memory whose contents are wrong.
        """
        known = set(spaces)
        while True:
            wrong = self._wrong(sources, known)
            more = set(self._reached(wrong, known)) - known
            if not more:
                return next(self._dangers(wrong, known), "")
            known |= more

    @cached_property
    def _accesses(self) -> list[tuple[Access, ...] | str]:
        return [accesses(each) for each in self.flow.code.instructions]

    def _wrong(self, sources: frozenset[int], spaces: set[str]) -> list[int]:
        """Return the registers that may be wrong before each instruction, as bits."""
        graph, effects = self.flow.graph, self.flow.effects
        entering = [0] * len(graph.blocks)
        made = [at in sources or self._loads(at, spaces) for at in range(len(effects))]
        wrong = [0] * len(effects)
        work = [*graph.order[::-1]]
        while work:
            block = work.pop()
            now = entering[block]
            for at in range(graph.blocks[block].first, graph.blocks[block].end):
                wrong[at] = now
                reads, writes, kills = effects[at]
                now = now | writes if made[at] or reads & now else now & ~kills
            for to in graph.after[block]:
                if now & ~entering[to]:
                    entering[to] |= now
                    work.append(to)
        return wrong

    def _loads(self, at: int, spaces: set[str]) -> bool:
        """Whether an instruction's result comes from a space with wrong contents."""
        instruction = self.flow.code.instructions[at]
        if instruction.op.endswith(_PRODUCTS):
            return SHARED in spaces
        found = self._accesses[at]
        if isinstance(found, str):
            return bool(spaces)
        return any(
            each.kind in (LOAD, ATOMIC)
            and not (each.space == GLOBAL and "CONSTANT" in instruction.opcode)
            and (each.space in spaces or (each.space == GENERIC and bool(spaces)))
            for each in found
        )

    def _reached(self, wrong: list[int], spaces: set[str]) -> Iterator[str]:
        """Yield the spaces that wrong values, or values of wrong spaces, are stored to."""
        for at, now in enumerate(wrong):
            instruction = self.flow.code.instructions[at]
            if instruction.op.startswith(_BULK) and spaces & {SHARED, GLOBAL}:
                yield from (SHARED, GLOBAL)
            found = self._accesses[at]
            reads = bool(self.flow.effects[at].reads & now)
            for each in () if isinstance(found, str) else found:
                copies = each.kind == COPY and each.space == SHARED and GLOBAL in spaces
                if copies or (reads and each.kind in (STORE, ATOMIC)):
                    yield from _MAY_BE.get(each.space, (each.space,))

    def _dangers(self, wrong: list[int], spaces: set[str]) -> Iterator[str]:
        if GLOBAL in spaces and self.flow.code.having(lambda each: each.startswith("UTMA")):
            yield "a descriptor of TMA may lie in what it changes"
        barriers = bool(self.flow.code.having(lambda each: each.startswith(_BARRIERS)))
        for at, now in enumerate(wrong):
            instruction, reads = self.flow.code.instructions[at], self.flow.effects[at].reads
            if reads & now and (decides := self._decides(at, barriers=barriers)):
                yield f"{decides} depends on it"
            elif self._addresses(at, instruction) & now:
                yield f"the address of {instruction.text} depends on it"

    def _decides(self, at: int, *, barriers: bool) -> str:
        """Return what an instruction decides by the values that it reads; "" for nothing."""
        instruction, jumps = self.flow.code.instructions[at], at in self.flow.graph.jumps.leaving
        if instruction.op in _INDIRECT:
            return f"where {instruction.text} leads"
        if jumps and self._ends_loop(at):
            return "how often a loop runs"
        meets = (jumps and barriers) or instruction.op in _BARRIERS
        return "which threads come to a barrier" if meets else ""

    def _ends_loop(self, at: int) -> bool:
        """Whether a jump decides if the innermost loop around it goes on."""
        loop = self.flow.loop_of(at)
        if loop is None:
            return False
        ways = self.flow.after(at)
        inside = [to for to in ways if to in loop.body and to != loop.header]
        return self.flow.graph.jumps.ends(at) or len(inside) < len(ways)

    def _addresses(self, at: int, instruction: Instruction) -> int:
        """Return the registers of an instruction that must not be wrong, as bits."""
        if instruction.op.startswith(_BULK):
            return self.flow.effects[at].reads
        found = self._accesses[at]
        if isinstance(found, str):
            return self.flow.effects[at].reads
        needed = 0
        for each in found:
            if each.own is not None:
                needed |= span(R.first + each.own, 1 + each.wide)
            if each.uniform is not None:
                needed |= span(UR.first + each.uniform, 1 + (each.space != SHARED))
            for which, _ in each.conditions:  # they may keep an address within its bounds
                needed |= span(P.first + which, 1)
        return needed
