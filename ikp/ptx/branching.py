"""Where control goes in a kernel's PTX, in the terms that machine code has for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ikp.probes.points.sese_regions import Regions
from ikp.ptx.body import JUMP, TABLE_JUMP
from ikp.sass.control_flow.flow import Flow
from ikp.sass.control_flow.graph import Graph
from ikp.sass.control_flow.jumps import Jumps, inverse
from ikp.sass.disassembly.listing import Instruction

ENDS = ("ret", "exit")
"""Operations after which a thread is gone. After a trap it is, too, but nothing is stored."""
_LEAVING = (JUMP, TABLE_JUMP, "trap", *ENDS)


@dataclass(frozen=True)
class Branches(Jumps):
    """The jumps of one kernel: PTX says of each where it leads."""

    @cached_property
    def leaving(self) -> dict[int, list[tuple[int, str]]]:
        """Jump -> (index, guard) of what may run next."""
        found: dict[int, list[tuple[int, str]]] = {}
        for at, each in enumerate(self.code.instructions):
            if each.op in _LEAVING:
                falls = [(at + 1, inverse(each.guard))] if each.guard else []
                found[at] = [*((to, each.guard) for to in _targets(each)), *falls]
        return found

    @cached_property
    def calls(self) -> dict[int, list[int]]:
        """None: a function is another body, and a call goes on to the next instruction."""
        return {}

    def ends(self, at: int) -> bool:
        """Whether a thread may end at an instruction."""
        return self.code.instructions[at].op in (*ENDS, "trap")


def _targets(instruction: Instruction) -> list[int]:
    """Return where an instruction leads that does not just go on."""
    if instruction.op == JUMP:
        return [int(instruction.rest)]
    if instruction.op == TABLE_JUMP:
        return sorted({int(to) for to in instruction.operands[1:]})
    return []


@dataclass(frozen=True)
class Blocks(Graph):
    """The blocks of one kernel."""

    @cached_property
    def jumps(self) -> Jumps:
        """The instructions that don't just go on."""
        return Branches(self.code)


@dataclass(frozen=True)
class Control(Flow):
    """The control flow of one kernel."""

    @cached_property
    def graph(self) -> Graph:
        """The basic blocks."""
        return Blocks(self.code)


@dataclass(frozen=True)
class Ways(Regions):
    """Stretches of one kernel, as one thread goes through them."""

    @cached_property
    def divergent(self) -> set[int]:
        """None: a record is of a warp's first thread, wherever the others are meanwhile."""
        return set()
