"""Numbers taken apart by integer instructions: bits that are loaded, and made numbers one by one.

From a load, through integer instructions alone, to where arithmetic takes the bits as a number; and
from arithmetic, through integer instructions, to a store.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.disassembly.effects import operand
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.resources import P, R, span

_REGISTERS: Final = span(R.first, R.count) | span(P.first, P.count)
_LOADS: Final = ("LDG", "LDS", "LD")
_BITS: Final = frozenset(
    ["LOP3", "SHF", "SHL", "SHR", "PRMT", "IADD3", "VIADD", "LEA", "SEL", "SGXT", "BMSK", "ISETP"]
)
_FLOATS: Final = frozenset(
    ["FADD", "FMUL", "FFMA", "FSEL", "FMNMX", "FSETP", "HADD2", "HFMA2", "HMUL2", "F2FP"]
)
_LEAST: Final = 3.5
"""Such instructions for each number, from which on a conversion would be fewer."""


def unpacked(uses: DefUse, results: int) -> tuple[set[int], set[int]]:
    """Return integer instructions between loads and arithmetic, and the numbers that they make.

    None where these are few for each number.

    Args:
        uses: the definitions and uses of a kernel.
        results: the instructions that serve results, and no address alone, as bits.
    """
    code = uses.flow.code.instructions
    loads = [at for at, each in enumerate(code) if each.op in _LOADS and at not in uses.ours]
    reached = _forward(uses, loads)
    ends = {
        at
        for at in reached
        if any(results >> user & 1 and _takes(uses, at, user) for user in uses.users(at))
    }
    between = _backward(uses, ends, reached)
    numbers = {_last(uses, at, reached) for at in ends}
    return (between, numbers) if len(between) >= _LEAST * max(len(numbers), 1) else (set(), set())


def _last(uses: DefUse, at: int, some: set[int]) -> int:
    """Return the last one of the instructions that write a number, under one guard or another."""
    written = uses.flow.effects[at].writes & span(R.first, R.count)
    others = (uses.sources(user, written) & some for user in uses.users(at))
    return max((one for each in others for one in each), default=at)


def _is_bits(each: Instruction) -> bool:
    """Whether an instruction moves, masks, shifts or selects bits, or adds constants to these."""
    if each.op == "IMAD":
        narrow = not each.opcode.startswith(("IMAD.WIDE", "IMAD.HI"))
        moves = ".MOV" in each.opcode or ".SHL" in each.opcode
        return narrow and (moves or any(_is_shift(one) for one in each.operands[1:3]))
    return each.op in _BITS


def _is_shift(text: str) -> bool:
    """Whether a factor is a power of two."""
    number = int(text, 16) if text.startswith("0x") else 0
    return number > 0 and not number & number - 1


def _forward(uses: DefUse, loads: Iterable[int]) -> set[int]:
    """Return the integer instructions that take loaded bits apart, one behind the other."""
    code = uses.flow.code.instructions
    found, work = set[int](), list(loads)
    while work:
        at = work.pop()
        for user in uses.users(at) - found:
            if _is_bits(code[user]) and not _is_address(uses, user):
                found.add(user)
                work.append(user)
    return found


def _is_address(uses: DefUse, user: int) -> bool:
    """Whether an instruction has an address."""
    each = uses.flow.code.instructions[user]
    return any(one.endswith("]") for one in each.operands)


def _takes(uses: DefUse, at: int, user: int) -> bool:
    """Whether arithmetic takes bits as a number: of floats, or as a factor of integers."""
    each = uses.flow.code.instructions[user]
    if each.op in _FLOATS or each.op in ("I2F", "I2FP"):
        return bool(uses.flow.effects[at].writes & ~span(P.first, P.count))
    if each.op != "IMAD" or _is_bits(each):
        return False
    factors = [operand(one).first for one in each.operands[1:3]]
    return all(one >= 0 for one in factors) and any(
        uses.flow.effects[at].writes >> one & 1 for one in factors
    )


def _backward(uses: DefUse, numbers: set[int], reached: set[int]) -> set[int]:
    """Return what of some instructions the numbers are made of."""
    found, work = set(numbers), list(numbers)
    while work:
        for source in uses.sources(work.pop(), _REGISTERS) & reached - found:
            found.add(source)
            work.append(source)
    return found
