"""Hazards: registers that an instruction under way has yet to write or read, by scoreboard or time.

A register may be dead and yet not be free. A load whose result is unused still writes it; a store
that was issued still reads it. Such an instruction takes a scoreboard, and the hazard ends with a
wait for that one.

A warpgroup's product (WGMMA) takes none: its registers are its own from ``WARPGROUP.ARRIVE`` until
the wait for all of them. From that instruction on, before the first product, the registers may be
written. A product was seen to overwrite a register that a store had not read yet. Yet its warp
waited for that store between ``WARPGROUP.ARRIVE`` and the product. Whether another warp's product
did it is not known.

No scoreboard reports the end of fixed-latency hazards. Most take a few cycles, less than any jump.
A warp's product on the tensor cores takes two dozen: its pending writes are followed across blocks.
A register of a product that no instruction reads is dead, and yet not free. A product reads for
some cycles, too: compilers overwrite its operands after seven or more.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from itertools import groupby
from operator import or_
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ikp.sass.control_flow.graph import Graph, reached
from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.dataflow.outstanding import (
    OPERANDS,
    PRODUCTS,
    QUEUES,
    UNTOLD,
    State,
    Transfer,
    awaited,
    committing,
    counting,
    queue,
    under_way,
)
from ikp.sass.disassembly.effects import BITS, Effects, P, bit, table
from ikp.sass.disassembly.listing import NONE, SCOREBOARDS, Instruction


@dataclass(frozen=True, slots=True)
class Given:
    """The registers that products read and write, a bit each."""

    reads: int
    writes: int


def given_up(liveness: Liveness) -> dict[int, Given]:
    """Return the registers of the products behind each ``WARPGROUP.ARRIVE``, by its index."""
    arriving = liveness.flow.code.having(lambda opcode: opcode.startswith("WARPGROUP.ARRIVE"))
    return {at: _behind(liveness, at) for at in arriving}


def _behind(liveness: Liveness, at: int) -> Given:
    """Return the registers of the products up to the next ``WARPGROUP`` instruction."""
    code, after = liveness.flow.code.instructions, liveness.flow.after
    behind = reached(after(at), after, lambda n: not code[n].opcode.startswith("WARPGROUP."))
    products = [liveness.effects[n] for n in behind if "GMMA" in code[n].opcode]
    return Given(
        reduce(or_, [each.reads for each in products], 0),
        reduce(or_, [each.writes for each in products], 0),
    )


_PIPELINE: Final = 16
"""Cycles after which an instruction has written, with a margin."""
_SLOW: Final = 64
"""The same of a product, or of a sum in 64 bits: compilers let 24 to 33 pass until they read it."""
_SLOWEST: Final = 256
"""The same of a product of 64-bit numbers: one begins 64 cycles after the other, and compilers let
128 pass until the next takes its sum. Most of these products have scoreboards.
"""
_TAKES_LONG: Final = re.compile(r"[A-Z]?MMA|D(ADD|MUL|FMA|SETP|MNMX)")

_READS: Final = 16
"""Cycles after which a product has read its operands, with a margin."""

_Pending = dict[int, int]
"""Sets of registers that are still to be written or read -> in how many cycles they are."""


def settling(liveness: Liveness) -> list[int]:
    """Return which registers are still to be written or read before each instruction, as bits."""
    code, effects, graph = liveness.flow.code, liveness.effects, liveness.flow.graph
    issued, lengths = _issued(liveness)
    made, own = _in_pipeline(liveness, issued, lengths)
    for at in code.having(_TAKES_LONG.match):
        number = graph.block(at)
        length, end = lengths[number], graph.blocks[number].end
        for mask, cycles in _lasting(code.instructions[at].op, effects[at]):
            until = issued[at] + cycles
            for behind in range(at + 1, bisect_left(issued, until, at + 1, end)):
                made[behind] |= mask
            if until > length:
                own[number][mask] = max(own[number].get(mask, 0), until - length)
    for block, entering in zip(graph.blocks, _entering(graph, own, lengths), strict=True):
        for mask, until in entering.items():
            for at in range(block.first, bisect_left(issued, until, block.first, block.end)):
                made[at] |= mask
    return made


def _in_pipeline(
    liveness: Liveness, issued: list[int], lengths: list[int]
) -> tuple[list[int], list[_Pending]]:
    """Return what the last instructions of a block write: before each one, and behind each block.

    Args:
        liveness: the kernel.
        issued: see ``_issued``.
        lengths: the same.
    """
    writes, blocks = [each.writes for each in liveness.effects], liveness.flow.graph.blocks
    made, own = [0] * len(writes), list[_Pending]()
    for block, length in zip(blocks, lengths, strict=True):
        for at in range(block.first + 1, block.end):
            since = bisect_right(issued, issued[at] - _PIPELINE, block.first, at)
            made[at] = reduce(or_, writes[since:at], 0)
        since = bisect_right(issued, length - _PIPELINE, block.first, block.end)
        last = (at for at in range(since, block.end) if writes[at])
        own.append({writes[at]: issued[at] + _PIPELINE - length for at in last})
    return made, own


def _issued(liveness: Liveness) -> tuple[list[int], list[int]]:
    """Return how many cycles after its block's first each instruction issues at the earliest, and
    how long each block takes.
    """
    stalls, issued, lengths = liveness.flow.code.controls.stalls.tolist(), [], []
    for block in liveness.flow.graph.blocks:
        now = 0
        for at in range(block.first, block.end):
            issued.append(now)
            now += max(stalls[at], 1)
        lengths.append(now)
    return issued, lengths


def _entering(graph: Graph, own: list[_Pending], lengths: list[int]) -> list[_Pending]:
    """Return the registers that are pending where each block begins, on any path.

    Args:
        graph: the blocks.
        own: the registers that each block's own instructions leave pending at its end.
        lengths: how many cycles each block takes.
    """
    entering: list[_Pending] = [{} for _ in own]
    work = list(range(len(own)))
    while work:
        block = work.pop()
        leaving, length = dict(own[block]), lengths[block]
        for mask, until in entering[block].items():
            if until - length > leaving.get(mask, 0):
                leaving[mask] = until - length
        for to in graph.after[block]:
            longer = {m: t for m, t in leaving.items() if t > entering[to].get(m, 0)}
            if longer:
                entering[to] |= longer
                work.append(to)
    return entering


def _lasting(op: str, effects: Effects) -> Iterator[tuple[int, int]]:
    """Yield the registers that a slow instruction writes, and those it reads, each with the cycles
    after which it has done so, with a margin.
    """
    yield effects.writes, _SLOWEST if op == "DMMA" else _SLOW
    yield effects.reads, _READS


_TAKEN = 1 << BITS
"""Marks a scoreboard that is taken, for any registers."""
_BOARDS = (1 << SCOREBOARDS) - 1
_LATE = ("ST", "RED", "ATOM", "LD", "SYNCS", "CCTL", "UTMA", "UBLK", "BAR", "SU", "TEX", "TLD")
"""Prefixes of instructions whose operands may be read long after the issue."""
_LATE_TOO = {
    *("SHFL", "MUFU", "F2I", "I2F", "F2F", "FRND", "POPC", "FLO", "BREV", "MATCH", "FCHK"),
    *("MOVM", "QSPC", "BMOV", "NANOSLEEP", "PIXLD", "DMMA"),
}
"""The same, by whole names: these wait in a queue, and take scoreboards for their operands."""


@dataclass(frozen=True)
class ScoreboardHazards:
    """The scoreboard hazards, and those of fixed latency, before each instruction of one kernel."""

    liveness: Liveness

    @cached_property
    def table(self) -> NDArray[np.bool_]:
        """Whether it is unsafe to overwrite a register: rows of instructions, a column for each bit
        of a register set.
        """
        sets: list[int] = []
        for state, count in self._runs:
            sets += [reduce(or_, state) & _TAKEN - 1] * count
        return table(map(or_, sets, self._soon))

    @cached_property
    def _runs(self) -> list[tuple[State, int]]:
        """The states, and before how many instructions in a row each holds: few change it."""
        return [(same[0], len(same)) for _, run in groupby(self.states, id) for same in [[*run]]]

    @cached_property
    def _soon(self) -> list[int]:
        """The fixed-latency hazards before each instruction, as bits."""
        return settling(self.liveness)

    @cached_property
    def taken(self) -> NDArray[np.bool_]:
        """Whether a scoreboard may be taken: rows of instructions, a column for each of six."""
        rows = [[bool(e & _TAKEN) for e in state[:SCOREBOARDS]] for state, _ in self._runs]
        counts = [count for _, count in self._runs]
        return np.repeat(np.array(rows, np.bool_).reshape(-1, SCOREBOARDS), counts, axis=0)

    def held(self, at: int) -> int:
        """Return the scoreboards that may be taken before an instruction, a bit each."""
        state = self.states[at]
        return sum(1 << board for board in range(SCOREBOARDS) if state[board] & _TAKEN)

    def late(self, at: int) -> int:
        """Return the registers of instructions that hold scoreboards, and of products, as bits.

        Operands with no scoreboard of their own are left out.
        """
        return reduce(or_, self.states[at][:OPERANDS]) & _TAKEN - 1

    def lasting(self, at: int) -> int:
        """Return the registers that are unsafe to overwrite though all scoreboards are awaited."""
        late = self.states[at][PRODUCTS]
        for each in self.states[at][UNTOLD:]:
            late |= each
        return (late | self._soon[at]) & (_TAKEN - 1)

    @cached_property
    def counted(self) -> frozenset[int]:
        """The scoreboards of copies that some wait counts: a plain wait waits for all the copies.

        In front of an allocation of tensor memory, a wait counts a scoreboard of no copies.
        """
        found, code = 0, self.liveness.flow.code
        for at in code.having(lambda opcode: opcode.startswith("DEPBAR")):
            found |= counting(code.instructions[at].rest)
        found &= committing(self.liveness.flow)
        return frozenset(board for board in range(SCOREBOARDS) if found >> board & 1)

    @cached_property
    def given(self) -> dict[int, Given]:
        """The registers that warps give to the products that follow, by ``WARPGROUP.ARRIVE``."""
        return given_up(self.liveness)

    @cached_property
    def _steps(self) -> dict[int, Transfer]:
        code = self.liveness.flow.code
        controls = code.controls
        columns = controls.writes, controls.reads, controls.waits
        writes, reads, waits = (each.tolist() for each in columns)
        boarded = (columns[0] != NONE) | (columns[1] != NONE) | (columns[2] != 0)
        changing = {*code.having(_changes)}
        steps: dict[int, Transfer] = {}
        for at in sorted({*np.flatnonzero(boarded).tolist(), *changing}):  # few instructions
            if writes[at] == reads[at] == NONE and at not in changing:
                steps[at] = _waiting(waits[at])
                continue
            instruction = code.instructions[at]
            ends, takes = self._begun(at, instruction)
            ends |= waits[at]
            takes += self._pending(at, instruction, writes[at], reads[at])
            if ends or takes:
                joins = _joins(instruction, writes[at], reads[at])
                steps[at] = Transfer(_with_operands(ends), takes, joins)
        return steps

    def _begun(self, at: int, instruction: Instruction) -> tuple[int, list[tuple[int, int]]]:
        """Return what a counting wait ends, and the products that an instruction begins."""
        effects, opcode = self.liveness.effects[at], instruction.opcode
        if opcode.startswith(("DEPBAR", "WARPGROUP.DEPBAR")):
            return awaited(opcode, instruction.rest), []
        if at in self.given:
            theirs = self.given[at]
            return 0, [(PRODUCTS, theirs.reads | theirs.writes | _TAKEN)]
        if "GMMA" in opcode and not instruction.guard.endswith("PT"):
            return 0, [(PRODUCTS, effects.reads | effects.writes | _TAKEN)]
        return 0, []

    def _pending(
        self, at: int, instruction: Instruction, writes: int, reads: int
    ) -> Iterator[tuple[int, int]]:
        """Yield (place, bits) of the results and operands that an instruction makes pending."""
        own = self.liveness.effects[at]
        operands = own.reads & ~_at_once(instruction)
        if writes != NONE:
            yield writes, own.writes | _TAKEN
            # Without a scoreboard for its operands, only its result shows that they were read.
            if reads == NONE:
                yield OPERANDS + writes, operands
        if reads != NONE:
            yield reads, operands | _TAKEN
        if writes == reads == NONE and _reads_late(instruction):
            yield queue(instruction.op), operands

    @cached_property
    def states(self) -> list[State]:
        """The pending registers before each instruction, its own waits not yet done."""
        return under_way(self.liveness.flow, self._steps)


@cache
def _waiting(boards: int) -> Transfer:
    """Return the step of an instruction that only waits."""
    return Transfer(_with_operands(boards), [])


def _with_operands(ends: int) -> int:
    """Return places that end, and those of the operands that end with the same scoreboards."""
    return ends | (ends & _BOARDS) << OPERANDS


def _joins(instruction: Instruction, writes: int, reads: int) -> tuple[int, int] | None:
    """Return (from, to) for earlier operands of a queue that an instruction's scoreboard covers."""
    if instruction.op not in QUEUES or instruction.guard or reads == writes == NONE:
        return None
    return queue(instruction.op), OPERANDS + (reads if reads != NONE else writes)


def _at_once(instruction: Instruction) -> int:
    """Return the registers that are read at an instruction's issue, which compilers overwrite at
    once: its guard, and the predicate by which a copy to shared memory is one of zeros.
    """
    if instruction.op == "LDGSTS":
        return P.all
    guard = instruction.guard.lstrip("!")
    return 1 << bit(guard) if guard[-1:].isdigit() else 0


def _reads_late(instruction: Instruction) -> bool:
    return _is_late(instruction.op) and not instruction.never_runs


def _is_late(op: str) -> bool:
    return op.startswith(_LATE) or op in _LATE_TOO


@cache
def _changes(opcode: str) -> bool:
    """Whether an instruction may begin or end a hazard, though it names no scoreboard."""
    late = _is_late(opcode.partition(".")[0])
    return late or "DEPBAR" in opcode or "GMMA" in opcode or opcode.startswith("WARPGROUP.")
