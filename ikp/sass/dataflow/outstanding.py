"""Pending operations: the registers that they use until a wait, and what each wait awaits.

``under_way`` follows them forward over a kernel's flow. Waits for loads from global memory are
found by scoreboards and wait masks.

A warpgroup's products are committed together, and so are copies to shared memory (cp.async). A wait
says how many of the latest commits it leaves under way. So it awaits those of the others that the
wait before it did not. In a loop, commits and waits recur in each iteration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, reduce
from operator import or_
from typing import NamedTuple

import numpy as np

from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.liveness import with_calls
from ikp.sass.disassembly.effects import bits_of, members
from ikp.sass.disassembly.listing import NONE, SCOREBOARDS, Instruction, once
from ikp.sass.disassembly.opcodes import Landmark, landmark

PRODUCTS = SCOREBOARDS
"""The place in a ``State`` of warpgroups' products, after those of the scoreboards."""
OPERANDS = SCOREBOARDS + 1
"""The first of six places, one for each scoreboard: operands of instructions that take it for their
results alone. When the results are there, the operands have been read."""
QUEUES = ("STG", "STS", "LDS", "LDGSTS", "SHFL", "MUFU", "STSM", "LDSM")
"""Instructions that read their registers in the order of their issue, each kind apart."""
UNTOLD = OPERANDS + SCOREBOARDS
"""The first of the places of operands that are read late with no scoreboard. There is one for each
queue, which ends when a later instruction of that queue has read its operands. Another one is for
all other instructions: no wait ends it."""

State = tuple[int, ...]
"""For each place: the registers that are pending, as bits."""

_NOTHING: State = (0,) * (UNTOLD + len(QUEUES) + 1)
_COMMITS = ("LDGDEPBAR", "UTMACMDFLUSH")
_BOARD = re.compile(r"SB(\d)")
_ALL = re.compile(r"\{([\d,]+)\}")


class Transfer(NamedTuple):
    """The transfer function of an instruction: how it changes the state."""

    ends: int  # the places that it waits for, a bit each
    takes: list[tuple[int, int]]  # (place, bits) that are pending from then on
    joins: tuple[int, int] | None = None  # (from, to): pending bits that go to another place

    def __call__(self, state: State) -> State:
        """Return the state after the instruction."""
        now = list(state)
        for place in _ended(self.ends):
            now[place] = 0
        for place, bits in self.takes:
            now[place] |= bits
        if self.joins:
            place, to = self.joins
            now[to] |= now[place]
            now[place] = 0
        return tuple(now)


@cache
def _ended(places: int) -> tuple[int, ...]:
    """Return the places that a mask names."""
    return tuple(place for place in range(len(_NOTHING)) if places >> place & 1)


def under_way(flow: Flow, steps: dict[int, Transfer]) -> list[State]:
    """Return what may be pending before each instruction, its own waits not yet done."""
    states: list[State] = [_NOTHING] * len(flow.code.instructions)
    for block, state in zip(flow.graph.blocks, _entering(flow, steps), strict=True):
        now = state
        for at in range(block.first, block.end):
            states[at] = now
            if step := steps.get(at):
                now = step(now)
    return states


def _entering(flow: Flow, steps: dict[int, Transfer]) -> list[State]:
    """Return what may be pending where each block begins, on any path."""
    after, blocks = with_calls(flow), flow.graph.blocks
    inside = [[steps[at] for at in range(b.first, b.end) if at in steps] for b in blocks]
    entering = [_NOTHING] * len(blocks)
    work = list(range(len(blocks)))[::-1]
    while work:
        block = work.pop()
        now = entering[block]
        for step in inside[block]:
            now = step(now)
        for to in after[block]:
            merged = tuple(map(or_, entering[to], now))
            if merged != entering[to]:
                entering[to] = merged
                work.append(to)
    return entering


def queue(op: str) -> int:
    """Return the place of the operands that an instruction reads with no scoreboard."""
    return UNTOLD + (QUEUES.index(op) if op in QUEUES else len(QUEUES))


def committing(flow: Flow) -> int:
    """Return the scoreboards that count the groups of copies under way, a bit each."""
    controls, found = flow.code.controls, 0
    for at in flow.code.of(*_COMMITS):
        found |= 1 << int(controls.writes[at]) | 1 << int(controls.reads[at])
    return found & ((1 << SCOREBOARDS) - 1)


def named(rest: str) -> int:
    """Return the scoreboards that a wait names, a bit each."""
    if listed := _ALL.search(rest):
        return sum({1 << int(board) for board in listed[1].split(",")})
    return counting(rest)


def counting(rest: str) -> int:
    """Return the scoreboard that a wait counts down, as a bit; 0 where it waits for all to end."""
    found = _BOARD.search(rest)
    return 1 << int(found[1]) if found else 0


def awaited(opcode: str, rest: str) -> int:
    """Return the places that a counting wait ends, a bit each: none, if it counts not to zero."""
    if _ALL.search(rest):
        return named(rest)
    _, _, left = rest.partition(",")
    if left.strip() not in ("0x0", ""):
        return 0
    if opcode.startswith("WARPGROUP"):
        return 1 << PRODUCTS
    return named(rest)


@dataclass(frozen=True, slots=True)
class LoadWait:
    """A wait for loads from global memory."""

    at: int  # the instruction that waits before it is issued
    mask: int  # the scoreboards of those loads, a bit each
    loads: tuple[int, ...]  # the loads that it may wait for


