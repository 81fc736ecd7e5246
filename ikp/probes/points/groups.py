"""Groups of landmarks: successive ones of one kind, such as ``cp.async x8``, and clusters of chosen
lines.

A group lies in one basic block. A cluster has the landmarks of chosen lines that no landmark of
another line interrupts. Clusters are found loop by loop, in the order of the code: an inner loop is
one event to the code around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from ikp.probes.points.loops import after_spinning, loop_ends, loop_lines, waiting
from ikp.probes.points.sese_regions import Point, Regions
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.outstanding import LoadWait, committing, named
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


@dataclass(frozen=True, slots=True)
class ChosenLandmark:
    """A landmark of the chosen lines; a loop of which all landmarks are theirs is one, too."""

    start: Point
    end: Point
    kinds: tuple[Landmark, ...]
    members: tuple[int, ...]
    verb: str  # "issue", "wait", "barrier" or "loop"
    waits: int = 0  # scoreboards that the end waits for, a bit each


@dataclass(frozen=True)
class Clusters:
    """Finds the clusters in one kernel.

    Args:
        flow: the kernel.
        regions: its regions and loops.
        own: the instructions of the chosen lines.
        chosen: whether a line is one of them.
        waits: instruction -> the wait for loads before it.
    """

    flow: Flow
    regions: Regions
    own: frozenset[int]
    chosen: Callable[[Line], bool]
    waits: Mapping[int, LoadWait]

    def runs(self) -> Iterator[list[ChosenLandmark]]:
        """Yield the clusters."""
        for region in self.open:
            run: list[ChosenLandmark] = []
            for event in self._events(region):
                if event is not None:
                    run.append(event)
                elif run:
                    yield run
                    run = []
            if run:
                yield run

    @cached_property
    def open(self) -> list[int | None]:
        """The loops whose code is searched, and None for the code outside of all loops."""
        shut = self._whole | set(self._spins)
        loops = (loop for loop in self.flow.bodies if not shut & set(self._around(loop)))
        return [None, *loops]

    def items(self, region: int | None) -> Iterator[tuple[int, int | None]]:
        """Yield each instruction right in a loop, with None, and the first of each loop in it,
        with that loop.
        """
        seen: set[int] = set()
        for number, block in enumerate(self.flow.graph.blocks):
            around = self._around(self.regions.loop(number))
            if region is not None and region not in around:
                continue
            inner = around if region is None else around[: around.index(region)]
            if not inner:
                yield from ((at, None) for at in range(block.first, block.end))
            elif inner[-1] not in seen:
                seen.add(inner[-1])
                yield block.first, inner[-1]

    def instructions(self, loop: int) -> list[int]:
        """Return the instructions of a loop."""
        blocks = [self.flow.graph.blocks[block] for block in self.flow.bodies[loop]]
        return sorted(at for block in blocks for at in range(block.first, block.end))

    def landmark(self, at: int) -> Landmark | None:
        """Return an instruction's kind of landmark; None for padding."""
        instruction = self.flow.code.instructions[at]
        return None if instruction.never_runs else landmark(instruction.opcode)

    def _around(self, loop: int | None) -> list[int]:
        """Return a loop and those around it, the innermost first."""
        found = []
        while loop is not None:
            found.append(loop)
            loop = self.regions.parent(loop)
        return found

    def _events(self, region: int | None) -> Iterator[ChosenLandmark | None]:
        """Yield the landmarks in a loop; None for each of other lines."""
        for at, loop in self.items(region):
            if loop is not None:
                yield from self._loop(loop)
                continue
            if wait := self.waits.get(at):
                yield self._wait(wait) if self.own.intersection(wait.loads) else None
            if kind := self.landmark(at):
                yield self._one(at, kind) if at in self.own else None

    def _loop(self, loop: int) -> Iterator[ChosenLandmark | None]:
        """Yield a loop as one event, if all its landmarks are chosen; None if it has others."""
        body = self.instructions(loop)
        kinds = tuple(kind for at in body if (kind := self.landmark(at)))
        ends = loop_ends(self.flow, loop)
        if ends and loop in self._whole:
            yield ChosenLandmark(*ends, kinds, tuple(body), "loop")
        elif ends and self.own.intersection(self._spins.get(loop, ())):
            tests = self._spins[loop]
            flag = self.landmark(tests[0]) is Landmark.LOAD
            kind = Landmark.LOAD if flag else Landmark.MBARRIER_WAIT
            yield ChosenLandmark(*ends, (kind,), tests, "wait")
        elif kinds:
            yield None

    @cached_property
    def _spins(self) -> dict[int, tuple[int, ...]]:
        """The loops that only wait, and where they test."""
        found = {loop: waiting(self.flow, loop) for loop in self.flow.bodies}
        return {loop: tests for loop, tests in found.items() if tests}

    @cached_property
    def _whole(self) -> set[int]:
        """The loops whose own line is chosen, and that hold no landmark of others."""
        found = set()
        for loop in self.flow.bodies.keys() - self._spins.keys():
            landmarks = {at for at in self.instructions(loop) if self.landmark(at)}
            named = any(map(self.chosen, loop_lines(self.flow, loop)))
            if named and landmarks <= self.own and loop_ends(self.flow, loop):
                found.add(loop)
        return found

    def _one(self, at: int, kind: Landmark) -> ChosenLandmark:
        end = Point(at, after=True)
        if kind is Landmark.MBARRIER_WAIT:
            end = after_spinning(self.flow, at, self.regions)
        verb = "issue" if kind in ISSUED else "barrier" if kind is Landmark.BARRIER else "wait"
        return ChosenLandmark(Point(at), end, (kind,), (at,), verb)

    @staticmethod
    def _wait(wait: LoadWait) -> ChosenLandmark:
        here = Point(wait.at)
        return ChosenLandmark(here, here, (Landmark.LOAD,), (wait.at,), "wait", wait.mask)
