"""Work of ranges: their instruction mixes by unit, flops, loops and divergence.

For each record of a range, an instruction is executed a known number of times, or at most so often
(under a condition). Or it is executed as often as a loop iterates that no record counts. The shape
in a matrix product's opcode gives its flops.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import prod
from typing import Final

from ikp.core.code_facts import LoopFacts
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.def_use import DefUse
from ikp.sass.dataflow.idioms import slow_paths
from ikp.sass.dataflow.lane_state import DATA, LANE
from ikp.sass.dataflow.lane_values import LaneValues
from ikp.sass.disassembly.effects import P, members, span
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import Work, unit_of, work_of

_GROUP: Final = re.compile(r"[A-Z]*GMMA\.(?:SP\.)?(\d+)x(\d+)x(\d+)")
_WARP: Final = re.compile(r"[A-Z]+MMA\.(?:SP\.)?(\d{3,5})(?:\.|$)")
_SHAPES: Final = {
    "16816": (16, 8, 16),
    "1688": (16, 8, 8),
    "1684": (16, 8, 4),
    "16832": (16, 8, 32),
    "16864": (16, 8, 64),
    "16128": (16, 8, 128),
    "884": (8, 8, 4),
    "8816": (8, 8, 16),
    "8832": (8, 8, 32),
}
_WARPS_OF_A_GROUP: Final = 4


def flop(instruction: Instruction) -> int | None:
    """Return the operations of one warp's part in a product, two for each pair that is multiplied.

    A warpgroup's product counts a quarter for each of its warps. None where the opcode doesn't say
    the shape (tcgen05: a descriptor does), where half of a side is left out (sparse), or where the
    product is under a condition.
    """
    if instruction.guard or ".SP" in instruction.opcode:
        return None
    if found := _GROUP.match(instruction.opcode):
        m, n, k = map(int, found.groups())
        return 2 * m * n * k // _WARPS_OF_A_GROUP
    if (found := _WARP.match(instruction.opcode)) and found[1] in _SHAPES:
        m, n, k = _SHAPES[found[1]]
        return 2 * m * n * k
    return None


@dataclass(frozen=True, slots=True)
class Often:
    """How often an instruction is executed in one execution of its range.

    ``times`` where conditions and loops around it are known; at most so often where ``maybe``; so
    often in each iteration of a loop whose trips no record counts where ``looped``, of the
    outermost such loop, with a guess of the trips of others in it.
    """

    times: float
    maybe: bool = False
    looped: bool = False

    @classmethod
    def in_loops(cls, trips: Sequence[float | None]) -> Often:
        """Return how often code is executed that loops with so many trips are around.

        Args:
            trips: of each loop; None where they are not known.
        """
        known = [each for each in trips if each is not None]
        if len(known) == len(trips):
            return cls(prod(known))
        guess = GUESS ** (len(trips) - len(known) - 1)  # and the outermost one once
        return cls(guess * prod(max(each, 1.0) for each in known), looped=True)

    @property
    def expected(self) -> float:
        """Return how often it is taken to be executed: half as often under a condition."""
        return 0.0 if self.looped else self.times / 2 if self.maybe else self.times

    @property
    def weight(self) -> float:
        """Return the same, with a guess where trips are not known."""
        return GUESS * self.times if self.looped else self.expected


GUESS = 8.0
"""Trips of a loop whose trips are not known, where instructions are compared with each other."""


def mix(flow: Flow, how_often: Mapping[int, Often]) -> dict[str, tuple[float, float, float]]:
    """Return the mix of some instructions."""
    counts: dict[str, list[float]] = {}
    for at, often in how_often.items():
        if unit := unit_of(flow.code.instructions[at]):
            place = 2 if often.looped else 1 if often.maybe else 0
            counts.setdefault(unit, [0.0, 0.0, 0.0])[place] += often.times
    return {
        unit: (round(a, _DIGITS), round(b, _DIGITS), round(c, _DIGITS))
        for unit, (a, b, c) in sorted(counts.items())
    }


_DIGITS = 3


def loops(flow: Flow, ours: set[int]) -> tuple[LoopFacts, ...]:
    """Return the mix of each loop without the loops in it, after that of the code in no loop."""
    found: dict[int, Counter[str]] = {-1: Counter()}
    found |= {loop.header: Counter() for loop in flow.loops}
    for at, each in enumerate(flow.code.instructions):
        unit = unit_of(each)
        if at not in ours and unit:
            loop = flow.loop_of(at)
            found[-1 if loop is None else loop.header][unit] += 1
    depth = {loop.header: len(flow.loops_around(loop.header)) for loop in flow.loops}
    return tuple(
        LoopFacts(
            "" if header < 0 else line_of(flow, [header]),
            depth.get(header, 0),
            dict(sorted(counts.items())),
        )
        for header, counts in found.items()
        if counts
    )


def sums(flow: Flow, how_often: Mapping[int, Often]) -> float:
    """Return how many FP32 multiply-adds sum up products of registers in a register of their own.

    So do products of matrices, in any spelling.
    """
    found, made, block = 0.0, dict[str, str](), -1
    for at, often in sorted(how_often.items()):
        each = flow.code.instructions[at]
        if flow.graph.block(at) != block:
            made, block = {}, flow.graph.block(at)
        if _sums(each, made):
            found += often.expected
        if each.operands:
            made[each.operands[0]] = each.op
    return round(float(found), _DIGITS)


def products(flow: Flow, how_often: Mapping[int, Often]) -> float | None:
    """Return the operations of products that are expected; None where a shape is not known."""
    total = 0.0
    for at, often in how_often.items():
        each = flow.code.instructions[at]
        if work_of(each) is Work.TENSOR:
            shape = flop(each)
            if shape is None or often.looped:
                return None
            total += shape * often.expected
    return total


_MULTIPLY_ADDS = ("FFMA", "FFMA2", "DFMA")


def _sums(each: Instruction, made: Mapping[str, str]) -> bool:
    """Whether an instruction adds a product to a sum: to its own target, or to another sum.

    Args:
        each: the instruction.
        made: which instruction wrote each register before, in its basic block.
    """
    if each.op not in _MULTIPLY_ADDS or len(each.operands) < 4:
        return False
    target, a, b, c = each.operands[:4]
    factors = {a.lstrip("-"), b.lstrip("-")}
    adds = (c == target or made.get(c) in _MULTIPLY_ADDS) and len(factors) > 1
    return adds and all(one[0] == "R" and one != "RZ" for one in factors) and c not in factors


def line_of(flow: Flow, instructions: Iterable[int]) -> str:
    """Return the source line that most of some instructions come from: ``"matmul.py:93"``.

    Of inlined functions, the line of the kernel that calls them.
    """
    lines = Counter(
        each.lines[-1] for at in instructions if (each := flow.code.instructions[at]).lines
    )
    if not lines:
        return ""
    line = max(lines, key=lambda one: (lines[one], -one.number))
    return f"{line.file}:{line.number}"


def polls(
    flow: Flow, values: LaneValues, instructions: Collection[int], ours: Collection[int] = ()
) -> str:
    """Return the line of a loop, among some instructions, that only reads memory until it changes.

    It loads, or operates atomically, at an address that no iteration moves, and does nothing else
    but hand the answer of one thread to the others through shared memory.
    """
    for loop in flow.loops:
        body = loop.body - {*ours}  # without the instructions of records
        if len(body) > _MOST_OF_A_POLL or not loop.body & {*instructions}:
            continue
        asks = _of_poll(flow, values, loop.header, body)
        if asks and values.trips(loop.header) is None:
            return line_of(flow, asks)
    return ""


def _of_poll(flow: Flow, values: LaneValues, header: int, body: Collection[int]) -> list[int]:
    """Return what asks in a loop at addresses that no iteration moves; nothing if it does more."""
    asks = [at for at in body if _asks(flow.code.instructions[at])]
    works = any(_works(flow.code.instructions[at]) for at in body)
    moves = any(values.depends_on_loop(values.address(at).depends, header) for at in asks)
    return [] if works or moves else asks


_MOST_OF_A_POLL = 64
"""Instructions of a loop above which it does more than to ask again."""


def _asks(each: Instruction) -> bool:
    strong = each.op in ("LD", "LDG") and ".STRONG" in each.opcode
    return strong or each.op in ("ATOM", "ATOMG")


def _works(each: Instruction) -> bool:
    works = (Work.STORE, Work.TENSOR, Work.FLOAT, Work.COPY, Work.LOCAL)
    if each.op == "LDG":
        return ".STRONG" not in each.opcode
    return work_of(each) in works and any(_REGISTER.fullmatch(one) for one in each.operands[1:])


_COMPARES = ("FSETP", "DSETP", "HSETP2")
_PREDICATE = re.compile(r"\bP\d\b")
_REGISTER = re.compile(r"[-|]*R\d+\|?|.*\[.*R\d+.*\].*")
"""An operand that is a register, or an address in one: constants are made without."""
_SHORT = 12
"""Instructions below which a condition costs little on either side."""


@dataclass(frozen=True)
class Divergence:
    """The instructions that lanes of a warp may run apart, because of the data that they loaded."""

    flow: Flow
    values: LaneValues

    @cached_property
    def slow(self) -> frozenset[int]:
        """The blocks of slow paths that hardly run."""
        return slow_paths(self.flow)

    @cached_property
    def apart(self) -> frozenset[int]:
        """Instructions under a condition, or in a loop, that lanes decide by their data."""
        graph, found = self.flow.graph, set[int]()
        for block in graph.order:
            ways = {*graph.after[block]}
            last = graph.blocks[block].end - 1
            if len(ways) < 2:
                continue
            body = self._innermost(block)
            leaves = bool(body) and any(self._beyond(way, body) for way in ways)
            if not self._by_data(last) and not (leaves and self._at_will(last, body)):
                continue
            if leaves:
                found |= body
            region = self.flow.until_joined(block)
            found |= set() if self._rare(region) else region
        return frozenset(chain.from_iterable(map(self._of_block, found - self.slow)))

    def _rare(self, region: set[int]) -> bool:
        """Whether blocks are a slow path that a compiler wrote: short, or with a call."""
        ats = [at for block in region for at in self._of_block(block)]
        calls = any(self.flow.code.instructions[at].op == "CALL" for at in ats)
        return calls or len(ats) < _SHORT

    def _at_will(self, jump: int, body: frozenset[int]) -> bool:
        """Whether each lane leaves a loop when a number says so that it calculates as it goes."""
        each = self.flow.code.instructions[jump]
        decides = {*_PREDICATE.findall(f"{each.guard} {each.rest}")}
        compared = {
            other.operands[0]
            for block in body
            for at in self._of_block(block)
            if (other := self.flow.code.instructions[at]).op in _COMPARES
        }
        return bool(decides & compared) and bool(self.values.branch(jump) & LANE)

    def _by_data(self, jump: int) -> bool:
        depends = self.values.branch(jump)
        return bool(depends & DATA) and bool(depends & LANE)

    def _beyond(self, way: int, body: frozenset[int]) -> bool:
        """Whether a way leaves a loop; empty blocks for falling through lead on."""
        blocks = self.flow.graph.blocks
        while blocks[way].first == blocks[way].end and self.flow.graph.after[way]:
            way = self.flow.graph.after[way][0]
        return way not in body

    def _innermost(self, block: int) -> frozenset[int]:
        """Return the blocks of the innermost loop around a block; none without a loop."""
        around = (body for body in self.flow.bodies.values() if block in body)
        return min(around, key=len, default=frozenset())

    def _of_block(self, number: int) -> range:
        block = self.flow.graph.blocks[number]
        return range(block.first, block.end)


def times_apart(divergence: Divergence, how_often: Mapping[int, Often]) -> int:
    """Return how often a range's instructions are run apart: of those that are most of its time.

    Where trips of loops are not known, these are the loops: a long epilogue would outweigh them.
    """
    looped = {at: often for at, often in how_often.items() if often.looped}
    most = looped if len(looped) >= _SEVERAL else how_often
    return round(sum(often.times for at, often in most.items() if at in divergence.apart))


_SEVERAL = 8
"""Instructions in loops without known trips from which on these are most of a range's time."""


