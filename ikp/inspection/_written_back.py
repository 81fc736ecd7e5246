"""Values that are loaded only to be stored again where they were: what a mask would leave alone.

A load whose value reaches stores to its own sectors, through selections and moves alone, and
nothing else. A compiler may change the layout of threads between, through shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.disassembly.effects import operand
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.resources import R, span

_REGISTERS: Final = span(R.first, R.count)
_SELECTS: Final = ("SEL", "FSEL")
_MOVES: Final = (*_SELECTS, "PRMT", "MOV")
_SAME: Final = 0.9
"""Part of the sectors that are loaded, from which on these are those that are stored to."""


@dataclass
class _Fate:
    """What becomes of a loaded value."""

    stores: set[int] = field(default_factory=set)
    selects: bool = False
    shared: bool = False
    else_used: bool = False

    @property
    def is_copied(self) -> bool:
        """Whether it is stored as it was, or not at all; between threads it may change places."""
        return bool(self.stores) and not self.else_used and (self.selects or not self.shared)


def written_back(
    uses: DefUse, sectors: Callable[[int], NDArray[np.int64]]
) -> tuple[set[int], set[int]]:
    """Return loads and stores of values that are stored where they were; of these, the stores.

    Args:
        uses: the definitions and uses of a kernel.
        sectors: the sectors of an access, of one block.
    """
    both, stores = set[int](), set[int]()
    every = {at: _fate(uses, at) for at in uses.flow.code.of("LDG") if at not in uses.ours}
    known = {at: fate for at, fate in every.items() if fate.is_copied}
    for at, fate in known.items():
        theirs = np.concatenate([sectors(one) for one in sorted(fate.stores)])
        loads = {at, *(one for one, other in known.items() if other.stores == fate.stores)}
        mine = np.concatenate([sectors(one) for one in sorted(loads)])
        if _are_same(mine, theirs):
            both |= {at, *fate.stores}
            stores |= fate.stores
    return both, stores


def _are_same(some: NDArray[np.int64], others: NDArray[np.int64]) -> bool:
    """Whether nearly all sectors are among the others, and these among them."""
    known = len(some) and len(others)
    both = ((some, others), (others, some))
    return bool(known) and all(float(np.isin(a, b).mean()) >= _SAME for a, b in both)


def _fate(uses: DefUse, load: int) -> _Fate:
    code, found = uses.flow.code.instructions, _Fate()
    seen, work = {load}, [load]
    while work:
        at = work.pop()
        written = uses.flow.effects[at].writes & _REGISTERS
        for user in uses.users(at) - seen:
            each = code[user]
            if _stores(each, written) and each.op in ("STG", "STS"):
                if each.op == "STG":
                    found.stores.add(user)
                    continue
                seen.add(user)
                found.shared = True
                more = [one for one in uses.flow.code.of("LDS", "LDSM") if one not in seen]
                seen.update(more)
                work += more
            elif each.op in _MOVES or each.opcode.startswith("IMAD.MOV"):
                seen.add(user)
                found.selects |= each.op in _SELECTS or bool(each.guard)
                work.append(user)
            else:
                found.else_used = True
                return found
    found.selects |= any(_merges(uses, store) for store in found.stores)
    return found


def _stores(each: Instruction, written: int) -> bool:
    """Whether a store's data, and not its address, are among some registers."""
    place = next((one for one in each.operands if one.endswith("]")), "")
    return not operand(place).reads & written if place else False


def _merges(uses: DefUse, store: int) -> bool:
    """Whether what is stored has more than one source under a guard."""
    sources = uses.sources(store, _REGISTERS)
    return any(uses.flow.code.instructions[one].guard for one in sources)
