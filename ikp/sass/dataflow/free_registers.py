"""Registers, predicates and scoreboards free for inserted code; ``BAR.SYNC`` waits still pending.

Inserted code can reserve registers for values that it keeps.

A barrier is pending between its issue and its wait: it blocks a warp not where it issues, but where
the warp next reaches memory. Reads of the clock, arithmetic and branches go on (measured on an H100
with a skew that is known: for 37 cycles at least). A ``NOP`` is held back, too, once the barrier
has issued seven cycles before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ikp.sass.control_flow.graph import Graph
from ikp.sass.dataflow.hazards import ScoreboardHazards
from ikp.sass.dataflow.liveness import Liveness
from ikp.sass.dataflow.register_handover import registers_at
from ikp.sass.disassembly.effects import UP, UR, File, P, R, table
from ikp.sass.disassembly.listing import SCOREBOARDS

_BARRIERS = ("BAR.SYNC", "BAR.RED", "UCGABAR_WAIT", "ACQBULK")
_REACHES_MEMORY = ("LD", "ST", "ATOM", "RED", "SYNCS", "B2R", "UTMA", "UBLK")
_STAYS = ("LDC", "LDGDEPBAR", "REDUX")


def pending(graph: Graph) -> frozenset[int]:
    """Return the instructions before which a barrier's wait may still be to come."""
    code = graph.code
    barriers = list(code.having(lambda opcode: opcode.startswith(_BARRIERS)))
    if not barriers:
        return frozenset()
    # An instruction that a predicate switches off may not be held back.
    over = [at for at in code.having(_held_back) if not code.instructions[at].conditions]
    events = sorted([*product(barriers, (True,)), *product(over, (False,))])
    indices = [at for at, _ in events]
    into = _into(graph, events, indices)
    found: set[int] = set()
    for number, block in enumerate(graph.blocks):
        state, at = into[number], block.first
        for event, begins in events[_first(indices, at) : _first(indices, block.end)]:
            found.update(range(at, event + 1) if state else ())
            state, at = begins, event + 1
        found.update(range(at, block.end) if state else ())
    return frozenset(found)


def _held_back(opcode: str) -> bool:
    return opcode.startswith(_REACHES_MEMORY) and not opcode.startswith(_STAYS)


def _first(indices: Sequence[int], at: int) -> int:
    """Return how many of some instructions come before one."""
    return bisect_right(indices, at - 1)


def _into(graph: Graph, events: Sequence[tuple[int, bool]], indices: Sequence[int]) -> list[bool]:
    """Return for each block whether a barrier may be pending where it begins."""
    into = [False] * len(graph.blocks)
    work = list(range(len(graph.blocks)))
    while work:
        number = work.pop()
        block = graph.blocks[number]
        inside = events[_first(indices, block.first) : _first(indices, block.end)]
        if not (inside[-1][1] if inside else into[number]):
            continue
        for to in graph.after[number]:
            if not into[to]:
                into[to] = True
                work.append(to)
    return into


RESERVED = 2
"""Registers that a kernel's number counts and its code may not use."""
FIRST_UNIFORM = 4
"""No kernel for sm_90 that was seen names UR0 to UR3: their purpose is not known."""
_STACK = 1
"""The number of the register with the stack pointer."""
_UNIFORM = 63
"""How many uniform registers there are: from sm_100 on, more than are counted on here."""


@dataclass(frozen=True, slots=True)
class Spare:
    """The free registers, predicates and scoreboards at one or several points, by their numbers."""

    registers: tuple[int, ...]
    pairs: tuple[int, ...]  # the first of two that are free; a multiple of 2
    quads: tuple[int, ...]  # the first of four; a multiple of 4
    predicates: tuple[int, ...]
    uniform_registers: tuple[int, ...]
    uniform_predicates: tuple[int, ...]
    scoreboards: tuple[int, ...]  # that no instruction holds there, and no wait counts


