"""Control flow of PTX kernels: jumps, basic blocks and regions, as subclasses of those of SASS."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ikp.probes.points.sese_regions import Regions
from ikp.ptx.body import JUMP, TABLE_JUMP
from ikp.sass.control_flow.flow import Flow
from ikp.sass.control_flow.graph import Graph, Jumps, inverse
from ikp.sass.disassembly.listing import Instruction

ENDS = ("ret", "exit")
"""Operations that end a thread: its header is stored before. Before a trap, none is stored."""
_LEAVING = (JUMP, TABLE_JUMP, "trap", *ENDS)


@dataclass(frozen=True)
class Branches(Jumps):
    """The jumps of one kernel: PTX names the targets of each."""

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
        """Empty: a function is another body, and a call goes on to the next instruction."""
        return {}

    def ends(self, at: int) -> bool:
        """Whether a thread may end at an instruction."""
        return self.code.instructions[at].op in (*ENDS, "trap")


def _targets(instruction: Instruction) -> list[int]:
    """Return the targets of a jump; none for other instructions."""
    if instruction.op == JUMP:
        return [int(instruction.rest)]
    if instruction.op == TABLE_JUMP:
        return sorted({int(to) for to in instruction.operands[1:]})
    return []


@dataclass(frozen=True)
class PtxGraph(Graph):
    """The graph of one kernel's basic blocks."""

    @cached_property
    def jumps(self) -> Jumps:
        """The jumps and other ends of blocks."""
        return Branches(self.code)


@dataclass(frozen=True)
class PtxFlow(Flow):
    """The control flow of one kernel."""

    @cached_property
    def graph(self) -> Graph:
        """The basic blocks."""
        return PtxGraph(self.code)


@dataclass(frozen=True)
class Ways(Regions):
    """Regions of one kernel for a single thread, with no divergence."""

    @cached_property
    def divergent(self) -> set[int]:
        """Empty: a record is of a warp's first thread, wherever the others are meanwhile."""
        return set()
