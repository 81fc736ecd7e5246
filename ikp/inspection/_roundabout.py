"""Arithmetic in loops by way of other numbers: logarithms, narrower types, errors of sums.

``by_logarithms``: an exponential of a sum of logarithms, where a product would do. ``to_and_fro``:
numbers that are narrowed, and widened again at once. ``compensated``: sums that carry their own
error along (Kahan's), three additions more for each.
"""

from __future__ import annotations

from typing import Final

from ikp.sass.dataflow.def_use import DefUse

_FAR: Final = 24
"""Instructions before an exponential that are looked at for logarithms."""
_BETWEEN: Final = ("FADD", "FMUL", "FFMA", "FSEL", "MOV", "SEL", "IMAD")
_NARROWS: Final = ("F2FP.F16", "F2FP.BF16", "F2F.F16", "F2F.BF16", "F2FP.SATFINITE")
_WIDENS: Final = ("HADD2.F32", "F2F.F32", "PRMT", "IMAD.U32", "SHL", "LOP3", "SHF")


def by_logarithms(uses: DefUse) -> tuple[set[int], list[int]]:
    """Return exponentials of sums of two logarithms or more, in loops, with the sums."""
    found, ends = set[int](), list[int]()
    for at, each in uses.each("MUFU"):
        if each.opcode.startswith("MUFU.EX2") and uses.flow.loop_of(at) is not None:
            sums = _sums_before(uses, at)
            if sums:
                found |= {at, *sums}
                ends.append(at)
    return found, ends


def _sums_before(uses: DefUse, at: int) -> set[int]:
    """Return what adds logarithms up before an exponential; nothing of fewer than two."""
    code = uses.flow.code.instructions
    seen, work, logarithms = set[int](), [at], set[int]()
    while work and len(seen) < _FAR:
        for source in uses.sources(work.pop()) - seen:
            if code[source].opcode.startswith("MUFU.LG2"):
                logarithms.add(source)
            elif code[source].op in _BETWEEN:
                seen.add(source)
                work.append(source)
    adds = any(code[one].op in ("FADD", "FFMA") for one in seen)
    return seen if len(logarithms) > 1 and adds else set()


def to_and_fro(uses: DefUse) -> tuple[set[int], list[int]]:
    """Return conversions in loops to fewer bits whose results are only converted back."""
    code, found, ends = uses.flow.code.instructions, set[int](), list[int]()
    for at, each in uses.each("F2FP", "F2F"):
        if not each.opcode.startswith(_NARROWS) or uses.flow.loop_of(at) is None:
            continue
        users = uses.users(at)
        if users and all(code[user].opcode.startswith(_WIDENS) for user in users):
            found |= {at, *users}
            ends.append(at)
    return found, ends


def compensated(uses: DefUse) -> tuple[set[int], list[int]]:
    """Return the additions in loops that work out the error of a sum, and the sums."""
    found, ends = set[int](), list[int]()
    for at, each in uses.each("FADD", "DADD"):
        loop = uses.flow.loop_of(at)
        if loop is None or each.guard:
            continue
        for one, other in (each.operands[1:3], each.operands[2:0:-1]):
            total = uses.source_set(at, one) & loop.body
            if len(total) == 1 and other.startswith("-") and _has(uses, min(total), other, at):
                found |= {at, *total, *(uses.users(at) & loop.body)}
                ends += total
    return found, ends


def _has(uses: DefUse, total: int, other: str, at: int) -> bool:
    """Whether a sum has a summand that an operand, which is subtracted from it, names."""
    each = uses.flow.code.instructions[total]
    mine = uses.source_set(at, other.lstrip("-"))
    if each.op not in ("FADD", "DADD") or not mine:
        return False
    return any(uses.source_set(total, text) == mine for text in each.operands[1:3])
