"""What instructions serve: results, addresses, conditions; by what their results are used for.

Each instruction serves what the instructions serve that read its result: a number that is stored,
an address, a jump. What serves results is arithmetic, a conversion, or a move.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ikp.inspection._work import Often
from ikp.sass.dataflow.def_use import DefUse, bits_of
from ikp.sass.disassembly.effects import operand
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import Work, unit_of, work_of
from ikp.sass.disassembly.resources import R, members, span

RESULTS, ADDRESSES, CONDITIONS = "results", "addresses", "conditions"
_MEMORY: Final = (Work.LOAD, Work.STORE, Work.ATOMIC, Work.SHARED, Work.LOCAL, Work.COPY, Work.TMEM)
_CONTROL: Final = (Work.CONTROL, Work.WAIT, Work.BARRIER, Work.FENCE, Work.SIGNAL)
_ENDS: Final = frozenset((*_MEMORY, *_CONTROL, Work.TENSOR))
"""Kinds of work that others serve, and that serve nothing else."""
_OWN: Final = span(R.first, R.count)
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

    @property
    def results(self) -> int:
        """The instructions that serve results, as bits, and the stores and products themselves."""
        code = self.uses.flow.code.instructions
        ends = (at for at, each in enumerate(code) if work_of(each) in (*_MEMORY, Work.TENSOR))
        return self._served[RESULTS] | bits_of(ends)

    def _kind(self, at: int) -> str:
        each = self.uses.flow.code.instructions[at]
        work = work_of(each)
        if work is Work.TENSOR:
            return "products"
        if work in _MEMORY:
            return "memory"
        if work in _CONTROL:
            return CONDITIONS
        bit, served = 1 << at, self._served
        if not served[RESULTS] & bit:
            for what in (ADDRESSES, CONDITIONS):
                if served[what] & bit:
                    return what
        return _kind_of_result(each)

    @cached_property
    def _served(self) -> dict[str, int]:
        """The instructions that serve each of results, addresses and conditions, as bits."""
        asked = dict.fromkeys((RESULTS, ADDRESSES, CONDITIONS), 0)
        for at, each in enumerate(self.uses.flow.code.instructions):
            if at not in self.uses.ours:
                for what, registers in self._asks(at, each):
                    asked[what] |= self.uses.source_bits(at, registers)
        for what, found in asked.items():
            asked[what] = self._made_for(found)
        return asked

    def _made_for(self, found: int) -> int:
        """Return some instructions with all that make what these read, as bits."""
        new = found
        while new:
            more = 0
            for at in members(new):
                each = self.uses.flow.code.instructions[at]
                if work_of(each) not in _ENDS:
                    own = self.uses.flow.effects[at].reads & ~_guard(each)
                    more |= self.uses.source_bits(at, own)
            new = more & ~found
            found |= new
        return found

    def _asks(self, at: int, each: Instruction) -> Iterator[tuple[str, int]]:
        """Yield the registers that an instruction itself asks for, and what they serve."""
        work, reads, guard = work_of(each), self.uses.flow.effects[at].reads, _guard(each)
        if guard:
            yield CONDITIONS, guard
        if work in _CONTROL:
            yield CONDITIONS, reads
        elif work in _ENDS:
            place = reads & ~_OWN & ~guard
            for text in each.operands:
                place |= operand(text).reads if "[" in text else 0
            yield ADDRESSES, place
            yield RESULTS, reads & ~place & ~guard


def _guard(each: Instruction) -> int:
    first = operand(each.guard).first if each.guard else -1
    return 1 << first if first >= 0 else 0


def _kind_of_result(each: Instruction) -> str:
    if each.op in _CONVERTS or each.opcode.startswith("HADD2.F32"):
        return "conversions"
    moves = each.op in _MOVES or each.opcode.startswith("IMAD.MOV")
    return "moves" if moves else "arithmetic"
