"""What all threads of a warp have alike: registers, and so, which way their jumps go.

Where ways part for good, a compiler leaves no trace of whether threads part, too. So it is followed
through the code what depends on a thread's own number, on memory that is read at several places, or
on what was written while threads were apart. All else is the same for whoever comes together. What
is not known counts as different.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from ikp.machine.effects import Effects, effects
from ikp.machine.flow import Flow
from ikp.machine.liveness import with_calls
from ikp.machine.resources import P, R, bit
from ikp.machine.sass import Instruction

_OWN = R.all | P.all
"""What each thread has for itself."""
_COMPUTED = re.compile(
    r"BMSK|BREV|D(ADD|FMA|MUL|SETP)|F2F|F2FP|F2I|F(ADD|CHK|FMA|MNMX|MUL|RND|SEL|SETP)|FLO|"
    r"H(ADD2|FMA2|MNMX2|MUL2|SET2|SETP2)|I2F|I2FP|I2I|I(ABS|ADD|ADD3|DP|MAD|MNMX|SETP)|LEA|LOP3|"
    r"MOV|MUFU|P2R|PLOP3|POPC|PRMT|R2P|SEL|SGXT|SHF|V(ABSDIFF|IADD|IADDMNMX|IMNMX|IMNMX3)"
)
"""What it makes depends on its operands alone."""
_LOADS = frozenset(("LD", "LDC", "LDG", "LDS"))
"""One address gives all threads the same."""
_OF_A_WARP = frozenset(("R2UR", "REDUX", "VOTE"))
"""What it makes is a warp's, whatever its operands are."""
_OF_A_BLOCK = re.compile(r"SRZ|SR_(N?CTAID\.[XYZ]|CgaCtaId|CgaSize|SMEMSZ|VIRTUALSMID)")
_JUMPS = ("BRA", "EXIT")


@dataclass(frozen=True)
class Alike:
    """What threads have alike in one kernel.

    Args:
        flow: the kernel.
        apart: its blocks in which threads of a warp may be apart.
    """

    flow: Flow
    apart: AbstractSet[int]

    def decides(self, jump: int) -> bool:
        """Return whether all threads that come to a jump, or an EXIT, together go the same way."""
        instruction = self.flow.code.instructions[jump]
        ways = self.flow.graph.jumps.leaving.get(jump, [])
        guards = {guard.lstrip("!") for _, guard in [*ways, (0, instruction.guard)]}
        if instruction.op not in _JUMPS or "?" in guards:  # two conditions, or a register's value
            return False
        own = sum(1 << bit(each) for each in guards if each.startswith("P") and each != "PT")
        return not own & self._before(jump)

    def _before(self, at: int) -> int:
        """Return what may differ before an instruction."""
        number = self.flow.graph.block(at)
        return self._through(number, self._entering[number], at)

    @cached_property
    def _effects(self) -> list[Effects]:
        return [effects(each) for each in self.flow.code.instructions]

    @cached_property
    def _entering(self) -> list[int]:
        """What may differ where each block begins."""
        after, blocks = with_calls(self.flow), self.flow.graph.blocks
        found, seen = [0] * len(blocks), set[int]()
        work = [0]
        while work:
            number = work.pop()
            seen.add(number)
            leaving = self._through(number, found[number], blocks[number].end)
            for to in after[number]:
                if leaving & ~found[to] or to not in seen:
                    found[to] |= leaving
                    work.append(to)
        return found

    def _through(self, number: int, entering: int, end: int) -> int:
        """Return what may differ at a place in a block."""
        code, now, apart = self.flow.code.instructions, entering, number in self.apart
        for at in range(self.flow.graph.blocks[number].first, end):
            effect, each = self._effects[at], code[at]
            if each.op == "CALL":
                now = _OWN
            elif apart or not _is_alike(each, effect.reads & now, now):
                now |= effect.writes & _OWN
            else:
                now &= ~effect.kills
        return now


def _is_alike(instruction: Instruction, differing: int, now: int) -> bool:
    """Whether an instruction gives all threads the same.

    Args:
        instruction: it.
        differing: what it reads and threads may have different.
        now: all that they may have different.
    """
    op, operands = instruction.op, instruction.operands
    guard = instruction.guard.lstrip("!")
    if guard.startswith("P") and guard != "PT" and now >> bit(guard) & 1:
        return False
    if op in _OF_A_WARP:
        return True
    if op in ("S2R", "CS2R"):
        return any(map(_OF_A_BLOCK.fullmatch, operands))
    if instruction.opcode.startswith("SHFL.IDX") and len(operands) > 4:
        return operands[4] == "0x1f" and _is_one(operands[3], now)
    return bool(op in _LOADS or _COMPUTED.fullmatch(op)) and not differing


def _is_one(lane: str, now: int) -> bool:
    """Whether an operand is the same number for all threads."""
    named = lane.startswith("R") and lane != "RZ"
    return not (named and now >> bit(lane) & 1)