@dataclass(frozen=True)
class FreeRegisters:
    """The free registers of one kernel. Instructions go by index; a place is right before one."""

    liveness: Liveness
    registers: int | None = None  # how many code may use; by default, what the kernel names
    rows: frozenset[int] | None = None  # the part in which reserved registers are kept; None: all
    _known: dict[tuple[bytes, int, bytes], Spare] = field(default_factory=dict)

    def counted(self, registers: int) -> FreeRegisters:
        """Return the free registers of the same kernel, of so many, with nothing reserved.

        Both share the hazards, which no count of registers changes.
        """
        made = FreeRegisters(self.liveness, registers)
        vars(made)["flight"] = self.flight  # as if asked for before
        return made

    def within(self, rows: frozenset[int]) -> FreeRegisters:
        """Return the same free registers, for code that reserves registers in a part of the kernel.

        Both share the tables of free and reserved registers.
        """
        made = replace(self, rows=rows)
        known = ("allowed", "flight", "kept", "free", "pending_barriers")
        vars(made).update({each: getattr(self, each) for each in known})  # as if asked for before
        return made

    def has(self, place: int) -> bool:
        """Return whether an instruction is in that part."""
        return self.rows is None or place in self.rows

    @cached_property
    def pending_barriers(self) -> frozenset[int]:
        """The instructions before which a barrier that has issued may not have been waited for."""
        return pending(self.liveness.flow.graph)

    def reserve(self, members: Iterable[int], rows: Iterable[int] | None = None) -> None:
        """Reserve registers or predicates for values that probe code keeps.

        A reserved register is in no ``Spare`` of these instructions, from any method.

        Args:
            members: the registers, by the numbers of their bits.
            rows: the instructions; by default, all of the part.
        """
        self._set_kept(members, rows, kept=True)

    def release(self, members: Iterable[int], rows: Iterable[int] | None = None) -> None:
        """End a reservation of ``reserve``."""
        self._set_kept(members, rows, kept=False)

    def restore(self, kept: NDArray[np.bool_]) -> None:
        """Go back to the reservations of a copy of ``kept`` that was made before."""
        self.kept[:] = kept
        self.free[:] = ~(self.liveness.table | self.flight.table | kept)

    def _set_kept(self, members: Iterable[int], rows: Iterable[int] | None, *, kept: bool) -> None:
        if rows is None:
            rows = range(len(self.kept)) if self.rows is None else sorted(self.rows)
        some = _together(list(rows))
        for each in members:
            self.kept[some, each] = kept
            needed = kept or self.liveness.table[some, each] | self.flight.table[some, each]
            self.free[some, each] = np.logical_not(needed)

    @cached_property
    def allowed(self) -> list[int]:
        """How many registers code may use before each instruction: from R0 on."""
        most = self.highest + 1 if self.registers is None else self.registers
        owned = registers_at(self.liveness.flow, most + RESERVED)
        return [each - RESERVED for each in owned]

    @cached_property
    def flight(self) -> ScoreboardHazards:
        """The scoreboard hazards, and those of fixed latency."""
        return ScoreboardHazards(self.liveness)

    @cached_property
    def kept(self) -> NDArray[np.bool_]:
        """Whether probe code keeps a value in a register: rows and columns as those of ``free``."""
        return np.zeros_like(self.liveness.table)

    @cached_property
    def free(self) -> NDArray[np.bool_]:
        """Whether a register is dead, nothing is under way to or from it, and probe code keeps
        nothing in it: rows of instructions, a column for each bit of ``resources``.
        """
        return ~(self.liveness.table | self.flight.table | self.kept)

    @cached_property
    def highest(self) -> int:
        """The number of the highest register that the kernel names, -1 for none."""
        named = [at for at in range(R.count) if self.liveness.used >> at & 1]
        return max(named, default=-1)

    @cached_property
    def unused_uniform(self) -> tuple[int, ...]:
        """The uniform registers that no instruction names, from ``FIRST_UNIFORM`` on."""
        return tuple(at for at in range(FIRST_UNIFORM, _UNIFORM) if self._unused[UR.first + at])

    @cached_property
    def unused_own(self) -> tuple[int, ...]:
        """Registers of each thread that no instruction names, and that no hand-over takes away."""
        rows = range(len(self.allowed)) if self.rows is None else self.rows
        numbers = range(min((self.allowed[row] for row in rows), default=0))
        return tuple(at for at in numbers if at != _STACK and self._unused[R.first + at])

    @cached_property
    def _unused(self) -> NDArray[np.bool_]:
        """For each bit of ``resources``, whether no instruction names it; in a part, also free."""
        if self.rows is None:
            unnamed: NDArray[np.bool_] = ~table([self.liveness.used])[0]
            return unnamed
        rows = sorted(self.rows)
        named = table([self.liveness.named(rows)])[0]
        free: NDArray[np.bool_] = ~named & self.free[rows].all(axis=0)
        return free

    def at(self, place: int) -> Spare:
        """Return the ``Spare`` before an instruction; see ``through``."""
        return self._spare(self.free[place], self.allowed[place], self.flight.taken[place])

    @property
    def entering(self) -> Spare:
        """The ``Spare`` before the first instruction.

        No register of a thread has a value there, though code may seem to read some that it never
        wrote.
        """
        if self.liveness.flow.graph.before[0]:
            return self.at(0)
        free = self.free[0].copy()
        free[R.columns] = ~self.kept[0, R.columns]
        free[R.first + _STACK] = False
        return self._spare(free, self.allowed[0], self.flight.taken[0])

    def through(self, places: Iterable[int]) -> Spare:
        """Return the ``Spare`` common to all of some instructions, which go by their indices."""
        rows = list(places)
        limit = min(map(self.allowed.__getitem__, rows), default=0)
        some = _together(rows)
        free = np.logical_and.reduce(self.free[some])
        taken = np.logical_or.reduce(self.flight.taken[some])
        return self._spare(free, limit, taken)

    def waited(self, place: int) -> Spare:
        """Return the ``Spare`` before an instruction, for code that waits for all scoreboards."""
        return self._waited(self.liveness.table[place], place)

    def left(self, place: int) -> Spare:
        """Return the ``Spare`` before an EXIT for threads that exit, and wait for all scoreboards.

        The other threads have registers of their own, and share the uniform ones. The exiting
        threads need the guard.
        """
        needed = table([self.liveness.effects[place].reads])[0]
        needed[UR.first :] |= self.liveness.table[place][UR.first :]
        return self._waited(needed, place)

    def _waited(self, needed: NDArray[np.bool_], place: int) -> Spare:
        late = table([self.flight.lasting(place)])[0]
        none = np.zeros(SCOREBOARDS, np.bool_)
        return self._spare(~(needed | late | self.kept[place]), self.allowed[place], none)

    def _spare(self, free: NDArray[np.bool_], limit: int, taken: NDArray[np.bool_]) -> Spare:
        """Return the ``Spare`` of one row of the tables; equal rows share one object."""
        key = free.tobytes(), limit, taken.tobytes()
        if (known := self._known.get(key)) is None:
            known = self._known[key] = self._listed(free, limit, taken)
        return known

    def _listed(self, free: NDArray[np.bool_], limit: int, taken: NDArray[np.bool_]) -> Spare:
        members = free.nonzero()[0].tolist()
        own = _numbers(members, R, limit)
        pairs = _doubled(own, 1)
        held = taken.tolist()
        return Spare(
            own,
            pairs,
            _doubled(pairs, 2),
            _numbers(members, P),
            _numbers(members, UR, _UNIFORM),
            _numbers(members, UP),
            tuple([b for b in range(SCOREBOARDS) if not held[b] and b not in self.flight.counted]),
        )


