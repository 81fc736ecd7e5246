"""What code does more often, or wider, than its results need: ``ExcessFacts`` of ranges.

Compare-and-swap in loops; operands widened, or split, for products; code of one thread of a block;
iterations behind a triangular mask; loops that several blocks, or iterations, execute alike.

``Masks``: a loop that compares a block's rows, which no iteration changes, with columns that each
iteration moves, and selects a constant where they don't compare, has iterations of which nothing is
used: all lanes' results are thrown away. How many are used follows from the numbers of the first
two iterations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.core.excess_facts import ExcessFacts
from ikp.inspection._work import NO_LINE, Often, line_of
from ikp.sass.control_flow.flow import Flow, Loop
from ikp.sass.dataflow.lane_arithmetic import signed
from ikp.sass.dataflow.lane_state import ASSUMED, BLOCK, DATA, FIRST_LOOP, LANES, Value
from ikp.sass.dataflow.lane_values import LaneValues
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import Work, work_of

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
        difference, keeps = _difference(numbers), self._keeps(at, each.operands[0])
        if difference is None or keeps is None:
            return None
        return _iterations(name if keeps else _OPPOSITE[name], *difference)

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


def _difference(
    numbers: Sequence[Value],
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the first difference of two compared numbers, and what an iteration adds to it.

    None unless both are known, one alone moves, and the other is a number of the block.

    Args:
        numbers: both in the first iteration, and both in the next.
    """
    bits = [one.bits for one in numbers]
    depends = numbers[0].depends | numbers[1].depends
    if any(one is None for one in bits) or depends & ASSUMED:
        return None
    left, right, then_left, then_right = (signed(one) for one in bits if one is not None)
    fixed = [np.array_equal(left, then_left), np.array_equal(right, then_right)]
    if fixed[0] == fixed[1] or not numbers[fixed.index(True)].depends & BLOCK:
        return None
    return left - right, (then_left - then_right) - (left - right)


