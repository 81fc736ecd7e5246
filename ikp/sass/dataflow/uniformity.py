"""Uniformity: registers with one value in all threads of a warp, and jumps that all take one way.

Where paths separate for good, a compiler leaves no trace of whether threads diverge. So forward
dataflow follows the values that depend on a thread's own number, on memory that is read at several
addresses, or on writes while threads were apart. All other values are the same for threads that are
together. An unknown value counts as different.

Where a warp's threads lie in one row of their block, their numbers in it differ in the lowest five
bits alone: a value made of the other bits, such as the warp's number, is uniform again.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from heapq import heappop, heappush
from operator import or_

from ikp.sass.control_flow.flow import Flow
from ikp.sass.control_flow.graph import depth_first, reversed_edges
from ikp.sass.dataflow.liveness import with_calls
from ikp.sass.disassembly.effects import BITS, P, R, bit
from ikp.sass.disassembly.listing import Instruction

_OWN = R.all | P.all
"""The registers that each thread has for itself."""
_COMPUTED = re.compile(
    r"BMSK|BREV|D(ADD|FMA|MUL|SETP)|F2F|F2FP|F2I|F(ADD|CHK|FMA|MNMX|MUL|RND|SEL|SETP)|FLO|"
    r"H(ADD2|FMA2|MNMX2|MUL2|SET2|SETP2)|I2F|I2FP|I2I|I(ABS|ADD|ADD3|DP|MAD|MNMX|SETP)|LEA|LOP3|"
    r"MOV|MUFU|P2R|PLOP3|POPC|PRMT|R2P|SEL|SGXT|SHF|V(ABSDIFF|IADD|IADDMNMX|IMNMX|IMNMX3)"
)
"""Instructions whose result depends on their operands alone."""
_LOADS = re.compile(r"(LDC?|LDG|LDS|SYNCS\.PHASECHK)(\..*)?")
"""Loads: one address gives all threads the same value. So does the test of an mbarrier: compilers
mark no divergence behind it."""
_OF_A_WARP = frozenset(("R2UR", "REDUX", "VOTE"))
"""Instructions whose result is one of the whole warp, for any operands."""
_SPECIAL = ("S2R", "CS2R")
_FROM_ONE = "SHFL.IDX"
_OF_A_BLOCK = re.compile(r"SRZ|SR_(N?CTAID\.[XYZ]|CgaCtaId|CgaSize|SMEMSZ|VIRTUALSMID)")
_OF_A_ROW = ("SR_TID.Y", "SR_TID.Z")
_JUMPS = ("BRA", "BRX", "EXIT")
_OF_A_THREAD = re.compile(r"\b[RP]\d+\b")
_LANES = 32
_BELOW = re.compile(r"ISETP\.(GE|LT)\.(U32\.)?AND")


_FAR = 1 | 1 << BITS
"""Factor from a mask of registers to both halves of a set: those that differ, and from ``BITS`` on
those that differ in more than the lowest five bits of a thread's number."""


@dataclass(frozen=True)
class Alike:
    """The uniformity of one kernel.

    Args:
        flow: the kernel.
        apart: its blocks in which threads of a warp may be apart.
        rows: whether the threads of each warp lie in one row of their block.
    """

    flow: Flow
    apart: AbstractSet[int]
    rows: bool = False

    def within(self, apart: AbstractSet[int]) -> Alike:
        """Return the uniformity where threads may be apart in other blocks."""
        made = replace(self, apart=apart)
        vars(made).update(_asked=self._asked, _made_of=self._made_of)  # as if asked for before
        return made

    def decides(self, jump: int) -> bool:
        """Return whether a jump, or an EXIT, is uniform: threads that reach it together stay so."""
        return jump in self._asked and not self._asked[jump] & self._before(jump)

    @cached_property
    def _asked(self) -> dict[int, int]:
        """The registers of each thread that decide each jump, or EXIT, as bits."""
        return {at: _deciding(self.flow.code.instructions[at]) for at in self.flow.code.of(*_JUMPS)}

    @cached_property
    def _made_of(self) -> list[list[int]]:
        """The instructions of each block in the backward slice of a jump's condition: a few of all.

        Calls are among them: they may write any register.
        """
        after = with_calls(self.flow)
        entering, before = [0] * len(after), reversed_edges(after)
        found: list[list[int]] = [[] for _ in after]
        work = list(range(len(after)))
        while work:
            number = work.pop()
            leaving = reduce(or_, [entering[to] for to in after[number]], 0)
            found[number], wanted = self._makers(number, leaving)
            if wanted != entering[number]:
                entering[number] = wanted
                work += before[number]
        return found

    def _makers(self, number: int, wanted: int) -> tuple[list[int], int]:
        """Return one block's part of the slice, and the registers wanted where it begins."""
        code, effects, asked = self.flow.code.instructions, self.flow.effects, self._asked
        block, found = self.flow.graph.blocks[number], []
        for at in reversed(range(block.first, block.end)):
            effect = effects[at]
            if effect.writes & wanted or code[at].op == "CALL":
                found.append(at)
                wanted = wanted & ~effect.kills | effect.reads & _OWN
            if at in asked:
                wanted |= asked[at]
        return found[::-1], wanted

    def _before(self, at: int) -> int:
        """Return the registers that may differ before an instruction, in the halves of ``_FAR``."""
        number = self.flow.graph.block(at)
        return self._through(number, self._entering[number], at)

    @cached_property
    def _entering(self) -> list[int]:
        """The registers that may differ where each block begins."""
        after, blocks = with_calls(self.flow), self.flow.graph.blocks
        found, seen = [0] * len(blocks), set[int]()
        order = depth_first(after, 0)[::-1]
        rank, work = {number: at for at, number in enumerate(order)}, [0]
        while work:  # the block that comes first, so that most are followed once
            number = order[heappop(work)]
            seen.add(number)
            leaving = self._through(number, found[number], blocks[number].end)
            for to in after[number]:
                if leaving & ~found[to] or to not in seen:
                    found[to] |= leaving
                    if rank[to] not in work:
                        heappush(work, rank[to])
        return found

    def _through(self, number: int, entering: int, end: int) -> int:
        """Return the registers that may differ before an instruction in a block."""
        code, effects = self.flow.code.instructions, self.flow.effects
        now, apart = entering, number in self.apart
        made = self._made_of[number]
        for at in made[: bisect_left(made, end)]:
            effect, each = effects[at], code[at]
            own = effect.writes & _OWN
            if each.op == "CALL":
                now = _OWN * _FAR
            elif own and (apart or (each.guard and _depends(each.guard, now))):
                now |= own * _FAR
            elif own:
                here = self._made(each, effect.reads & now, now)
                now &= ~(effect.kills * _FAR)
                now |= own * here
        return now

    def _made(self, instruction: Instruction, differing: int, now: int) -> int:
        """Return 0 if an instruction's result is uniform.

        Else 1, if it differs in the lowest five bits alone, as threads' numbers do; else ``_FAR``.
        """
        near = not differing & now >> BITS
        if not (differing and near) and not _may_level(instruction.opcode):  # as with most
            return _FAR if differing or not _is_computed(instruction.opcode) else 0
        special = instruction.operands[-1:] if instruction.op == "S2R" else ()
        if self.rows and special == ("SR_TID.X",):
            return 1
        if self.rows and special and special[0] in _OF_A_ROW:
            return 0
        if near and differing and _is_of_a_warp(instruction):
            return 0
        if near and differing and _is_copy(instruction):
            return 1
        return 0 if _is_alike(instruction, differing, now) else _FAR


