"""What becomes of loaded values: whether all of a load's numbers are only compared, or narrowed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ikp.sass.control_flow.flow import Flow
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.resources import R, members, span

_MOST_LOADS: Final = 16
"""Loads of a line that are followed."""
_FAR: Final = 4096
"""Instructions behind a load after which its uses are not followed on."""
_REGISTERS: Final = span(R.first, R.count)
_COMPARES: Final = ("ISETP", "FSETP", "DSETP")


@dataclass(frozen=True)
class Uses:
    """The uses of what the loads of one kernel bring."""

    flow: Flow
    ours: Collection[int] = ()

    def of(self, ats: Sequence[int]) -> str:
        """Return how the loads of one line are used, if they all are the same; "" of others."""
        loads = [at for at in ats if self.flow.code.instructions[at].op == "LDG"]
        if not loads or len(loads) < len(ats):
            return ""
        found = {self._of_one(at) for at in loads[:_MOST_LOADS]}
        return found.pop() if len(found) == 1 else ""

    def _of_one(self, at: int) -> str:
        if at not in self._known:
            self._known[at] = self._use(at)
        return self._known[at]

    @cached_property
    def _known(self) -> dict[int, str]:
        return {}

    def _use(self, load: int) -> str:
        kinds = set[str]()
        written = self.flow.effects[load].writes & _REGISTERS
        for register in members(written):
            for at in self._readers(load, 1 << register):
                kinds.add(_kind(self.flow.code.instructions[at]))
                if "" in kinds or len(kinds) > _KINDS:
                    return ""
        if kinds == {"compared.8", "compared.4"}:
            return "compared.8"  # the low half first, then both
        return kinds.pop() if len(kinds) == 1 else ""

    def _readers(self, load: int, register: int) -> list[int]:
        """Return the instructions that may read a register as a load has left it."""
        effects, found = self.flow.effects, []
        seen, work = set[int](), list(self.flow.after(load))
        while work and len(seen) < _FAR:
            at = work.pop()
            if at in seen:
                continue
            seen.add(at)
            if at in self.ours:
                work += self.flow.after(at)
                continue
            if effects[at].reads & register and not self._merges(at, register):
                found.append(at)
            if not effects[at].kills & register:
                work += self.flow.after(at)
        return found

    def _merges(self, at: int, register: int) -> bool:
        """Whether an instruction puts new bytes beside old ones that nothing needs."""
        merges = self.flow.code.instructions[at].op == "PRMT"
        return merges and bool(self.flow.effects[at].writes & register)


_KINDS: Final = 2


def _kind(each: Instruction) -> str:
    """Return what an instruction does with a loaded number; "" where it needs all of its bits."""
    if each.op in _COMPARES and any(_is_constant(one) for one in each.operands[2:4]):
        return "compared.8" if ".EX" in each.opcode or each.op == "DSETP" else "compared.4"
    if each.op == "F2F":
        parts = each.opcode.split(".")
        if parts[1:3] == ["F32", "F64"]:
            return "narrowed.8"
        return "narrowed.4" if parts[1:3] in (["F16", "F32"], ["BF16", "F32"]) else ""
    if each.opcode.startswith(("F2FP.F16.F32", "F2FP.BF16.F32", "F2FP.SATFINITE.E")):
        return "narrowed.4"
    return ""


def _is_constant(operand: str) -> bool:
    return operand == "RZ" or operand.startswith(("0x", "c[", "UR", "-0x")) or operand[:1].isdigit()