def chases(flow: Flow, chasing: Collection[int], instructions: Collection[int]) -> str:
    """Return the line of the first of some instructions whose address its last result decides."""
    first = min(({*chasing} & {*instructions}), default=None)
    return "" if first is None else line_of(flow, [first]) or NO_LINE


NO_LINE = "no line"
"""The line of an instruction of a kernel without line information."""


def _writers(flow: Flow, inside: Iterable[int]) -> defaultdict[int, list[int]]:
    """Return the instructions that write each register, in the order of the code."""
    found = defaultdict[int, list[int]](list)
    for at in inside:
        for register in members(flow.effects[at].writes & ~_PREDICATES):
            found[register].append(at)
    return found


def chasing_loads(uses: DefUse) -> frozenset[int]:
    """Return the loads in loops whose address is made of what they brought an iteration before.

    Through arithmetic alone: neither what another load brings nor predicates are followed. What a
    guard may leave counts as written: an address and the load from it are under one guard. But the
    last writer in the order of the code is none where another way leads past it.
    """
    flow, found = uses.flow, set[int]()
    for loop in flow.loops:
        inside = sorted(loop.body)
        writers = _writers(flow, inside)
        loads = (at for at in inside if flow.code.instructions[at].op in ("LD", "LDG"))
        found |= {at for at in loads if at not in found and _reaches_itself(flow, writers, at)}
    return frozenset(at for at in found if _is_its_source(uses, at))


