"""Instructions that hold a warp up by what they are: calls, sleeps, loads that are behind stores.

A function that is not inlined saves registers, and nothing moves across its call. A load that may
be of a store's address stays behind the store, though the compiler unrolled the loop around both:
copies of one iteration then wait one after another.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from ikp.sass.control_flow.flow import Flow
from ikp.sass.control_flow.graph import reached
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.disassembly.effects import R, operand, span
from ikp.sass.disassembly.listing import Instruction

_REGISTERS: Final = span(R.first, R.count)
_OF_COMPILER: Final = re.compile(r"__internal_|__cuda_|__nv_|__assert|vprintf|malloc|free")
"""Functions that no source line inlines: slow paths of divisions and roots, checks, prints."""
_ORDERS: Final = ("BAR", "MEMBAR", "ATOM", "ATOMG", "RED", "REDG", "CALL", "FENCE", "ERRBAR")
"""Instructions that loads may not pass, of any address."""
_BRINGS: Final = ("LDG", "LD", "LDS", "LDL", "LDSM", "SHFL")
_COPIES: Final = 2
"""Groups of loads behind stores in one block of code, from which on it is an unrolled loop's."""


def own_calls(flow: Flow) -> list[int]:
    """Return the calls of functions of the source."""
    code = flow.code
    return [at for at in code.of("CALL") if _is_own(code.instructions[at])]


def _is_own(call: Instruction) -> bool:
    return any(not _OF_COMPILER.search(name) for name in call.targets)


def sleeps(flow: Flow) -> list[int]:
    """Return the sleeps (``nanosleep``) in loops."""
    return [at for at in flow.code.of("NANOSLEEP") if flow.loop_of(at) is not None]


def copies_ahead(flow: Flow) -> float | None:
    """Return the iterations whose copies are under way while a loop waits for its own, the fewest.

    Of copies by lanes (``cp.async``): groups that a wait leaves under way, over those that an
    iteration makes. None where no loop copies ahead.
    """
    code, found = flow.code, list[float]()
    groups = code.of("LDGDEPBAR")
    for at in code.of("DEPBAR"):
        loop = flow.loop_of(at)
        made = sum(one in loop.body for one in groups) if loop is not None else 0
        left = code.instructions[at].operands[-1:]
        if made and left and left[0].startswith("0x"):
            found.append(int(left[0], 16) / made)
    return min(found, default=None)


@dataclass(frozen=True)
class BehindStores:
    """The loads of one kernel behind stores that may be to their address.

    Args:
        uses: its definitions and uses.
        ours: the instructions of records.
    """

    uses: DefUse
    ours: Collection[int] = ()

    def loads(self) -> list[int]:
        """Return the loads in unrolled loops that only an earlier store holds back."""
        flow, found = self.uses.flow, list[int]()
        for number in flow.graph.order:
            block = flow.graph.blocks[number]
            inside = [at for at in range(block.first, block.end) if at not in self.ours]
            if inside and flow.loop_of(inside[0]) is not None:
                found += self._of_block(inside)
        return found

    def _of_block(self, inside: Sequence[int]) -> list[int]:
        """Return such loads of one block of code; none where its stores hold a single group."""
        code, groups, stored = self.uses.flow.code.instructions, list[list[int]](), False
        some, here = set(inside), bool(inside)
        for at in inside:
            each = code[at]
            if each.op in _ORDERS:
                return []
            if each.op == "STG":
                stored = here = True
            elif stored and _is_plain(each) and not self._needs_load(at, some):
                if here:
                    groups.append([])
                groups[-1].append(at)
                here = False
        return [*chain.from_iterable(groups)] if len(groups) >= _COPIES else []

    def _needs_load(self, at: int, some: set[int]) -> bool:
        """Whether a load's address is made of what another load of its block brings."""
        code = self.uses.flow.code.instructions
        place = next((one for one in code[at].operands if "[" in one), "")

        def earlier(one: int, registers: int = _REGISTERS) -> list[int]:
            sources = self.uses.sources(one, registers) & some
            return [each for each in sources if each < one and code[one].op not in _BRINGS]

        address = {one for one in self.uses.sources(at, operand(place).reads) & some if one < at}
        return any(code[one].op in _BRINGS for one in reached(address, earlier))


def _is_plain(each: Instruction) -> bool:
    """Whether a load could move: it is neither volatile nor known to be of constant memory."""
    return each.op == "LDG" and ".STRONG" not in each.opcode and ".CONSTANT" not in each.opcode
