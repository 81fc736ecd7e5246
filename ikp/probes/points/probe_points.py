"""Probe regions of a kernel, by level: kernel, loops, iterations, waits, operations, chosen lines.

Every region is entered at its start and left at its end, on every path (``sese_regions``), and two
of them are nested or apart: so their records are, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

from ikp.probes.points import naming
from ikp.probes.points.chosen_lines import ChosenLines
from ikp.probes.points.chosen_ranges import Choice, choices, named_in_source
from ikp.probes.points.groups import LandmarkGroup, groups
from ikp.probes.points.lines_of import AboutLines
from ikp.probes.points.loops import (
    ALLOCATES,
    LoopExits,
    Open,
    after_spinning,
    iteration,
    loop_ends,
    loop_lines,
    polled,
    waiting,
)
from ikp.probes.points.sese_regions import Point, Regions
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.outstanding import LoadWait, load_waits
from ikp.sass.disassembly.listing import Line
from ikp.sass.disassembly.opcodes import Landmark

_LOOPS = ("loop", "iteration")


class Level(IntEnum):
    """How much is recorded. Each level has the regions of all levels before it."""

    KERNEL = 0
    LOOPS = 1
    WAITS = 2
    OPS = 3


@dataclass(frozen=True, slots=True)
class ProbeRegion:
    """A region of code between probe points, with its kind, level and name."""

    kind: str  # "kernel", "loop", "iteration", "load wait", "lines", or a landmark's value
    level: Level
    name: str  # "wait for b_g @chunk.py:417"
    start: Point
    ends: tuple[Point, ...]  # one for each way out; none of the kernel: it ends at every exit
    holds: tuple[int, ...]  # the instructions that it is recorded for
    lines: tuple[Line, ...] = ()  # their source lines
    waits: int = 0  # scoreboards, a bit each: the end waits for them before it reads the clock
    within: frozenset[int] = frozenset()  # of several ends: the blocks between

    @property
    def end(self) -> Point | None:
        """The last of its ends in the order of the code."""
        return max(self.ends, default=None)


@dataclass(frozen=True)
class ProbeRegions:
    """The probe regions of one kernel.

    Args:
        flow: the kernel.
        ptx: its PTX; lines of a warpgroup's products, and of some loads, are right only with it.
        lines: chosen lines of its source, which have regions of their own at every level.
        functions: names of functions whose lines are chosen, too.
        named: whether ranges that the source names have regions of their own, too.
        rows: whether the threads of each warp are known to lie in one row of their block.
    """

    flow: Flow
    ptx: str = ""
    lines: Sequence[ChosenLines] = ()
    functions: Sequence[str] = ()
    named: bool = False
    rows: bool = False
    regions: Regions = field(init=False)
    origins: AboutLines = field(init=False)

    def __post_init__(self) -> None:
        """Share the regions of the control flow, and the source lines."""
        object.__setattr__(self, "regions", Regions(self.flow, self.rows))
        object.__setattr__(self, "origins", AboutLines(self.flow, self.ptx, self.regions))

    def at(self, level: Level) -> list[ProbeRegion]:
        """Return the regions of a level, in the order of their starts, outer regions first."""
        return [place for place in self.all if place.level <= level]

    @cached_property
    def all(self) -> list[ProbeRegion]:
        """All regions that can be recorded."""
        return [place for place, why in self._judged if not why]

    @cached_property
    def refused(self) -> list[tuple[ProbeRegion, str]]:
        """Regions that can't be recorded, and why."""
        return [(place, why) for place, why in self._judged if why]

    @cached_property
    def _judged(self) -> list[tuple[ProbeRegion, str]]:
        chosen = nested([(place, "") for place in self._chosen])
        kept = [place for place, why in chosen if not why]
        found = [(place, self._why_not(place, kept)) for place in self._candidates()]
        return [*(each for each in chosen if each[1]), *nested(found + [(p, "") for p in kept])]

    def _why_not(self, place: ProbeRegion, chosen: Sequence[ProbeRegion]) -> str:
        if place.end is None or place.within:
            return ""
        crossed = (f"it overlaps {each.name}" for each in chosen if _cross(place, each))
        return self.regions.why_not(place.start, place.end) or next(crossed, "")

    def _candidates(self) -> Iterator[ProbeRegion]:
        yield ProbeRegion("kernel", Level.KERNEL, self.flow.code.name, Point(0), (), ())
        spinning = set[int]()
        for header in self.flow.bodies:
            wait = waiting(self.flow, header)
            spinning |= set(wait)
            yield from self._loop(header, wait)
        yield from self._load_waits(spinning)
        for group in groups(self.flow, [wait.at for wait in self.waits]):
            if not spinning.issuperset(group.members):
                yield self._group(group)

    def _loop(self, header: int, wait: tuple[int, ...]) -> Iterator[ProbeRegion]:
        """Yield a loop and its iteration; a loop that only waits is a wait."""
        ends = loop_ends(self.flow, header)
        chain = self._loop_chain(header)
        lines, (name, iteration_name) = chain[:1], (naming.title(w, [chain]) for w in _LOOPS)
        if ends and wait:
            title = self._awaited(wait)
            yield self._place(Landmark.MBARRIER_WAIT.value, Level.WAITS, *ends, wait, title)
        elif isinstance(found := self._opened.get(header), Open):
            yield _open("loop", name, found, lines)
        elif ends:
            yield ProbeRegion("loop", Level.LOOPS, name, ends[0], ends[1:], (), lines)
        if wait:
            return
        if one := iteration(self.flow, header, self.regions):
            yield ProbeRegion("iteration", Level.LOOPS, iteration_name, one[0], one[1:], (), lines)
        elif isinstance(opened := self._loop_exits.iteration(header), Open):
            yield _open("iteration", iteration_name, opened, lines)

    def _loop_chain(self, header: int) -> tuple[Line, ...]:
        lines = self.origins.with_calls(loop_lines(self.flow, header))
        inside = self.flow.instructions(self.flow.bodies[header])
        return naming.called(lines, map(self.origins.own, inside))

    @cached_property
    def _loop_exits(self) -> LoopExits:
        return LoopExits(self.regions)

    @cached_property
    def _opened(self) -> dict[int, Open | str]:
        """Each loop without a single end: its region with all ends, or why there is none."""
        return {
            header: self._loop_exits.loop(header)
            for header in self.flow.bodies
            if not waiting(self.flow, header)
            if not (ends := loop_ends(self.flow, header)) or self.regions.why_not(*ends)
        }

    @cached_property
    def left_out(self) -> list[str]:
        """Messages on the loops that are not recorded."""
        messages = [
            f"{naming.title('loop', [self._loop_chain(header)])} is not recorded: {why}."
            for header, why in self._opened.items()
            if isinstance(why, str)
        ]
        return list(dict.fromkeys(messages))

    @cached_property
    def choices(self) -> list[Choice]:
        """The ranges of chosen lines, each with a message; for lines without one, the reason."""
        found = choices(self.flow, self.origins, self.waits, self.lines, self.functions)
        return list(found)

    @cached_property
    def named_ranges(self) -> list[Choice]:
        """The ranges that the source names, where they are wanted, in the same form."""
        found = named_in_source(self.flow, self.origins, self.waits)
        return list(found) if self.named else []

    @property
    def asked_for(self) -> list[Choice]:
        """The ranges of chosen lines, and those that the source names."""
        return [*self.choices, *self.named_ranges]

    @property
    def _chosen(self) -> list[ProbeRegion]:
        pieces = [each.piece for each in self.asked_for if each.piece]
        return [
            ProbeRegion(
                *("lines", Level.KERNEL, each.name, each.start, (each.end,), each.holds),
                waits=each.waits,
            )
            for each in pieces
        ]

    @cached_property
    def waits(self) -> list[LoadWait]:
        """The waits for loads."""
        return load_waits(self.flow)

    def _load_waits(self, spinning: set[int]) -> Iterator[ProbeRegion]:
        for wait in self.waits:
            if spinning.issuperset(wait.loads):
                continue
            chains = [self.origins.own(at) for at in wait.loads]
            what = f"wait for {naming.variable(chains) or 'load'}"
            yield ProbeRegion(
                "load wait",
                Level.WAITS,
                naming.title(what, chains),
                Point(wait.at),
                (Point(wait.at),),
                (wait.at,),
                _first(chains),
                wait.mask,
            )

    def _group(self, group: LandmarkGroup) -> ProbeRegion:
        level, end, title = Level.OPS if group.issued else Level.WAITS, group.end, group.title
        if group.kind is Landmark.MBARRIER_WAIT:
            end = after_spinning(self.flow, group.members[-1], self.regions)
            title = self._awaited(group.members)
        return self._place(group.kind.value, level, group.start, end, group.members, title)

    def _awaited(self, tests: Sequence[int]) -> str:
        """Return the title of tests of a barrier or a flag, by opcode or line; "" if not known."""
        instructions = self.flow.code.instructions
        if any(instructions[at].op == ALLOCATES for at in tests):
            return "tensor memory wait"
        if any(polled(instructions[at]) for at in tests):
            return "flag wait"
        lines = {instructions[at].lines[:1] for at in tests} - {()}
        return "tcgen05 wait" if lines & self._tcgen05 else ""

    @cached_property
    def _tcgen05(self) -> set[tuple[Line, ...]]:
        """The lines of products whose sums are in tensor memory."""
        code = self.flow.code
        products = code.having(
            lambda each: each.startswith("UTC") and "MMA" in each.partition(".")[0]
        )
        return {code.instructions[at].lines[:1] for at in products}

    def _place(
        self,
        kind: str,
        level: Level,
        start: Point,
        end: Point,
        members: Sequence[int],
        title: str = "",
    ) -> ProbeRegion:
        chains, note = self.origins.chains(members)
        if kind == Landmark.MBARRIER_WAIT.value and not note:
            note = naming.waited(chains)
        name = naming.title(title or kind, chains, f" ({note})" if note else "")
        return ProbeRegion(kind, level, name, start, (end,), tuple(members), _first(chains))