def _is_its_source(uses: DefUse, load: int) -> bool:
    """Whether a load's address comes from its own result on some way through the code."""
    code, seen, work = uses.flow.code.instructions, set[int](), [load]
    while work:
        sources = uses.sources(work.pop(), ~_PREDICATES) - seen
        if load in sources:
            return True
        seen |= sources
        work += [one for one in sources if work_of(code[one]) not in _BRINGS]
    return False


def _reaches_itself(flow: Flow, writers: Mapping[int, list[int]], load: int) -> bool:
    """Whether a load's address comes from its own result, by the last writers of registers."""
    seen, work = set[int](), [load]
    while work:
        at = work.pop()
        for register in members(flow.effects[at].reads & ~_PREDICATES):
            if not (places := writers.get(register)):
                continue
            last = places[bisect_left(places, at) - 1]  # before it, or in the iteration before
            if last == load:
                return True
            if last not in seen and work_of(flow.code.instructions[last]) not in _BRINGS:
                seen.add(last)
                work.append(last)
    return False


_PREDICATES = span(P.first, P.count)
_BRINGS = (Work.LOAD, Work.ATOMIC, Work.SHARED, Work.LOCAL, Work.TENSOR)


def constants_apart(flow: Flow, values: LaneValues, how_often: Mapping[int, Often]) -> float:
    """Return how often constants are loaded at addresses that differ from lane to lane."""
    some = (
        often.expected
        for at, often in how_often.items()
        if flow.code.instructions[at].op == "LDC" and values.address(at).depends & LANE
    )
    return round(float(sum(some)), _DIGITS)
