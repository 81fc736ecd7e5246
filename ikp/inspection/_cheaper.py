"""Numbers that fewer instructions could make, or that a kernel need not make, each by its own mark.

Quotients and roots that are only compared; factors of all that a loop sums up; words that are
loaded in pieces and put together; small integers that are converted one by one; lengths that are
guarded against overflow; loads that are multiplied by zero.

Sums: lanes could add up their numbers once, behind a loop, of which each iteration only adds to a
sum of all.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ikp.inspection._operands import PRODUCTS
from ikp.sass.control_flow.graph import reached
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.disassembly.effects import operand
from ikp.sass.disassembly.listing import Instruction

Found = tuple[set[int], list[int]]
"""Instructions of a kind, and those of them that count what these are for."""

_APPROXIMATES: Final = ("MUFU.RCP", "MUFU.RSQ", "MUFU.SQRT")
_REFINES: Final = ("FFMA", "FMUL", "FADD", "MOV", "IMAD")
"""What makes a quotient or a root of an approximation, and hands it on."""
_STEPS: Final = 12
"""Instructions that make one quotient or root, at most; a check follows at that distance."""


def compared(uses: DefUse) -> Found:
    """Return divisions and roots in loops of whose results nothing is used but comparisons.

    Multiplying, or squaring, the other side decides the same.
    """
    found, parts = set[int](), list[int]()
    for at, each in uses.each("MUFU"):
        loop = uses.flow.loop_of(at)
        if loop is None or not each.opcode.startswith(_APPROXIMATES):
            continue
        made = _until_compared(uses, at, loop.body)
        if made:
            found |= made | _check(uses, at, each)
            parts.append(at)
    return found, parts


def _until_compared(uses: DefUse, first: int, body: frozenset[int]) -> set[int]:
    """Return what makes a number of an approximation, where all of it ends in comparisons."""
    code = uses.flow.code.instructions
    seen, work, ends = {first}, [first], 0
    while work:
        for user in uses.users(work.pop()) - seen:
            if user not in body or len(seen) > _STEPS:
                return set()
            op = code[user].op
            if op == "FSETP":
                ends += 1
            elif op in _REFINES:
                seen.add(user)
                work.append(user)
            else:
                return set()
    return seen if ends else set()


def _check(uses: DefUse, at: int, each: Instruction) -> set[int]:
    """Return the check whether a division needs its slow path, and the jump by it."""
    code, divisor = uses.flow.code.instructions, each.operands[-1]
    near = range(max(at - _STEPS, 0), min(at + _STEPS, len(code)))
    checks = (i for i in near if code[i].op == "FCHK" and code[i].operands[-1] == divisor)
    return {one for check in checks for one in (check, *uses.users(check))}


_CONVERTS: Final = ("I2F", "I2FP", "MOV", "HADD2", "F2F")


def scaled_sums(uses: DefUse) -> Found:
    """Return what multiplies results of products by factors that no iteration changes, to sum up.

    The sum of all iterations can be multiplied once, and tensor cores keep it until then.
    """
    found, parts = set[int](), list[int]()
    for at, each in uses.each("FFMA"):
        loop = uses.flow.loop_of(at)
        if loop is None or each.guard or len(each.operands) < 4:
            continue
        again = at in uses.source_set(at, each.operands[3])
        if not again or uses.users(at) & loop.body != {at}:
            continue
        for one, other in (each.operands[1:3], each.operands[2:0:-1]):
            scaled = _scaled_product(uses, at, one, loop.body)
            if scaled is not None and _is_fixed(uses, at, other, loop.body):
                found |= {at, *scaled}
                parts.append(at)
                break
    return found, parts


def _scaled_product(uses: DefUse, at: int, text: str, body: frozenset[int]) -> set[int] | None:
    """Return what scales and converts a product's result before an operand; None of another."""
    found, ends = set[int](), False
    work = [*uses.source_set(at, text)]
    while work:
        one = work.pop()
        if one not in body:
            return None
        if uses.flow.code.instructions[one].op in PRODUCTS:
            ends = True
        elif one not in found:
            found.add(one)
            scaled = _scaled_operand(uses, one, body)
            if scaled is None:
                return None
            work += uses.source_set(one, scaled)
    return found if ends else None


def _scaled_operand(uses: DefUse, at: int, body: frozenset[int]) -> str | None:
    """Return what an instruction converts, or multiplies by what no iteration changes, alone."""
    each = uses.flow.code.instructions[at]
    if each.op in _CONVERTS:
        return each.operands[-1]
    moving = [one for one in each.operands[1:3] if not _is_fixed(uses, at, one, body)]
    return moving[0] if each.op == "FMUL" and len(moving) == 1 else None


def _is_fixed(uses: DefUse, at: int, text: str, body: frozenset[int]) -> bool:
    """Whether no iteration of a loop writes an operand."""
    return not uses.source_set(at, text) & body


