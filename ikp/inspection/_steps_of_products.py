"""Iterations of matrix products: steps that are shallow, and loads that nothing overlaps.

An iteration copies a slice of the operands, waits for the one before, lets all warps meet, and
multiplies. Where the slice is as deep as one instruction, all of that is done for each instruction:
a deeper slice does it once for several. Where an iteration loads into registers, and uses what it
loads before its next product, nothing is under way meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from ikp.sass.control_flow.flow import Flow, Loop
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.disassembly.effects import operand
from ikp.sass.disassembly.opcodes import Work, lane_bytes, work_of

_MEETS: Final = ("BAR", "SYNCS", "DEPBAR")
"""Instructions by which an iteration waits for other warps, or for its copies."""


def single_steps(uses: DefUse) -> list[int]:
    """Return the products of loops with waits whose sum gets no second product in an iteration."""
    flow, by_sum = uses.flow, defaultdict[tuple[Loop, int], list[int]](list)
    for loop, products in _products(uses).items():
        for at in products:
            by_sum[loop, operand(flow.code.instructions[at].operands[0]).first].append(at)
    alone = ((loop, ats[0]) for (loop, _), ats in by_sum.items() if len(ats) == 1)
    return [at for loop, at in alone if _waits(flow, loop)]


def unpipelined(uses: DefUse) -> list[int]:
    """Return the loads of loops with products that are used before the next product is made.

    None where a kernel copies asynchronously in such loops, or where most loads are used later.
    """
    found, code = list[int](), uses.flow.code.instructions
    every = 0
    for loop, products in _products(uses).items():
        own = [at for at in loop.body if uses.flow.loop_of(at) == loop and at not in uses.ours]
        if any(code[at].op in _COPIES for at in own):
            return []
        loads = [at for at in own if code[at].op == "LDG" and lane_bytes(code[at].opcode) >= _WIDE]
        every += len(loads)
        for at in loads:
            used = min((one for one in uses.users(at) if one > at and one in loop.body), default=at)
            if used > at and not any(at < one < used for one in products):
                found.append(at)
    return found if len(found) >= _MOST * max(every, 1) else []


_COPIES: Final = ("LDGSTS", "UTMALDG", "UBLKCP")
_WIDE: Final = 8
"""Bytes of a lane from which on a load is one of operands."""
_MOST: Final = 0.5


def _products(uses: DefUse) -> dict[Loop, list[int]]:
    """Return the products of each loop that has some of its own."""
    found = defaultdict[Loop, list[int]](list)
    for at, each in enumerate(uses.flow.code.instructions):
        loop = uses.flow.loop_of(at)
        if loop is not None and work_of(each) is Work.TENSOR and at not in uses.ours:
            found[loop].append(at)
    return found


def _waits(flow: Flow, loop: Loop) -> bool:
    return any(flow.loop_of(at) == loop for at in flow.code.of(*_MEETS))