def _iterations(
    name: str, begins: NDArray[np.int64], step: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """Return in how many iterations, from the first one on, a difference compares so with zero."""
    if name in ("LE", "LT"):
        begins, step = -begins, -step
    if (step >= 0).any():
        return None  # what is thrown away comes first
    strict = int(name in ("GT", "LT"))
    count = np.where(begins >= strict, (begins - strict) // np.maximum(-step, 1) + 1, 0)
    return np.minimum(count, _FARTHEST)


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


_TF32_BITS: Final = "0xffffe000"
"""The mask of the bits that a TF32 number keeps."""
_HIGH_HALF: Final = ("0x10000", "0xffff0000")
"""By what, or with what, an integer instruction makes a 32-bit number of a 16-bit one."""
_SWAP: Final = re.compile(r"ATOMG?\.(?:\w+\.)*CAS\b")
_WRITES: Final = ("ST", "STG", "ATOM", "ATOMG", "RED", "REDG", "CALL")
_SECTOR: Final = 32
_DIGITS: Final = 3


@dataclass(frozen=True)
class Excess:
    """The excess work of one kernel.

    Args:
        flow: the kernel.
        values: its registers, in some warps of many blocks.
        whole: its registers, in all warps of some blocks.
        ours: the instructions of records.
        results: the instructions that serve results, as bits; 0 where they are not known.
    """

    flow: Flow
    values: LaneValues
    whole: LaneValues
    ours: Collection[int] = ()
    results: int = 0

    def of(self, how_often: Mapping[int, Often]) -> ExcessFacts:
        """Return the excess work among some instructions."""
        threads, serial, line = self._serial(how_often)
        return ExcessFacts(
            swaps=self._count(how_often, _swaps),
            widened=self._count(how_often, _widens),
            split=self._count(how_often, _splits),
            serial=serial,
            serial_threads=threads,
            serial_line=line,
            useful=self._masks.useful(how_often),
            alone=self._line(self._alone, how_often),
            again=self._line(self._again, how_often),
        )

    def _count(
        self, how_often: Mapping[int, Often], chosen: Callable[[Instruction], bool]
    ) -> float:
        some = (
            max(often.expected, often.times if often.looped else 0.0)
            for at, often in how_often.items()
            if chosen(self.flow.code.instructions[at])
        )
        return round(float(sum(some)), _DIGITS)

    def _line(self, headers: Collection[int], how_often: Mapping[int, Often]) -> str:
        """Return the line of the first of some loops that has some of the instructions."""
        some = (loop for loop in self.flow.loops if loop.header in headers)
        own = (each.body for each in some if not each.body.isdisjoint(how_often))
        body = next(own, None)
        return "" if body is None else line_of(self.flow, body - {*self.ours}) or NO_LINE

    @cached_property
    def _masks(self) -> Masks:
        return Masks(self.flow, self.values)

    def _serial(self, how_often: Mapping[int, Often]) -> tuple[int, float, str]:
        """Return how many threads execute code alone, how many instructions that are, and where."""
        found: dict[int, list[int]] = {}
        for at in how_often:
            threads = self._threads.get(self.flow.graph.block(at), 0)
            if threads:
                found.setdefault(threads, []).append(at)
        if not found:
            return 0, 0.0, ""
        counts = {n: sum(how_often[at].weight for at in ats) for n, ats in found.items()}
        threads = max(counts, key=lambda n: counts[n])
        return threads, round(float(counts[threads]), _DIGITS), line_of(self.flow, found[threads])

    @cached_property
    def _threads(self) -> dict[int, int]:
        """The threads of a block that execute a basic block, where they are of one of its warps."""
        found = {}
        for number in self.flow.graph.order:
            mask = self.whole.comes(number)
            if mask is None:
                continue
            by_block = mask.reshape(-1, self.whole.launch.shape.warps * LANES)
            warps = by_block.reshape(len(by_block), -1, LANES).any(axis=2).sum(axis=1)
            if warps.max(initial=0) == 1 and self.whole.launch.shape.warps > 1:
                found[number] = int(by_block.sum(axis=1).max())
        return found

    @cached_property
    def _alone(self) -> frozenset[int]:
        """The loops, by their headers, that calculate from what they load, and nothing else."""
        some = (one for one in self.flow.loops if self._is_alone(one, DATA))
        some = (one for one in some if self._is_of_several(one))
        return frozenset(one.header for one in some if not self._is_of_block(one))

    def _is_of_several(self, loop: Loop) -> bool:
        """Whether several blocks load the same in all of a loop's loads, of those that are known.

        Rows that some blocks share and columns that others do give each block a result of its own.
        """
        numbers = self.values.launch.shape.numbers
        _, first = np.unique(numbers, return_index=True)
        found = (self.values.address(at).bits for at in self._loads(loop))
        known = [bits.reshape(len(numbers), -1)[first] for bits in found if bits is not None]
        return len(np.unique(np.concatenate(known, axis=1), axis=0)) < len(first)

    def _is_of_block(self, loop: Loop) -> bool:
        """Whether a loop calculates results with a number that each block has for itself."""
        code, made = self.flow.code.instructions, (Work.FLOAT, Work.INTEGER, Work.SHUFFLE)
        own = loop.body - {*self.ours}
        some = [at for at in own if self.results >> at & 1 and work_of(code[at]) in made]
        return bool(self.values.given(loop.header, self._given(loop, some)) & BLOCK)

    @cached_property
    def _again(self) -> frozenset[int]:
        """The loops, by their headers, that an outer loop executes anew with the same operands."""
        headers = sorted(each.header for each in self.flow.loops)
        found = set()
        for outer in self.flow.loops:
            bit = 1 << FIRST_LOOP + headers.index(outer.header)
            for inner in self.flow.loops:
                inside = inner.body < outer.body
                if inside and self._is_alone(inner, bit) and self._stays(inner, outer):
                    found.add(inner.header)
        return frozenset(found)

    def _stays(self, inner: Loop, outer: Loop) -> bool:
        """Whether no iteration of an outer loop moves what an inner one loads, or what is there."""
        loads = self._loads(inner)
        if any(self.values.moves(at, outer.header) for at in loads):
            return False
        code = self.flow.code.instructions
        writes = [at for at in outer.body - {*self.ours} if code[at].op in _WRITES]
        read = np.unique(np.concatenate([self._sectors(at) for at in loads]))
        return all(self._apart(at, read) for at in writes)

    def _apart(self, at: int, read: NDArray[np.int64]) -> bool:
        """Whether a store's addresses are known, and none of some sectors is among them."""
        mine = self._sectors(at)
        return bool(len(mine)) and not np.isin(mine, read).any()

    def _sectors(self, at: int) -> NDArray[np.int64]:
        bits = self.values.address(at).bits
        return np.empty(0, np.int64) if bits is None else np.unique(bits // _SECTOR)

    def _loads(self, loop: Loop) -> list[int]:
        code = self.flow.code.instructions
        return [at for at in loop.body if at not in self.ours and code[at].op == "LDG"]

    def _is_alone(self, loop: Loop, bits: int) -> bool:
        """Whether a loop loads, and what else it calculates with depends on none of some bits."""
        own = loop.body - {*self.ours}
        loads = self._loads(loop)
        if not loads or any(self.values.address(at).bits is None for at in loads):
            return False
        if not all(self._is_plain(self.flow.code.instructions[at]) for at in own):
            return False
        done = {work_of(self.flow.code.instructions[at]) for at in own}
        if Work.SHARED in done and (not self._fills(own) or Work.FLOAT not in done):
            return False  # it needs what others left there; or it only copies
        return not self.values.given(loop.header, self._given(loop, own)) & bits

    def _fills(self, own: Collection[int]) -> bool:
        """Whether code stores to the shared memory that it loads from."""
        ops = {self.flow.code.instructions[at].op for at in own}
        return "STS" in ops or not ops & {"LDS", "LDSM", "LD"}

    @staticmethod
    def _is_plain(each: Instruction) -> bool:
        work = work_of(each)
        return work not in (Work.TENSOR, Work.COPY, Work.ATOMIC, Work.LOCAL, Work.TMEM) and (
            each.op not in ("ST", "STG", "CALL")
        )

    def _given(self, loop: Loop, some: Collection[int]) -> int:
        """Return the registers that some of a loop's code reads and none of it writes, as bits."""
        effects = self.flow.effects
        read = reduce(or_, [effects[at].reads for at in some], 0)
        written = reduce(or_, [effects[at].writes for at in loop.body], 0)
        return read & ~written


def _widens(each: Instruction) -> bool:
    """Whether an instruction makes a 32-bit number of one of 16 bits."""
    if each.opcode.startswith(("HADD2.F32", "HADD2.BF16_V2.F32")):
        return True
    if each.op in ("F2F", "F2FP"):
        return each.opcode.startswith(("F2F.F32.F16", "F2F.F32.BF16"))
    if each.opcode in ("IMAD.U32", "SHL", "SHF.L.U32", "LOP3.LUT"):
        return any(one in _HIGH_HALF for one in each.operands[1:4])
    return each.op == "PRMT" and each.operands[1:2] == ("RZ",) and "0x5410" in each.operands


def _splits(each: Instruction) -> bool:
    """Whether an instruction keeps the bits of a number that a TF32 one has."""
    return each.op in ("LOP3", "ULOP3") and _TF32_BITS in each.operands


def _swaps(each: Instruction) -> bool:
    return bool(_SWAP.match(each.opcode))