def _deciding(jump: Instruction) -> int:
    """Return the registers of each thread that a jump, or an EXIT, reads, as bits."""
    names = {jump.guard, *jump.operands}
    own = {found[0] for each in names if (found := _OF_A_THREAD.search(each))}
    reads = sum(1 << bit(each) for each in own)
    # The target of a BRX is in a pair of registers.
    return reads | reads << 1 if jump.op == "BRX" else reads


def _depends(guard: str, now: int) -> bool:
    """Whether threads may differ in a guard."""
    name = guard.lstrip("!")
    return name.startswith("P") and name != "PT" and bool(now >> bit(name) & 1)


def _is_copy(instruction: Instruction) -> bool:
    """Whether an instruction only copies a thread's register."""
    if instruction.op == "MOV":
        return True
    return instruction.opcode.startswith("IMAD.MOV") and instruction.operands[1:3] == ("RZ", "RZ")


def _is_of_a_warp(instruction: Instruction) -> bool:
    """Whether a result is the same for operands that differ in the lowest five bits alone."""
    opcode, operands = instruction.opcode, instruction.operands
    if opcode.startswith("SHF.R.") and ".HI" in opcode and len(operands) == 4:
        return operands[1] == "RZ" and _constant(operands[2]) >= _LANES.bit_length() - 1
    if opcode == "LOP3.LUT" and operands[-2:-1] == ("0xc0",):  # and
        return operands[-3] == "RZ" and _constant(operands[2]) % _LANES == 0
    if _BELOW.fullmatch(opcode) and operands[-1] == "PT":
        return _constant(operands[3]) % _LANES == 0
    return False


def _constant(operand: str) -> int:
    """Return an immediate operand; 1, which proves no uniformity, for any other operand."""
    return int(operand, 16) if operand.startswith("0x") else 1


def _is_alike(instruction: Instruction, differing: int, now: int) -> bool:
    """Whether an instruction's result is the same in all threads that run it.

    Args:
        instruction: the instruction.
        differing: the registers that it reads and that may differ between threads.
        now: all registers that may differ between threads.
    """
    op, operands = instruction.op, instruction.operands
    if op in _OF_A_WARP:
        return True
    if op in _SPECIAL:
        return any(map(_OF_A_BLOCK.fullmatch, operands))
    if instruction.opcode.startswith(_FROM_ONE) and len(operands) > 4:
        return operands[4] == "0x1f" and _is_one(operands[3], now)
    return not differing and _is_computed(instruction.opcode)


@cache
def _may_level(opcode: str) -> bool:
    """Whether an instruction's result may be uniform though its operands differ."""
    op = opcode.partition(".")[0]
    return op in _OF_A_WARP or op in _SPECIAL or opcode.startswith(_FROM_ONE)


@cache
def _is_computed(opcode: str) -> bool:
    """Whether an instruction's result depends on its operands alone."""
    return bool(_LOADS.fullmatch(opcode) or _COMPUTED.fullmatch(opcode.partition(".")[0]))


def _is_one(lane: str, now: int) -> bool:
    """Whether an operand has the same value in all threads."""
    named = lane.startswith("R") and lane != "RZ"
    return not (named and now >> bit(lane) & 1)