_PIECE: Final = re.compile(r"\.[US](8|16)\b")
_PLACE: Final = re.compile(r"(.*\[.*?)(?:\+(-?0x[0-9a-f]+))?\]")
_JOINS: Final = ("PRMT", "LOP3", "SHF", "SHL", "LEA", "IMAD", "BFI")
_WORD: Final = 4
"""Bytes of a word that several loads bring, at least."""


def in_pieces(uses: DefUse) -> Found:
    """Return narrow loads of adjacent bytes, and what puts words together of them.

    A compiler does so where it must not assume that addresses are aligned.
    """
    found, parts = set[int](), list[int]()
    for bits, loads in _narrow_loads(uses):
        for run in _runs(sorted(loads), bits // 8):
            some = [loads[offset] for offset in run]
            joined = [uses.users(at) for at in some]
            if all(joined) and all(_joins(uses, users) for users in joined):
                found |= {*some, *(one for users in joined for one in users)}
                parts += some[:: _WORD * 8 // bits]
    return found, parts


def _narrow_loads(uses: DefUse) -> Iterator[tuple[int, dict[int, int]]]:
    """Yield the loads of 8 or 16 bits that add offsets to one address: the width, and by offset."""
    groups: dict[tuple[int, str, int, int], dict[int, int]] = defaultdict(dict)
    for at, each in uses.each("LDG"):
        width, place = _PIECE.search(each.opcode), _PLACE.fullmatch(each.operands[-1])
        if width and place:
            base = operand(each.operands[-1]).reads
            key = uses.flow.graph.block(at), place[1], uses.source_bits(at, base), int(width[1])
            groups[key][int(place[2] or "0", 16)] = at
    yield from ((bits, loads) for (*_, bits), loads in groups.items())


def _joins(uses: DefUse, some: Iterable[int]) -> bool:
    return all(uses.flow.code.instructions[at].op in _JOINS for at in some)


def _runs(offsets: list[int], step: int) -> list[list[int]]:
    """Return offsets that follow each other by a step, of a word or more."""
    found: list[list[int]] = []
    for each in offsets:
        if found and each == found[-1][-1] + step:
            found[-1].append(each)
        else:
            found.append([each])
    return [run for run in found if len(run) > 1 and len(run) * step >= _WORD]


_HALVES: Final = ("I2F.F16", "I2F.BF16")
_TAKES: Final = ("LOP3", "SHF", "SHL", "PRMT", "SGXT", "VIADD", "IADD3", "IMAD", "MOV")
_WORDS: Final = ("LDG", "LDS", "LDSM", "LD")
_FEW_BITS: Final = 0xFF
"""The largest mask of an integer that a 16-bit float holds exactly beside its exponent."""


def converted(uses: DefUse) -> Found:
    """Return what takes integers of a few bits out of loaded words, and converts each to 16 bits.

    Bits that are put into a float's mantissa need no conversion, and two go at once.
    """
    found, parts = set[int](), list[int]()
    for at, each in uses.each("I2F"):
        if each.opcode.startswith(_HALVES) and (made := _from_word(uses, at)):
            found |= {at, *made}
            parts.append(at)
    return found, parts


def _from_word(uses: DefUse, at: int) -> set[int]:
    """Return what makes a small integer of a loaded word; nothing of any other number."""
    code, seen, ends = uses.flow.code.instructions, set[int](), set[str]()
    work = [*uses.sources(at)]
    while work:
        one = work.pop()
        each = code[one]
        if each.op in _WORDS:
            ends.add("loaded")
        elif each.op not in _TAKES or len(seen) > _STEPS:
            return set()
        elif one not in seen:
            seen.add(one)
            work += uses.sources(one)
            if each.op == "LOP3" and any(_is_mask(text) for text in each.operands[1:4]):
                ends.add("masked")
    return seen if len(ends) > 1 else set()


def _is_mask(text: str) -> bool:
    return text.startswith("0x") and 0 < int(text, 16) <= _FEW_BITS


_SCALE: Final = "0x7e800000"
"""Twice the exponent of 1 and some, from which the length's exponent is taken: the factor that
hypotf, norm3df and others like them scale numbers by."""


def guarded(uses: DefUse) -> Found:
    """Return what scales numbers so that the squares of a length don't overflow."""
    found, parts = set[int](), list[int]()
    for at, each in uses.each("IADD3", "VIADD"):
        if _SCALE not in each.operands:
            continue
        exponents = _those_of(uses, uses.sources(at), "LOP3")
        largest = reached(exponents, lambda one: _those_of(uses, uses.sources(one), "FMNMX"))
        scaled = _those_of(uses, uses.users(at), "FMUL")
        back = {one for each in exponents for one in uses.users(each) if one != at}
        found |= {at, *largest, *scaled, *back}
        found |= {one for each in back for one in uses.users(each)}
        parts.append(at)
    return found, parts


def _those_of(uses: DefUse, some: Iterable[int], op: str) -> set[int]:
    """Return those of some instructions that have an operation."""
    return {at for at in some if uses.flow.code.instructions[at].op == op}


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
