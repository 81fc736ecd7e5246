"""Arithmetic that gives the same number each time: in every iteration of a loop, or in all threads.

``invariant``: its operands come from outside of the loop, or from loads whose address no iteration
moves. A compiler keeps it inside where a store may be to what is loaded, or where a condition is
around it. ``uniform``: its operands are parameters, constants, and what all threads of a launch
load from the same address.
"""

from __future__ import annotations

from typing import Final

from ikp.sass.control_flow.flow import Loop
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.disassembly.effects import members, operand
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import Work, work_of

_LOADS: Final = ("LDG", "LDS", "LD", "LDC", "LDCU", "ULDC")
_WRITES: Final = {
    "LDS": ("STS", "STSM", "ATOMS", "BAR", "LDGSTS", "SYNCS"),
    "LDG": ("BAR", "ATOMG"),
}
"""What, in a loop, may write to where such a load is."""
_PURE: Final = (Work.FLOAT, Work.INTEGER)
_OF_THREAD: Final = ("S2R", "S2UR", "CS2R", "B2R")
"""Instructions that read a number of the thread, or the clock."""
_SLOW: Final = ("MUFU", "DADD", "DMUL", "DFMA", "F2F", "FCHK", "I2F", "F2I")


def invariant(uses: DefUse) -> tuple[set[int], set[int]]:
    """Return arithmetic that each iteration of a loop does anew, and the slow part of it.

    That of integers a compiler repeats to save registers: it does not count.
    """
    found = set[int]()
    for loop in uses.flow.loops:
        found |= _of_loop(uses, loop)
    code = uses.flow.code.instructions
    return found, {at for at in found if code[at].op in _SLOW}


def _of_loop(uses: DefUse, loop: Loop) -> set[int]:
    """Return the floating-point arithmetic of a loop, outside of inner ones, that none moves."""
    code = uses.flow.code.instructions
    still, ops = set[int](), {code[at].op for at in loop.body}
    for at in uses.own(loop):
        each = code[at]
        if _fits(each, ops) and not each.guard and _are_still(uses, at, _asked(each), loop, still):
            still.add(at)
    loaded = {at for at in still if code[at].op in _LOADS}
    return {at for at in _behind(uses, loaded, still) if work_of(code[at]) is Work.FLOAT}


def _fits(each: Instruction, ops: set[str]) -> bool:
    """Whether an instruction is arithmetic, or a load from memory that no operation changes."""
    return ops.isdisjoint(_WRITES.get(each.op, ())) if each.op in _LOADS else _is_pure(each)


def _are_still(uses: DefUse, at: int, reads: int, loop: Loop, still: set[int]) -> bool:
    """Whether no iteration changes what some registers hold that an instruction reads."""
    inside = uses.sources(at, reads) & loop.body
    return all(one < at and one in still for one in inside)


def _behind(uses: DefUse, first: set[int], some: set[int]) -> set[int]:
    """Return those of some instructions that work with what the first ones bring."""
    found, work = set[int](), [*first]
    while work:
        for user in uses.users(work.pop()) & some - found:
            found.add(user)
            work.append(user)
    return found


def uniform(uses: DefUse) -> tuple[set[int], set[int]]:
    """Return arithmetic that all threads do with the same numbers, and its slow part.

    Its operands are constants, parameters, and what loads bring at addresses made of these.
    """
    code, same = uses.flow.code.instructions, _same_in_all(uses)
    found = {at for at in same if work_of(code[at]) is Work.FLOAT and uses.source_bits(at)}
    return found, {at for at in found if code[at].op in _SLOW}


def _same_in_all(uses: DefUse) -> set[int]:
    """Return the loads and arithmetic that have the same operands in all threads."""
    same = set[int]()
    for at, each in enumerate(uses.flow.code.instructions):
        if at in uses.ours or each.guard:
            continue
        if each.op in _LOADS or _is_pure(each):
            read = members(uses.flow.effects[at].reads & _asked(each))
            if all(_is_same(uses, at, 1 << register, same) for register in read):
                same.add(at)
    return same


def _asked(each: Instruction) -> int:
    """Return the registers, as bits, that what an instruction brings depends on."""
    return operand(each.operands[-1]).reads if each.op in _LOADS else -1


def _is_pure(each: Instruction) -> bool:
    return work_of(each) in _PURE and each.op not in _OF_THREAD


def _is_same(uses: DefUse, at: int, register: int, same: set[int]) -> bool:
    """Whether a register that an instruction reads has the same number in all threads.

    Of several writers, one must be behind a call, as of a division's slow path: which of others
    wrote it, a thread's own condition may decide.
    """
    some = uses.sources(at, register)
    if not some <= same or any(one >= at for one in some):
        return False
    return len(some) <= 1 or any(_is_behind_call(uses, one) for one in some)


def _is_behind_call(uses: DefUse, at: int) -> bool:
    graph = uses.flow.graph
    calls = graph.jumps.calls
    first = graph.blocks[graph.block(at)].first
    return first - 1 in calls or any(one in calls for one in range(first, at))
