"""Products of tensor cores of which each sum gets one step in an iteration, between its waits.

An iteration of a matrix product copies a slice of the operands, waits for the one before, lets all
warps meet, and multiplies. Where the slice is as deep as one instruction, all of that is done for
each instruction: a deeper slice does it once for several.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from ikp.sass.control_flow.flow import Flow, Loop
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.disassembly.effects import operand
from ikp.sass.disassembly.opcodes import Work, work_of

_MEETS: Final = ("BAR", "SYNCS", "DEPBAR")
"""Instructions by which an iteration waits for other warps, or for its copies."""


def single_steps(uses: DefUse) -> list[int]:
    """Return the products of loops with waits whose sum gets no second product in an iteration."""
    flow = uses.flow
    by_sum = defaultdict[tuple[Loop, int], list[int]](list)
    for at, each in enumerate(flow.code.instructions):
        loop = flow.loop_of(at)
        if loop is not None and work_of(each) is Work.TENSOR and at not in uses.ours:
            by_sum[loop, operand(each.operands[0]).first].append(at)
    alone = ((loop, ats[0]) for (loop, _), ats in by_sum.items() if len(ats) == 1)
    return [at for loop, at in alone if _waits(flow, loop)]


def _waits(flow: Flow, loop: Loop) -> bool:
    return any(flow.loop_of(at) == loop for at in flow.code.of(*_MEETS))
