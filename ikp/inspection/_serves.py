"""What instructions serve: results, addresses, conditions; by what their results are used for.

Each instruction serves what the instructions serve that read its result: a number that is stored,
an address, a jump. What serves results is arithmetic, a conversion, or a move.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ikp.inspection._work import Often
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.disassembly.effects import operand
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import Work, unit_of, work_of
from ikp.sass.disassembly.resources import R, span

_RESULTS, _ADDRESSES, _CONDITIONS = 1, 2, 4
_MEMORY: Final = (Work.LOAD, Work.STORE, Work.ATOMIC, Work.SHARED, Work.LOCAL, Work.COPY, Work.TMEM)
_CONTROL: Final = (Work.CONTROL, Work.WAIT, Work.BARRIER, Work.FENCE, Work.SIGNAL)
_CONVERTS: Final = frozenset(("F2F", "F2FP", "F2I", "I2F", "I2FP", "I2I", "FRND", "PRMT"))
_MOVES: Final = frozenset(("MOV", "UMOV", "SEL", "FSEL", "CS2R", "R2UR", "S2R", "S2UR"))
_DIGITS: Final = 2


@dataclass(frozen=True)
class Serves:
    """What the instructions of one kernel serve.

    Args:
        uses: its definitions and uses.
    """

    uses: DefUse

    def of(self, how_often: Mapping[int, Often]) -> dict[str, float]:
        """Return how many of some instructions serve what."""
        counts: defaultdict[str, float] = defaultdict(float)
        for at, often in how_often.items():
            if unit_of(self.uses.flow.code.instructions[at]):
                counts[self._kind(at)] += often.weight
        return {kind: round(count, _DIGITS) for kind, count in sorted(counts.items()) if count}

    def _kind(self, at: int) -> str:
        each = self.uses.flow.code.instructions[at]
        work = work_of(each)
        if work is Work.TENSOR:
            return "products"
        if work in _MEMORY:
            return "memory"
        if work in _CONTROL:
            return "conditions"
        serves = self._served[at]
        if serves & _RESULTS or not serves:
            return _kind_of_result(each)
        return "addresses" if serves & _ADDRESSES else "conditions"

    @cached_property
    def _served(self) -> list[int]:
        """What each instruction serves, as bits."""
        code = self.uses.flow.code.instructions
        found = [0] * len(code)
        work = list(range(len(code)))
        while work:
            at = work.pop()
            if at in self.uses.ours:
                continue
            for source, bits in self._asked(at, found[at]):
                if bits & ~found[source]:
                    found[source] |= bits
                    work.append(source)
        return found

    def _asked(self, at: int, served: int) -> list[tuple[int, int]]:
        """Return what one instruction asks of those that wrote what it reads."""
        each = self.uses.flow.code.instructions[at]
        work, effects = work_of(each), self.uses.flow.effects[at]
        found: list[tuple[int, int]] = []
        guard = operand(each.guard).first if each.guard else -1
        condition = 1 << guard if guard >= 0 else 0
        place = 0
        if work in _MEMORY or work is Work.TENSOR:
            for text in each.operands:
                place |= operand(text).reads if "[" in text else 0
            place |= effects.reads & ~span(R.first, R.count) & ~condition
            own, asked = effects.reads & ~place & ~condition, _RESULTS
        elif work in _CONTROL:
            own, asked = effects.reads, _CONDITIONS
        else:
            own, asked = effects.reads & ~condition, served
        for registers, bits in ((own, asked), (place, _ADDRESSES), (condition, _CONDITIONS)):
            if registers and bits:
                found += [(source, bits) for source in self.uses.sources(at, registers)]
        return found


def _kind_of_result(each: Instruction) -> str:
    if each.op in _CONVERTS or each.opcode.startswith("HADD2.F32"):
        return "conversions"
    moves = each.op in _MOVES or each.opcode.startswith("IMAD.MOV")
    return "moves" if moves else "arithmetic"
