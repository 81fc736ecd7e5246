"""``Bases``: the parameters that addresses begin at, also where data say how far behind them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import Work, work_of

_CONSTANT: Final = re.compile(r"c\[0x0\]\[(0x[0-9a-f]+)\]")
_BRINGS: Final = (Work.LOAD, Work.ATOMIC, Work.SHARED, Work.LOCAL, Work.TENSOR)
_WORD: Final = 4


@dataclass(frozen=True)
class Bases:
    """Answers for one kernel.

    Args:
        uses: of its registers.
        parameters: 32-bit words of parameters, by their offset in the constant bank.
    """

    uses: DefUse
    parameters: Mapping[int, int]

    def of(self, at: int) -> frozenset[int]:
        """Return the pairs of words that the address of an access is made of by arithmetic alone.

        Each as a number of 64 bits, whether it is a pointer or not.
        """
        found, seen, work = set[int](), {at}, [at]
        while work:
            one = work.pop()
            found |= self._pairs(one)
            if one == at or work_of(self._instructions[one]) not in _BRINGS:
                more = self.uses.sources(one) - seen
                seen |= more
                work += more
        return frozenset(found)

    def _pairs(self, at: int) -> set[int]:
        """Return the 64 bits at each constant that an instruction names, where they are known."""
        named = {int(each, 16) for each in _CONSTANT.findall(self._instructions[at].text)}
        known = {each for each in named if {each, each + _WORD} <= self.parameters.keys()}
        return {self.parameters[each] | self.parameters[each + _WORD] << 32 for each in known}

    @cached_property
    def _instructions(self) -> Sequence[Instruction]:
        return self.uses.flow.code.instructions
