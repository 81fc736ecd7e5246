"""``LaneValues``: addresses, conditions and trips that the threads of some warps compute.

They come from the code alone. One walk over the basic blocks in reverse postorder evaluates integer
arithmetic for the threads of some warps of some blocks. Each value carries what it depends on.
Values behind a load, and those of instructions that are not evaluated, are unknown; where paths
meet, the first path's value is taken. A loop's body is walked as its first iteration, and once more
as its second: a condition that compares numbers with constant steps says how often it goes round.
Parameters have the values that the caller gives, or assumed ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_

import numpy as np
from numpy.typing import NDArray

from ikp.sass.control_flow.flow import Flow, Loop
from ikp.sass.control_flow.graph import Block
from ikp.sass.dataflow.lane_arithmetic import Numbers
from ikp.sass.dataflow.lane_effects import execute, name_of
from ikp.sass.dataflow.lane_state import (
    DATA,
    FIRST_LOOP,
    GUESSED,
    LANE,
    LANES,
    LaunchValues,
    Threads,
    Value,
)
from ikp.sass.dataflow.lane_trips import LoopExit, exits_of, trips_of
from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.disassembly.effects import members
from ikp.sass.disassembly.listing import Instruction

_NOTED = "LD LDG LDS LDL LDSM ST STG STS STL STSM ATOM ATOMG ATOMS RED REDG LDGSTS SYNCS"
ACCESSES = frozenset(_NOTED.split())
"""Instructions whose address is noted."""
_FLOATING = "FADD FMUL FFMA FMNMX MUFU HADD2 HMUL2 HFMA2 DADD DMUL DFMA"
FLOATS = frozenset(_FLOATING.split())
"""Floating-point arithmetic: what its results depend on is noted."""
_INDEXED = "][R"
"""How a constant at an address in a register is written: that is noted, too."""

Mask = NDArray[np.bool_]
State = dict[str, Value]
"""Values, and the masks in ``_Seen``, have a row for each block: see ``Value``. What others get has
a number for each thread, in the order of blocks."""
_UNKNOWN = Value(None, 0)
_NOWHERE = (_UNKNOWN, _UNKNOWN, _UNKNOWN)


@dataclass
class _Seen:
    """What a walk notes."""

    accesses: dict[int, tuple[Value, Value, Value]] = field(default_factory=dict)
    jumps: dict[int, int] = field(default_factory=dict)  # what conditions depend on
    compared: dict[int, tuple[Value, Value]] = field(default_factory=dict)
    leaving: dict[int, State] = field(default_factory=dict)
    entered: dict[int, Mask] = field(default_factory=dict)  # by block: threads that come there
    uncertain: set[int] = field(default_factory=set)  # blocks whose condition is not known
    edges: dict[tuple[int, int], Mask] = field(default_factory=dict)
    floats: dict[int, int] = field(default_factory=dict)  # what results of arithmetic depend on


@dataclass(frozen=True)
class LaneValues:
    """The values of one kernel.

    Args:
        flow: the kernel.
        launch: how it was launched.
    """

    flow: Flow
    launch: LaunchValues

    def address(self, at: int) -> Value:
        """Return the address of an access, of each thread; of 64 bits, of shared memory 32.

        Unknown where no path leads to it.
        """
        return self._of_each(self._address(at))

    def _address(self, at: int) -> Value:
        return self._walked.accesses.get(at, _NOWHERE)[0]

    def _of_each(self, value: Value) -> Value:
        """Return a value with a number for each thread."""
        if value.bits is None:
            return value
        return value._replace(bits=np.broadcast_to(value.bits, self._extent).ravel())

    @cached_property
    def _extent(self) -> tuple[int, int]:
        """The blocks, and the threads of each."""
        shape = self.launch.shape
        return len(shape.numbers), shape.warps * LANES

    def active(self, at: int) -> Mask:
        """Return the threads that execute an access, as far as conditions are known."""
        guard = self._walked.accesses.get(at, _NOWHERE)[1].bits
        mask = self._mask(self.flow.graph.block(at))
        return (mask if guard is None else mask & (guard != 0)).ravel()

    def operand(self, at: int) -> Value:
        """Return the last operand of an access."""
        return self._of_each(self._walked.accesses.get(at, _NOWHERE)[2])

    def branch(self, at: int) -> int:
        """Return what a jump's condition depends on."""
        return self._walked.jumps.get(at, 0)

    def warps(self, at: int) -> float:
        """Return the share of warps that come to an instruction, where conditions are known."""
        mask = self._mask(self.flow.graph.block(at))
        return float(mask.reshape(-1, LANES).any(axis=1).mean())

    def executes(self, at: int) -> Mask | None:
        """Return the threads that execute an access; None where a condition is not known."""
        guard = self._walked.accesses.get(at, _NOWHERE)[1].bits
        block = self.flow.graph.block(at)
        mask = None if block in self._guessed else self._walked.entered.get(block)
        return None if guard is None or mask is None else (mask & (guard != 0)).ravel()

    def comes(self, block: int) -> Mask | None:
        """Return the threads that come to a basic block; None where a condition is not known."""
        mask = None if block in self._guessed else self._walked.entered.get(block)
        return None if mask is None else mask.ravel()

    def given(self, header: int, registers: int) -> int:
        """Return what some registers depend on as a loop begins, all together.

        Args:
            header: the index of the loop's first instruction.
            registers: bits of registers that no iteration writes.
        """
        graph, names = self.flow.graph, [name_of(each) for each in members(registers)]
        number = graph.block(header)
        outside = [b for b in graph.before[number] if b not in self.flow.bodies[number]]
        states = [self._walked.leaving[b] for b in outside if b in self._walked.leaving]
        return reduce(or_, (one[n].depends for one in states for n in names if n in one), 0)

    def compared(self, at: int, header: int) -> tuple[Value, Value, Value, Value] | None:
        """Return both numbers of a comparison in a loop, in its first and its second iteration."""
        first, again = self._walked.compared.get(at), self._seconds(header).compared.get(at)
        if first is None or again is None:
            return None
        left, right, then_left, then_right = map(self._of_each, (*first, *again))
        return left, right, then_left, then_right

    def is_guessed(self, at: int) -> bool:
        """Return whether it is not known which threads come to an instruction."""
        return self.flow.graph.block(at) in self._guessed

    def trips(self, header: int) -> float | None:
        """Return how often a warp goes round a loop, the mean; None where that is not known.

        Args:
            header: the index of the loop's first instruction.
        """
        return self._trips.get(header)

    def depends_on_loop(self, depends: int, header: int) -> bool:
        """Return whether a value depends on the iteration of a loop, by its header's index."""
        number = self._loops.get(header)
        return number is not None and bool(depends >> number & 1)

    @cached_property
    def _guessed(self) -> set[int]:
        """Blocks behind conditions that are not known for each thread, until all paths meet."""
        found = set[int]()
        for block in self._walked.uncertain:
            region = self.flow.until_joined(block)
            found |= {b for b in region if not self.flow.dominance.holds(b, block)}
        return found

    def moves(self, at: int, header: int) -> bool:
        """Return whether an access's address is another one in a loop's second iteration."""
        first = self._address(at)
        if not self.depends_on_loop(first.depends, header):
            return False
        again = self._seconds(header).accesses.get(at, _NOWHERE)[0]
        if first.bits is None or again.bits is None:
            return True
        return bool((first.bits != again.bits).any())

    def result(self, at: int, header: int) -> int:
        """Return what a result of floating-point arithmetic depends on, in a loop.

        Args:
            at: the instruction, one of ``FLOATS``.
            header: the index of the loop's first instruction.
        """
        return self._seconds(header).floats.get(at, DATA | LANE)

    def _seconds(self, header: int) -> _Seen:
        """Return the walk of a loop's second iteration, by the index of its first instruction."""
        if header not in self._again:
            self._again[header] = self._second(self.flow.graph.block(header))
        return self._again[header]

    @cached_property
    def _again(self) -> dict[int, _Seen]:
        return {}

    def _mask(self, block: int) -> Mask:
        found = self._walked.entered.get(block)
        return np.zeros(self._extent, bool) if found is None else found

    @cached_property
    def _loops(self) -> dict[int, int]:
        """The bit of each loop, by the index of its first instruction."""
        headers = sorted(each.header for each in self.flow.loops)
        return {header: FIRST_LOOP + n for n, header in enumerate(headers)}

    @cached_property
    def _carried(self) -> dict[int, set[str]]:
        """The registers that each loop hands from one iteration to the next, by its header."""
        live, effects = Liveness(self.flow).own, self.flow.effects
        found = {}
        for loop in self.flow.loops:
            written = 0
            for at in loop.body:
                written |= effects[at].writes
            found[loop.header] = {name_of(each) for each in members(written & live[loop.header])}
        return found

    @cached_property
    def _exits(self) -> dict[int, list[LoopExit] | None]:
        """How each loop is left, by its header; None where a condition is not understood."""
        return {loop.header: exits_of(self.flow, loop) for loop in self.flow.loops}

    @cached_property
    def _watched(self) -> frozenset[int]:
        """The comparisons of loops: those that these are left by, and others."""
        every = (each for some in self._exits.values() for each in some or ())
        found = {at for each in every for at in each.comparisons}
        inside = {at for loop in self.flow.loops for at in loop.body}
        code = self.flow.code.instructions
        return frozenset(found | {at for at in inside if code[at].op == "ISETP"})

    @cached_property
    def _walked(self) -> _Seen:
        seen = _Seen()
        for number in self.flow.graph.order:
            self._enter(number, seen)
            self._block(number, _met(*self._before(number, seen)), seen)
        return seen

    def _before(self, number: int, seen: _Seen) -> tuple[list[State], list[Mask | None]]:
        """Return the states that lead to a block, and the threads that take each way.

        Ways that no thread takes are left out.

        A division of 64 bits has a way of 32, and a call: its result is unknown, and it seldom
        runs.
        """
        some = [b for b in self.flow.graph.before[number] if b in seen.leaving]
        taken = [b for b in some if (way := seen.edges.get((b, number))) is None or way.any()]
        ways = taken or some
        return [seen.leaving[b] for b in ways], [seen.edges.get((b, number)) for b in ways]

    def _enter(self, number: int, seen: _Seen) -> None:
        """Note which threads come to a block."""
        before = self.flow.graph.before[number]
        masks = [seen.edges[b, number] for b in before if (b, number) in seen.edges]
        if not masks:
            seen.entered[number] = np.full(self._extent, not number)
            return
        seen.entered[number] = np.logical_or.reduce(masks)

    def _block(self, number: int, state: State, seen: _Seen) -> None:
        """Walk a block: its instructions, and the edges to the next ones."""
        block = self.flow.graph.blocks[number]
        if block.first < block.end and block.first in self._carried:
            self._carry(block.first, state)
        threads = Threads(self.launch, state)
        for at in range(block.first, block.end):
            each = self.flow.code.instructions[at]
            if each.never_runs:
                continue
            self._note(at, each, threads, seen)
            execute(threads, each, self.flow.effects[at])
            if each.op in FLOATS:
                seen.floats[at] = threads.read(each.operands[0]).depends
        seen.leaving[number] = state
        self._leave(number, threads, seen)

    def _note(self, at: int, each: Instruction, threads: Threads, seen: _Seen) -> None:
        """Keep what an instruction accesses, compares, or jumps by, before it is executed."""
        if each.op in ACCESSES or (each.op == "LDC" and _INDEXED in each.operands[1]):
            seen.accesses[at] = threads.address(each), threads.guard(each), threads.last(each)
        if at in self._watched:
            operands = each.operands
            seen.compared[at] = threads.read(operands[2]), threads.read(operands[3])
        if each.op in ("BRA", "EXIT"):
            seen.jumps[at] = threads.condition(each)

    def _leave(self, number: int, threads: Threads, seen: _Seen) -> None:
        """Note which threads take which edge."""
        mask = seen.entered.get(number)
        if mask is None:
            return
        guards = self._guards(self.flow.graph.blocks[number])
        for to in self.flow.graph.after[number]:
            guard = guards.get(to, "")
            value = threads.read(guard) if guard and guard != "?" else None
            taken = mask
            if value is not None and value.bits is not None:
                taken = mask & (value.bits != 0)
            elif guard:
                seen.uncertain.add(number)
            left = self._left(number, to)
            seen.edges[number, to] = seen.entered[left] if left is not None else taken

    def _guards(self, block: Block) -> dict[int, str]:
        """Return under which guard each following block is come to."""
        graph = self.flow.graph
        ways = graph.jumps.leaving.get(block.end - 1, ()) if block.first < block.end else ()
        fall = graph.falls.get(block.end - 1)
        return {
            (fall if to == block.end and fall is not None else graph.block(to)): guard
            for to, guard in ways
            if to < len(self.flow.code.instructions)
        }

    def _left(self, block: int, to: int) -> int | None:
        """Return the header of the outermost loop that an edge leaves: all its threads do so."""
        bodies = self.flow.bodies.items()
        found = [header for header, body in bodies if block in body and to not in body]
        return found[0] if found else None

    def _carry(self, header: int, state: State) -> None:
        """Make what a loop hands on depend on its iteration."""
        bit = 1 << self._loops[header]
        for name in self._carried[header]:
            value = state.get(name, _UNKNOWN)
            state[name] = Value(value.bits, value.depends | bit)

    @cached_property
    def _trips(self) -> dict[int, float]:
        found = {}
        for loop in self.flow.loops:
            exits = self._exits[loop.header]
            if exits and (trips := self._trips_of(loop, exits)) is not None:
                found[loop.header] = trips
        return found

    def _trips_of(self, loop: Loop, exits: list[LoopExit]) -> float | None:
        header = self.flow.graph.block(loop.header)
        first, again = self._walked, self._seconds(loop.header)
        mask = self._mask(header)
        counts = [trips_of(each, first.compared, again.compared) for each in exits]
        if not mask.any() or any(each is None for each in counts):
            return None
        fewest = reduce(np.minimum, [each for each in counts if each is not None])
        warps = np.where(mask, fewest, -1).reshape(-1, LANES).max(axis=1)
        return float(warps[warps >= 0].mean())

    def _second(self, header: int) -> _Seen:
        """Walk a loop's body as its second iteration."""
        graph, body = self.flow.graph, self.flow.bodies[header]
        seen = _Seen()
        for number in (each for each in graph.order if each in body):
            left = self._walked.leaving if number == header else seen.leaving
            before = [left[b] for b in graph.before[number] if b in body and b in left]
            self._block(number, _met(before), seen)
        return seen


