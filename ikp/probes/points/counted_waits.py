"""Counting waits for cp.async and wgmma groups: the committed instructions that each one awaits.

A warpgroup's products are committed together, and so are copies to shared memory (cp.async). A wait
says how many of the latest commits it leaves under way, and so, which ones it waits for: those that
the wait before it did not. In a loop, commits and waits recur in each iteration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from ikp.sass.disassembly.listing import Instruction
from ikp.sass.disassembly.opcodes import Landmark, landmark


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


def awaited(
    instructions: tuple[Instruction, ...], region: Callable[[int], int | None]
) -> dict[int, tuple[Issued, ...]]:
    """Return each counting wait -> the instructions it awaits; without those where none is known.

    Args:
        instructions: the kernel's.
        region: the innermost loop around an instruction; None for none.
    """
    queues: dict[tuple[Landmark, int | None], _Queue] = {}
    latest: dict[Landmark, tuple[int, ...]] = {}
    found: dict[int, tuple[Issued, ...]] = {}  # in a loop without commits: the latest before it
    for at, instruction in enumerate(instructions):
        if (of := _counted(instruction.opcode)) is None or instruction.never_runs:
            continue
        kind, commits = landmark(instruction.opcode), instruction.opcode == _COMMITS
        queue = queues.setdefault((of, region(at)), _Queue())
        if kind in _IS_OF:
            if left := _LEFT.search(instruction.rest):
                queue.wait(at, int(left[1], 16))
                known = () if queue.commits else latest.get(of, ())
                found[at] = tuple(Issued(each, 0) for each in known)
        elif kind:
            queue.open.append(at)
        if commits or (of is Landmark.PRODUCT and "gsb0" in instruction.rest and kind is of):
            queue.commit()
            latest[of] = queue.commits[-1] or latest.get(of, ())
    for (_, loop), queue in queues.items():
        found.update((at, of) for at, of in queue.awaited(again=loop is not None) if of)
    return {at: members for at, members in found.items() if members}


@cache
def _counted(opcode: str) -> Landmark | None:
    """Return the kind that an instruction issues, commits or awaits, if waits for it count."""
    kind = Landmark.COPY if opcode == _COMMITS else landmark(opcode)
    of = _IS_OF.get(kind, kind) if kind else None
    return of if of in (Landmark.COPY, Landmark.PRODUCT) else None


_IS_OF = {Landmark.COPY_WAIT: Landmark.COPY, Landmark.PRODUCT_WAIT: Landmark.PRODUCT}
