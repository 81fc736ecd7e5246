"""Waits: instructions that wait for loads, or for counted groups of cp.async and wgmma.

Waits for loads from global memory are found by scoreboards and wait masks.

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
from ikp.sass.dataflow.outstanding import Transfer, awaited, under_way
from ikp.sass.disassembly.effects import bits_of, members
from ikp.sass.disassembly.listing import NONE, Instruction, once
from ikp.sass.disassembly.opcodes import Landmark, landmark


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


_COMMITS = "LDGDEPBAR"
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
        if itself or instruction.opcode == _COMMITS:
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
    kind = Landmark.COPY if opcode == _COMMITS else landmark(opcode)
    of = _IS_OF.get(kind, kind) if kind else None
    return of if of in (Landmark.COPY, Landmark.PRODUCT) else None


_IS_OF = {Landmark.COPY_WAIT: Landmark.COPY, Landmark.PRODUCT_WAIT: Landmark.PRODUCT}
