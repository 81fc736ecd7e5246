"""Instrumentation of one kernel: probes are placed at its probe points, entry and exits.

A record is made in registers that are free at its probe point; ``emission`` places the waits for
its store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import or_

from ikp.core.abi import Language
from ikp.core.regions import region_id
from ikp.probes.code import range_code, reserved_registers
from ikp.probes.code.header_code import HeaderValues
from ikp.probes.code.range_code import BatchPart
from ikp.probes.code.reserved_registers import Frame, Gathered, Scratch
from ikp.probes.placement.emission import Emitter
from ikp.probes.placement.entry_and_exits import Entrance, NoRoomError, leaving, unless_staying
from ikp.probes.placement.probe_sites import TAKEN, Site, SiteCode, StartSlot, in_place, start_slots
from ikp.probes.placement.record_batches import (
    BatchFinder,
    Gatherer,
    RecordBatch,
    check_gathered,
    margin,
    planned,
)
from ikp.probes.placement.register_choice import Lender
from ikp.probes.placement.scratch_registers import ScratchChooser
from ikp.probes.points.probe_points import ProbeRegion, marks
from ikp.probes.points.sese_regions import Point, Regions
from ikp.sass.assembly.assembler import NOP, Step, assemble, behind_barrier
from ikp.sass.assembly.chips import HOPPER, Chip
from ikp.sass.dataflow.free_registers import FreeRegisters
from ikp.sass.disassembly.listing import Instruction
from ikp.sass.insertion.displacement import Insertion
from ikp.sass.insertion.insert import OnEdge


@dataclass
class Instrumenter:
    """Inserts probes into one kernel.

    Args:
        room: the free registers.
        frame: the reserved registers.
        places: the probe regions to record, from ``ProbeRegions``.
        full: whether every warp is known to leave with all its threads, if there is one exit.
        chip: the chip that the kernel is for.
        regions: knows where all threads of a warp are; by default, from the code alone.
        gather: whether records may be gathered.
    """

    room: FreeRegisters
    frame: Frame
    places: list[ProbeRegion]
    full: bool = False
    chip: Chip = HOPPER
    regions: Regions | None = None
    gather: bool = False
    names: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    most: int | None = 0  # records that a warp makes; None where loops decide the number
    margin: int = 0  # how many it may write behind the last that it keeps
    _runs: dict[Site, SiteCode] = field(default_factory=dict)
    _chosen: dict[tuple[Site, bool], Scratch | str] = field(default_factory=dict)
    _batches: dict[Site, RecordBatch] = field(default_factory=dict)
    _leads: dict[Site, RecordBatch] = field(default_factory=dict)

    def insertions(self, name: str, language: Language) -> list[Insertion]:
        """Return all insertions: at the entry, at probe points and at exits.

        Args:
            name: the kernel's.
            language: the kernel language that it was written in.

        Raises:
            PatchError: there are too few registers for entry or exits.
        """
        self.names = [name]
        made = self.records()
        return [*self._entry(region_id(name), language), *made]

    def records(self) -> list[Insertion]:
        """Return the insertions at probe points and exits, where a warp has found its slot.

        Raises:
            PatchError: there are too few registers for the exits.
        """
        self._ranges()
        leaving = [(at, self._code[at]) for at in self.room.liveness.flow.code.of("EXIT")]
        exits = [(at, e) for at, e in leaving if not e.never_runs and self.room.has(at)]
        alone = self.full and len(exits) == 1 and not exits[0][1].conditions
        left = [self._exit(at, each, alone) for at, each in exits]
        writer = self._writer
        return [*writer.inline(), *writer.on_leaving(), *left]

    def alone(self, beside: int) -> Instrumenter:
        """Return an instrumenter of the same code that has each warp store its header only.

        Args:
            beside: the bytes of a slot beside its records: headers lie behind all slots then.
        """
        frame = replace(self.frame, blocks=None, behind=beside, gathers=False, threads=())
        return Instrumenter(self.room, frame, [], self.full, self.chip, self.regions)

    def assembled(self, steps: list[Step], board: int, settled: str = "RUP") -> tuple[int, ...]:
        """Return the words of probe code; see ``assemble``."""
        return tuple(assemble(self._fitted(steps), board, settled))

    @property
    def boards(self) -> int:
        """The scoreboards that stores of records hold, a bit each."""
        return reduce(or_, (each.scratch.busy for each in self._runs.values()), 0)

    def on_edges(self) -> list[OnEdge]:
        """Return the probe code on the edges of jumps, once ``insertions`` has chosen it all."""
        return self._writer.on_edges()

    @property
    def _writer(self) -> Emitter:
        late = self.chip.late
        runs, batches, leads = self._runs, self._batches, self._leads
        return Emitter(self.room, self._chooser, runs, batches, leads, self._fitted, late)

    @property
    def _code(self) -> Sequence[Instruction]:
        return self.room.liveness.flow.code.instructions

    def _ranges(self) -> None:
        ended = [each for each in self.places if each.ends]
        gathered = self._regions if self.gather else None
        gatherer = Gatherer.of(self._ending, self.room, self._chooser, gathered)
        kept = start_slots(ended, self._for_starts, self.room)
        self._share(gatherer)
        found = [each for each in ended if self._fits(each, kept)]
        stores = Counter(Site.of(end) for each in found for end in each.ends)
        check_gathered(self._batches.values(), self._ending, stores)
        begun = {Site.of(each.start) for each in found}
        scratches = {each: self._scratch(each, each in stores) for each in {*stores, *begun}}
        in_place(found, kept, scratches, self.room)
        parts, self._leads = planned(dict.fromkeys(self._batches.values()), stores, begun)
        self._mark_regions(found, kept, stores, parts)
        self._lead(stores)
        self.margin = margin(self._batches.values(), stores)
        self.names = list(dict.fromkeys(self.names))

    def _mark_regions(
        self,
        found: list[ProbeRegion],
        kept: Mapping[int, StartSlot | None],
        stores: Counter[Site],
        parts: dict[Site, Iterator[BatchPart]],
    ) -> None:
        """Insert the code that keeps each region's start, and records its end."""
        for point, place, opens in marks(found):
            site = Site.of(point)
            if site not in self._runs:
                self._runs[site] = SiteCode(
                    self._scratch(site, site in stores), stores=site in stores
                )
            home = kept[id(place)]
            assert home is not None  # noqa: S101 - for the type checker
            self._mark(point, place, opens, home, parts)
            if not opens:
                self._count(point)
                self.names.append(place.name)

    def _lead(self, stores: Counter[Site]) -> None:
        """Insert the code that leads each batch of records: thread, room and address."""
        for site, batch in self._leads.items():
            scratch, records = next(iter(batch.scratches.values())), batch.records(stores)
            steps, run = range_code.led(self.frame, scratch, records), self._runs[site]
            run.steps, run.led = [*steps, *run.steps], len(steps)

    def _mark(
        self,
        point: Point,
        place: ProbeRegion,
        opens: bool,
        home: StartSlot,
        parts: dict[Site, Iterator[BatchPart]],
    ) -> None:
        """Add to a point's probe the code that begins a region, or ends it."""
        site = Site.of(point)
        run, tag = self._runs[site], range_code.range_tag(region_id(place.name))
        if place.ends == (place.start,) and not run.scratch.piecemeal:  # only a wait
            if opens:
                part = next(parts[site])
                run.steps += range_code.wait(self.frame, run.scratch, tag, place.waits, part)
        elif opens and home.own:
            run.steps += range_code.start(home.number)
            run.kept |= home.written
        elif opens:
            register = run.scratch.last
            run.steps += [*range_code.start(register), *range_code.keep(home.number, register)]
        else:
            kept, part = (home.number, home.own), next(parts[site])
            first, *rest = range_code.end(self.frame, run.scratch, tag, kept, part)
            run.steps += [first.after(place.waits), *rest]
            run.begun |= home.written
            if range_code.stores_home(run.scratch, kept):
                run.stored |= home.written
            run.late |= home.late(place.start.index, site.index, self.room.liveness.flow)

    def _share(self, gatherer: Gatherer | None) -> None:
        """Let records of one block share the code for address and predicate, where they can."""
        leads = not self.chip.late
        found = BatchFinder(self._ending, self.room, self._chooser, leads, gatherer).found()
        if gatherer and any(isinstance(each.shared, Gathered) for each in found):
            self.frame = replace(self.frame, gathers=True, threads=gatherer.threads)
        for batch in found:
            self._chosen |= {(site, True): each for site, each in batch.scratches.items()}
            self._batches |= dict.fromkeys(batch.scratches, batch)

    def _count(self, point: Point) -> None:
        """Count a record that is made at a point."""
        flow = self.room.liveness.flow
        again = any(flow.graph.block(point.index) in body for body in flow.bodies.values())
        self.most = None if again or self.most is None else self.most + 1

    @property
    def _for_starts(self) -> list[int]:
        """Uniform registers that neither the kernel nor the frame uses."""
        return [each for each in self.room.unused_uniform if each not in self.frame.all]

    def _fits(self, place: ProbeRegion, kept: dict[int, StartSlot | None]) -> bool:
        """Return whether registers for a region's records are free; note where they are not."""
        why = "no register for its start is" if kept[id(place)] is None else ""
        for point, stores in ((place.start, False), *((end, True) for end in place.ends)):
            made = self._choices(Site.of(point), stores)
            why = why or (made if isinstance(made, str) else "")
        if why:
            self.notes.append(f"{place.name} is not recorded: {why} free there.")
        return not why

    def _scratch(self, site: Site, stores: bool) -> Scratch:
        made = self._choices(site, stores)
        assert not isinstance(made, str)  # noqa: S101 - for the type checker
        return made

    def _choices(self, site: Site, stores: bool) -> Scratch | str:
        if (site, stores) not in self._chosen:
            self._chosen[site, stores] = self._choose(site, stores)
        return self._chosen[site, stores]

    def _choose(self, site: Site, stores: bool) -> Scratch | str:
        if not stores:
            return self._chooser.for_start(site.index)
        if site.rank == TAKEN:  # no register may be shared with the code at the edge's target
            index = self._regions.lands(Point(site.index, taken=True))
            return self._chooser.for_record(index, alone=False)
        return self._chooser.for_record(site.index, self._alone(site))

    def _alone(self, site: Site) -> bool:
        """Whether no other probe comes between a record and the instruction behind it."""
        behind = not site.rank and Site(site.index, 1) in self._begun
        return len(self._ending[site]) == 1 and not behind

    @cached_property
    def _regions(self) -> Regions:
        return self.regions or Regions(self.room.liveness.flow)

    @cached_property
    def _ending(self) -> dict[Site, list[ProbeRegion]]:
        """The probe regions that end at each site."""
        found: dict[Site, list[ProbeRegion]] = {}
        for place in self.places:
            for end in place.ends:
                found.setdefault(Site.of(end), []).append(place)
        return found

    @cached_property
    def _begun(self) -> frozenset[Site]:
        """The sites where probe regions begin or end."""
        points = (p for each in self.places if each.ends for p in (each.start, *each.ends))
        return frozenset(map(Site.of, points))

    @cached_property
    def _chooser(self) -> ScratchChooser:
        ours = frozenset(site.index for site in self._begun)
        return ScratchChooser(self.room, ours, self.chip.late, self._lender, self.frame.near)

    @cached_property
    def _lender(self) -> Lender | None:
        """The finder of pairs for the descriptor of global memory; None where one is reserved."""
        return Lender(self.room, self._regions.others) if self.frame.lends else None

    def _entry(self, whole: int, language: Language) -> list[Insertion]:
        first = min((site.index for site in self._runs), default=len(self.room.free))
        entrance = Entrance(self.room, self.frame, self.assembled, self._lender)
        made = entrance.made(first, HeaderValues(whole, language, self.margin))
        if made is None:
            raise NoRoomError("it has too few registers for what records need at its entry.")
        return made

    def _fitted(self, steps: list[Step]) -> list[Step]:
        return self.chip.fitted(reserved_registers.fitted_to_threads(steps, self.frame.own))

    def _exit(self, at: int, instruction: Instruction, alone: bool) -> Insertion:
        """Return the insertion before an EXIT. It waits where stores still read all free registers.

        Args:
            at: the EXIT's index.
            instruction: the EXIT.
            alone: whether all threads of every warp leave there.
        """
        waits, board, steps = leaving(self.room, self.frame, at, alone, self._lender)
        if at in self.room.pending_barriers:
            steps = behind_barrier(steps)
        steps[0] = steps[0].after(waits)
        # The threads that an EXIT lets go on use these registers: all stores must have read them.
        steps += [NOP.after(1 << board)] if instruction.conditions else []
        steps = [*unless_staying(self.room, at, len(steps)), *steps]
        return Insertion(at, self.assembled(steps, board))
