"""Positions for probe code (``Site``, ``SiteCode``), and the register that keeps a range's start
between two.

That register is a start slot. A uniform register that the kernel never names is free in any code
between. Where these are used up, it is one of each thread's own that is free on every path from
start to end. In one block, where many are free, that is best: writing it takes one cycle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ikp.probes.code.reserved_registers import Scratch
from ikp.probes.placement.scratch_registers import used
from ikp.probes.points.probe_points import ProbeRegion, marks
from ikp.probes.points.sese_regions import Point, Regions
from ikp.sass.assembly.assembler import PT, Resource, Step
from ikp.sass.assembly.forms import CLOCK_TIME, UNIFORM_TIME
from ikp.sass.control_flow.flow import Flow
from ikp.sass.dataflow.free_registers import FreeRegisters, lone
from ikp.sass.disassembly.effects import R

TAKEN: Final = 2


class Site(NamedTuple):
    """A position for probe code: before an instruction, or on the edge of a jump."""

    index: int  # type: ignore[assignment]  # no code calls the tuple's ``index``
    rank: int  # threads that run it: 0: that fall there; 1: all; TAKEN: that jump from it, or leave

    @classmethod
    def of(cls, point: Point) -> Site:
        """Return the site of a probe point."""
        if point.taken:
            return cls(point.index, TAKEN)
        return cls(point.index + 1, 0) if point.after else cls(point.index, 1)


@dataclass(slots=True)
class SiteCode:
    """The probe code at one site."""

    scratch: Scratch
    steps: list[Step] = field(default_factory=list)
    stores: bool = False
    kept: int = 0  # threads' registers that starts are kept in, as bits
    begun: int = 0  # start slots of the ranges that end here, as bits
    stored: int = 0  # of these, those that are stored from there
    late: dict[Resource, int] = field(default_factory=dict)  # starts that are on their way, still

    led: int = 0  # how many steps compute the address and predicate of later records

    @property
    def settled(self) -> str:
        """The register files whose values must be there when the code is over: see ``assemble``.

        None where only clocks are read, into registers kept for them; nor where a gathered record
        waits for others: the probe that reads its words next reads a clock first.
        """
        if self.stores and self.scratch.gathered is not None:
            return "" if self.scratch.predicate == PT else "RUP"  # the cursor is read again soon
        return "RP" if self.stores or self._more else ""

    @property
    def clocks_alone(self) -> bool:
        """Whether the code only reads clocks into registers kept for them."""
        return not (self.stores or self.led or self._more)

    @property
    def _more(self) -> bool:
        """Whether the code has more steps than those, and than those in ``led``."""
        return len(self.steps) - self.led > self.kept.bit_count()


def written(run: SiteCode) -> int:
    """Return the threads' registers that a site's code writes, as bits, but for start slots."""
    saved = 0 if run.scratch.saved is None else 1 << R.first + run.scratch.saved
    return 1 << R.first + run.scratch.last | saved | (used(run.scratch) if run.stores else 0)


_PLENTY = 10
"""With so many free registers, a record has its six in a row though one keeps a start."""


@dataclass(frozen=True, slots=True)
class StartSlot:
    """A register that keeps the start of a range."""

    number: int
    own: bool = False  # whether each thread has it, and not the warp

    @property
    def written(self) -> int:
        """The thread's own register, as a bit; 0 for a uniform one."""
        return 1 << R.first + self.number if self.own else 0

    def late(self, begin: int, end: int, flow: Flow) -> dict[Resource, int]:
        """Return the cycles until the start is there, if the clock is read before one instruction,
        and the start is needed before another; nothing if it is there by then.
        """
        stalls = list[int]()
        if begin <= end and flow.graph.block(begin) == flow.graph.block(end):
            stalls = flow.code.controls.stalls[begin:end].tolist()
        copied = 0 if self.own else _copied(stalls)
        time = copied + UNIFORM_TIME if copied else CLOCK_TIME
        passed = max(copied + 1 if copied else 0, sum(stalls))  # the copy precedes all other code
        return {("R" if self.own else "U", self.number): time - passed} if time > passed else {}


def _copied(stalls: Sequence[int]) -> int:
    """Return the most cycles from a clock read to its copy to a uniform register.

    Instructions of the kernel run meanwhile, and the last of them may hold the copy back longer.
    """
    now = 1
    for stall in stalls:
        if now >= CLOCK_TIME:
            break
        now += max(stall, 1)
    return max(now, CLOCK_TIME)


def start_slots(
    places: Sequence[ProbeRegion], uniform: Sequence[int], room: FreeRegisters
) -> dict[int, StartSlot | None]:
    """Return the start slot of each probe region, by its id: None where there is no register.

    Threads' own registers that are taken are reserved in ``room``.

    Args:
        places: the probe regions to record.
        uniform: uniform registers that are free throughout. Nested regions have different ones.
        room: the free registers.
    """
    made: dict[int, StartSlot | None] = {}
    regions = Regions(room.liveness.flow)
    depths = _depths(places, regions)
    for _, place, opens in marks(places):
        if not opens:
            continue
        depth = depths[id(place)]
        if near := _near(place, regions, room):
            made[id(place)] = near
        elif depth < len(uniform):
            made[id(place)] = StartSlot(uniform[depth])
        else:
            made[id(place)] = _taken(place, regions, room)
    return made