@once
def load_waits(flow: Flow) -> list[LoadWait]:
    """Return the first waits for each load, on every path from it."""
    loads = flow.code.having(lambda opcode: landmark(opcode) is Landmark.LOAD)
    loads = [at for at in loads if not flow.code.instructions[at].never_runs]
    if not loads:
        return []
    states = under_way(flow, _steps(flow, loads))
    waits = flow.code.controls.waits.tolist()
    found = []
    for at in np.flatnonzero(flow.code.controls.waits).tolist():
        boards = [b for b, bits in enumerate(states[at][:-1]) if bits and waits[at] >> b & 1]
        if boards:
            bits = reduce(or_, map(states[at].__getitem__, boards))
            held = tuple(loads[n] for n in members(bits))
            found.append(LoadWait(at, bits_of(boards), held))
    return found


def _steps(flow: Flow, loads: list[int]) -> dict[int, Transfer]:
    """Return, for each load and each wait, its effect on the loads under way (a bit each)."""
    controls, code = flow.code.controls, flow.code
    writes = controls.writes.tolist()
    takes = {at: [(writes[at], 1 << n)] for n, at in enumerate(loads) if writes[at] != NONE}
    ends = {at: int(controls.waits[at]) for at in np.flatnonzero(controls.waits).tolist()}
    for at in code.having(lambda opcode: opcode.startswith("DEPBAR")):
        instruction = code.instructions[at]
        ends[at] = ends.get(at, 0) | awaited(instruction.opcode, instruction.rest)
    return {at: Transfer(ends.get(at, 0), takes.get(at, [])) for at in {*ends, *takes}}


class Issued(NamedTuple):
    """An awaited instruction, as it was issued in this iteration of the loop, or an earlier one."""

    at: int
    ago: int  # iterations


_COPY_COMMIT = "LDGDEPBAR"
_LEFT = re.compile(r"(?:SB0|gsb0),\s*(0x[0-9a-f]+)\s*$")


@dataclass(slots=True)
class _Queue:
    """Commits and waits of one kind, in the order of their code."""

    commits: list[tuple[int, ...]] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)  # (wait, commits that it ends)
    open: list[int] = field(default_factory=list)

    def wait(self, at: int, left: int) -> None:
        self.waits.append((at, len(self.commits) - left))

    def commit(self) -> None:
        self.commits.append(tuple(self.open))
        self.open = []

    def awaited(self, *, again: bool) -> Iterator[tuple[int, tuple[Issued, ...]]]:
        """Yield each wait with what it awaits; ``again``: in a loop, all of it recurs."""
        count = len(self.commits)
        before = self.waits[-1][1] - count if again and self.waits else 0
        for at, ended in self.waits:
            first = max(before, ended - count)
            numbers = [n for n in range(first, ended) if count and (again or n >= 0)]
            commits = [(-(n // count), self.commits[n % count]) for n in numbers]
            yield at, tuple(Issued(each, ago) for ago, commit in commits for each in commit)
            before = max(before, ended)


def awaited_commits(
    instructions: tuple[Instruction, ...], region: Callable[[int], int | None]
) -> dict[int, tuple[Issued, ...]]:
    """Return each counting wait -> the instructions it awaits; without those where none is known.

    Args:
        instructions: the kernel's.
        region: the innermost loop around an instruction; None for none.
    """
    queues = _Queues()
    for at, instruction in enumerate(instructions):
        if (of := _counted(instruction.opcode)) and not instruction.never_runs:
            queues.take(at, instruction, of, region(at))
    return queues.awaited()


@dataclass(slots=True)
class _Queues:
    """The queues of a kernel, one for each kind in each loop."""

    of_loops: dict[tuple[Landmark, int | None], _Queue] = field(default_factory=dict)
    latest: dict[Landmark, tuple[int, ...]] = field(default_factory=dict)  # commits, of any loop
    before: dict[int, tuple[Issued, ...]] = field(default_factory=dict)
    """Of each wait in a loop that has not committed: the latest commit before it."""

    def take(self, at: int, instruction: Instruction, of: Landmark, loop: int | None) -> None:
        """Take the next instruction that issues, commits or waits for a kind."""
        kind = landmark(instruction.opcode)
        queue = self.of_loops.setdefault((of, loop), _Queue())
        if kind in _IS_OF:
            if left := _LEFT.search(instruction.rest):
                queue.wait(at, int(left[1], 16))
                known = () if queue.commits else self.latest.get(of, ())
                self.before[at] = tuple(Issued(each, 0) for each in known)
        elif kind:
            queue.open.append(at)
        itself = of is Landmark.PRODUCT and "gsb0" in instruction.rest and kind is of
        if itself or instruction.opcode == _COPY_COMMIT:
            queue.commit()
            self.latest[of] = queue.commits[-1] or self.latest.get(of, ())

    def awaited(self) -> dict[int, tuple[Issued, ...]]:
        found = dict(self.before)
        for (_, loop), queue in self.of_loops.items():
            found.update((at, of) for at, of in queue.awaited(again=loop is not None) if of)
        return {at: members for at, members in found.items() if members}


@cache
def _counted(opcode: str) -> Landmark | None:
    """Return the kind that an instruction issues, commits or awaits, if waits for it count."""
    kind = Landmark.COPY if opcode == _COPY_COMMIT else landmark(opcode)
    of = _IS_OF.get(kind, kind) if kind else None
    return of if of in (Landmark.COPY, Landmark.PRODUCT) else None


_IS_OF = {Landmark.COPY_WAIT: Landmark.COPY, Landmark.PRODUCT_WAIT: Landmark.PRODUCT}