def _together(rows: list[int]) -> slice | list[int]:
    """Return the same rows as a slice, where they are consecutive: indexing then copies nothing."""
    if rows and rows[-1] - rows[0] + 1 == len(rows) and rows == sorted(rows):
        return slice(rows[0], rows[-1] + 1)
    return rows


def lone(registers: Sequence[int]) -> int:
    """Return the first of some registers whose neighbour is not among them, else the first of all.

    So pairs are left for values of 64 bits.
    """
    members = set(registers)
    return next((each for each in registers if each ^ 1 not in members), registers[0])


def _numbers(free: list[int], file: File, limit: int | None = None) -> tuple[int, ...]:
    """Return the registers of a file among some bits of ``resources``; below a limit, if any."""
    first, count = file.first, file.count if limit is None else min(file.count, limit)
    some = free[bisect_left(free, first) : bisect_left(free, first + count)]
    return tuple([each - first for each in some]) if first else tuple(some)


def _doubled(free: tuple[int, ...], length: int) -> tuple[int, ...]:
    """Return the first registers of aligned runs of twice a length, from those of runs of it."""
    members = set(free)
    odd = 2 * length - 1
    return tuple([each for each in free if not each & odd and each + length in members])


def aligned_pairs(registers: Collection[int]) -> list[int]:
    """Return the even ones of some registers with the next one among them: pairs of 64 bits."""
    return [each for each in registers if each % 2 == 0 and each + 1 in registers]