def _depths(places: Sequence[ProbeRegion], regions: Regions) -> dict[int, int]:
    """Return for each region, by its id, how many others may be open where it begins."""
    in_rows: dict[int, int] = {}
    around: list[ProbeRegion] = []
    for _, place, opens in marks(places):
        if opens:
            in_rows[id(place)] = len(around)
        if not place.within:
            (around.append if opens else around.remove)(place)
    scattered = [each for each in places if each.within]
    return {id(each): _depth(each, in_rows, scattered, regions) for each in places if each.ends}


def _depth(
    place: ProbeRegion,
    in_rows: Mapping[int, int],
    scattered: Sequence[ProbeRegion],
    regions: Regions,
) -> int:
    """Return how many regions may be open where one begins.

    Args:
        place: the region.
        in_rows: for each region, by its id, how many open ones have a single end.
        scattered: the regions with several ends.
        regions: the kernel's control flow.
    """
    begins = regions.block(place.start)
    outer = [each for each in scattered if each is not place and begins in each.within]
    depths = [_depth(each, in_rows, scattered, regions) + 1 for each in outer]
    return max([in_rows[id(place)] + len(outer), *depths])


def _near(place: ProbeRegion, regions: Regions, room: FreeRegisters) -> StartSlot | None:
    """Return a thread's register for a region within one block, where many are free.

    To copy a clock to a uniform register, a warp waits 7 cycles for the clock.
    """
    if len(place.ends) != 1 or place.within or place.ends == (place.start,):
        return None
    blocks = {regions.block(place.start), regions.block(place.ends[0])}
    return _taken(place, regions, room, _PLENTY) if len(blocks) == 1 else None


def _taken(
    place: ProbeRegion, regions: Regions, room: FreeRegisters, least: int = 1
) -> StartSlot | None:
    """Return a thread's register that is free from a region's start to its end, and reserve it.

    Args:
        place: the region.
        regions: the kernel's control flow.
        room: the free registers.
        least: how many must be free.
    """
    last = len(room.free) - 1
    inside = regions.inside(place.start, place.ends, place.within)
    liveness = room.liveness
    if not liveness.flow.graph.jumps.calls.keys().isdisjoint(inside):
        return None
    ends = [regions.lands(each) for each in (place.start, *place.ends)]
    rows = sorted({*inside, *(min(end, last) for end in ends)})
    named = liveness.named(inside)
    free = [each for each in room.through(rows).registers if not named >> R.first + each & 1]
    if len(free) < least:
        return None
    number = lone(free)
    room.reserve([R.first + number], rows)
    return StartSlot(number, own=True)


def in_place(
    places: Sequence[ProbeRegion],
    kept: dict[int, StartSlot | None],
    scratches: Mapping[Site, Scratch],
    room: FreeRegisters,
) -> None:
    """Move start slots to the register of the start in the record's words, where that is free.

    Args:
        places: the probe regions to record.
        kept: the start slot of each region, by its id; changed.
        scratches: the scratch registers of each site.
        room: the free registers.
    """
    regions = Regions(room.liveness.flow)
    ends = Counter(Site.of(end) for each in places for end in each.ends)
    sites = sorted(scratches)
    for place in places:
        home, site = kept[id(place)], Site.of(place.ends[0])
        scratch = scratches[site]
        near = len(place.ends) == ends[site] == 1 and place.ends[0] > place.start
        if home is None or not home.own or not near or not _has_start(site, scratch):
            continue
        if regions.block(place.start) != regions.block(place.ends[0]):
            continue
        better = StartSlot(scratch.start, own=True)
        begun = Site.of(place.start)
        first = max(0, bisect_left(sites, begun) - 1)
        others = (scratches[at] for at in sites[first : bisect_left(sites, site)])
        rows = range(begun.index, min(site.index, len(room.free) - 1) + 1)
        if any(better.written & (used(each) | 1 << R.first + each.last) for each in others):
            continue
        if _left_alone(better.number, rows, room):
            room.release([R.first + home.number], rows)
            room.reserve([R.first + better.number], rows)
            kept[id(place)] = better


def _has_start(site: Site, scratch: Scratch) -> bool:
    """Return whether the record's words are in registers in a row, the start's among them."""
    return site.rank != TAKEN and scratch.apart is None and not scratch.piecemeal


def _left_alone(number: int, rows: range, room: FreeRegisters) -> bool:
    """Whether a register is free before all these instructions, and none but the last names it."""
    named = room.liveness.named(rows[:-1])
    return not named >> R.first + number & 1 and bool(room.free[rows, R.first + number].all())
