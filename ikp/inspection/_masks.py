"""``Masks``: how many of a loop's iterations a triangular mask lets through.

In the others, all lanes' results are thrown away.

A loop that compares a block's rows, which no iteration changes, with columns that each iteration
moves, and selects a constant where they don't compare, has iterations of which nothing is used.
How many are used follows from the numbers of the first two iterations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.inspection._work import Often
from ikp.sass.control_flow.flow import Flow, Loop
from ikp.sass.dataflow.lane_arithmetic import signed
from ikp.sass.dataflow.lane_state import ASSUMED, BLOCK, LANES
from ikp.sass.dataflow.lane_values import LaneValues
from ikp.sass.disassembly.listing import Instruction

_SEVERAL: Final = 4
"""Comparisons of a loop from which on they are a mask of a tile."""
_LOW: Final = re.compile(r"-(?:INF|QNAN|\d{4,}.*|\d.*e\+\d+)$|(?:-)?INF$")
"""A constant that no sum or maximum keeps."""
_HOLDS: Final = ("GE", "GT", "LE", "LT")
_FARTHEST: Final = 1 << 16


@dataclass(frozen=True)
class Masks:
    """The triangular masks of one kernel."""

    flow: Flow
    values: LaneValues

    def useful(self, how_often: Mapping[int, Often]) -> float:
        """Return the iterations that a mask lets through: the mean of the blocks that are walked.

        Of the loop of which a range is an iteration, or a part of one; -1 where it has no such
        mask.
        """
        for loop in self.flow.loops:
            found = self._by_loop.get(loop.header)
            if found is not None and any(self._once(at, loop, how_often) for at in loop.body):
                return found
        return -1.0

    def _once(self, at: int, loop: Loop, how_often: Mapping[int, Often]) -> bool:
        """Whether a range executes an instruction of a loop once, as an iteration of it does."""
        often = how_often.get(at)
        once = often is not None and not often.looped and often.times <= 1
        return once and self._is_own(at, loop)

    def _is_own(self, at: int, loop: Loop) -> bool:
        """Whether a loop is the innermost one around an instruction."""
        own = self.flow.loop_of(at)
        return own is not None and own.header == loop.header

    @cached_property
    def _by_loop(self) -> dict[int, float]:
        found = {}
        for loop in self.flow.loops:
            if (mean := self._of_loop(loop)) is not None:
                found[loop.header] = mean
        return found

    def _of_loop(self, loop: Loop) -> float | None:
        """Return the mean over blocks of the last iteration that any comparison lets through."""
        kept = [self._kept(at, loop) for at in sorted(loop.body) if self._compares(at, loop)]
        known = [each for each in kept if each is not None]
        if len(known) < _SEVERAL:
            return None
        most = np.maximum.reduce(known).reshape(-1, self.values.launch.shape.warps * LANES)
        shape = self.values.launch.shape
        last = shape.blocks + shape.spread
        some = [0, *range(shape.blocks, last)] if len(most) >= last else slice(None)
        return round(float(most[some].max(axis=1).mean()), 2)

    def _compares(self, at: int, loop: Loop) -> bool:
        return self.flow.code.instructions[at].op == "ISETP" and self._is_own(at, loop)

    def _kept(self, at: int, loop: Loop) -> NDArray[np.int64] | None:
        """Return in how many iterations, from the first one on, each thread keeps a result."""
        each = self.flow.code.instructions[at]
        name = next((part for part in each.opcode.split(".") if part in _HOLDS), "")
        numbers = self.values.compared(at, loop.header)
        if not name or ".EX" in each.opcode or each.operands[4:5] != ("PT",) or numbers is None:
            return None
        bits = [one.bits for one in numbers]
        depends = numbers[0].depends | numbers[1].depends
        if any(one is None for one in bits) or depends & ASSUMED:
            return None
        left, right, then_left, then_right = (signed(one) for one in bits if one is not None)
        fixed = [np.array_equal(left, then_left), np.array_equal(right, then_right)]
        if fixed[0] == fixed[1] or not numbers[fixed.index(True)].depends & BLOCK:
            return None
        keeps = self._keeps(at, each.operands[0])
        if keeps is None:
            return None
        name = name if keeps else _OPPOSITE[name]
        begins, step = left - right, (then_left - then_right) - (left - right)
        if name in ("LE", "LT"):
            begins, step = -begins, -step
        if (step >= 0).any():
            return None  # what is thrown away comes first
        strict = int(name in ("GT", "LT"))
        count = np.where(begins >= strict, (begins - strict) // np.maximum(-step, 1) + 1, 0)
        return np.minimum(count, _FARTHEST)

    def _keeps(self, at: int, predicate: str) -> bool | None:
        """Whether a predicate keeps results where it holds; None where it selects no constant.

        Of floats: integers are sizes of copies, which a pipeline makes zero at its end.
        """
        block = self.flow.graph.blocks[self.flow.graph.block(at)]
        for other in range(at + 1, block.end):
            each = self.flow.code.instructions[other]
            if each.op == "FSEL" and each.operands[3].lstrip("!") == predicate:
                holds = _keeps_first(each)
                return None if holds is None else holds != each.operands[3].startswith("!")
            if predicate in each.operands[:2] and each.op.endswith("SETP"):
                return None
        return None


_OPPOSITE: Final = {"LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT"}


def _keeps_first(each: Instruction) -> bool | None:
    """Whether a selection's first operand is what is kept; None where neither is a constant."""
    first, second = each.operands[1:3]
    for one, kept in ((second, True), (first, False)):
        if _LOW.match(one):
            return kept
    if (first == "RZ") != (second == "RZ"):
        return second == "RZ"
    return None