_FAR = 1 << 40
"""Behind all code."""


def marks(places: Sequence[ProbeRegion]) -> list[tuple[Point, ProbeRegion, bool]]:
    """Return (point, region, whether it opens) of all regions but kernels, in code order.

    At one point: regions that end there, inner ones first; those that begin and end there; those
    that begin there, outer ones first.
    """
    keyed = []
    for number, place in enumerate(sorted(places, key=_order)):
        inside = (place.start,) == place.ends
        if place.ends:
            keyed.append(((place.start, 1 if inside else 2, number, 0), place, True))
        close = (1, number, 1) if inside else (0, -number, 1)
        keyed += [((end, *close), place, False) for end in place.ends]
    keyed.sort(key=lambda item: item[0])
    return [(key[0], place, opens) for key, place, opens in keyed]


def _open(kind: str, name: str, found: Open, lines: tuple[Line, ...]) -> ProbeRegion:
    return ProbeRegion(
        kind, Level.LOOPS, name, found.start, found.ends, (), lines, within=found.within
    )


def _first(chains: Sequence[tuple[Line, ...]]) -> tuple[Line, ...]:
    return tuple(dict.fromkeys(chain[0] for chain in chains if chain))


def _order(place: ProbeRegion) -> tuple[Point, int, int]:
    """Return a key that sorts outer regions first: those that end later.

    An iteration with several ends holds the regions that begin where it does, a loop among them.
    """
    if place.within:
        return place.start, 0 if place.kind == "loop" else -_FAR, place.level
    end = place.end or Point(_FAR)
    return place.start, -(2 * end.index + end.after), place.level


def _cross(one: ProbeRegion, other: ProbeRegion) -> bool:
    """Whether two regions overlap, and neither is in the other."""
    first, second = sorted((one, other), key=_order)
    return not _ends_before(first, second.start) and _crosses(first, second)


def nested(judged: list[tuple[ProbeRegion, str]]) -> list[tuple[ProbeRegion, str]]:
    """Refuse the regions that overlap another one and neither lie in it nor hold it."""
    judged.sort(key=lambda item: _order(item[0]))
    open_places: list[ProbeRegion] = []
    found: list[tuple[ProbeRegion, str]] = []
    for place, why in judged:
        while open_places and _ends_before(open_places[-1], place.start):
            open_places.pop()
        if why or place.within:
            found.append((place, why))
            continue
        around = open_places[-1] if open_places else None
        if around is not None and _crosses(around, place):
            found.append((place, f"it overlaps {around.name}"))
        else:
            open_places.append(place)
            found.append((place, ""))
    return found


def _ends_before(place: ProbeRegion, point: Point) -> bool:
    return place.end is not None and place.end <= point


def _crosses(outer: ProbeRegion, inner: ProbeRegion) -> bool:
    return bool(outer.end and inner.end and inner.end > outer.end)