def _met(states: list[State], masks: Sequence[Mask | None] = ()) -> State:
    """Return the state where paths meet: of each thread the values of its own way.

    Where that is not known, the first one's values. What a value depends on is that of all ways.
    """
    found = dict(states[0]) if states else {}
    for other, took in zip(states[1:], _taken(masks or [None] * len(states)), strict=True):
        for name, value in other.items():
            mine = found.get(name)
            if mine is None:
                found[name] = value
            elif mine is not value:
                found[name] = _either(mine, value, took)
    return found


def _taken(masks: Sequence[Mask | None]) -> Iterator[Mask | None]:
    """Yield which threads took each way but the first, and none before it; None if not known."""
    before = masks[0] if masks else None
    for way in masks[1:]:
        took = None if way is None or before is None else way & ~before
        before = None if way is None or before is None else way | before
        yield took


def _either(mine: Value, other: Value, took: Mask | None) -> Value:
    """Return the other value in the threads that took its way, where they are known."""
    depends, bits = mine.depends | other.depends, mine.bits
    if not _equal(bits, other.bits):
        depends |= GUESSED if depends & LANE else 0
        if took is not None and bits is not None and other.bits is not None:
            bits = np.where(took, other.bits, bits)
    return Value(bits, depends)


def _equal(one: Numbers | None, other: Numbers | None) -> bool:
    """Whether two known values are equal in all threads."""
    return one is not None and other is not None and bool((one == other).all())
