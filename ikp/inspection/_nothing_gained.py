"""Sums that a kernel need not make, or not so often, and loads that are multiplied by zero.

Tensor cores could add to a sum themselves; lanes could add up their numbers once, behind a loop, of
which each iteration only adds to a sum of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.disassembly.effects import operand
from ikp.sass.disassembly.listing import Instruction

_PRODUCTS: Final = ("HMMA", "HGMMA", "QGMMA", "QMMA", "IMMA", "IGMMA")
_FACTORS: Final = {"FMUL": (1, 2), "FFMA": (1, 2), "HMUL2": (1, 2), "HFMA2": (1, 2)}
_MOVES: Final = (
    "MOV",
    "PRMT",
    "SEL",
    "FSEL",
    "IMAD",
    "HADD2",
    "F2F",
    "F2FP",
    "SHF",
    "LOP3",
    "R2UR",
)
_CONSTANTS: Final = ("LDC", "ULDC", "LDCU", "MOV", "UMOV", "R2UR")
_FAR: Final = 256
"""Instructions behind a load to which its value is followed, at most."""


def promoted(uses: DefUse) -> list[int]:
    """Return additions in loops of what a product has just made to a sum of many iterations.

    Products can add to that sum themselves. Where a factor goes with it, they can't.
    """
    flow, found = uses.flow, list[int]()
    for at in flow.code.of("FADD"):
        loop = flow.loop_of(at)
        each = flow.code.instructions[at]
        if loop is None or at in uses.ours or each.guard:
            continue
        made = [uses.source_set(at, text) for text in each.operands[1:3]]
        for one, other in (made, made[::-1]):
            last = max(other & loop.body, default=-1)  # from at on: of the iteration before
            if _are_products(flow, one) and (last >= at or other & {*found}):
                found.append(at)
                break
    return found


def _are_products(flow: Flow, sources: Iterable[int]) -> bool:
    """Whether there are instructions, all of which are products."""
    ops = {flow.code.instructions[source].op for source in sources}
    return bool(ops) and ops <= {*_PRODUCTS}


def lane_sums(uses: DefUse) -> list[int]:
    """Return the shuffles in loops by which lanes sum up what is only added to a further sum.

    So with the largest and the smallest number in place of sums.
    """
    flow, known = uses.flow, dict[int, bool]()
    some = [at for at in flow.code.of("SHFL") if at not in uses.ours]
    return [at for at in some if flow.loop_of(at) is not None and _is_summed(uses, at, known)]


def _is_summed(uses: DefUse, shuffle: int, known: dict[int, bool]) -> bool:
    """Whether a loop's iterations do nothing with a shuffled number but to add it to their sum."""
    flow = uses.flow
    loop = flow.loop_of(shuffle)
    if loop is None or shuffle in known:
        return known.get(shuffle, False)
    seen, work, kinds, carried = {shuffle}, [shuffle], set[str](), False
    while work and len(seen) < _FAR:
        at = work.pop()
        for user in uses.users(at) & loop.body - seen:
            seen.add(user)
            op = flow.code.instructions[user].op
            if op in _SUMS:
                kinds.add(op)
                carried |= user in uses.sources(user)
            elif op not in ("SHFL", "MOV"):
                return known.setdefault(shuffle, False)
            work.append(user)
    known |= dict.fromkeys(seen, carried and len(kinds) == 1 and not work)
    return known[shuffle]


_SUMS: Final = ("FADD", "DADD", "HADD2", "FMNMX", "IADD3", "IMNMX", "VIMNMX")


@dataclass(frozen=True)
class TimesZero:
    """The loads of one kernel whose values are multiplied by zero, as it was launched.

    Args:
        uses: its definitions and uses.
        parameter: the 32 bits of a parameter by its offset; None where they are not known.
    """

    uses: DefUse
    parameter: Callable[[int], int | None]

    def loads(self) -> list[int]:
        """Return such loads."""
        if not self._by_zero:
            return []
        some = self.uses.flow.code.of("LDG")
        return [at for at in some if at not in self.uses.ours and self._lost(at)]

    @cached_property
    def _by_zero(self) -> frozenset[int]:
        """The products of which one factor is a parameter that is zero."""
        code = self.uses.flow.code
        some = ((at, code.instructions[at]) for at in code.of(*_FACTORS))
        return frozenset(at for at, each in some if self._has_zero(at, each))

    def _has_zero(self, at: int, each: Instruction) -> bool:
        return any(self._is_zero(at, each.operands[place]) for place in _FACTORS[each.op])

    def _is_zero(self, at: int, text: str) -> bool:
        """Whether an operand is a parameter of the value zero; what is written as 0 is none."""
        if text.lstrip("-").startswith("c["):
            return self._reads_zero(text)
        first = operand(text).first
        if first < 0:
            return False
        made = self.uses.source(at, 1 << first)
        if made is None:
            return False
        each = self.uses.flow.code.instructions[made]
        wide = ".64" in each.opcode or ".128" in each.opcode
        return each.op in _CONSTANTS and not wide and self._is_zero(made, each.operands[-1])

    def _reads_zero(self, text: str) -> bool:
        bank, _, place = text.lstrip("-").partition("][")
        offset = place.rstrip("]")
        if bank != "c[0x0" or not offset.startswith("0x"):
            return False
        bits = self.parameter(int(offset, 16))
        return bits is not None and bits & 0x7FFF_FFFF == 0

    def _lost(self, load: int) -> bool:
        """Whether all that a load brings is multiplied by zero."""
        seen, work, reached = {load}, [load], False
        while work and len(seen) < _FAR:
            for user in self.uses.users(work.pop()) - seen:
                seen.add(user)
                op = self.uses.flow.code.instructions[user].op
                if user in self._by_zero:
                    reached = True
                elif op in _MOVES:
                    work.append(user)
                else:
                    return False
        return reached and not work
