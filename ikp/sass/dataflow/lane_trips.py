"""Trip counts of loops: a comparison of numbers with constant steps, and when it ends the loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ikp.sass.control_flow.flow import Flow, Loop
from ikp.sass.control_flow.graph import inverse
from ikp.sass.dataflow.lane_arithmetic import Numbers, signed
from ikp.sass.dataflow.lane_state import ASSUMED, Value
from ikp.sass.disassembly.listing import Instruction

_COMPARES = ("ISETP", "UISETP")
_OPPOSITE = {"LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT", "EQ": "NE", "NE": "EQ"}
_MOST = 1 << 24
"""Trips that no loop of a kernel makes: the steps are not what they seem."""
_OF_A_COMPARISON = 5
"""Operands of a comparison: two predicates, two numbers, and a further condition."""


@dataclass(frozen=True, slots=True)
class LoopExit:
    """An exit of a loop: it is left where a comparison holds."""

    comparison: int  # the index of an ISETP
    low: int | None  # of that of the low halves, where it compares 64 bits
    leaves: str  # "LT", ...: of its two numbers, where the loop is left
    unsigned: bool
    at_top: bool  # the test comes before the body

    @property
    def comparisons(self) -> tuple[int, ...]:
        """Both comparisons."""
        return (self.comparison,) if self.low is None else (self.comparison, self.low)


def exits_of(flow: Flow, loop: Loop) -> list[LoopExit] | None:
    """Return the exits of a loop; None where one is not by a comparison of integers."""
    graph = flow.graph
    header = graph.block(loop.header)
    body, found = flow.bodies[header], []
    for number in sorted(body):
        block = graph.blocks[number]
        last = block.end - 1
        ways = graph.jumps.leaving.get(last, ()) if block.first < block.end else ()
        for to, guard in ways:
            outside = to >= len(flow.code.instructions) or graph.block(to) not in body
            if outside:
                made = _exit(
                    flow, loop, last, guard, at_top=number == header != _latch(flow, header)
                )
                if made is None:
                    return None
                found.append(made)
        if not ways and graph.jumps.ends(last):
            return None
    return found


def _latch(flow: Flow, header: int) -> int:
    """Return the last block of a loop, from which it goes back."""
    body = flow.bodies[header]
    return max((b for b in flow.graph.before[header] if b in body), default=header)


def _exit(flow: Flow, loop: Loop, jump: int, guard: str, *, at_top: bool) -> LoopExit | None:
    name = guard.lstrip("!")
    comparison = _writer(flow, loop, jump, name)
    if not name or comparison is None:
        return None
    each = flow.code.instructions[comparison]
    holds = _holds(each, name)
    if holds is None:
        return None
    wide = ".EX" in each.opcode
    low = _writer(flow, loop, comparison, each.operands[5].lstrip("!")) if wide else None
    if wide and low is None:
        return None
    leaves = _OPPOSITE[holds] if guard == inverse(name) else holds
    return LoopExit(comparison, low, leaves, "U32" in each.opcode, at_top)


def _holds(each: Instruction, name: str) -> str | None:
    """Return how two numbers compare where a predicate holds; None where more decides it."""
    plain = len(each.operands) >= _OF_A_COMPARISON and each.operands[4] == "PT"
    if not plain or each.guard or each.operands[0] != name:
        return None
    return next((part for part in each.opcode.split(".") if part in _OPPOSITE), None)


def _writer(flow: Flow, loop: Loop, before: int, name: str) -> int | None:
    """Return the comparison in a loop that makes a predicate; None where another instruction does.

    The last one before an instruction; without, the last one of the iteration before.
    """
    writers = [at for at in loop.body if _writes(flow.code.instructions[at], name)]
    earlier = [at for at in writers if at < before]
    found = max(earlier or writers, default=None)
    if found is None or flow.code.instructions[found].op not in _COMPARES:
        return None
    return found


def _writes(each: Instruction, name: str) -> bool:
    made = each.op.endswith("SETP") or each.op in ("PLOP3", "UPLOP3", "R2P", "LOP3", "IADD3", "LEA")
    return made and name in each.operands[:3] and not each.never_runs


Compared = Mapping[int, tuple[Value, Value]]


def trips_of(one: LoopExit, first: Compared, second: Compared) -> Numbers | None:
    """Return how often each thread runs a loop's body until an exit; None if not known."""
    begins, then = _difference(one, first), _difference(one, second)
    if begins is None or then is None:
        return None
    step = then - begins
    with np.errstate(all="ignore"):
        count = _until(one.leaves, begins, step)
    if (count < 0).any() or (count > _MOST).any():
        return None
    return count if one.at_top else count + 1


def _difference(one: LoopExit, compared: Compared) -> Numbers | None:
    """Return the first number less the second one, of 64 bits."""
    if any(at not in compared for at in one.comparisons):
        return None
    pair = compared[one.comparison]
    if pair[0].bits is None or pair[1].bits is None:
        return None
    if (pair[0].depends | pair[1].depends) & ASSUMED:
        return None
    left, right = (pair[0].bits, pair[1].bits)
    if one.low is not None:
        low = compared[one.low]
        if low[0].bits is None or low[1].bits is None:
            return None
        return (signed(left) << 32 | low[0].bits) - (signed(right) << 32 | low[1].bits)
    return left - right if one.unsigned else signed(left) - signed(right)


def _until(leaves: str, begins: Numbers, step: Numbers) -> Numbers:
    """Return the first k for which ``begins + k * step`` compares with 0; negative for none."""
    if leaves in ("GT", "GE"):
        return _until({"GT": "LT", "GE": "LE"}[leaves], -begins, -step)
    down = np.maximum(-step, 1)
    if leaves == "LT":
        found = np.where(begins < 0, 0, np.where(step < 0, begins // down + 1, -1))
    elif leaves == "LE":
        found = np.where(begins <= 0, 0, np.where(step < 0, -(-begins // down), -1))
    elif leaves == "EQ":
        size = np.where(step == 0, 1, step)
        whole = (begins % np.abs(size) == 0) & (-begins // size >= 0) & (step != 0)
        found = np.where(begins == 0, 0, np.where(whole, -begins // size, -1))
    else:
        found = np.where(begins != 0, 0, np.where(step != 0, 1, -1))
    return found.astype(np.int64)
