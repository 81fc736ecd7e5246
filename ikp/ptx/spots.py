"""Probe regions of a kernel in its PTX: loops, iterations, waits and groups of operations.

An opcode says which landmark an operation is, and the title of a group of them. A load's wait is no
landmark here: only the machine code says which instruction waits for the load.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import groupby
from pathlib import PurePath

from ikp.probes.points import naming
from ikp.probes.points.loops import iteration, loop_ends, loop_lines
from ikp.probes.points.probe_points import Level, ProbeRegion, nested
from ikp.probes.points.sese_regions import Point, Regions
from ikp.ptx.body import Body, PtxFlow, Ways
from ikp.sass.disassembly.listing import Line
from ikp.sass.disassembly.opcodes import ISSUED, SPIN, Landmark

_HOW = r"(?:\.(?:relaxed|acquire|release|volatile|weak|gpu|sys|cta|cluster))*"
"""Qualifiers of memory order and scope. An address without a state space is generic: it may be
global."""
_OPERATIONS = {
    Landmark.PRODUCT: r"wgmma\.mma_async|mma\.|wmma\.mma|tcgen05\.mma",
    Landmark.PRODUCT_WAIT: r"wgmma\.wait_group",
    Landmark.COPY: r"cp\.async\.c[ag]\.shared",
    Landmark.COPY_WAIT: r"cp\.async\.(?:bulk\.)?wait_(?:group|all)",
    Landmark.TMA_LOAD: r"cp\.async\.bulk\.(?:tensor\.[\w:.]*?)?shared::\w+\.global",
    Landmark.TMA_STORE: r"cp\.(?:reduce\.)?async\.bulk\.(?:tensor\.[\w:.]*?)?global\.shared",
    Landmark.BARRIER: r"bar(?:rier)?(?:\.cta)?\.(?:sync|red)|barrier\.cluster\.wait",
    Landmark.MBARRIER_WAIT: r"mbarrier\.(?:try|test)_wait",
    Landmark.TENSOR_LOAD: r"tcgen05\.ld",
    Landmark.TENSOR_STORE: r"tcgen05\.st",
    Landmark.TENSOR_COPY: r"tcgen05\.cp",
    Landmark.LOAD: rf"ld{_HOW}\.(?:global|[vbusf]\d)",
    Landmark.STORE: rf"st{_HOW}\.(?:global|[vbusf]\d)",
}
_ANY = re.compile("|".join(f"(?P<{a.name}>{regex})" for a, regex in _OPERATIONS.items()))
_COMMITS = re.compile(r"wgmma\.commit_group")


@cache
def kind_of(opcode: str) -> Landmark | None:
    """Return the landmark that an operation with its types is; None for most."""
    found = _ANY.match(opcode)
    return Landmark[found.lastgroup] if found and found.lastgroup else None


def commits(opcode: str) -> bool:
    """Whether an operation commits a group of products, which are waited for together."""
    return _COMMITS.match(opcode) is not None


@cache
def title(opcode: str) -> str:
    """Return the title of a group of such operations, as for machine code."""
    kind = kind_of(opcode)
    if kind is Landmark.PRODUCT:
        family = opcode.partition(".")[0]
        return {"tcgen05": "tcgen05.mma", "wgmma": "wgmma"}.get(family, "mma")
    if kind is Landmark.COPY_WAIT:
        return "TMA store wait" if ".bulk." in opcode else "cp.async wait"
    words = {Landmark.COPY: "cp.async", Landmark.PRODUCT_WAIT: "wgmma wait"}
    return words.get(kind, kind.value) if kind else ""


@dataclass(frozen=True, slots=True)
class _Group:
    """Instructions of one kind and of the same lines, in one block."""

    kind: Landmark
    members: tuple[int, ...]
    end: Point


@dataclass(frozen=True)
class Spots:
    """The probe regions of one kernel."""

    body: Body
    flow: PtxFlow = field(init=False)
    regions: Regions = field(init=False)

    def __post_init__(self) -> None:
        """Build the control flow and its regions."""
        object.__setattr__(self, "flow", PtxFlow(self.body.code))
        object.__setattr__(self, "regions", Ways(self.flow))

    def at(self, level: Level) -> list[ProbeRegion]:
        """Return the regions of a level, in the order of their starts, outer regions first."""
        return [place for place, why in self._judged if not why and place.level <= level]

    @cached_property
    def left_out(self) -> list[str]:
        """Messages on the loops that are not recorded."""
        return [
            f"{naming.title('loop', [loop_lines(self.flow, header)])} is not recorded: {why}."
            for header in self.flow.bodies
            if (why := self._why_open(header)) and not self._tests(header)
        ]

    def _why_open(self, header: int) -> str:
        """Return why a loop has no single entry and exit; "" if it has."""
        if self.flow.bodies[header] & self.flow.graph.leaves:
            return "threads leave the kernel in it"
        return "" if loop_ends(self.flow, header) else "it is entered or left at several places"

    @cached_property
    def _judged(self) -> list[tuple[ProbeRegion, str]]:
        found = []
        for place in self._candidates():
            why = self.regions.why_not(place.start, place.end) if place.end else ""
            found.append((place, why))
        return nested(found)

    def _candidates(self) -> Iterator[ProbeRegion]:
        yield ProbeRegion("kernel", Level.KERNEL, self.body.code.name, Point(0), (), ())
        spinning = set[int]()
        for header in self.flow.bodies:
            tests = self._tests(header)
            spinning |= {*tests}
            yield from self._loop(header, tests)
        for group in self._groups():
            if not spinning.issuperset(group.members):
                yield self._group(group)

    def _loop(self, header: int, tests: tuple[int, ...]) -> Iterator[ProbeRegion]:
        """Yield a loop and its iteration; a loop that only tests a barrier is a wait for it."""
        ends, lines = loop_ends(self.flow, header), loop_lines(self.flow, header)
        if tests:
            if ends:
                yield self._place(Landmark.MBARRIER_WAIT.value, Level.WAITS, *ends, tests)
            return
        if ends:
            yield ProbeRegion(
                *("loop", Level.LOOPS, naming.title("loop", [lines]), ends[0], ends[1:], ()),
                lines=lines[:1],
            )
        if points := iteration(self.flow, header, self.regions):
            where = f" @{PurePath(lines[0].file).name}:{lines[0].number}" if lines else ""
            yield ProbeRegion(
                *("iteration", Level.LOOPS, f"iteration{where}", points[0], points[1:], ()),
                lines=lines[:1],
            )

    def _tests(self, header: int) -> tuple[int, ...]:
        """Return the tests of a barrier in a loop, if the loop only waits."""
        blocks = [self.flow.graph.blocks[block] for block in self.flow.bodies[header]]
        body = [at for block in blocks for at in range(block.first, block.end)]
        kinds = {at: kind_of(self.body.code.instructions[at].opcode) for at in body}
        if len(body) > SPIN or {*kinds.values()} - {None, Landmark.MBARRIER_WAIT}:
            return ()
        return tuple(sorted(at for at, kind in kinds.items() if kind))

    def _groups(self) -> Iterator[_Group]:
        """Yield the groups: in one basic block, no other landmark between them."""
        for number in sorted(self.flow.dominance.entered):
            block = self.flow.graph.blocks[number]
            members: list[int] = []
            kind: Landmark | None = None
            for at in range(block.first, block.end):
                opcode = self.body.code.instructions[at].opcode
                new = kind_of(opcode)
                if members and commits(opcode):
                    yield from self._cut(kind, members, Point(at, after=True))
                    members = []
                elif new and (new is not kind or new not in ISSUED):
                    yield from self._cut(kind, members)
                    members, kind = [at], new
                elif new:
                    members.append(at)
            yield from self._cut(kind, members)

    def _cut(
        self, kind: Landmark | None, members: Sequence[int], end: Point | None = None
    ) -> Iterator[_Group]:
        """Cut a group by its lines, where each line's instructions adjoin.

        Args:
            kind: their landmark.
            members: the instructions.
            end: the point behind the commit that closes them, if there is one.
        """
        if not members or kind is None:
            return
        runs = [[*run] for _, run in groupby(members, self._line)]
        if end is not None or len(runs) > len({self._line(run[0]) for run in runs}):
            runs = [[*members]]
        for run in runs:
            yield _Group(kind, tuple(run), end or Point(run[-1], after=True))

    def _line(self, at: int) -> Line | None:
        return next(iter(self.body.code.instructions[at].lines), None)

    def _group(self, group: _Group) -> ProbeRegion:
        what = title(self.body.code.instructions[group.members[0]].opcode)
        issued = group.kind in ISSUED
        if issued and len(group.members) > 1:
            what += f" x{len(group.members)}"
        level = Level.OPS if issued else Level.WAITS
        return self._place(what, level, Point(group.members[0]), group.end, group.members)

    def _place(
        self, what: str, level: Level, start: Point, end: Point, members: Sequence[int]
    ) -> ProbeRegion:
        chains = list(
            dict.fromkeys(c for at in members if (c := self.body.code.instructions[at].lines))
        )
        lines = tuple(dict.fromkeys(chain[0] for chain in chains))
        kind = kind_of(self.body.code.instructions[members[0]].opcode)
        note = naming.waited(chains) if kind is Landmark.MBARRIER_WAIT else ""
        name = naming.title(what, chains, f" ({note})" if note else "")
        return ProbeRegion(
            kind.value if kind else what, level, name, start, (end,), tuple(members), lines
        )
