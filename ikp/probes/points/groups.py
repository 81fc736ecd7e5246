"""Groups of landmarks: successive ones of one kind in a basic block, such as ``cp.async x8``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from ikp.probes.points.sese_regions import Point
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.outstanding import committing, named
from ikp.sass.disassembly.listing import Line
from ikp.sass.disassembly.opcodes import ISSUED, Landmark, landmark


@dataclass(frozen=True, slots=True)
class LandmarkGroup:
    """Landmarks of one kind in one basic block."""

    kind: Landmark
    members: tuple[int, ...]
    title: str  # "cp.async x8"

    @property
    def issued(self) -> bool:
        """Whether they are issued here and complete later; else they wait."""
        return self.kind in ISSUED

    @property
    def start(self) -> Point:
        """Right before the first one."""
        return Point(self.members[0])

    @property
    def end(self) -> Point:
        """Right after the last one."""
        return Point(self.members[-1], after=True)


def groups(flow: Flow, cuts: Iterable[int]) -> list[LandmarkGroup]:
    """Return the groups: in one basic block, with no other landmark between them.

    A group is cut by its lines where each line's instructions adjoin; warpgroups' products are cut
    after each commit instead.

    Args:
        flow: the kernel.
        cuts: instructions before which no group goes on, because they wait.
    """
    found: list[LandmarkGroup] = []
    waits, copied = set(cuts), committing(flow)
    notable = sorted({*flow.code.having(landmark), *waits})
    for number, places in groupby(notable, flow.graph.block):
        if number not in flow.dominance.entered:
            continue
        members: list[tuple[int, Landmark]] = []
        for at in places:
            kind = _kind(flow, at, copied)
            if members and (at in waits or (kind and kind is not members[-1][1])):
                found += _of_lines(flow, members)
                members = []
            if kind:
                members.append((at, kind))
            if kind and kind not in ISSUED:
                found += _of_lines(flow, members)
                members = []
        found += _of_lines(flow, members)
    return found


def _kind(flow: Flow, at: int, copied: int) -> Landmark | None:
    """Return an instruction's kind of landmark; None also for one that never runs or only looks so.

    Args:
        flow: the kernel.
        at: the instruction.
        copied: the scoreboards of groups of copies, a bit each.
    """
    instruction = flow.code.instructions[at]
    kind = landmark(instruction.opcode)
    if instruction.never_runs:
        return None
    if kind is Landmark.COPY_WAIT and not named(instruction.rest) & copied:
        return None  # allocations of tensor memory have one in front of them
    return kind


def _of_lines(flow: Flow, members: list[tuple[int, Landmark]]) -> Iterator[LandmarkGroup]:
    """Cut a group by its lines, where each line's instructions adjoin."""
    if not members:
        return
    kind, indices = members[0][1], [at for at, _ in members]
    runs = [list(run) for _, run in groupby(indices, lambda at: _line(flow, at))]
    if kind is Landmark.PRODUCT and "GMMA" in flow.code.instructions[indices[0]].opcode:
        runs = list(_committed(flow, indices))  # its lines are wrong
    elif len(runs) > len({_line(flow, run[0]) for run in runs}):
        runs = [indices]
    for run in runs:
        yield LandmarkGroup(kind, tuple(run), _title(flow, kind, run))


def _committed(flow: Flow, indices: list[int]) -> Iterator[list[int]]:
    """Cut warpgroups' products after each that is committed: those are waited for together."""
    run: list[int] = []
    for at in indices:
        run.append(at)
        if "gsb" in flow.code.instructions[at].rest:
            yield run
            run = []
    if run:
        yield run


def _line(flow: Flow, at: int) -> Line | None:
    lines = flow.code.instructions[at].lines
    return lines[0] if lines else None


def _title(flow: Flow, kind: Landmark, run: list[int]) -> str:
    words = {
        Landmark.PRODUCT: _product(flow.code.instructions[run[0]].op),
        Landmark.PRODUCT_WAIT: "wgmma wait",
        Landmark.COPY: "cp.async",
    }
    word = words.get(kind, kind.value)
    if kind is Landmark.COPY_WAIT:
        word = counted_wait(flow, run[0])
    return f"{word} x{len(run)}" if kind in ISSUED and len(run) > 1 else word


def _product(op: str) -> str:
    if op.startswith("UTC"):
        return "tcgen05.mma"
    return "wgmma" if "GMMA" in op else "mma"


def counted_wait(flow: Flow, wait: int) -> str:
    """Return the title of a counting wait, by the last commit before it in the code."""
    instructions = flow.code.instructions
    if "{" in instructions[wait].rest:
        return "wait for all"
    for at in range(wait - 1, -1, -1):
        if instructions[at].opcode == "LDGDEPBAR":
            return "cp.async wait"
        if instructions[at].opcode == "UTMACMDFLUSH":
            return "TMA store wait"
    return "copy wait"
